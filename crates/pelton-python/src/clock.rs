//! The loop's clock: `time.monotonic()`, to the same bit.

use rustix::time::{ClockId, clock_gettime};

const SECOND: i64 = 1_000_000_000;

/// Seconds of the monotonic clock.
pub(crate) fn monotonic() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    // CPython's PyTime_AsSecondsDouble: nanoseconds as an integer, one division.
    (now.tv_sec * SECOND + now.tv_nsec) as f64 / SECOND as f64
}
