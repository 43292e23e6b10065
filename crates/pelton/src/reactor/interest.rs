//! What to watch a descriptor for, and what it is ready for.

use rustix::event::epoll::EventFlags;

/// What to watch a descriptor for.
///
/// # Examples
///
/// ```
/// use pelton::reactor::Interest;
///
/// let both = Interest::READ.with(Interest::WRITE);
/// assert_eq!(both, Interest::BOTH);
/// assert_eq!(both.without(Interest::READ), Interest::WRITE);
/// assert!(both.contains(Interest::READ) && !Interest::NONE.contains(Interest::READ));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Interest(u8);

impl Interest {
    /// Nothing: the kernel does not watch the descriptor at all.
    pub const NONE: Self = Self(0);
    /// Something to read, or the end of the stream.
    pub const READ: Self = Self(1);
    /// Space to write.
    pub const WRITE: Self = Self(2);
    /// Both.
    pub const BOTH: Self = Self(3);
    /// That the peer has ended its side, without a word about what it sent before: for the writing
    /// end of a pipe, which reads nothing.
    pub const PEER_GONE: Self = Self(4);

    /// This and `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This without `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of `other` is in this.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether this is [`NONE`](Self::NONE).
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Level-triggered.
    pub(crate) fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.contains(Self::READ));
        flags.set(EventFlags::OUT, self.contains(Self::WRITE));
        flags.set(EventFlags::RDHUP, self.contains(Self::PEER_GONE));
        flags
    }
}

/// What a descriptor is ready for.
///
/// An error or a hang-up makes it ready for both directions, whichever were asked for: the read or
/// the write that follows tells what it is. This is the rule of Python's
/// `selectors.EpollSelector`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness(EventFlags);

impl Readiness {
    pub(crate) const fn new(flags: EventFlags) -> Self {
        Self(flags)
    }

    /// Whether a read will not block.
    pub fn readable(self) -> bool {
        !self.0.difference(EventFlags::OUT).is_empty()
    }

    /// Whether a write will not block.
    pub fn writable(self) -> bool {
        !self.0.difference(EventFlags::IN).is_empty()
    }

    /// Whether the peer has ended its side or is gone altogether.
    pub fn peer_gone(self) -> bool {
        self.0.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
    }

    /// Whether both sides of the connection have ended.
    pub fn hangup(self) -> bool {
        self.0.contains(EventFlags::HUP)
    }

    /// Whether the descriptor has an error to tell.
    pub fn error(self) -> bool {
        self.0.contains(EventFlags::ERR)
    }
}
