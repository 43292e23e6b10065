//! The loop's clock: `time.monotonic()`, to the same bit.

const SECOND: i64 = 1_000_000_000;

/// Seconds of the monotonic clock.
///
/// By the C library and not by rustix, whose own reading of the vDSO ends a process under
/// valgrind.
pub(crate) fn monotonic() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is memory for one timespec; the call cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // CPython's PyTime_AsSecondsDouble: nanoseconds as an integer, one division.
    (now.tv_sec * SECOND + now.tv_nsec) as f64 / SECOND as f64
}
