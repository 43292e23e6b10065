//! Descriptors whose owner is a Python object.

use std::os::fd::{BorrowedFd, RawFd};

use super::object::{Imported, Obj};

static SOCKET: Imported = Imported::new(c"_socket", c"socket");

/// A Python socket that owns a descriptor, and how to tell whether it still does.
pub(crate) struct SocketNumber {
    number: RawFd,
    /// Whether the object's number can be read from its memory.
    readable: bool,
}

impl SocketNumber {
    pub(crate) fn new(socket: Obj<'_>, number: RawFd) -> Self {
        let native = SOCKET.get().and_then(|class| socket.is_instance(class));
        let native = native.unwrap_or_else(|raised| {
            raised.discard();
            false
        });
        let readable = native && read(socket) == number;
        Self { number, readable }
    }

    pub(crate) fn number(&self) -> RawFd {
        self.number
    }

    /// The descriptor, unless the socket was closed or detached behind the transport's back: its
    /// number may be another file's by now.
    pub(crate) fn borrow(&self, socket: Obj<'_>) -> Option<BorrowedFd<'_>> {
        let owned = !self.readable || read(socket) == self.number;
        owned.then(|| borrow_fd(self.number))
    }
}

/// The first field of `PySocketSockObject` (`Modules/socketmodule.h`): `SOCKET_T sock_fd`. The
/// struct is private, so `SocketNumber::new` compares what is read with `fileno()` and does
/// without where they differ.
fn read(socket: Obj<'_>) -> RawFd {
    // SAFETY: an instance of the C class is larger than its header and this field.
    unsafe { socket.as_ptr().add(1).cast::<RawFd>().read() }
}

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
