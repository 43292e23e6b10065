//! epoll: add, modify, delete, wait.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

/// One event as the kernel writes it.
pub(crate) type RawEvent = epoll::Event;

/// An epoll instance, closed on exec.
#[derive(Debug)]
pub(crate) struct Epoll {
    fd: OwnedFd,
}

/// The number of a descriptor that someone else owns, and may close at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watched(RawFd);

impl Watched {
    pub(crate) fn new(fd: BorrowedFd<'_>) -> Self {
        Self(fd.as_raw_fd())
    }

    /// The number as an index.
    pub(crate) fn index(self) -> usize {
        usize::try_from(self.0).expect("a borrowed descriptor is not negative")
    }

    /// For one `epoll_ctl`, which refers to the file and neither reads, writes nor closes it.
    #[allow(unsafe_code)]
    fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: the number came from a `BorrowedFd`, so it is not -1. If its owner closed it
        // meanwhile, the kernel answers EBADF, or watches the file that has the number now; its
        // events carry a token, and the registry knows which token the number belongs to.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { fd: epoll::create(CreateFlags::CLOEXEC)? })
    }

    pub(crate) fn add(&self, fd: Watched, data: u64, flags: EventFlags) -> Result<(), Errno> {
        epoll::add(&self.fd, fd.borrow(), EventData::new_u64(data), flags)
    }

    pub(crate) fn modify(&self, fd: Watched, data: u64, flags: EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.fd, fd.borrow(), EventData::new_u64(data), flags)
    }

    pub(crate) fn delete(&self, fd: Watched) -> Result<(), Errno> {
        epoll::delete(&self.fd, fd.borrow())
    }

    /// Waits until something is ready or `timeout` has passed (`None`: for ever), and fills the
    /// spare capacity of `events`. Never returns before the timeout without an event, so a caller
    /// that waits for a deadline does not spin.
    pub(crate) fn wait(
        &self,
        events: &mut Vec<RawEvent>,
        timeout: Option<Duration>,
    ) -> Result<usize, Errno> {
        /// Set when the kernel (before 5.11), or a filter of system calls, has no `epoll_pwait2`.
        static MILLISECONDS_ONLY: AtomicBool = AtomicBool::new(false);

        if let Some(timeout) = timeout
            && timeout.subsec_nanos() % 1_000_000 != 0
            && !MILLISECONDS_ONLY.load(Ordering::Relaxed)
        {
            match self.wait_precisely(events, timeout) {
                // Filters older than the call answer EPERM; it has no such error of its own.
                Err(Errno::NOSYS | Errno::PERM) => {
                    MILLISECONDS_ONLY.store(true, Ordering::Relaxed);
                }
                answer => return answer,
            }
        }
        self.wait_in_milliseconds(events, timeout)
    }

    fn wait_in_milliseconds(
        &self,
        events: &mut Vec<RawEvent>,
        timeout: Option<Duration>,
    ) -> Result<usize, Errno> {
        let timeout = timeout.map(in_milliseconds);
        epoll::wait(&self.fd, spare_capacity(events), timeout.as_ref())
    }

    /// `epoll_pwait2`, which takes nanoseconds. rustix calls it only when it is told at build
    /// time that every kernel has it.
    #[allow(unsafe_code)]
    fn wait_precisely(
        &self,
        events: &mut Vec<RawEvent>,
        timeout: Duration,
    ) -> Result<usize, Errno> {
        /// The kernel's `__kernel_timespec`: 64 bits everywhere.
        #[repr(C)]
        struct KernelTimespec {
            seconds: i64,
            nanoseconds: i64,
        }

        let timeout = KernelTimespec {
            seconds: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: timeout.subsec_nanos().into(),
        };
        let length = events.len();
        let space = events.spare_capacity_mut();
        let most = libc::c_int::try_from(space.len()).unwrap_or(libc::c_int::MAX);
        // SAFETY: `space` is writable for `most` events of the kernel's layout, which is what
        // `RawEvent` is; the timespec lives until the call returns; no signal mask is given.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                space.as_mut_ptr(),
                most,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
        };
        // SAFETY: the kernel wrote `count` events behind the first `length`.
        unsafe { events.set_len(length + count) };
        Ok(count)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Rounds up to a whole millisecond, at most as many as an `i32` counts: 24 days.
fn in_milliseconds(timeout: Duration) -> Timespec {
    let begun = timeout.subsec_nanos().div_ceil(1_000_000);
    let millis = timeout.as_secs().saturating_mul(1000).saturating_add(begun.into());
    let millis = i64::try_from(millis).unwrap_or(i64::MAX).min(i32::MAX.into());
    Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 }
}

#[cfg(all(test, not(loom)))]
mod tests;
