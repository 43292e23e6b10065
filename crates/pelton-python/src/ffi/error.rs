//! Python exceptions as a Rust error: a marker that CPython's error indicator is set.

use std::ffi::CString;
use std::io;
use std::ptr;

use pyo3::ffi;

use super::object::{Obj, Ref};

/// An exception is set in the interpreter; whoever gets this passes it on, reports it
/// ([`Raised::take`]) or drops it ([`Raised::discard`]).
#[derive(Debug)]
#[must_use]
pub(crate) struct Raised;

pub(crate) type Result<T> = std::result::Result<T, Raised>;

#[allow(deprecated, reason = "Python 3.11 has no other way to take and set an exception")]
impl Raised {
    pub(crate) fn is_set() -> bool {
        // SAFETY: reads this thread's error indicator.
        !unsafe { ffi::PyErr_Occurred() }.is_null()
    }

    /// Makes sure that an exception is set, also where faulty native code reports an error without.
    #[cold]
    pub(super) fn ensure_set(&self) {
        if !Self::is_set() {
            // SAFETY: reads the address of a static of the interpreter.
            let kind = unsafe { ffi::PyExc_SystemError };
            let Self = Self::with(kind, "a call failed without setting an exception");
        }
    }

    #[cold]
    fn with(kind: *mut ffi::PyObject, message: &str) -> Self {
        let message = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
        // SAFETY: `kind` is one of the interpreter's exception classes, the message a C string.
        unsafe { ffi::PyErr_SetString(kind, message.as_ptr()) };
        Self
    }

    pub(crate) fn type_error(message: &str) -> Self {
        // SAFETY: reads the address of a static of the interpreter.
        Self::with(unsafe { ffi::PyExc_TypeError }, message)
    }

    pub(crate) fn value_error(message: &str) -> Self {
        // SAFETY: reads the address of a static of the interpreter.
        Self::with(unsafe { ffi::PyExc_ValueError }, message)
    }

    pub(crate) fn runtime_error(message: &str) -> Self {
        // SAFETY: reads the address of a static of the interpreter.
        Self::with(unsafe { ffi::PyExc_RuntimeError }, message)
    }

    pub(crate) fn connection_error(message: &str) -> Self {
        // SAFETY: reads the address of a static of the interpreter.
        Self::with(unsafe { ffi::PyExc_ConnectionError }, message)
    }

    pub(crate) fn connection_reset(message: &str) -> Self {
        // SAFETY: reads the address of a static of the interpreter.
        Self::with(unsafe { ffi::PyExc_ConnectionResetError }, message)
    }

    pub(crate) fn not_implemented() -> Self {
        // SAFETY: reads the address of a static of the interpreter.
        Self::with(unsafe { ffi::PyExc_NotImplementedError }, "")
    }

    pub(crate) fn assertion_error(message: &str) -> Self {
        // SAFETY: reads the address of a static of the interpreter.
        Self::with(unsafe { ffi::PyExc_AssertionError }, message)
    }

    /// `BrokenPipeError()`
    pub(crate) fn broken_pipe() -> Self {
        // SAFETY: the class is the interpreter's; it is raised without arguments.
        unsafe { ffi::PyErr_SetNone(ffi::PyExc_BrokenPipeError) };
        Self
    }

    /// `OSError(errno, strerror)`: CPython picks the subclass (`ConnectionResetError`, ...).
    pub(crate) fn os_error(error: &io::Error) -> Self {
        let Some(code) = error.raw_os_error() else {
            // SAFETY: reads the address of a static of the interpreter.
            return Self::with(unsafe { ffi::PyExc_OSError }, &error.to_string());
        };
        // SAFETY: errno belongs to this thread.
        unsafe { *libc_errno() = code };
        // SAFETY: makes the exception from errno, which was just set.
        unsafe { ffi::PyErr_SetFromErrno(ffi::PyExc_OSError) };
        Self
    }

    /// Sets an exception object as the one raised.
    pub(crate) fn from_exception(exception: Ref) -> Self {
        let ptr = exception.into_ptr();
        // SAFETY: PyErr_Restore takes over both references (the class's is taken here).
        unsafe {
            let class = ffi::Py_TYPE(ptr).cast::<ffi::PyObject>();
            ffi::Py_INCREF(class);
            ffi::PyErr_Restore(class, ptr, ffi::PyException_GetTraceback(ptr));
        }
        Self
    }

    fn matches(&self, kind: *mut ffi::PyObject) -> bool {
        // SAFETY: an error is set, by this type's meaning; `kind` is an exception class.
        unsafe { ffi::PyErr_ExceptionMatches(kind) != 0 }
    }

    /// Whether the exception is of this class.
    pub(crate) fn is(&self, class: Obj<'_>) -> bool {
        self.matches(class.as_ptr())
    }

    pub(crate) fn is_attribute_error(&self) -> bool {
        // SAFETY: reads the address of a static of the interpreter.
        self.matches(unsafe { ffi::PyExc_AttributeError })
    }

    pub(crate) fn is_import_error(&self) -> bool {
        // SAFETY: reads the address of a static of the interpreter.
        self.matches(unsafe { ffi::PyExc_ImportError })
    }

    pub(crate) fn is_os_error(&self) -> bool {
        // SAFETY: reads the address of a static of the interpreter.
        self.matches(unsafe { ffi::PyExc_OSError })
    }

    /// Whether a call on a non-blocking socket is to be made again later.
    pub(crate) fn is_would_block(&self) -> bool {
        // SAFETY: reads the addresses of statics of the interpreter.
        let (blocking, interrupted) =
            unsafe { (ffi::PyExc_BlockingIOError, ffi::PyExc_InterruptedError) };
        self.matches(blocking) || self.matches(interrupted)
    }

    /// `SystemExit` and `KeyboardInterrupt`, which asyncio lets through everywhere.
    pub(crate) fn ends_the_loop(&self) -> bool {
        // SAFETY: reads the addresses of statics of the interpreter.
        let (exit, interrupt) = unsafe { (ffi::PyExc_SystemExit, ffi::PyExc_KeyboardInterrupt) };
        self.matches(exit) || self.matches(interrupt)
    }

    /// The exception object, with its traceback; clears the indicator.
    pub(crate) fn take(self) -> Ref {
        let (mut kind, mut value, mut trace) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: the three-pointer protocol works on every supported version; after it all
        // three references are ours.
        unsafe {
            ffi::PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut trace);
            ffi::PyErr_NormalizeException(&raw mut kind, &raw mut value, &raw mut trace);
            if !trace.is_null() {
                ffi::PyException_SetTraceback(value, trace);
            }
            ffi::Py_XDECREF(kind);
            ffi::Py_XDECREF(trace);
        }
        // SAFETY: a normalized exception has a value, and its reference is ours.
        unsafe { Ref::from_new(value) }.unwrap_or_else(|_| Ref::none())
    }

    pub(crate) fn discard(self) {
        // SAFETY: clears this thread's indicator.
        unsafe { ffi::PyErr_Clear() };
    }

    /// Prints the exception as one that has nowhere to go (`sys.unraisablehook`).
    pub(crate) fn unraisable(self, place: Option<Obj<'_>>) {
        // SAFETY: an error is set; the object is alive or null.
        unsafe { ffi::PyErr_WriteUnraisable(place.map_or(ptr::null_mut(), Obj::as_ptr)) };
    }

    /// Lets the interpreter run the handlers of signals that have arrived.
    pub(crate) fn check_signals() -> Result<()> {
        // SAFETY: the thread is attached.
        if unsafe { ffi::PyErr_CheckSignals() } == 0 { Ok(()) } else { Err(Self) }
    }
}

/// Runs `last` whether or not an exception is set, and passes on the first that was raised.
pub(crate) fn finally(first: Result<()>, last: impl FnOnce() -> Result<()>) -> Result<()> {
    let pending = first.err().map(Raised::take);
    let answer = last();
    let Some(exception) = pending else { return answer };
    if let Err(raised) = answer {
        raised.unraisable(None);
    }
    Err(Raised::from_exception(exception))
}

fn libc_errno() -> *mut i32 {
    // SAFETY: the C library's own declaration.
    unsafe extern "C" {
        fn __errno_location() -> *mut i32;
    }
    // SAFETY: glibc and musl give the address of this thread's errno.
    unsafe { __errno_location() }
}
