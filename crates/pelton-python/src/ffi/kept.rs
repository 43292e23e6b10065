//! A call kept for later: a callable with its arguments and the context to run it in.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr;

use pyo3::ffi;

use super::call::{Context, vectorcall};
use super::class::Visit;
use super::error::Result;
use super::object::{Obj, Ref, Slot};

/// How many arguments are stored in place; more are put into a tuple.
const PLACES: usize = 3;

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// The arguments are in place.
    InPlace,
    /// The first place has a tuple of them.
    InTuple,
    Forgotten,
}

/// A callable, its arguments and its context.
///
/// While it runs its fields are lent to the callee, which is cheaper than a reference to each:
/// what lets go of them meanwhile ([`KeptCall::forget`]) takes effect when the call returns.
pub(crate) struct KeptCall {
    callable: Slot,
    args: ManuallyDrop<[Slot; PLACES]>,
    context: Slot,
    /// How many of the places are filled, from the first.
    filled: Cell<u8>,
    state: Cell<State>,
    running: Cell<bool>,
}

impl KeptCall {
    /// Arguments that do not fit are left for [`KeptCall::put_in_tuple`].
    #[inline]
    pub(crate) fn new(callable: Obj<'_>, args: &[Obj<'_>], context: Ref) -> Self {
        let args = if Self::fits(args) { args } else { &[] };
        let place = |index: usize| match args.get(index) {
            Some(arg) => Slot::new(arg.to_ref()),
            None => Slot::empty(),
        };
        Self {
            callable: Slot::new(callable.to_ref()),
            args: ManuallyDrop::new([place(0), place(1), place(2)]),
            context: Slot::new(context),
            filled: Cell::new(args.len() as u8),
            state: Cell::new(State::InPlace),
            running: Cell::new(false),
        }
    }

    /// Whether there is a place for each of the arguments.
    pub(crate) fn fits(args: &[Obj<'_>]) -> bool {
        args.len() <= PLACES
    }

    /// Stores arguments that do not fit.
    pub(crate) fn put_in_tuple(&self, args: &[Obj<'_>]) -> Result<()> {
        self.args[0].set(Ref::tuple(args)?);
        self.filled.set(1);
        self.state.set(State::InTuple);
        Ok(())
    }

    /// Calls it in its context, and leaves the context before the answer is looked at. Does
    /// nothing once it is forgotten.
    #[inline(always)]
    pub(crate) fn run(&self) -> Result<()> {
        let state = self.state.get();
        if state == State::Forgotten {
            return Ok(());
        }
        let before = self.running.replace(true);
        // SAFETY: the slots own what they hold, and nothing empties them while `running` is set.
        let answer = unsafe {
            let callable = self.callable.as_ptr();
            Context::run(Obj::from_ptr(self.context.as_ptr()), || {
                if state == State::InTuple {
                    let args = Obj::from_ptr(self.args[0].as_ptr());
                    return Obj::from_ptr(callable).call_tuple(args);
                }
                let [a, b, c] = &*self.args;
                // The first place is scratch, as the offset flag promises.
                let array = [ptr::null_mut(), a.as_ptr(), b.as_ptr(), c.as_ptr()];
                let count = usize::from(self.filled.get()) | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
                vectorcall(callable, array.as_ptr().add(1), count, ptr::null_mut())
            })
        };
        self.running.set(before);
        if self.state.get() == State::Forgotten {
            self.forget();
        }
        answer.map(drop)
    }

    /// Lets go of the callable and the arguments, at once or when it has run.
    #[cold]
    pub(crate) fn forget(&self) {
        self.state.set(State::Forgotten);
        if !self.running.get() {
            self.callable.clear();
            self.args.iter().for_each(Slot::clear);
        }
    }

    /// As `forget`, and of the context too. Only the garbage collector asks for this, and never
    /// of what is running, since the caller holds it.
    pub(crate) fn clear(&self) {
        self.forget();
        if !self.running.get() {
            self.context.clear();
        }
    }

    /// `None` once it is forgotten.
    pub(crate) fn callable(&self) -> Option<Ref> {
        if self.state.get() == State::Forgotten { None } else { self.callable.get() }
    }

    /// The arguments as a tuple; `None` once it is forgotten.
    pub(crate) fn args(&self) -> Result<Option<Ref>> {
        match self.state.get() {
            State::Forgotten => Ok(None),
            State::InTuple => Ok(self.args[0].get()),
            State::InPlace => {
                let held: Vec<Ref> = self.args.iter().filter_map(Slot::get).collect();
                let args: Vec<Obj<'_>> = held.iter().map(Ref::obj).collect();
                Ref::tuple(&args).map(Some)
            }
        }
    }

    pub(crate) fn context(&self) -> Ref {
        self.context.get_or_none()
    }

    pub(crate) fn traverse(&self, visit: &mut Visit<'_>) {
        visit.slot(&self.callable);
        visit.slot(&self.context);
        self.args.iter().for_each(|arg| visit.slot(arg));
    }
}

impl Drop for KeptCall {
    #[inline]
    fn drop(&mut self) {
        self.args.iter().take(self.filled.get().into()).for_each(Slot::clear);
    }
}
