//! Tells whether the process has forked since: an epoll set is shared with the parent.

use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> c_int;
}

unsafe extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A number that differs in a forked child; one relaxed load.
pub(crate) fn generation() -> u32 {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // SAFETY: POSIX's function with a handler that only adds to an atomic, which is safe in
        // a child of a process with many threads.
        let failed = unsafe { pthread_atfork(None, None, Some(in_child)) };
        assert_eq!(failed, 0, "no memory for the hook that notices a fork");
    });
    GENERATION.load(Ordering::Relaxed)
}
