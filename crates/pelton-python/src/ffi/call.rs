//! Calls into Python: with arguments on the stack, inside a context, and detached regions.

use std::io;
use std::ptr;
use std::time::Duration;

use pelton::reactor::{Events, Poller};
use pyo3::ffi;

use super::error::{Raised, Result};
use super::object::{Interned, Obj, Ref};

/// The most arguments that a call passes on the stack.
const MOST_ARGUMENTS: usize = 6;

impl Obj<'_> {
    /// `self(*args)` by vectorcall; at most six arguments.
    pub(crate) fn call(self, args: &[Obj<'_>]) -> Result<Ref> {
        let mut array = [ptr::null_mut(); MOST_ARGUMENTS + 1];
        for (place, arg) in array[1..].iter_mut().zip(args) {
            *place = arg.as_ptr();
        }
        let count = args.len() | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
        assert!(args.len() <= MOST_ARGUMENTS, "call() takes at most {MOST_ARGUMENTS} arguments");
        // SAFETY: the callable and every argument are alive for the call; the first place of the
        // array is scratch, as the offset flag promises.
        unsafe { vectorcall(self.as_ptr(), array.as_ptr().add(1), count, ptr::null_mut()) }
    }

    /// `self(**keywords)`
    pub(crate) fn call_keywords(self, keywords: Obj<'_>) -> Result<Ref> {
        let none = Ref::tuple(&[])?;
        // SAFETY: the callable, the tuple and the dict are alive for the call.
        unsafe {
            Ref::from_new(ffi::PyObject_Call(self.as_ptr(), none.as_ptr(), keywords.as_ptr()))
        }
    }

    /// `self(*args)` with the arguments in a tuple.
    pub(crate) fn call_tuple(self, args: Obj<'_>) -> Result<Ref> {
        // SAFETY: the callable and the tuple are alive for the call.
        unsafe { Ref::from_new(ffi::PyObject_Call(self.as_ptr(), args.as_ptr(), ptr::null_mut())) }
    }

    /// `self.name(*args)`; at most five arguments.
    pub(crate) fn call_method(self, name: &Interned, args: &[Obj<'_>]) -> Result<Ref> {
        let mut array = [ptr::null_mut(); MOST_ARGUMENTS + 1];
        array[1] = self.as_ptr();
        for (place, arg) in array[2..].iter_mut().zip(args) {
            *place = arg.as_ptr();
        }
        assert!(args.len() < MOST_ARGUMENTS, "call_method() takes fewer arguments");
        let count = (args.len() + 1) | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
        // SAFETY: receiver, name and arguments are alive; the first place is scratch.
        unsafe {
            let result = ffi::PyObject_VectorcallMethod(
                name.obj().as_ptr(),
                array.as_ptr().add(1),
                count,
                ptr::null_mut(),
            );
            Ref::from_new(result)
        }
    }
}

/// `PyObject_Vectorcall` without a look at the thread's state and with a smaller check of the answer,
/// as the interpreter's own specialized calls have it: null has an exception with it.
///
/// # Safety
/// The callable and the arguments are alive for the call; `args` and `count` are as the vectorcall
/// protocol has them, and `names` is null or a tuple.
#[inline(always)]
pub(super) unsafe fn vectorcall(
    callable: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: usize,
    names: *mut ffi::PyObject,
) -> Result<Ref> {
    // SAFETY: a live object has a live type; one that has the flag keeps its function at the
    // offset that it names (PEP 590).
    let function = unsafe {
        let class = ffi::Py_TYPE(callable);
        if ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HAVE_VECTORCALL) != 0 {
            let place = callable.cast::<u8>().offset((*class).tp_vectorcall_offset);
            *place.cast::<Option<ffi::vectorcallfunc>>()
        } else {
            None
        }
    };
    // SAFETY: the caller's promise; the answer is a new reference or null.
    unsafe {
        let answer = match function {
            Some(function) => function(callable, args, count, names),
            None => ffi::PyObject_Vectorcall(callable, args, count, names),
        };
        Ref::from_new(answer).inspect_err(Raised::ensure_set)
    }
}

/// A `contextvars.Context`.
pub(crate) struct Context;

impl Context {
    /// A copy of the current context (O(1), PEP 567).
    pub(crate) fn copy_current() -> Result<Ref> {
        // SAFETY: returns a new reference or null with an error.
        unsafe { Ref::from_new(ffi::PyContext_CopyCurrent()) }
    }

    /// Runs `body` inside `context`, and leaves the context before the answer is looked at, so
    /// that an error handler may enter it again.
    #[inline(always)]
    pub(crate) fn run<T>(context: Obj<'_>, body: impl FnOnce() -> Result<T>) -> Result<T> {
        // SAFETY: a live object; CPython checks that it is a context that is not entered.
        if unsafe { ffi::PyContext_Enter(context.as_ptr()) } != 0 {
            return Err(Raised);
        }
        let answer = body();
        // SAFETY: the context was entered above by this thread.
        if unsafe { ffi::PyContext_Exit(context.as_ptr()) } != 0 {
            return Err(Raised);
        }
        answer
    }
}

/// Waits for events with the interpreter released, so that other threads run Python meanwhile.
pub(crate) fn wait_detached(
    poller: &Poller,
    events: &mut Events,
    timeout: Option<Duration>,
) -> io::Result<usize> {
    /// Takes the interpreter again, whichever way the scope is left.
    struct Attach(*mut ffi::PyThreadState);

    impl Drop for Attach {
        fn drop(&mut self) {
            // SAFETY: the state that this thread saved.
            unsafe { ffi::PyEval_RestoreThread(self.0) };
        }
    }

    // SAFETY: callers are methods of native types, which Python calls attached; the wait below
    // touches no Python object.
    let _attach = Attach(unsafe { ffi::PyEval_SaveThread() });
    poller.wait(events, timeout)
}
