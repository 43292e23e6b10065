//! Readiness: epoll(7), level-triggered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

pub(crate) use epoll::EventFlags;

/// A set of descriptors under watch.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

/// One report: the data that the descriptor was added with, and what it is ready for.
pub(crate) type Report = epoll::Event;

/// Whether the kernel lacks `epoll_pwait2` (before Linux 5.11, or a filter).
static NO_NANOSECONDS: AtomicBool = AtomicBool::new(false);

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Watches `fd`. A descriptor that is in the set already is watched anew: the number was
    /// closed and given out again.
    pub(crate) fn add(&self, fd: RawFd, data: u64, flags: EventFlags) -> io::Result<()> {
        let (fd, data) = (borrow(fd), epoll::EventData::new_u64(data));
        match epoll::add(&self.0, fd, data, flags) {
            Err(Errno::EXIST) => Ok(epoll::modify(&self.0, fd, data, flags)?),
            answer => Ok(answer?),
        }
    }

    /// Watches for something else. A descriptor that the kernel has dropped from the set, because
    /// its number was closed, is added again.
    pub(crate) fn modify(&self, fd: RawFd, data: u64, flags: EventFlags) -> io::Result<()> {
        let (fd, data) = (borrow(fd), epoll::EventData::new_u64(data));
        match epoll::modify(&self.0, fd, data, flags) {
            Err(Errno::NOENT) => Ok(epoll::add(&self.0, fd, data, flags)?),
            answer => Ok(answer?),
        }
    }

    /// Watches `fd` no longer; fails where it is closed or was not watched.
    pub(crate) fn delete(&self, fd: RawFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, borrow(fd))?)
    }

    /// Fills `reports`, up to its capacity. `None` waits for ever; `EINTR` is
    /// [`io::ErrorKind::Interrupted`].
    pub(crate) fn wait(
        &self,
        reports: &mut Vec<Report>,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        reports.clear();
        let exact = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        if !NO_NANOSECONDS.load(Ordering::Relaxed) {
            match epoll::wait(&self.0, rustix::buffer::spare_capacity(reports), exact.as_ref()) {
                Err(Errno::NOSYS | Errno::PERM) if exact.is_some() => {
                    NO_NANOSECONDS.store(true, Ordering::Relaxed);
                }
                answer => return Ok(answer?),
            }
        }
        // Whole milliseconds, rounded up: waking early would only make the caller wait again.
        let rounded = timeout.map(|timeout| {
            let milliseconds = timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i64;
            Timespec {
                tv_sec: milliseconds / 1000,
                tv_nsec: milliseconds % 1000 * 1_000_000,
            }
        });
        Ok(epoll::wait(&self.0, rustix::buffer::spare_capacity(reports), rounded.as_ref())?)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A registered descriptor by its number. Its owner may have closed it since: the kernel then
/// answers `EBADF`, `ENOENT` or acts on the number's new file, which the registry's generations
/// make harmless.
fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    assert!(fd >= 0, "a registered descriptor has a number");
    // SAFETY: not -1, checked above; the kernel checks the number itself at each call.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
