//! The limits of a buffer, as Python gives and gets them.
//!
//! CPython: `asyncio/transports.py`, `_set_write_buffer_limits`, and `asyncio/sslproto.py`,
//! `add_flowcontrol_defaults`.

use pelton::stream::FlowControl;

use crate::ffi::{Keywords, Obj, Raised, Ref, Result};
use crate::names;

/// The usual high mark of a write buffer, in bytes. CPython: `transports._FlowControlMixin`.
pub(crate) const WRITE_HIGH: usize = 64 * 1024;

/// Bytes: above `high` the writer pauses, at `low` it goes on. `low` is at most `high`.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    low: usize,
    high: usize,
}

impl Limits {
    /// The limits that a high mark alone gives.
    pub(crate) const fn below(high: usize) -> Self {
        Self { low: high / 4, high }
    }

    /// Reads the arguments `(high=None, low=None)` of `method`; `ValueError` if they are in the
    /// wrong order or negative. `default_high` stands where neither is given.
    pub(crate) fn read(
        method: &str,
        args: &[Obj<'_>],
        keywords: Keywords<'_>,
        default_high: usize,
    ) -> Result<Self> {
        let [high, low] = keywords.read(method, [&names::HIGH, &names::LOW])?;
        let limit = |value: Option<Obj<'_>>| match value {
            Some(value) if !value.is_none() => value.to_i64().map(Some),
            _ => Ok(None),
        };
        let high = limit(high.or_else(|| args.first().copied()))?;
        let low = limit(low.or_else(|| args.get(1).copied()))?;
        // CPython fills in the defaults before it compares and shows both.
        let high =
            high.unwrap_or_else(|| low.map_or(default_high as i64, |low| low.saturating_mul(4)));
        let low = low.unwrap_or_else(|| high.div_euclid(4));
        match (usize::try_from(low), usize::try_from(high)) {
            (Ok(as_low), Ok(as_high)) if as_low <= as_high => {
                Ok(Self { low: as_low, high: as_high })
            }
            _ => Err(Raised::value_error(&format!(
                "high ({high}) must be >= low ({low}) must be >= 0"
            ))),
        }
    }

    /// Makes them those of `flow`.
    pub(crate) fn set(self, flow: &mut FlowControl) {
        let set = flow.set_limits(Some(self.high), Some(self.low));
        debug_assert!(set.is_ok(), "limits are in order");
    }

    /// The limits of `flow`.
    pub(crate) const fn of(flow: &FlowControl) -> Self {
        let (low, high) = flow.limits();
        Self { low, high }
    }

    /// `(low, high)`, as `get_write_buffer_limits()` has it.
    pub(crate) fn to_tuple(self) -> Result<Ref> {
        let (low, high) = (Ref::int(self.low as i64)?, Ref::int(self.high as i64)?);
        Ref::tuple(&[low.obj(), high.obj()])
    }
}
