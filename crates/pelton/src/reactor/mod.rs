//! Which descriptors are ready.
//!
//! A [`Reactor`] knows the registrations; a [`Poller`] waits; [`Events`] holds what it found. They
//! are apart so that the caller can wait without a borrow of the reactor, and with whatever lock it
//! has released. A [`Waker`] ends the wait from another thread.

mod handshake;
mod interest;
mod poller;
mod registry;
mod wake;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

pub use interest::{Interest, Readiness};
pub use poller::{Event, Events, Poller};
pub use registry::Token;
pub use wake::Waker;

use crate::sys::epoll::{Epoll, Watched};
use crate::sys::fork;
use registry::Registry;

/// The registrations of descriptors, each with a source `S`: whatever the caller wants to find
/// again when the descriptor is ready.
///
/// Level-triggered. Descriptors are not owned: their owner deregisters before it closes one. An
/// owner that does not cannot harm a later registration of the same number, and gets no events of
/// it. One thing no later call can mend: while a duplicate of the closed descriptor is open, in
/// this process or a child, the kernel goes on watching the file and every wait reports it, under a
/// token that names nothing.
///
/// A child of a fork shares the kernel's side of a reactor with its parent; the methods notice and
/// never change what is the parent's. See [`fork_check`](Self::fork_check).
pub struct Reactor<S> {
    epoll: Arc<Epoll>,
    waker: Waker,
    registry: Registry<S>,
    /// The process that made `epoll`.
    born: u32,
    /// Whether `epoll` and `waker` are new since the caller last asked.
    renewed: bool,
}

impl<S> Reactor<S> {
    /// A reactor with nothing registered.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: it needs two descriptors.
    pub fn new() -> io::Result<Self> {
        fork::prepare()?;
        let born = fork::generation();
        let (epoll, waker) = kernel_side(false)?;
        Ok(Self { epoll, waker, registry: Registry::new(), born, renewed: false })
    }

    /// A handle to wait with.
    pub fn poller(&self) -> Poller {
        Poller::new(self.epoll.clone())
    }

    /// A handle to end a wait with.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Registers a descriptor. With [`Interest::NONE`] the kernel is not told before
    /// [`set_interest`](Self::set_interest).
    ///
    /// A descriptor that is registered already is registered anew, and the earlier token gets no
    /// more events; it still must be deregistered.
    ///
    /// # Errors
    ///
    /// `EPERM` for a file that cannot be watched (a regular file), `EBADF`, `ENOMEM`, `ENOSPC`.
    /// `source` is dropped then.
    pub fn register(
        &mut self,
        fd: BorrowedFd<'_>,
        interest: Interest,
        source: S,
    ) -> io::Result<Token> {
        self.leave_parent()?;
        let token = self.registry.insert(Watched::new(fd), source);
        match self.set_interest(token, interest) {
            Ok(()) => Ok(token),
            Err(error) => {
                self.registry.remove(token);
                Err(error)
            }
        }
    }

    /// Changes what a descriptor is watched for. No system call if that is what the kernel watches
    /// for already. A token that names nothing changes nothing.
    ///
    /// # Errors
    ///
    /// As [`register`](Self::register); `EBADF` also for a registration whose descriptor was closed
    /// and its number registered again.
    pub fn set_interest(&mut self, token: Token, interest: Interest) -> io::Result<()> {
        self.leave_parent()?;
        let owns_number = self.registry.owns_number(token);
        let Some(registration) = self.registry.get_mut(token) else {
            return Ok(());
        };
        let before = registration.interest;
        if before == interest {
            return Ok(());
        }
        let (fd, data, flags) = (registration.fd, token.raw(), interest.flags());
        if !owns_number {
            // The kernel forgot the file when it was closed; the number is another's now.
            registration.interest = Interest::NONE;
            return if interest.is_none() { Ok(()) } else { Err(Errno::BADF.into()) };
        }
        let answer = if interest.is_none() {
            match self.epoll.delete(fd) {
                // Closed by its owner, and so forgotten by the kernel.
                Err(Errno::NOENT | Errno::BADF) => Ok(()),
                answer => answer,
            }
        } else if before.is_none() {
            add(&self.epoll, fd, data, flags)
        } else {
            match self.epoll.modify(fd, data, flags) {
                // Closed, and the number given out again.
                Err(Errno::NOENT) => add(&self.epoll, fd, data, flags),
                answer => answer,
            }
        };
        answer?;
        registration.interest = interest;
        Ok(())
    }

    /// Ends a registration and gives its source back; `None` if the token names nothing. Events of
    /// it that were found but not looked at yet name nothing from here on.
    pub fn deregister(&mut self, token: Token) -> Option<S> {
        let owns_number = self.registry.owns_number(token);
        let registration = self.registry.remove(token)?;
        if owns_number && !registration.interest.is_none() && self.born == fork::generation() {
            // It fails if the owner closed the descriptor first, and then there is nothing to do.
            let _forgotten = self.epoll.delete(registration.fd);
        }
        Some(registration.source)
    }

    /// As [`deregister`](Self::deregister) without a word to the kernel: for a descriptor that its
    /// owner has closed, and whose number may be another file's by now.
    pub fn forget(&mut self, token: Token) -> Option<S> {
        self.registry.remove(token).map(|registration| registration.source)
    }

    /// The source of a registration.
    #[inline]
    pub fn get(&self, token: Token) -> Option<&S> {
        self.registry.get(token).map(|registration| &registration.source)
    }

    /// The source of a registration, to change it.
    #[inline]
    pub fn get_mut(&mut self, token: Token) -> Option<&mut S> {
        self.registry.get_mut(token).map(|registration| &mut registration.source)
    }

    /// What a descriptor is watched for.
    pub fn interest(&self, token: Token) -> Option<Interest> {
        self.registry.get(token).map(|registration| registration.interest)
    }

    /// Whom an event is for; `None` for the waker, and for a registration that is gone.
    #[inline]
    pub fn resolve(&self, event: &Event) -> Option<(Token, &S, Readiness)> {
        self.get(event.token).map(|source| (event.token, source, event.readiness))
    }

    /// How many registrations there are.
    pub const fn len(&self) -> usize {
        self.registry.len()
    }

    /// Whether there is no registration.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sources, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &S> {
        self.registry.iter().map(|registration| &registration.source)
    }

    /// Ends all registrations and gives their sources back, in no particular order.
    pub fn drain(&mut self) -> Vec<S> {
        let tokens: Vec<_> = self.registry.tokens().collect();
        tokens.into_iter().filter_map(|token| self.deregister(token)).collect()
    }

    /// To be called before each wait: in a child of a fork it makes the kernel's side anew, with
    /// all registrations whose descriptors are still open, and answers true once; then
    /// [`poller`](Self::poller) and [`waker`](Self::waker) must be asked for again, for the
    /// handles that the caller has are the parent's. Otherwise it costs one load.
    ///
    /// The new waker begins notified, so that no wake-up to the old one is lost.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new) and [`register`](Self::register); the call can be made again.
    #[inline]
    pub fn fork_check(&mut self) -> io::Result<bool> {
        self.leave_parent()?;
        Ok(std::mem::take(&mut self.renewed))
    }

    #[inline]
    fn leave_parent(&mut self) -> io::Result<()> {
        if self.born == fork::generation() { Ok(()) } else { self.renew() }
    }

    #[cold]
    fn renew(&mut self) -> io::Result<()> {
        let born = fork::generation();
        let (epoll, waker) = kernel_side(true)?;
        let tokens: Vec<_> = self.registry.tokens().collect();
        for token in tokens {
            let owns_number = self.registry.owns_number(token);
            let Some(registration) = self.registry.get_mut(token) else {
                continue;
            };
            if registration.interest.is_none() {
                continue;
            }
            let flags = registration.interest.flags();
            let answer = if owns_number {
                epoll.add(registration.fd, token.raw(), flags)
            } else {
                Err(Errno::BADF)
            };
            match answer {
                Ok(()) => {}
                Err(error @ (Errno::NOMEM | Errno::NOSPC)) => return Err(error.into()),
                // The child closed it, and perhaps its number is now that of the new epoll or
                // eventfd, or of a file that cannot be watched.
                Err(_) => registration.interest = Interest::NONE,
            }
        }
        self.epoll = epoll;
        self.waker = waker;
        self.born = born;
        self.renewed = true;
        Ok(())
    }
}

impl<S> fmt::Debug for Reactor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// An epoll that watches a new waker.
fn kernel_side(notified: bool) -> io::Result<(Arc<Epoll>, Waker)> {
    let epoll = Epoll::new()?;
    let waker = Waker::new(notified)?;
    let flags = EventFlags::IN | EventFlags::ET;
    epoll.add(Watched::new(waker.as_fd()), Token::WAKE.raw(), flags)?;
    Ok((Arc::new(epoll), waker))
}

fn add(epoll: &Epoll, fd: Watched, data: u64, flags: EventFlags) -> Result<(), Errno> {
    match epoll.add(fd, data, flags) {
        // Registered before under a token that was forgotten: the entry is taken over.
        Err(Errno::EXIST) => epoll.modify(fd, data, flags),
        answer => answer,
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
