//! Native types: a heap type whose objects carry a Rust payload after the fields of their base.
//!
//! The base may be any class, also one written in Python with `__slots__`, which is how a handle
//! is an `asyncio.Handle` and a stream transport an `asyncio.Transport`. The layout of an object:
//!
//! ```text
//! [ fields of the base | payload T | __dict__ pointer | __weakref__ pointer ]
//! ```
//!
//! The last two exist where [`Class::DICT_AND_WEAKREF`] asks for them.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::mem::{align_of, size_of};
use std::ops::Deref;
use std::ptr;

use pyo3::ffi;

use super::error::{Raised, Result};
use super::object::{Obj, Ref, Slot};
use super::spec::Spec;

/// A native type.
pub(crate) trait Class: Sized + 'static {
    /// Its qualified name, `pelton._pelton.X`.
    const NAME: &'static CStr;
    const DOC: &'static CStr;
    /// How many freed objects are kept for reuse.
    const FREELIST: usize = 0;
    /// Whether Python may derive from it (and make it, by [`Class::new`]).
    const BASE_TYPE: bool = false;
    const DICT_AND_WEAKREF: bool = false;

    /// What the type is at run time, filled once by [`TypeCell::init`].
    fn cell() -> &'static TypeCell;

    /// Its methods and attributes.
    fn spec(spec: &mut Spec<Self>);

    /// Shows every object that the payload holds to the garbage collector.
    fn traverse(&self, visit: &mut Visit<'_>);

    /// Lets go of what could be part of a cycle.
    fn clear(&self);

    /// Whether [`Class::finalize`] does anything. It would hide a base's `__del__`.
    const FINALIZER: bool = false;

    /// Runs once, before an object that still has its fields goes away.
    fn finalize(_this: This<'_, Self>) {}

    /// The payload of an object made by Python; only for types with [`Class::BASE_TYPE`].
    fn new() -> Result<Self> {
        Err(Raised::type_error("this type is made by the event loop only"))
    }
}

/// The run-time facts of one native type.
pub(crate) struct TypeCell {
    object: Cell<*mut ffi::PyTypeObject>,
    /// Bytes from an object's start to its payload.
    payload: Cell<usize>,
    dict: Cell<usize>,
    weakrefs: Cell<usize>,
    /// Offsets of the base's `__slots__`.
    base_slots: Cell<&'static [usize]>,
    /// Freed objects for reuse. Each keeps one reference, to itself, and its own to its type.
    free: RefCell<Vec<*mut ffi::PyObject>>,
}

// SAFETY: filled at import and used only by threads that hold the interpreter's lock.
unsafe impl Sync for TypeCell {}

impl TypeCell {
    pub(crate) const fn new() -> Self {
        Self {
            object: Cell::new(ptr::null_mut()),
            payload: Cell::new(0),
            dict: Cell::new(0),
            weakrefs: Cell::new(0),
            base_slots: Cell::new(&[]),
            free: RefCell::new(Vec::new()),
        }
    }

    /// Makes the type `T` on `bases` and answers it. The first of them has all the fields there
    /// are; what stands behind it adds no more than its name.
    pub(crate) fn init<T: Class>(&'static self, bases: &[Obj<'_>]) -> Result<Ref> {
        let base = *bases.first().expect("every class has a base");
        let base_type = base.as_ptr().cast::<ffi::PyTypeObject>();
        // SAFETY: callers pass classes; a class's basicsize is never negative.
        let base_size = unsafe { (*base_type).tp_basicsize } as usize;
        let payload = base_size.next_multiple_of(align_of::<T>());
        let dict = (payload + size_of::<T>()).next_multiple_of(align_of::<usize>());
        let weakrefs = dict + size_of::<usize>();
        let size = if T::DICT_AND_WEAKREF { weakrefs + size_of::<usize>() } else { dict };
        self.payload.set(payload);
        if T::DICT_AND_WEAKREF {
            self.dict.set(dict);
            self.weakrefs.set(weakrefs);
        }
        self.base_slots.set(base_slots(base)?.leak());

        let mut spec = Spec::<T>::new();
        T::spec(&mut spec);
        let offsets = T::DICT_AND_WEAKREF.then_some((dict, weakrefs));
        let mut slots = spec.into_slots(offsets);
        slots.extend([
            slot(ffi::Py_tp_doc, T::DOC.as_ptr().cast_mut().cast()),
            slot(ffi::Py_tp_dealloc, dealloc::<T> as *mut c_void),
            slot(ffi::Py_tp_traverse, traverse::<T> as *mut c_void),
            slot(ffi::Py_tp_clear, clear::<T> as *mut c_void),
        ]);
        if T::FINALIZER {
            slots.push(slot(ffi::Py_tp_finalize, finalize::<T> as *mut c_void));
        }
        let mut flags = ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC;
        if T::BASE_TYPE {
            flags |= ffi::Py_TPFLAGS_BASETYPE;
            slots.push(slot(ffi::Py_tp_new, new::<T> as *mut c_void));
        } else {
            flags |= ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;
        }
        slots.push(slot(0, ptr::null_mut()));
        let mut type_spec = ffi::PyType_Spec {
            name: T::NAME.as_ptr(),
            basicsize: size as c_int,
            itemsize: 0,
            flags: flags as u32,
            slots: slots.as_mut_ptr(),
        };
        let bases = Ref::tuple(bases)?;
        // SAFETY: the spec's tables outlive the call, or the type where CPython keeps pointers
        // into them (methods and attributes are leaked by `Spec::into_slots`).
        let object = unsafe {
            Ref::from_new(ffi::PyType_FromSpecWithBases(&raw mut type_spec, bases.as_ptr()))?
        };
        self.object.set(object.as_ptr().cast());
        // The type is kept for the life of the process: objects are made from this cell.
        std::mem::forget(object.clone());
        Ok(object)
    }

    /// Whether an object is exactly of this type.
    pub(crate) fn is_type_of(&self, object: Obj<'_>) -> bool {
        // SAFETY: the object is alive.
        unsafe { ffi::Py_TYPE(object.as_ptr()) == self.object.get() }
    }

    /// Keeps the memory of an object for reuse, unless there are `most` already.
    #[inline]
    fn keep(&self, object: *mut ffi::PyObject, most: usize) -> bool {
        let mut free = self.free.borrow_mut();
        let room = free.len() < most;
        if room {
            // SAFETY: the memory of an object: the reference is the free list's, which `make` hands
            // out.
            unsafe { ffi::Py_INCREF(object) };
            free.push(object);
        }
        room
    }

    /// The fields that the base's `__slots__` gave to an object of this type.
    fn base_fields(
        &self,
        object: *mut ffi::PyObject,
    ) -> impl Iterator<Item = *mut *mut ffi::PyObject> {
        self.base_slots.get().iter().map(move |&offset| field(object, offset))
    }

    fn is_base_of(&self, object: Obj<'_>) -> bool {
        // SAFETY: the object is alive, and the type was made at import.
        unsafe { ffi::PyObject_TypeCheck(object.as_ptr(), self.object.get()) != 0 }
    }
}

fn slot(slot: c_int, pfunc: *mut c_void) -> ffi::PyType_Slot {
    ffi::PyType_Slot { slot, pfunc }
}

/// The places of the fields that `__slots__` gave to `class` and its bases.
fn base_slots(class: Obj<'_>) -> Result<Vec<usize>> {
    let mut offsets = Vec::new();
    let mut ty = class.as_ptr().cast::<ffi::PyTypeObject>();
    while !ty.is_null() {
        // SAFETY: a class and its chain of bases are alive.
        let (dict, base) = unsafe { ((*ty).tp_dict, (*ty).tp_base) };
        if !dict.is_null() && !base.is_null() {
            let (mut position, mut key, mut value) = (0, ptr::null_mut(), ptr::null_mut());
            // SAFETY: walks a class dict that nothing changes meanwhile; key and value are lent.
            while unsafe { ffi::PyDict_Next(dict, &raw mut position, &raw mut key, &raw mut value) }
                != 0
            {
                // SAFETY: the value is alive; its exact type tells that it is a member descriptor.
                unsafe {
                    if ffi::Py_TYPE(value) == &raw mut ffi::PyMemberDescr_Type {
                        let member = *(*value.cast::<MemberDescr>()).member;
                        if member.type_code == ffi::Py_T_OBJECT_EX {
                            offsets.push(member.offset as usize);
                        }
                    }
                }
            }
        }
        ty = base;
    }
    Ok(offsets)
}

/// `PyMemberDescrObject` of CPython's `descrobject.h`: a public struct of the C API.
#[repr(C)]
struct MemberDescr {
    base: ffi::PyObject,
    class: *mut ffi::PyTypeObject,
    name: *mut ffi::PyObject,
    qualname: *mut ffi::PyObject,
    member: *mut Member,
}

/// `PyMemberDef` of `descrobject.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Member {
    name: *const std::ffi::c_char,
    type_code: c_int,
    offset: ffi::Py_ssize_t,
    flags: c_int,
    doc: *const std::ffi::c_char,
}

/// An object of the native type `T`, seen as its payload.
pub(crate) struct This<'a, T>(Obj<'a>, PhantomData<T>);

impl<T> Clone for This<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for This<'_, T> {}

impl<'a, T: Class> This<'a, T> {
    /// `None` where the object is of another type.
    pub(crate) fn of(object: Obj<'a>) -> Option<Self> {
        let cell = T::cell();
        (cell.is_type_of(object) || cell.is_base_of(object)).then_some(Self(object, PhantomData))
    }

    /// # Safety
    /// `object` is of type `T` or derived from it.
    pub(super) unsafe fn of_unchecked(object: Obj<'a>) -> Self {
        Self(object, PhantomData)
    }

    pub(crate) fn obj(self) -> Obj<'a> {
        self.0
    }

    pub(crate) fn payload(self) -> &'a T {
        // SAFETY: the object is of type T (checked by `of` or by CPython's method dispatch), so
        // a payload lies at this offset, alive as long as the object is.
        unsafe { &*payload::<T>(self.0.as_ptr()) }
    }
}

impl<T: Class> Deref for This<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.payload()
    }
}

fn payload<T: Class>(object: *mut ffi::PyObject) -> *mut T {
    // The offset is within the object's allocation by the type's basicsize.
    object.cast::<u8>().wrapping_add(T::cell().payload.get()).cast()
}

fn field(object: *mut ffi::PyObject, offset: usize) -> *mut *mut ffi::PyObject {
    object.cast::<u8>().wrapping_add(offset).cast()
}

/// A new object of type `T`; `value` is asked for when there is memory for it.
pub(crate) fn make<T: Class>(value: impl FnOnce() -> T) -> Result<Ref> {
    let object = make_untracked(value)?;
    object.obj().track();
    Ok(object)
}

/// As [`make`], hidden from the garbage collector until [`Obj::track`].
#[inline(always)]
pub(crate) fn make_untracked<T: Class>(value: impl FnOnce() -> T) -> Result<Ref> {
    let cell = T::cell();
    let reused = if T::FREELIST > 0 { cell.free.borrow_mut().pop() } else { None };
    let object = match reused {
        Some(object) => object,
        None => allocate(cell)?,
    };
    // SAFETY: an object of this type with one reference, which is ours, and without a payload.
    unsafe {
        payload::<T>(object).write(value());
        Ref::from_new(object)
    }
}

/// An object of the cell's type, zero after its head, and untracked.
#[cold]
fn allocate(cell: &TypeCell) -> Result<*mut ffi::PyObject> {
    // SAFETY: the type was made at import; a new object is tracked by the collector, and its
    // fields are zero.
    unsafe {
        let object = Ref::from_new(ffi::PyType_GenericAlloc(cell.object.get(), 0))?.into_ptr();
        ffi::PyObject_GC_UnTrack(object.cast());
        Ok(object)
    }
}

impl Obj<'_> {
    /// Shows an object of a native type to the garbage collector, if it is not yet.
    pub(crate) fn track(self) {
        // SAFETY: a live object of a type that takes part in garbage collection: of one of ours,
        // or of asyncio's.
        unsafe {
            if ffi::PyObject_GC_IsTracked(self.as_ptr()) == 0 {
                ffi::PyObject_GC_Track(self.as_ptr().cast());
            }
        }
    }

    /// Whether there are references beside the caller's own.
    pub(crate) fn is_shared(self) -> bool {
        // SAFETY: the object is alive.
        unsafe { ffi::Py_REFCNT(self.as_ptr()) > 1 }
    }
}

unsafe extern "C" fn new<T: Class>(
    class: *mut ffi::PyTypeObject,
    _args: *mut ffi::PyObject,
    _kwargs: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let Ok(value) = T::new() else { return ptr::null_mut() };
    // SAFETY: CPython passes the class that is called, derived from T's type.
    let object = unsafe { (*class).tp_alloc.expect("a ready class allocates")(class, 0) };
    if !object.is_null() {
        // SAFETY: the payload's memory is part of the new object and not yet in use.
        unsafe { payload::<T>(object).write(value) };
    }
    object
}

/// Objects whose end waits for that of others. Without it, a long chain (a handle whose argument
/// is a handle whose argument is ...) would be freed in as many nested calls and overflow the
/// stack; CPython's own types have their trashcan for that.
struct Trash {
    depth: Cell<usize>,
    /// Whether any wait.
    filled: Cell<bool>,
    waiting: RefCell<Vec<(*mut ffi::PyObject, Free)>>,
}

/// [`dealloc`] of one type.
type Free = unsafe extern "C" fn(*mut ffi::PyObject);

/// So many nested ends are let through.
const DEEPEST_END: usize = 32;

static TRASH: Trash =
    Trash { depth: Cell::new(0), filled: Cell::new(false), waiting: RefCell::new(Vec::new()) };

// SAFETY: used only by threads that hold the interpreter's lock.
unsafe impl Sync for Trash {}

unsafe extern "C" fn dealloc<T: Class>(object: *mut ffi::PyObject) {
    let depth = TRASH.depth.get();
    if depth >= DEEPEST_END {
        // SAFETY: CPython calls this for an object that has no references left.
        unsafe { postpone(object, dealloc::<T>) };
        return;
    }
    TRASH.depth.set(depth + 1);
    // SAFETY: CPython calls this for an object of this type that has no references left.
    unsafe { free::<T>(object) };
    if depth == 0 && TRASH.filled.get() {
        empty_trash();
    }
    TRASH.depth.set(depth);
}

/// # Safety
/// The object has no references left, and `free` is the [`dealloc`] of its type.
#[cold]
unsafe fn postpone(object: *mut ffi::PyObject, free: Free) {
    // SAFETY: an object without references is hidden from the collector until its turn.
    unsafe { ffi::PyObject_GC_UnTrack(object.cast()) };
    TRASH.waiting.borrow_mut().push((object, free));
    TRASH.filled.set(true);
}

#[cold]
fn empty_trash() {
    loop {
        let Some((object, free)) = TRASH.waiting.borrow_mut().pop() else { break };
        // SAFETY: put there by `postpone`, with the function of its own type; the depth is 1 here.
        unsafe { free(object) };
    }
    TRASH.filled.set(false);
}

/// # Safety
/// `object` is of the type `T` or derived from it, and has no references left.
#[inline(always)]
unsafe fn free<T: Class>(object: *mut ffi::PyObject) {
    let cell = T::cell();
    // SAFETY: the object has no references left; its type is alive until the end of this.
    unsafe {
        let class = ffi::Py_TYPE(object);
        let exact = class == cell.object.get();
        if T::FINALIZER && exact && ffi::PyObject_CallFinalizerFromDealloc(object) < 0 {
            // Someone holds it again.
            Obj::from_ptr(object).track();
            return;
        }
        ffi::PyObject_GC_UnTrack(object.cast());
        if has_weakrefs(object, class) {
            ffi::PyObject_ClearWeakRefs(object);
        }
        // Handles never have any of these: it is a cheap look.
        if T::DICT_AND_WEAKREF || cell.base_fields(object).any(|field| !(*field).is_null()) {
            clear_fields::<T>(object);
        }
        payload::<T>(object).drop_in_place();
        if exact && T::FREELIST > 0 && cell.keep(object, T::FREELIST) {
            return;
        }
        give_back(object, class);
    }
}

/// Gives an object's memory back, and its reference to its class.
///
/// # Safety
/// Nothing else of the object is in use any more; `class` is its class.
#[inline(never)]
unsafe fn give_back(object: *mut ffi::PyObject, class: *mut ffi::PyTypeObject) {
    // SAFETY: by the contract.
    unsafe {
        (*class).tp_free.expect("a ready class frees")(object.cast());
        ffi::Py_DECREF(class.cast());
    }
}

/// Whether there are weak references to an object of this class. Their list lies at the offset that
/// the class names, which is negative where it lies before the object (Python 3.12 and later).
///
/// # Safety
/// `object` is an object of `class` that still has all its memory.
#[inline]
unsafe fn has_weakrefs(object: *mut ffi::PyObject, class: *mut ffi::PyTypeObject) -> bool {
    // SAFETY: by the contract; a class that has an offset has a pointer there.
    unsafe {
        let offset = (*class).tp_weaklistoffset;
        offset != 0 && !object.cast::<u8>().offset(offset).cast::<*mut c_void>().read().is_null()
    }
}

/// Empties the fields of the base, and the `__dict__`.
///
/// # Safety
/// `object` is of the type `T` or derived from it, and alive or about to be freed.
#[inline(never)]
unsafe fn clear_fields<T: Class>(object: *mut ffi::PyObject) {
    let cell = T::cell();
    let dict = T::DICT_AND_WEAKREF.then(|| field(object, cell.dict.get()));
    for field in cell.base_fields(object).chain(dict) {
        // SAFETY: a field of the object, null or with a reference that it owns.
        unsafe {
            if !(*field).is_null() {
                ffi::Py_DECREF(field.replace(ptr::null_mut()));
            }
        }
    }
}

unsafe extern "C" fn finalize<T: Class>(object: *mut ffi::PyObject) {
    let error = ErrorKept::new();
    // SAFETY: CPython calls this on a live object of the type.
    T::finalize(unsafe { This::of_unchecked(Obj::from_ptr(object)) });
    drop(error);
}

/// An exception that is being raised while a finalizer runs, put back after it.
struct ErrorKept([*mut ffi::PyObject; 3]);

#[allow(deprecated, reason = "Python 3.11 has no other way")]
impl ErrorKept {
    fn new() -> Self {
        let mut parts = [ptr::null_mut(); 3];
        let [kind, value, trace] = &mut parts;
        // SAFETY: three places for the parts, which may be null.
        unsafe { ffi::PyErr_Fetch(kind, value, trace) };
        Self(parts)
    }
}

impl Drop for ErrorKept {
    #[allow(deprecated, reason = "Python 3.11 has no other way")]
    fn drop(&mut self) {
        let [kind, value, trace] = self.0;
        // SAFETY: gives back what `new` took.
        unsafe { ffi::PyErr_Restore(kind, value, trace) };
    }
}

/// The garbage collector's visitor.
pub(crate) struct Visit<'a> {
    call: ffi::visitproc,
    arg: *mut c_void,
    stop: c_int,
    scope: PhantomData<&'a ()>,
}

impl Visit<'_> {
    pub(crate) fn slot(&mut self, slot: &Slot) {
        self.raw(slot.as_ptr());
    }

    pub(crate) fn object(&mut self, object: &Ref) {
        self.raw(object.as_ptr());
    }

    fn raw(&mut self, object: *mut ffi::PyObject) {
        if self.stop == 0 && !object.is_null() {
            // SAFETY: the collector's own function with its own argument, on a live object.
            self.stop = unsafe { (self.call)(object, self.arg) };
        }
    }
}

unsafe extern "C" fn traverse<T: Class>(
    object: *mut ffi::PyObject,
    call: ffi::visitproc,
    arg: *mut c_void,
) -> c_int {
    let cell = T::cell();
    let mut visit = Visit { call, arg, stop: 0, scope: PhantomData };
    // SAFETY: the object is alive; each field is null or holds an object.
    unsafe {
        visit.raw(ffi::Py_TYPE(object).cast());
        for field in cell.base_fields(object) {
            visit.raw(*field);
        }
        if T::DICT_AND_WEAKREF {
            visit.raw(*field(object, cell.dict.get()));
        }
        (*payload::<T>(object)).traverse(&mut visit);
    }
    visit.stop
}

unsafe extern "C" fn clear<T: Class>(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: the object is alive and of this type.
    unsafe {
        clear_fields::<T>(object);
        (*payload::<T>(object)).clear();
    }
    0
}
