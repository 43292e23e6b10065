//! The loop's clock: `time.monotonic()`, to the same bit.

use rustix::time::{ClockId, clock_gettime};

/// Seconds of the monotonic clock.
pub(crate) fn monotonic() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    // CPython's PyTime_AsSecondsDouble: nanoseconds as an integer, one division.
    let nanoseconds = now.tv_sec * 1_000_000_000 + i64::from(now.tv_nsec);
    nanoseconds as f64 / 1e9
}
