//! `bytes` objects: chunks of a write queue, and the loop's read buffer.

use std::mem::MaybeUninit;
use std::slice;

use pyo3::ffi;

use super::error::Result;
use super::object::{Obj, Ref};

/// Bytes of the loop's read buffer, and the most that one read takes.
const READ_BUFFER_SIZE: usize = 256 * 1024;

/// A read of at least this many bytes may be handed over without a copy.
const UNCOPIED_FROM: usize = 64 * 1024;

/// An exact `bytes` object as a chunk: its content can never change.
pub(crate) struct BytesRef(Ref);

impl BytesRef {
    /// `None` where the object is not exactly `bytes`.
    pub(crate) fn new(object: Obj<'_>) -> Option<Self> {
        object.is_exact_bytes().then(|| Self(object.to_ref()))
    }
}

impl AsRef<[u8]> for BytesRef {
    fn as_ref(&self) -> &[u8] {
        let ptr = self.0.as_ptr();
        // SAFETY: an exact bytes object, alive by this value's reference, is immutable.
        unsafe {
            let length = ffi::Py_SIZE(ptr) as usize;
            slice::from_raw_parts(ffi::PyBytes_AS_STRING(ptr).cast(), length)
        }
    }
}

/// The loop's one read buffer. It is itself a `bytes` object: small reads are copied out of it
/// exactly; a bulk read hands the object itself to the protocol and takes it back when the
/// protocol has let go of it, so that a steady bulk stream neither copies nor allocates.
pub(crate) struct ReadBuffer {
    object: Option<Ref>,
    /// Whether the last object handed over was still held when the callback returned.
    kept: bool,
}

impl ReadBuffer {
    pub(crate) const fn new() -> Self {
        Self { object: None, kept: false }
    }

    fn object(&mut self) -> Result<&Ref> {
        if self.object.is_none() {
            // SAFETY: makes a bytes object whose content is not yet set; nobody else sees it.
            let object = unsafe {
                Ref::from_new(ffi::PyBytes_FromStringAndSize(
                    std::ptr::null(),
                    READ_BUFFER_SIZE as ffi::Py_ssize_t,
                ))?
            };
            self.object = Some(object);
        }
        Ok(self.object.as_ref().expect("was just made"))
    }

    /// The buffer to read into.
    pub(crate) fn space(&mut self) -> Result<&mut [MaybeUninit<u8>]> {
        let ptr = self.object()?.as_ptr();
        // SAFETY: between reads this value holds the only reference (see `take_back`), and the
        // size is the one it was made with; bytes that hold nothing yet are said to.
        Ok(unsafe {
            slice::from_raw_parts_mut(
                ffi::PyBytes_AS_STRING(ptr).cast_mut().cast(),
                READ_BUFFER_SIZE,
            )
        })
    }

    /// The first `count` bytes: a copy of exactly that size, or the buffer itself where that
    /// wastes nothing. After the callback, `take_back` must follow if the second value is true.
    pub(crate) fn deliver(&mut self, count: usize) -> Result<(Ref, bool)> {
        let kept = self.kept;
        let object = self.object()?;
        if count < UNCOPIED_FROM || (kept && count < READ_BUFFER_SIZE) {
            let ptr = object.as_ptr();
            // SAFETY: the first `count` bytes of the buffer were just read into it.
            let copy = unsafe {
                Ref::from_new(ffi::PyBytes_FromStringAndSize(
                    ffi::PyBytes_AS_STRING(ptr),
                    count as ffi::Py_ssize_t,
                ))?
            };
            return Ok((copy, false));
        }
        let object = object.clone();
        // SAFETY: the only references are this value's; the size shrinks within the allocation,
        // and the byte after the content is the terminator that bytes objects carry.
        unsafe { set_size(&object, count) };
        Ok((object, true))
    }

    /// After a callback that was given the buffer itself: keeps it if nobody else does.
    pub(crate) fn take_back(&mut self, lent: Ref) {
        let ptr = lent.as_ptr();
        drop(lent);
        // SAFETY: this value still holds a reference, so the object is alive.
        let alone = unsafe { ffi::Py_REFCNT(ptr) } == 1;
        self.kept = !alone;
        if alone {
            let object = self.object.as_ref().expect("a lent buffer is still held here");
            // SAFETY: the only reference is this value's: no one can see the object change.
            unsafe { set_size(object, READ_BUFFER_SIZE) };
        } else {
            self.object = None;
        }
    }
}

/// # Safety
/// `object` is a bytes object made with at least `size` bytes that nobody else looks at.
unsafe fn set_size(object: &Ref, size: usize) {
    let ptr = object.as_ptr();
    // SAFETY: by the contract the allocation holds `size` bytes and a terminator, and the object
    // is unshared; the cached hash is reset because the content changes.
    #[allow(deprecated)]
    unsafe {
        let bytes = ptr.cast::<ffi::PyBytesObject>();
        (*bytes).ob_base.ob_size = size as ffi::Py_ssize_t;
        (*bytes).ob_shash = -1;
        ffi::PyBytes_AS_STRING(ptr).cast_mut().add(size).write(0);
    }
}
