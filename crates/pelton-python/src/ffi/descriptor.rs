//! Descriptors whose owner is a Python object.

use std::os::fd::{BorrowedFd, RawFd};

/// Borrows a descriptor by its number for one call.
///
/// A Python socket object owns the descriptor and the caller holds that object. User code can
/// close the socket behind the transport's back; the number is then refused by the kernel
/// (`EBADF`) or names another file, exactly as with asyncio. Memory stays safe either way.
pub(crate) fn borrow_fd<'a>(fd: RawFd) -> BorrowedFd<'a> {
    debug_assert!(fd >= 0, "a closed transport has no descriptor to use");
    // SAFETY: not -1; see above for the owner.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
