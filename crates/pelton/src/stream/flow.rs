//! When a program that writes faster than its peer reads is told to pause.

use std::error::Error;
use std::fmt;

/// The limits of a write queue, in bytes, and whether its writer was told to pause.
///
/// The writer pauses when more than `high` bytes wait and resumes when at most `low` are left:
/// the distance between the two keeps it from doing both at every write. The rule of the limits
/// is that of asyncio (`asyncio/transports.py`, `_set_write_buffer_limits`).
///
/// # Examples
///
/// ```
/// use pelton::stream::FlowControl;
///
/// let mut flow = FlowControl::new();
/// assert_eq!(flow.limits(), (16 * 1024, 64 * 1024));
/// assert!(!flow.on_grow(64 * 1024));
/// assert!(flow.on_grow(64 * 1024 + 1), "pause now");
/// assert!(!flow.on_grow(1 << 20), "and not again");
/// assert!(!flow.on_shrink(16 * 1024 + 1));
/// assert!(flow.on_shrink(16 * 1024), "resume now");
/// ```
#[derive(Clone, Debug)]
pub struct FlowControl {
    high: usize,
    low: usize,
    paused: bool,
}

impl FlowControl {
    /// The usual limits: pause above 64 KiB, resume at 16 KiB.
    pub const fn new() -> Self {
        Self { high: DEFAULT_HIGH, low: DEFAULT_HIGH / 4, paused: false }
    }

    /// Sets the limits. `high` is four times `low` if it is left out, `low` a quarter of `high`;
    /// without either they are the usual ones.
    ///
    /// The writer is not told here: a caller that has bytes waiting asks
    /// [`on_grow`](Self::on_grow) after.
    ///
    /// # Errors
    ///
    /// If `high` is below `low`; the limits stay as they were.
    pub const fn set_limits(
        &mut self,
        high: Option<usize>,
        low: Option<usize>,
    ) -> Result<(), LimitsError> {
        let high = match (high, low) {
            (Some(high), _) => high,
            (None, Some(low)) => low.saturating_mul(4),
            (None, None) => DEFAULT_HIGH,
        };
        let low = match low {
            Some(low) => low,
            None => high / 4,
        };
        if high < low {
            return Err(LimitsError { high, low });
        }
        self.high = high;
        self.low = low;
        Ok(())
    }

    /// The limits, `(low, high)`.
    pub const fn limits(&self) -> (usize, usize) {
        (self.low, self.high)
    }

    /// Told that `size` bytes wait, after a write; true if the writer is to be told to pause, once
    /// for each time that the limit is crossed.
    pub const fn on_grow(&mut self, size: usize) -> bool {
        let crossed = !self.paused && size > self.high;
        self.paused |= crossed;
        crossed
    }

    /// Told that `size` bytes are left; true if the writer is to be told to resume, once for each
    /// time that it was told to pause.
    pub const fn on_shrink(&mut self, size: usize) -> bool {
        let crossed = self.paused && size <= self.low;
        self.paused &= !crossed;
        crossed
    }

    /// Whether the writer was told to pause, and not yet to resume.
    pub const fn is_paused(&self) -> bool {
        self.paused
    }
}

impl Default for FlowControl {
    fn default() -> Self {
        Self::new()
    }
}

/// The caller asked for limits in the wrong order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitsError {
    /// The high limit, in bytes, asked for or derived from the low one.
    pub high: usize,
    /// The low limit, in bytes, asked for or derived from the high one.
    pub low: usize,
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "high ({}) must be >= low ({}) must be >= 0", self.high, self.low)
    }
}

impl Error for LimitsError {}

const DEFAULT_HIGH: usize = 64 * 1024;

#[cfg(all(test, not(loom)))]
mod tests;
