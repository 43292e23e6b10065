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

    pub(crate) fn obj(&self) -> Obj<'_> {
        self.0.obj()
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
#[derive(Default)]
pub(crate) struct ReadBuffer {
    /// While it is here, nobody else has a reference to it, and its size is `READ_BUFFER_SIZE`.
    object: Option<Ref>,
    /// Whether the last bulk read was still held when its callback returned.
    kept: bool,
}

/// What a protocol is given: see [`ReadBuffer::deliver`].
pub(crate) struct Delivery {
    bytes: Ref,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Small,
    BulkCopy,
    /// The buffer itself, which is no longer the loop's.
    Lent,
}

impl Delivery {
    pub(crate) fn bytes(&self) -> Obj<'_> {
        self.bytes.obj()
    }

    pub(crate) fn is_small(&self) -> bool {
        self.kind == Kind::Small
    }
}

impl ReadBuffer {
    pub(crate) const fn new() -> Self {
        Self { object: None, kept: false }
    }

    /// The buffer to read into.
    pub(crate) fn space(&mut self) -> Result<&mut [MaybeUninit<u8>]> {
        let object = match self.object.take() {
            Some(object) => object,
            // SAFETY: makes a bytes object whose content is not yet set; nobody else sees it.
            None => unsafe {
                let size = READ_BUFFER_SIZE as ffi::Py_ssize_t;
                Ref::from_new(ffi::PyBytes_FromStringAndSize(std::ptr::null(), size))?
            },
        };
        let ptr = self.object.insert(object).as_ptr();
        // SAFETY: by the field's invariant the object is this value's alone and has this size;
        // bytes that hold nothing yet are said to.
        Ok(unsafe {
            slice::from_raw_parts_mut(
                ffi::PyBytes_AS_STRING(ptr).cast_mut().cast(),
                READ_BUFFER_SIZE,
            )
        })
    }

    /// The first `count` bytes, just read.
    pub(crate) fn filled(&self, count: usize) -> &[u8] {
        let Some(object) = &self.object else { return &[] };
        assert!(count <= READ_BUFFER_SIZE, "no read fills more than the buffer");
        // SAFETY: a read into the buffer has just set these bytes, and nobody else changes them.
        unsafe { slice::from_raw_parts(ffi::PyBytes_AS_STRING(object.as_ptr()).cast(), count) }
    }

    /// The first `count` bytes, just read: a copy of exactly that size, or the buffer itself
    /// where that wastes nothing. One that is not small is given to `take_back` after the
    /// callback.
    pub(crate) fn deliver(&mut self, count: usize) -> Result<Delivery> {
        let object = self.object.take().expect("a read into the buffer came before");
        let bulk = count >= UNCOPIED_FROM;
        if bulk && (!self.kept || count == READ_BUFFER_SIZE) {
            // SAFETY: the one reference was this value's; the size shrinks within the allocation.
            unsafe { set_size(&object, count) };
            return Ok(Delivery { bytes: object, kind: Kind::Lent });
        }
        // SAFETY: the first `count` bytes of the buffer were just read into it.
        let copy = unsafe {
            let content = ffi::PyBytes_AS_STRING(object.as_ptr());
            Ref::from_new(ffi::PyBytes_FromStringAndSize(content, count as ffi::Py_ssize_t))
        };
        self.object = Some(object);
        let kind = if bulk { Kind::BulkCopy } else { Kind::Small };
        Ok(Delivery { bytes: copy?, kind })
    }

    /// After the callback: the buffer comes back if nobody else holds it.
    pub(crate) fn take_back(&mut self, delivery: Delivery) {
        let Delivery { bytes, kind } = delivery;
        // SAFETY: the object is alive by the reference here.
        let alone = unsafe { ffi::Py_REFCNT(bytes.as_ptr()) } == 1;
        self.kept = !alone;
        // Another one may be in its place: the callback has run a turn of its own.
        if kind == Kind::Lent && alone && self.object.is_none() {
            // SAFETY: the only reference is the one here: no one can see the object change.
            unsafe { set_size(&bytes, READ_BUFFER_SIZE) };
            self.object = Some(bytes);
        }
    }
}

/// # Safety
/// `object` is a bytes object made with at least `size` bytes that nobody else looks at.
#[allow(deprecated, reason = "the cached hash is still there, whatever its name")]
unsafe fn set_size(object: &Ref, size: usize) {
    let ptr = object.as_ptr();
    // SAFETY: by the contract the allocation holds `size` bytes and a terminator, and the object
    // is unshared; the cached hash is reset because the content changes.
    unsafe {
        let bytes = ptr.cast::<ffi::PyBytesObject>();
        (*bytes).ob_base.ob_size = size as ffi::Py_ssize_t;
        (*bytes).ob_shash = -1;
        ffi::PyBytes_AS_STRING(ptr).cast_mut().add(size).write(0);
    }
}
