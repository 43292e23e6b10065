//! Views of other objects' memory (the buffer protocol), held for the length of one call.

use std::mem::MaybeUninit;
use std::slice;

use pyo3::ffi;

use super::error::{Raised, Result};
use super::object::{Interned, Obj, Ref};

static RELEASE: Interned = Interned::new(c"release");

/// A C-contiguous view. While it is held, the exporter can neither move nor free the memory.
pub(crate) struct BufferView(ffi::Py_buffer);

impl BufferView {
    /// Calls `body` with the object's bytes, whatever its item size and dimensions.
    ///
    /// Fails with `BufferError` for memory that is not contiguous.
    pub(crate) fn read<T>(object: Obj<'_>, body: impl FnOnce(&[u8]) -> T) -> Result<T> {
        Self::with(object, ffi::PyBUF_SIMPLE, |view| {
            if view.0.len == 0 {
                return body(&[]);
            }
            // SAFETY: the export pins `len` bytes at `buf`, and no Python code that could change
            // them runs while `body` does, because the lock is held.
            body(unsafe { slice::from_raw_parts(view.0.buf.cast(), view.0.len as usize) })
        })
    }

    /// Calls `body` with the object's bytes to write into; `BufferError` where it is read-only.
    pub(crate) fn write<T>(object: Obj<'_>, body: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        Self::with(object, ffi::PyBUF_WRITABLE, |view| {
            if view.0.len == 0 {
                return body(&mut []);
            }
            // SAFETY: as above, and the view was asked for writing.
            body(unsafe { slice::from_raw_parts_mut(view.0.buf.cast(), view.0.len as usize) })
        })
    }

    /// As `write`, for code that only fills the bytes.
    pub(crate) fn write_uninit<T>(
        object: Obj<'_>,
        body: impl FnOnce(&mut [MaybeUninit<u8>]) -> T,
    ) -> Result<T> {
        Self::with(object, ffi::PyBUF_WRITABLE, |view| {
            if view.0.len == 0 {
                return body(&mut []);
            }
            // SAFETY: as above; initialised bytes may be seen as bytes that need not be.
            body(unsafe { slice::from_raw_parts_mut(view.0.buf.cast(), view.0.len as usize) })
        })
    }

    /// The view stays where it was filled, as exporters may expect.
    fn with<T>(object: Obj<'_>, flags: i32, body: impl FnOnce(&Self) -> T) -> Result<T> {
        let mut space = MaybeUninit::<Self>::zeroed();
        let view = space.as_mut_ptr().cast::<ffi::Py_buffer>();
        // SAFETY: the object is alive, and `view` is memory for one Py_buffer.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view, flags) } != 0 {
            return Err(Raised);
        }
        // SAFETY: a successful call has filled the view.
        let answer = body(unsafe { space.assume_init_ref() });
        // SAFETY: the view was filled above and is released once.
        unsafe { ffi::PyBuffer_Release(view) };
        Ok(answer)
    }
}

/// Calls `body` with a `memoryview` of `bytes`, for C functions that only look at it.
pub(crate) fn lend<T>(bytes: &[u8], body: impl FnOnce(Obj<'_>) -> Result<T>) -> Result<T> {
    let (start, size) = (bytes.as_ptr().cast_mut().cast(), bytes.len() as ffi::Py_ssize_t);
    // SAFETY: pointer and length describe live memory, which the view may not write to; the view
    // is released below, before the memory can go.
    let view = unsafe { ffi::PyMemoryView_FromMemory(start, size, ffi::PyBUF_READ) };
    lent(view, body)
}

/// Calls `body` with a writable `memoryview` of `space`, for C functions that fill it.
pub(crate) fn lend_mut<T>(
    space: &mut [MaybeUninit<u8>],
    body: impl FnOnce(Obj<'_>) -> Result<T>,
) -> Result<T> {
    let (start, size) = (space.as_mut_ptr().cast(), space.len() as ffi::Py_ssize_t);
    // SAFETY: as above; bytes may be written there and are read by nobody before that.
    let view = unsafe { ffi::PyMemoryView_FromMemory(start, size, ffi::PyBUF_WRITE) };
    lent(view, body)
}

fn lent<T>(view: *mut ffi::PyObject, body: impl FnOnce(Obj<'_>) -> Result<T>) -> Result<T> {
    // SAFETY: a new reference, or null with an error.
    let view = unsafe { Ref::from_new(view)? };
    let answer = body(view.obj());
    let pending = answer.as_ref().is_err().then(|| Raised.take());
    // Whoever kept the view sees a released one; the memory is the caller's again.
    view.obj().call_method(&RELEASE, &[])?;
    match pending {
        Some(exception) => Err(Raised::from_exception(exception)),
        None => answer,
    }
}
