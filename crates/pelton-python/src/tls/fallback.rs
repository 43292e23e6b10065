//! The fallback engine: the genuine object's C methods over a pair of `MemoryBIO`s.
//!
//! The methods are those of `SSLObject._sslobj`, looked up once: no Python frame runs per record.
//! `pending` is asked before a read, so that the exception for "nothing yet" is rare.

use std::cell::Cell;
use std::mem::MaybeUninit;

use pelton::tls::libssl::Outcome;

use super::engine::wants_input;
use crate::ffi::{Obj, Raised, Ref, Result, Visit, lend, lend_mut};
use crate::names::{self, Name};

pub(super) struct Fallback {
    /// The `_ssl._SSLSocket`.
    object: Ref,
    read: Ref,
    write: Ref,
    pending: Ref,
    incoming: Ref,
    incoming_write: Ref,
    outgoing_read: Ref,
    busy: Cell<bool>,
}

impl Fallback {
    pub(super) fn new(object: Ref, incoming: Ref, outgoing: Ref) -> Result<Self> {
        Ok(Self {
            read: object.obj().attr(&names::READ)?,
            write: object.obj().attr(&names::WRITE)?,
            pending: object.obj().attr(&names::PENDING)?,
            incoming_write: incoming.obj().attr(&names::WRITE)?,
            outgoing_read: outgoing.obj().attr(&names::READ)?,
            object,
            incoming,
            busy: Cell::new(false),
        })
    }

    pub(super) fn traverse(&self, visit: &mut Visit<'_>) {
        visit.object(&self.object);
        visit.object(&self.read);
        visit.object(&self.write);
        visit.object(&self.pending);
        visit.object(&self.incoming);
        visit.object(&self.incoming_write);
        visit.object(&self.outgoing_read);
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.get()
    }

    pub(super) fn step(
        &self,
        method: &Name,
        input: &mut &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Ref> {
        self.take_in(input)?;
        self.busy.set(true);
        let answer = self.object.obj().call_method(method, &[]);
        self.busy.set(false);
        self.give_out(answer, output)
    }

    pub(super) fn read(
        &self,
        input: &mut &[u8],
        plain: &mut [MaybeUninit<u8>],
        output: &mut Vec<u8>,
    ) -> Result<Outcome> {
        if self.busy.get() {
            return Ok(Outcome::Busy);
        }
        self.take_in(input)?;
        if self.pending()? == 0 {
            return Ok(Outcome::WantInput);
        }
        let size = Ref::int(plain.len() as i64)?;
        self.busy.set(true);
        let answer = lend_mut(plain, |space| self.read.obj().call(&[size.obj(), space]));
        self.busy.set(false);
        self.outcome(answer, output)
    }

    pub(super) fn write(&self, plain: &[u8], output: &mut Vec<u8>) -> Result<Outcome> {
        if self.busy.replace(true) {
            return Ok(Outcome::Busy);
        }
        let answer = lend(plain, |view| self.write.obj().call(&[view]));
        self.busy.set(false);
        self.outcome(answer, output)
    }

    /// Plaintext not yet read, and ciphertext not yet looked at.
    pub(super) fn pending(&self) -> Result<usize> {
        let plain = self.pending.obj().call(&[])?.obj().to_i64()?;
        let sealed = self.incoming.obj().attr(&names::PENDING)?.obj().to_i64()?;
        Ok(usize::try_from(plain + sealed).unwrap_or(0))
    }

    fn take_in(&self, input: &mut &[u8]) -> Result<()> {
        let bytes = std::mem::take(input);
        if !bytes.is_empty() {
            lend(bytes, |view| self.incoming_write.obj().call(&[view]))?;
        }
        Ok(())
    }

    /// Moves what the object has written to `output`, whether or not it has failed.
    fn give_out(&self, answer: Result<Ref>, output: &mut Vec<u8>) -> Result<Ref> {
        let pending = answer.as_ref().is_err().then(|| Raised.take());
        let written = self.outgoing_read.obj().call(&[])?;
        output.extend_from_slice(exact_bytes(written.obj()).as_ref().map_or(&[], AsRef::as_ref));
        match pending {
            Some(exception) => Err(Raised::from_exception(exception)),
            None => answer,
        }
    }

    fn outcome(&self, answer: Result<Ref>, output: &mut Vec<u8>) -> Result<Outcome> {
        match self.give_out(answer, output) {
            Ok(count) => match usize::try_from(count.obj().to_i64()?) {
                Ok(count) if count > 0 => Ok(Outcome::Data(count)),
                _ => Ok(Outcome::Closed),
            },
            Err(raised) if wants_input(&raised) => {
                raised.discard();
                Ok(Outcome::WantInput)
            }
            Err(raised) if names::ZERO_RETURN.known().is_some_and(|class| raised.is(class)) => {
                raised.discard();
                Ok(Outcome::Closed)
            }
            Err(raised) => Err(raised),
        }
    }
}

fn exact_bytes(object: Obj<'_>) -> Option<crate::ffi::BytesRef> {
    crate::ffi::BytesRef::new(object)
}
