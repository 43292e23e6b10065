//! Noticing that this process is a fork of the one that made a reactor.
//!
//! A child shares the parent's epoll and eventfd: what it changes there, it changes for the
//! parent. Asking for the process id at every turn would cost a system call, so the C library
//! counts the forks for us, in the child.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between this process and the one that first called [`prepare`].
///
/// A child that was made without the C library's `fork()` (a bare `clone` system call, `vfork`)
/// is not counted; such a child may only `exec` anyway.
#[inline]
pub(crate) fn generation() -> u32 {
    // Relaxed: only the forking thread lives on in the child, and it is the one that counted.
    GENERATION.load(Ordering::Relaxed)
}

/// Starts counting, once for the process.
///
/// # Errors
///
/// `ENOMEM`, from the C library.
pub(crate) fn prepare() -> io::Result<()> {
    static REGISTERED: OnceLock<i32> = OnceLock::new();
    match *REGISTERED.get_or_init(register) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

extern "C" fn count() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

#[allow(unsafe_code)]
fn register() -> i32 {
    // SAFETY: `count` is a function of this image, lives as long as it (the C library drops the
    // handlers of an image that it unloads), takes nothing, does not unwind, and is
    // async-signal-safe: one atomic addition.
    unsafe { libc::pthread_atfork(None, None, Some(count)) }
}
