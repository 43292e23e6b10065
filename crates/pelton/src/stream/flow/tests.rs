use super::{FlowControl, LimitsError};

#[test]
fn each_limit_is_crossed_once() {
    let mut flow = FlowControl::new();
    flow.set_limits(Some(10), Some(4)).unwrap();
    // Queued bytes, then: told to pause, told to resume, is paused.
    for (size, pause, resume, paused) in [
        (10, false, false, false),
        (11, true, false, true),
        (12, false, false, true),
        (5, false, false, true),
        (11, false, false, true),
        (4, false, true, false),
        (3, false, false, false),
        (99, true, false, true),
        (0, false, true, false),
    ] {
        assert_eq!(flow.on_grow(size), pause, "grown to {size}");
        assert_eq!(flow.on_shrink(size), resume, "shrunk to {size}");
        assert_eq!(flow.is_paused(), paused, "at {size}");
    }
}

/// CPython: asyncio/transports.py, `_FlowControlMixin._set_write_buffer_limits`.
#[test]
fn limits_are_asyncios() {
    const KIB: usize = 1024;
    for (high, low, expected) in [
        (None, None, Ok((16 * KIB, 64 * KIB))),
        (Some(100), None, Ok((25, 100))),
        (Some(3), None, Ok((0, 3))),
        (None, Some(100), Ok((100, 400))),
        (Some(0), None, Ok((0, 0))),
        (None, Some(0), Ok((0, 0))),
        (Some(7), Some(7), Ok((7, 7))),
        (None, Some(usize::MAX), Ok((usize::MAX, usize::MAX))),
        (Some(6), Some(7), Err((7, 6))),
        (Some(0), Some(1), Err((1, 0))),
    ] {
        let mut flow = FlowControl::new();
        flow.set_limits(Some(9), Some(5)).unwrap();
        match (flow.set_limits(high, low), expected) {
            (Ok(()), Ok(limits)) => assert_eq!(flow.limits(), limits),
            (Err(error), Err((low, high))) => {
                assert_eq!(error, LimitsError { high, low });
                assert_eq!(
                    error.to_string(),
                    format!("high ({high}) must be >= low ({low}) must be >= 0")
                );
                assert_eq!(flow.limits(), (5, 9), "unchanged");
            }
            (answer, _) => panic!("{high:?}, {low:?}: {answer:?}"),
        }
    }
}

#[test]
fn no_limits_pause_on_the_first_byte() {
    let mut flow = FlowControl::new();
    flow.set_limits(Some(0), None).unwrap();
    assert!(!flow.on_grow(0) && flow.on_grow(1));
    assert!(!flow.on_shrink(1) && flow.on_shrink(0));
}
