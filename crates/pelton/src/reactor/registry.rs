//! Who is registered: a slab with generations, and the owner of each descriptor's number.

use std::collections::HashMap;
use std::num::NonZeroU64;

use super::Interest;
use crate::sys::epoll::Watched;

/// Names one registration, and never another one: a token whose registration is gone names
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(NonZeroU64);

impl Token {
    /// The token of the reactor's own waker: an event with it means only that the wait is over.
    pub const WAKE: Self = Self(NonZeroU64::MAX);

    fn new(slot: u32, generation: u32) -> Self {
        let raw = u64::from(generation) << 32 | u64::from(slot);
        Self(NonZeroU64::new(raw).expect("generations start at one"))
    }

    /// Only tokens are ever given to the kernel, so zero does not come back from it; if it did,
    /// it would be a wake-up for nothing.
    pub(crate) fn from_raw(raw: u64) -> Self {
        NonZeroU64::new(raw).map_or(Self::WAKE, Self)
    }

    pub(crate) const fn raw(self) -> u64 {
        self.0.get()
    }

    const fn slot(self) -> usize {
        (self.0.get() & 0xffff_ffff) as usize
    }

    const fn generation(self) -> u32 {
        (self.0.get() >> 32) as u32
    }
}

pub(crate) struct Registration<S> {
    pub(crate) fd: Watched,
    /// What the kernel watches for; `NONE` if it does not know the descriptor.
    pub(crate) interest: Interest,
    pub(crate) source: S,
}

struct Slot<S> {
    /// Of the registration that is here, or of the next one. At least 1, and below the highest
    /// value, which is the waker's.
    generation: u32,
    registration: Option<Registration<S>>,
}

pub(crate) struct Registry<S> {
    slots: Vec<Slot<S>>,
    free: Vec<u32>,
    /// By descriptor number: the latest registration of it. An earlier one is of a file that was
    /// closed without a word, and must not be allowed to speak for the number.
    owners: HashMap<usize, Token>,
}

impl<S> Registry<S> {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), owners: HashMap::new() }
    }

    pub(crate) const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a registration that the kernel does not know yet, and makes it the owner of its
    /// number.
    pub(crate) fn insert(&mut self, fd: Watched, source: S) -> Token {
        let registration = Registration { fd, interest: Interest::NONE, source };
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = u32::try_from(self.slots.len()).expect("fewer descriptors than 2^32");
            self.slots.push(Slot { generation: 1, registration: None });
            slot
        });
        let place = &mut self.slots[slot as usize];
        place.registration = Some(registration);
        let token = Token::new(slot, place.generation);
        // A map, not a vector: the number may be any that a caller makes up.
        self.owners.insert(fd.index(), token);
        token
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<Registration<S>> {
        let slot = self.slots.get_mut(token.slot())?;
        let registration = slot.registration.take_if(|_| slot.generation == token.generation())?;
        slot.generation = match slot.generation + 1 {
            u32::MAX => 1,
            generation => generation,
        };
        self.free.push(token.slot() as u32);
        if self.owners.get(&registration.fd.index()) == Some(&token) {
            self.owners.remove(&registration.fd.index());
        }
        Some(registration)
    }

    #[inline]
    pub(crate) fn get(&self, token: Token) -> Option<&Registration<S>> {
        let slot = self.slots.get(token.slot())?;
        slot.registration.as_ref().filter(|_| slot.generation == token.generation())
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut Registration<S>> {
        let slot = self.slots.get_mut(token.slot())?;
        slot.registration.as_mut().filter(|_| slot.generation == token.generation())
    }

    /// Whether no later registration has taken the descriptor's number over.
    pub(crate) fn owns_number(&self, token: Token) -> bool {
        let number = self.get(token).map(|registration| registration.fd.index());
        number.is_some_and(|number| self.owners.get(&number) == Some(&token))
    }

    pub(crate) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.registration.is_some())
            .map(|(index, slot)| Token::new(index as u32, slot.generation))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Registration<S>> {
        self.slots.iter().filter_map(|slot| slot.registration.as_ref())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
