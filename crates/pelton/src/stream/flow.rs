//! Flow control: when a writer must pause, and when it may go on.

use std::fmt;

/// The default high mark: 64 KiB.
pub const HIGH: usize = 64 * 1024;

/// Two marks on the length of a write queue, in bytes.
///
/// A writer is told to pause once when the queue grows above the high mark, and to go on once
/// when it has shrunk to the low mark.
#[derive(Debug)]
pub struct FlowControl {
    high: usize,
    low: usize,
    paused: bool,
}

/// The low mark was above the high one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsError {
    /// The high mark asked for, in bytes.
    pub high: usize,
    /// The low mark asked for, in bytes.
    pub low: usize,
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "high ({}) must be >= low ({}) must be >= 0", self.high, self.low)
    }
}

impl std::error::Error for LimitsError {}

impl FlowControl {
    /// High mark 64 KiB, low mark 16 KiB.
    #[must_use]
    pub const fn new() -> Self {
        Self { high: HIGH, low: HIGH / 4, paused: false }
    }

    /// The low and the high mark.
    #[must_use]
    pub const fn limits(&self) -> (usize, usize) {
        (self.low, self.high)
    }

    /// Whether the writer is told to pause.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.paused
    }

    /// Sets the marks. Without a high mark it is four times the low one, or the default; without
    /// a low mark it is a quarter of the high one.
    ///
    /// # Errors
    /// If the low mark is above the high one; the marks stay as they were.
    pub fn set_limits(
        &mut self,
        high: Option<usize>,
        low: Option<usize>,
    ) -> Result<(), LimitsError> {
        let high = high.unwrap_or_else(|| low.map_or(HIGH, |low| low.saturating_mul(4)));
        let low = low.unwrap_or(high / 4);
        if low > high {
            return Err(LimitsError { high, low });
        }
        (self.high, self.low) = (high, low);
        Ok(())
    }

    /// The queue has grown to `queued` bytes: true if the writer is to pause now.
    pub const fn on_grow(&mut self, queued: usize) -> bool {
        let pause = !self.paused && queued > self.high;
        self.paused |= pause;
        pause
    }

    /// The queue has shrunk to `queued` bytes: true if the writer may go on now.
    pub const fn on_shrink(&mut self, queued: usize) -> bool {
        let resume = self.paused && queued <= self.low;
        if resume {
            self.paused = false;
        }
        resume
    }
}

impl Default for FlowControl {
    fn default() -> Self {
        Self::new()
    }
}
