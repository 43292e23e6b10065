//! The methods and attributes of a native type, from plain Rust functions.
//!
//! Each function is a zero-sized value known at compile time, so its C entry point is a generic
//! function of it: no table is searched and no closure is stored. Every entry point catches a
//! panic and raises it as `RuntimeError`: a broken invariant never ends the process.

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::mem::size_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;

use pyo3::ffi;

use super::class::{Class, This};
use super::error::{Raised, Result};
use super::object::{Interned, Obj, Ref};

/// What a type is made of. Every `fn` passed must be a plain function item.
pub(crate) struct Spec<T> {
    methods: Vec<ffi::PyMethodDef>,
    attributes: Vec<ffi::PyGetSetDef>,
    repr: Option<ffi::reprfunc>,
    class: PhantomData<T>,
}

impl<T: Class> Spec<T> {
    pub(super) fn new() -> Self {
        Self { methods: Vec::new(), attributes: Vec::new(), repr: None, class: PhantomData }
    }

    fn method(&mut self, name: &'static CStr, call: ffi::PyMethodDefPointer, flags: c_int) {
        self.methods.push(ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: call,
            ml_flags: flags,
            ml_doc: ptr::null(),
        });
    }

    /// `self.name()`
    pub(crate) fn none<F>(&mut self, name: &'static CStr, _body: F) -> &mut Self
    where
        F: Fn(This<'_, T>) -> Result<Ref> + Copy + 'static,
    {
        let call = ffi::PyMethodDefPointer { PyCFunction: none::<T, F> };
        self.method(name, call, ffi::METH_NOARGS);
        self
    }

    /// `self.name(argument)`
    pub(crate) fn one<F>(&mut self, name: &'static CStr, _body: F) -> &mut Self
    where
        F: Fn(This<'_, T>, Obj<'_>) -> Result<Ref> + Copy + 'static,
    {
        let call = ffi::PyMethodDefPointer { PyCFunction: one::<T, F> };
        self.method(name, call, ffi::METH_O);
        self
    }

    /// `self.name(*args, **keywords)`
    pub(crate) fn any<F>(&mut self, name: &'static CStr, _body: F) -> &mut Self
    where
        F: Fn(This<'_, T>, &[Obj<'_>], Keywords<'_>) -> Result<Ref> + Copy + 'static,
    {
        let call = ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: any::<T, F> };
        self.method(name, call, ffi::METH_FASTCALL | ffi::METH_KEYWORDS);
        self
    }

    /// A read-only attribute.
    pub(crate) fn get<G>(&mut self, name: &'static CStr, _get: G) -> &mut Self
    where
        G: Fn(This<'_, T>) -> Result<Ref> + Copy + 'static,
    {
        self.attribute(name, get::<T, G>, None)
    }

    /// An attribute that can be assigned.
    pub(crate) fn get_set<G, S>(&mut self, name: &'static CStr, _get: G, _set: S) -> &mut Self
    where
        G: Fn(This<'_, T>) -> Result<Ref> + Copy + 'static,
        S: Fn(This<'_, T>, Obj<'_>) -> Result<()> + Copy + 'static,
    {
        self.attribute(name, get::<T, G>, Some(set::<T, S>))
    }

    /// `repr(self)`
    pub(crate) fn repr<F>(&mut self, _body: F) -> &mut Self
    where
        F: Fn(This<'_, T>) -> Result<Ref> + Copy + 'static,
    {
        self.repr = Some(repr::<T, F>);
        self
    }

    fn attribute(
        &mut self,
        name: &'static CStr,
        get: ffi::getter,
        set: Option<ffi::setter>,
    ) -> &mut Self {
        self.attributes.push(ffi::PyGetSetDef {
            name: name.as_ptr(),
            get: Some(get),
            set,
            doc: ptr::null(),
            closure: ptr::null_mut(),
        });
        self
    }

    /// The tables for `PyType_FromSpec`. CPython keeps pointers into them, so they are leaked:
    /// once for each type of the process.
    pub(super) fn into_slots(mut self, offsets: Option<(usize, usize)>) -> Vec<ffi::PyType_Slot> {
        let mut slots = Vec::new();
        if let Some((dict, weakrefs)) = offsets {
            self.attributes.push(ffi::PyGetSetDef {
                name: c"__dict__".as_ptr(),
                get: Some(ffi::PyObject_GenericGetDict),
                set: Some(ffi::PyObject_GenericSetDict),
                doc: ptr::null(),
                closure: ptr::null_mut(),
            });
            let members = vec![
                offset_member(c"__dictoffset__", dict),
                offset_member(c"__weaklistoffset__", weakrefs),
                ffi::PyMemberDef::default(),
            ];
            slots.push(leaked(ffi::Py_tp_members, members));
        }
        self.methods.push(ffi::PyMethodDef::zeroed());
        self.attributes.push(ffi::PyGetSetDef::default());
        slots.push(leaked(ffi::Py_tp_methods, self.methods));
        slots.push(leaked(ffi::Py_tp_getset, self.attributes));
        if let Some(repr) = self.repr {
            slots.push(ffi::PyType_Slot { slot: ffi::Py_tp_repr, pfunc: repr as *mut c_void });
        }
        slots
    }
}

fn offset_member(name: &'static CStr, offset: usize) -> ffi::PyMemberDef {
    ffi::PyMemberDef {
        name: name.as_ptr(),
        type_code: ffi::Py_T_PYSSIZET,
        offset: offset as ffi::Py_ssize_t,
        flags: ffi::Py_READONLY,
        doc: ptr::null(),
    }
}

fn leaked<D>(slot: c_int, table: Vec<D>) -> ffi::PyType_Slot {
    ffi::PyType_Slot { slot, pfunc: table.leak().as_mut_ptr().cast() }
}

/// The keyword arguments of a call: their names, and their values after the positional ones.
#[derive(Clone, Copy)]
pub(crate) struct Keywords<'a> {
    names: Option<Obj<'a>>,
    values: &'a [Obj<'a>],
}

impl<'a> Keywords<'a> {
    pub(crate) fn is_empty(self) -> bool {
        self.names.is_none()
    }

    /// The value of the keyword `name`, where it is the only one.
    #[inline]
    pub(crate) fn only(self, name: &Interned) -> Option<Obj<'a>> {
        let [value] = *self.values else { return None };
        // SAFETY: a live tuple of as many names as there are values, which is one; it keeps the
        // name alive.
        let given = unsafe { Obj::from_ptr(ffi::PyTuple_GET_ITEM(self.names?.as_ptr(), 0)) };
        given.eq_str(name).then_some(value)
    }

    /// Reads the keywords of a call into `places`, in the order of `known`.
    pub(crate) fn read<const N: usize>(
        self,
        function: &str,
        known: [&Interned; N],
    ) -> Result<[Option<Obj<'a>>; N]> {
        let mut places = [None; N];
        let Some(names) = self.names else { return Ok(places) };
        for (index, value) in self.values.iter().enumerate() {
            let name = names.tuple_item(index)?;
            match known.iter().position(|known| name.obj().eq_str(known)) {
                Some(place) => places[place] = Some(*value),
                None => return Err(unexpected(function, name.obj())),
            }
        }
        Ok(places)
    }
}

impl<'a> Keywords<'a> {
    /// As `read`, for a context and `N` others; nothing to do where there are no keywords.
    pub(crate) fn read_with<const N: usize>(
        self,
        function: &str,
        context: &Interned,
        others: [&Interned; N],
    ) -> Result<(Option<Obj<'a>>, [Option<Obj<'a>>; N])> {
        let (mut found, mut places) = (None, [None; N]);
        let Some(names) = self.names else { return Ok((found, places)) };
        for (index, value) in self.values.iter().enumerate() {
            let name = names.tuple_item(index)?;
            if name.obj().eq_str(context) {
                found = Some(*value);
            } else if let Some(place) = others.iter().position(|other| name.obj().eq_str(other)) {
                places[place] = Some(*value);
            } else {
                return Err(unexpected(function, name.obj()));
            }
        }
        Ok((found, places))
    }
}

fn unexpected(function: &str, name: Obj<'_>) -> Raised {
    match name.to_text() {
        Ok(name) => {
            Raised::type_error(&format!("{function}() got an unexpected keyword argument '{name}'"))
        }
        Err(raised) => raised,
    }
}

/// The function that a zero-sized type stands for.
fn function<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0, "only plain functions can be methods") };
    // SAFETY: a zero-sized value has no bits that could be wrong, and `F` is inhabited: the
    // caller of the `Spec` method passed one.
    unsafe { ptr::NonNull::<F>::dangling().read() }
}

/// Turns the answer into what C expects, and a panic into an exception.
fn guarded<R>(failed: R, body: impl FnOnce() -> Result<R>) -> R {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(Raised)) => failed,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("unknown");
            let Raised = Raised::runtime_error(&format!("pelton: internal error: {text}"));
            failed
        }
    }
}

/// # Safety
/// `object` is alive and of type `T`: CPython's method dispatch has checked it.
unsafe fn this<'a, T: Class>(object: *mut ffi::PyObject) -> This<'a, T> {
    // SAFETY: by the contract.
    unsafe { This::of_unchecked(Obj::from_ptr(object)) }
}

unsafe extern "C" fn none<T: Class, F>(
    object: *mut ffi::PyObject,
    _unused: *mut ffi::PyObject,
) -> *mut ffi::PyObject
where
    F: Fn(This<'_, T>) -> Result<Ref> + Copy,
{
    // SAFETY: a method call of CPython on an object of this type.
    let this = unsafe { this::<T>(object) };
    guarded(ptr::null_mut(), || function::<F>()(this).map(Ref::into_ptr))
}

unsafe extern "C" fn one<T: Class, F>(
    object: *mut ffi::PyObject,
    argument: *mut ffi::PyObject,
) -> *mut ffi::PyObject
where
    F: Fn(This<'_, T>, Obj<'_>) -> Result<Ref> + Copy,
{
    // SAFETY: a method call of CPython on an object of this type, with one live argument.
    let (this, argument) = unsafe { (this::<T>(object), Obj::from_ptr(argument)) };
    guarded(ptr::null_mut(), || function::<F>()(this, argument).map(Ref::into_ptr))
}

unsafe extern "C" fn any<T: Class, F>(
    object: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject
where
    F: Fn(This<'_, T>, &[Obj<'_>], Keywords<'_>) -> Result<Ref> + Copy,
{
    // SAFETY: a method call of CPython on an object of this type.
    let this = unsafe { this::<T>(object) };
    // SAFETY: null or the tuple of keyword names, alive for the call.
    let names = (!names.is_null()).then(|| unsafe { Obj::from_ptr(names) });
    // SAFETY: it is a tuple.
    let keywords =
        names.map_or(0, |names| unsafe { ffi::PyTuple_GET_SIZE(names.as_ptr()) as usize });
    // The vectorcall protocol allows null for no arguments at all.
    let all: &[Obj<'_>] = if count == 0 && keywords == 0 {
        &[]
    } else {
        // SAFETY: `Obj` is a non-null pointer, and CPython passes this many live objects.
        unsafe { slice::from_raw_parts(args.cast(), count as usize + keywords) }
    };
    let (positional, values) = all.split_at(count as usize);
    let keywords = Keywords { names, values };
    guarded(ptr::null_mut(), || function::<F>()(this, positional, keywords).map(Ref::into_ptr))
}

unsafe extern "C" fn get<T: Class, F>(
    object: *mut ffi::PyObject,
    _closure: *mut c_void,
) -> *mut ffi::PyObject
where
    F: Fn(This<'_, T>) -> Result<Ref> + Copy,
{
    // SAFETY: attribute access of CPython on an object of this type.
    let this = unsafe { this::<T>(object) };
    guarded(ptr::null_mut(), || function::<F>()(this).map(Ref::into_ptr))
}

unsafe extern "C" fn set<T: Class, F>(
    object: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    _closure: *mut c_void,
) -> c_int
where
    F: Fn(This<'_, T>, Obj<'_>) -> Result<()> + Copy,
{
    // SAFETY: attribute access of CPython on an object of this type.
    let this = unsafe { this::<T>(object) };
    guarded(-1, || {
        if value.is_null() {
            return Err(Raised::type_error("cannot delete the attribute"));
        }
        // SAFETY: not null, alive for the call.
        function::<F>()(this, unsafe { Obj::from_ptr(value) }).map(|()| 0)
    })
}

unsafe extern "C" fn repr<T: Class, F>(object: *mut ffi::PyObject) -> *mut ffi::PyObject
where
    F: Fn(This<'_, T>) -> Result<Ref> + Copy,
{
    // SAFETY: called by CPython on an object of this type.
    let this = unsafe { this::<T>(object) };
    guarded(ptr::null_mut(), || function::<F>()(this).map(Ref::into_ptr))
}
