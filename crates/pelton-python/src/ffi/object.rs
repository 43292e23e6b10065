//! References to Python objects: strong ([`Ref`]), borrowed ([`Obj`]) and stored ([`Slot`]).

use std::cell::{Cell, OnceCell};
use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use pyo3::ffi;

use super::error::{Raised, Result};

/// A strong reference. Cloning takes another one, dropping gives it back.
pub(crate) struct Ref(NonNull<ffi::PyObject>);

impl Ref {
    /// Takes over a new reference as the C API returns it; null means that an error is set.
    ///
    /// # Safety
    /// `ptr` is null with the error indicator set, or a reference that the caller owns.
    pub(super) unsafe fn from_new(ptr: *mut ffi::PyObject) -> Result<Self> {
        NonNull::new(ptr).map(Self).ok_or(Raised)
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::PyObject {
        self.0.as_ptr()
    }

    /// Gives the reference to C code that wants to own one.
    pub(super) fn into_ptr(self) -> *mut ffi::PyObject {
        let ptr = self.0.as_ptr();
        std::mem::forget(self);
        ptr
    }

    pub(crate) fn obj(&self) -> Obj<'_> {
        Obj(self.0, PhantomData)
    }

    pub(crate) fn none() -> Self {
        // SAFETY: None is a live object for the whole life of the interpreter.
        unsafe { Obj::from_ptr(ffi::Py_None()) }.to_ref()
    }

    /// None, lent for ever.
    pub(crate) fn none_obj() -> Obj<'static> {
        // SAFETY: None is a live object for the whole life of the interpreter.
        unsafe { Obj::from_ptr(ffi::Py_None()) }
    }

    pub(crate) fn bool(value: bool) -> Self {
        // SAFETY: True and False are live for the whole life of the interpreter.
        unsafe { Obj::from_ptr(if value { ffi::Py_True() } else { ffi::Py_False() }) }.to_ref()
    }

    pub(crate) fn float(value: f64) -> Result<Self> {
        // SAFETY: returns a new reference or null with an error.
        unsafe { Self::from_new(ffi::PyFloat_FromDouble(value)) }
    }

    pub(crate) fn int(value: i64) -> Result<Self> {
        // SAFETY: returns a new reference or null with an error.
        unsafe { Self::from_new(ffi::PyLong_FromLongLong(value)) }
    }

    pub(crate) fn str(value: &str) -> Result<Self> {
        let length = value.len() as ffi::Py_ssize_t;
        // SAFETY: pointer and length describe one live UTF-8 string.
        unsafe { Self::from_new(ffi::PyUnicode_FromStringAndSize(value.as_ptr().cast(), length)) }
    }

    pub(crate) fn bytes(value: &[u8]) -> Result<Self> {
        let length = value.len() as ffi::Py_ssize_t;
        // SAFETY: pointer and length describe live memory, which is copied.
        unsafe { Self::from_new(ffi::PyBytes_FromStringAndSize(value.as_ptr().cast(), length)) }
    }

    /// A file's path as `os.fsdecode` has it.
    pub(crate) fn path(value: &[u8]) -> Result<Self> {
        let length = value.len() as ffi::Py_ssize_t;
        // SAFETY: pointer and length describe live memory, which is copied.
        unsafe {
            Self::from_new(ffi::PyUnicode_DecodeFSDefaultAndSize(value.as_ptr().cast(), length))
        }
    }

    pub(crate) fn tuple(items: &[Obj<'_>]) -> Result<Self> {
        // SAFETY: returns a new reference or null with an error.
        let tuple = unsafe { Self::from_new(ffi::PyTuple_New(items.len() as ffi::Py_ssize_t))? };
        for (index, item) in items.iter().enumerate() {
            let item = item.to_ref().into_ptr();
            // SAFETY: the tuple is new and unshared, the index is within it, and the item's
            // reference is handed over.
            unsafe { ffi::PyTuple_SET_ITEM(tuple.as_ptr(), index as ffi::Py_ssize_t, item) };
        }
        Ok(tuple)
    }

    /// An empty list.
    pub(crate) fn list() -> Result<Self> {
        // SAFETY: returns a new reference or null with an error.
        unsafe { Self::from_new(ffi::PyList_New(0)) }
    }

    pub(crate) fn dict() -> Result<Self> {
        // SAFETY: returns a new reference or null with an error.
        unsafe { Self::from_new(ffi::PyDict_New()) }
    }
}

impl Clone for Ref {
    fn clone(&self) -> Self {
        self.obj().to_ref()
    }
}

impl Drop for Ref {
    fn drop(&mut self) {
        // SAFETY: this value owns one reference, and values of this type exist only while the
        // thread is attached.
        unsafe { ffi::Py_DECREF(self.0.as_ptr()) };
    }
}

/// A borrowed reference: some owner keeps the object alive for `'a`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Obj<'a>(NonNull<ffi::PyObject>, PhantomData<&'a Ref>);

impl<'a> Obj<'a> {
    /// # Safety
    /// `ptr` is not null and some owner keeps it alive for `'a`.
    pub(super) unsafe fn from_ptr(ptr: *mut ffi::PyObject) -> Self {
        // SAFETY: not null by this function's contract.
        Self(unsafe { NonNull::new_unchecked(ptr) }, PhantomData)
    }

    pub(super) fn as_ptr(self) -> *mut ffi::PyObject {
        self.0.as_ptr()
    }

    pub(crate) fn to_ref(self) -> Ref {
        // SAFETY: the object is alive, so another reference may be taken.
        unsafe { ffi::Py_INCREF(self.0.as_ptr()) };
        Ref(self.0)
    }

    /// What `id(self)` is: the object's own as long as someone holds it.
    pub(crate) fn id(self) -> usize {
        self.0.as_ptr() as usize
    }

    /// `type(self)`
    pub(crate) fn class(self) -> Self {
        // SAFETY: a live object has a type, which it keeps alive.
        unsafe { Self::from_ptr(ffi::Py_TYPE(self.0.as_ptr()).cast()) }
    }

    pub(crate) fn is_none(self) -> bool {
        // SAFETY: reads the address of the None object.
        self.0.as_ptr() == unsafe { ffi::Py_None() }
    }

    /// Whether both are the same object.
    pub(crate) fn is(self, other: Obj<'_>) -> bool {
        self.0 == other.0
    }

    pub(crate) fn is_exact_bytes(self) -> bool {
        // SAFETY: the object is alive.
        unsafe { ffi::PyBytes_CheckExact(self.0.as_ptr()) != 0 }
    }

    /// Whether this is one of the three types that asyncio's `write()` takes.
    pub(crate) fn is_bytes_like(self) -> bool {
        let ptr = self.0.as_ptr();
        // SAFETY: the object is alive; the checks only read its type.
        unsafe {
            ffi::PyBytes_Check(ptr) != 0
                || ffi::PyByteArray_Check(ptr) != 0
                || ffi::PyMemoryView_Check(ptr) != 0
        }
    }

    /// `isinstance(self, class)`.
    pub(crate) fn is_instance(self, class: Obj<'_>) -> Result<bool> {
        // SAFETY: both objects are alive.
        match unsafe { ffi::PyObject_IsInstance(self.0.as_ptr(), class.as_ptr()) } {
            -1 => Err(Raised),
            answer => Ok(answer == 1),
        }
    }

    /// `type(self) is class`.
    pub(crate) fn is_exactly(self, class: Obj<'_>) -> bool {
        // SAFETY: the object is alive.
        unsafe { ffi::Py_TYPE(self.0.as_ptr()).cast() == class.as_ptr() }
    }

    /// `bool(self)`.
    pub(crate) fn is_true(self) -> Result<bool> {
        // SAFETY: the object is alive.
        match unsafe { ffi::PyObject_IsTrue(self.0.as_ptr()) } {
            -1 => Err(Raised),
            answer => Ok(answer == 1),
        }
    }

    pub(crate) fn to_f64(self) -> Result<f64> {
        // SAFETY: the object is alive.
        let value = unsafe { ffi::PyFloat_AsDouble(self.0.as_ptr()) };
        if value == -1.0 && Raised::is_set() { Err(Raised) } else { Ok(value) }
    }

    pub(crate) fn to_i64(self) -> Result<i64> {
        // SAFETY: the object is alive.
        let value = unsafe { ffi::PyLong_AsLongLong(self.0.as_ptr()) };
        if value == -1 && Raised::is_set() { Err(Raised) } else { Ok(value) }
    }

    pub(crate) fn attr(self, name: &Interned) -> Result<Ref> {
        // SAFETY: both objects are alive; returns a new reference or null with an error.
        unsafe { Ref::from_new(ffi::PyObject_GetAttr(self.0.as_ptr(), name.obj().as_ptr())) }
    }

    /// The attribute, or `None` where it is missing; other errors are passed on.
    pub(crate) fn attr_or_none(self, name: &Interned) -> Result<Option<Ref>> {
        match self.attr(name) {
            Ok(value) => Ok(Some(value)),
            Err(raised) if raised.is_attribute_error() => {
                raised.discard();
                Ok(None)
            }
            Err(raised) => Err(raised),
        }
    }

    /// Appends to a list.
    pub(crate) fn append(self, item: Obj<'_>) -> Result<()> {
        // SAFETY: both objects are alive; the call checks that this is a list.
        match unsafe { ffi::PyList_Append(self.as_ptr(), item.as_ptr()) } {
            0 => Ok(()),
            _ => Err(Raised),
        }
    }

    pub(crate) fn set_item(self, key: Obj<'_>, value: Obj<'_>) -> Result<()> {
        // SAFETY: all three objects are alive; references are not stolen.
        match unsafe { ffi::PyDict_SetItem(self.as_ptr(), key.as_ptr(), value.as_ptr()) } {
            0 => Ok(()),
            _ => Err(Raised),
        }
    }

    /// The value of `key` where `self` is an exact dict.
    pub(crate) fn dict_get(self, key: Obj<'_>) -> Result<Option<Ref>> {
        // SAFETY: both objects are alive; the answer is borrowed from the dict.
        let value = unsafe { ffi::PyDict_GetItemWithError(self.as_ptr(), key.as_ptr()) };
        if value.is_null() {
            return if Raised::is_set() { Err(Raised) } else { Ok(None) };
        }
        // SAFETY: not null, and the dict keeps it alive until a reference is taken here.
        Ok(Some(unsafe { Obj::from_ptr(value) }.to_ref()))
    }

    /// The items of any iterable, as a tuple.
    pub(crate) fn to_tuple(self) -> Result<Ref> {
        // SAFETY: the object is alive; returns a new reference or null with an error.
        unsafe { Ref::from_new(ffi::PySequence_Tuple(self.0.as_ptr())) }
    }

    pub(crate) fn tuple_len(self) -> usize {
        // SAFETY: callers pass tuples only; a wrong type answers -1 with an error set.
        let length = unsafe { ffi::PyTuple_Size(self.0.as_ptr()) };
        usize::try_from(length).expect("tuple_len() is asked of tuples only")
    }

    pub(crate) fn tuple_item(self, index: usize) -> Result<Ref> {
        // SAFETY: the object is alive; the call checks type and range and lends its answer.
        let item = unsafe { ffi::PyTuple_GetItem(self.0.as_ptr(), index as ffi::Py_ssize_t) };
        // SAFETY: not null means borrowed from the tuple, which is alive.
        if item.is_null() { Err(Raised) } else { Ok(unsafe { Obj::from_ptr(item) }.to_ref()) }
    }

    /// `type(self).__name__`, for messages.
    pub(crate) fn type_name(self) -> String {
        // SAFETY: a live object has a live type whose name is a C string.
        let full = unsafe { CStr::from_ptr((*ffi::Py_TYPE(self.0.as_ptr())).tp_name) };
        let full = full.to_string_lossy();
        full.rsplit('.').next().unwrap_or_default().to_owned()
    }

    /// `repr(self)`
    pub(crate) fn repr(self) -> Result<Ref> {
        // SAFETY: the object is alive; returns a new reference or null with an error.
        unsafe { Ref::from_new(ffi::PyObject_Repr(self.0.as_ptr())) }
    }

    pub(crate) fn is_exact_tuple(self) -> bool {
        // SAFETY: the object is alive.
        unsafe { ffi::PyTuple_CheckExact(self.0.as_ptr()) != 0 }
    }

    pub(crate) fn is_exact_int(self) -> bool {
        // SAFETY: the object is alive.
        unsafe { ffi::PyLong_CheckExact(self.0.as_ptr()) != 0 }
    }

    /// The text of an exact string of ASCII, lent by the string; `None` for anything else.
    pub(crate) fn ascii(self) -> Option<&'a str> {
        let mut length = 0;
        // SAFETY: the object is alive; the call is made for strings only, and those of ASCII hold
        // the text themselves.
        let text = unsafe {
            if ffi::PyUnicode_CheckExact(self.0.as_ptr()) == 0 {
                return None;
            }
            ffi::PyUnicode_AsUTF8AndSize(self.0.as_ptr(), &raw mut length)
        };
        if text.is_null() {
            Raised.discard(); // it has lone surrogates
            return None;
        }
        // SAFETY: CPython's UTF-8 form of the string, of this length, as long as the string lives.
        let bytes = unsafe { std::slice::from_raw_parts(text.cast(), length as usize) };
        std::str::from_utf8(bytes).ok().filter(|text| text.is_ascii())
    }

    /// `self == other`
    pub(crate) fn equals(self, other: Obj<'_>) -> Result<bool> {
        // SAFETY: both objects are alive.
        match unsafe { ffi::PyObject_RichCompareBool(self.as_ptr(), other.as_ptr(), ffi::Py_EQ) } {
            -1 => Err(Raised),
            answer => Ok(answer == 1),
        }
    }

    pub(crate) fn is_int(self) -> bool {
        // SAFETY: the object is alive.
        unsafe { ffi::PyLong_Check(self.0.as_ptr()) != 0 }
    }

    /// The text of a string.
    pub(crate) fn to_text(self) -> Result<String> {
        let mut length = 0;
        // SAFETY: the object is alive; the text is lent as long as it is.
        let text = unsafe { ffi::PyUnicode_AsUTF8AndSize(self.0.as_ptr(), &raw mut length) };
        if text.is_null() {
            return Err(Raised);
        }
        // SAFETY: CPython's UTF-8 form of the string, of this length.
        let bytes = unsafe { std::slice::from_raw_parts(text.cast(), length as usize) };
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    pub(crate) fn is_str(self) -> bool {
        // SAFETY: the object is alive.
        unsafe { ffi::PyUnicode_Check(self.0.as_ptr()) != 0 }
    }

    /// Whether two strings are equal; false for anything that is not a string.
    pub(crate) fn eq_str(self, text: &Interned) -> bool {
        let (a, b) = (self.as_ptr(), text.obj().as_ptr());
        // SAFETY: both are alive, and both are strings where the comparison is made.
        a == b || (self.is_str() && unsafe { ffi::PyUnicode_Compare(a, b) } == 0)
    }
}

/// A field that may hold a strong reference.
#[derive(Default)]
pub(crate) struct Slot(Cell<Option<NonNull<ffi::PyObject>>>);

impl Slot {
    pub(crate) const fn empty() -> Self {
        Self(Cell::new(None))
    }

    pub(crate) fn new(value: Ref) -> Self {
        Self(Cell::new(NonNull::new(value.into_ptr())))
    }

    pub(crate) fn get(&self) -> Option<Ref> {
        // SAFETY: the slot owns a reference to what it holds, so the object is alive.
        self.0.get().map(|ptr| unsafe { Obj::from_ptr(ptr.as_ptr()) }.to_ref())
    }

    pub(crate) fn get_or_none(&self) -> Ref {
        self.get().unwrap_or_else(Ref::none)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    pub(crate) fn take(&self) -> Option<Ref> {
        self.0.take().map(Ref)
    }

    /// Stores `value`. What was there is let go after the slot has its new value, since letting
    /// go can run any code.
    pub(crate) fn set(&self, value: Ref) {
        drop(self.0.replace(NonNull::new(value.into_ptr())).map(Ref));
    }

    /// Stores what is given, or nothing.
    pub(crate) fn replace(&self, value: Option<Ref>) {
        match value {
            Some(value) => self.set(value),
            None => self.clear(),
        }
    }

    pub(crate) fn clear(&self) {
        drop(self.take());
    }

    /// The pointer within, for visits of the garbage collector and for calls.
    pub(super) fn as_ptr(&self) -> *mut ffi::PyObject {
        self.0.get().map_or(ptr::null_mut(), NonNull::as_ptr)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // The slot is not emptied first: nobody can see it any more.
        drop(self.0.get().map(Ref));
    }
}

/// An attribute or keyword name, made once for each process.
pub(crate) struct Interned {
    text: &'static CStr,
    object: OnceCell<Ref>,
}

// SAFETY: the cell is filled and read only by threads that hold the interpreter's lock.
unsafe impl Sync for Interned {}

impl Interned {
    pub(crate) const fn new(text: &'static CStr) -> Self {
        Self { text, object: OnceCell::new() }
    }

    pub(crate) fn text(&self) -> &'static str {
        self.text.to_str().unwrap_or_default()
    }

    pub(crate) fn obj(&self) -> Obj<'_> {
        self.object
            .get_or_init(|| {
                // SAFETY: a C string in, a new reference or null out.
                let name = unsafe { ffi::PyUnicode_InternFromString(self.text.as_ptr()) };
                // SAFETY: the new reference is this one's, or null.
                let name = unsafe { Ref::from_new(name) };
                name.unwrap_or_else(|_| panic!("no memory for the name {:?}", self.text))
            })
            .obj()
    }
}

/// An object of a Python module, looked up once for each process.
pub(crate) struct Imported {
    module: &'static CStr,
    name: Interned,
    object: OnceCell<Ref>,
}

// SAFETY: the cell is filled and read only by threads that hold the interpreter's lock.
unsafe impl Sync for Imported {}

impl Imported {
    pub(crate) const fn new(module: &'static CStr, name: &'static CStr) -> Self {
        Self { module, name: Interned::new(name), object: OnceCell::new() }
    }

    /// The object, if it was looked up before.
    pub(crate) fn known(&self) -> Option<Obj<'_>> {
        self.object.get().map(Ref::obj)
    }

    pub(crate) fn get(&self) -> Result<Obj<'_>> {
        if let Some(object) = self.object.get() {
            return Ok(object.obj());
        }
        // SAFETY: a C string in, a new reference or null out.
        let module = unsafe { Ref::from_new(ffi::PyImport_ImportModule(self.module.as_ptr()))? };
        let object = module.obj().attr(&self.name)?;
        Ok(self.object.get_or_init(|| object).obj())
    }
}
