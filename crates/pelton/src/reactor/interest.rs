//! What a descriptor is watched for, and what it is ready for.

use crate::sys::epoll::EventFlags;

/// What to watch a descriptor for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest(u8);

impl Interest {
    /// Nothing: the descriptor is known, but not with the kernel.
    pub const NONE: Self = Self(0);
    /// Bytes, connections, or the end of them.
    pub const READ: Self = Self(1);
    /// Room to send.
    pub const WRITE: Self = Self(2);
    /// Both.
    pub const BOTH: Self = Self(3);

    /// This and `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This, but not `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of `other` is in this.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.contains(Self::READ));
        flags.set(EventFlags::OUT, self.contains(Self::WRITE));
        flags
    }
}

/// What a descriptor is ready for. An error or a hang-up counts as both, so that whoever waits
/// for either direction finds out from its next call. CPython: `selectors.EpollSelector`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness(EventFlags);

impl Readiness {
    pub(super) const fn new(flags: EventFlags) -> Self {
        Self(flags)
    }

    /// A read tells something.
    #[must_use]
    pub fn readable(self) -> bool {
        !self.0.difference(EventFlags::OUT).is_empty()
    }

    /// A write tells something.
    #[must_use]
    pub fn writable(self) -> bool {
        !self.0.difference(EventFlags::IN).is_empty()
    }
}
