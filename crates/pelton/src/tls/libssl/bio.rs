//! The BIO beneath an `SSL`: reads from the slice and writes to the buffer of the call under way.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr::{self, NonNull};

use super::table::{Bio, BioMethod, Functions, Libssl};

// bio.h
const FLAGS_READ: c_int = 0x01;
const FLAGS_RETRY: c_int = 0x08;
const FLAGS_ALL_RETRY: c_int = 0x0f;
const CTRL_PENDING: c_int = 10;
const CTRL_FLUSH: c_int = 11;
const CTRL_DUP: c_int = 12;

/// `BIO_TYPE_SOURCE_SINK`: a BIO at the end of the chain.
const SOURCE_SINK: c_int = 0x0400;

/// What a BIO reads from and writes to. It is the BIO's data and lives as long as the BIO does.
#[derive(Default)]
pub(super) struct Wire {
    /// What is left of the caller's slice; set for the length of one call.
    input: Cell<Option<NonNull<u8>>>,
    left: Cell<usize>,
    /// The caller's buffer; set for the length of one call.
    output: Cell<Option<NonNull<Vec<u8>>>>,
    /// What OpenSSL wrote outside of any call of ours: the owner of the `SSL` did something with
    /// it. The next call takes it along.
    stray: RefCell<Vec<u8>>,
}

impl Wire {
    /// Lends `input` and `output` to the BIO while `body` runs, and moves `input` past what was
    /// read. `None` if a call is under way already: a callback of OpenSSL has come back here.
    pub(super) fn lend<T>(
        &self,
        input: &mut &[u8],
        output: &mut Vec<u8>,
        body: impl FnOnce() -> T,
    ) -> Option<T> {
        struct Lent<'a>(&'a Wire);

        impl Drop for Lent<'_> {
            fn drop(&mut self) {
                self.0.output.set(None);
                self.0.input.set(None);
            }
        }

        if self.is_lent() {
            return None;
        }
        let mut stray = self.stray.borrow_mut();
        if !stray.is_empty() {
            output.append(&mut stray);
        }
        drop(stray);
        self.input.set(NonNull::new(input.as_ptr().cast_mut()));
        self.left.set(input.len());
        self.output.set(Some(NonNull::from(&mut *output)));
        let lent = Lent(self);
        let answer = body();
        drop(lent);
        let read = input.len() - self.left.take();
        *input = &input[read..];
        Some(answer)
    }

    pub(super) fn is_lent(&self) -> bool {
        self.output.get().is_some()
    }

    /// Whether OpenSSL has written outside of any call.
    pub(super) fn has_stray(&self) -> bool {
        !self.stray.borrow().is_empty()
    }
}

/// Makes the method table of this kind of BIO.
pub(super) fn method(functions: &Functions) -> Option<NonNull<BioMethod>> {
    // SAFETY: a new type number, a static name, and functions of the types that bio.h asks for;
    // the method is never freed.
    unsafe {
        let kind = (functions.bio_type)();
        if kind < 0 {
            return None;
        }
        let method = (functions.method_new)(kind | SOURCE_SINK, c"pelton".as_ptr());
        let method = NonNull::new(method)?;
        let set = (functions.method_read)(method.as_ptr(), read) == 1
            && (functions.method_write)(method.as_ptr(), write) == 1
            && (functions.method_ctrl)(method.as_ptr(), ctrl) == 1
            && (functions.method_destroy)(method.as_ptr(), destroy) == 1;
        set.then_some(method)
    }
}

/// A new BIO with its own [`Wire`]; one reference, the caller's.
pub(super) fn new(libssl: &Libssl) -> Option<(NonNull<Bio>, NonNull<Wire>)> {
    let functions = &libssl.functions;
    // SAFETY: the method was made by `method`.
    let bio = NonNull::new(unsafe { (functions.bio_new)(libssl.method.as_ptr()) })?;
    let wire = NonNull::from(Box::leak(Box::new(Wire::default())));
    // SAFETY: a new BIO, whose data nobody else has set; `destroy` frees the wire.
    unsafe {
        (functions.bio_set_data)(bio.as_ptr(), wire.as_ptr().cast());
        (functions.bio_set_init)(bio.as_ptr(), 1);
    }
    Some((bio, wire))
}

/// The table and the wire of a BIO, for the callbacks below.
///
/// # Safety
/// `bio` is a live BIO made by [`new`].
unsafe fn wire<'a>(bio: *mut Bio) -> Option<(&'static Functions, &'a Wire)> {
    let functions = &Libssl::loaded()?.functions;
    // SAFETY: the BIO is alive, and its data is the wire, or null once it is destroyed.
    let wire = unsafe { (functions.bio_data)(bio).cast::<Wire>().as_ref() }?;
    Some((functions, wire))
}

unsafe extern "C" fn read(bio: *mut Bio, buffer: *mut c_char, size: c_int) -> c_int {
    // SAFETY: OpenSSL calls this with a BIO of this method.
    let Some((functions, wire)) = (unsafe { wire(bio) }) else { return -1 };
    // SAFETY: the BIO is alive.
    unsafe { (functions.bio_clear_flags)(bio, FLAGS_ALL_RETRY) };
    let wanted = usize::try_from(size).unwrap_or(0);
    let count = wanted.min(wire.left.get());
    let Some(input) = wire.input.get().filter(|_| count > 0) else {
        // SAFETY: the BIO is alive. "Come back with more" is what these flags say.
        unsafe { (functions.bio_set_flags)(bio, FLAGS_READ | FLAGS_RETRY) };
        return -1;
    };
    // SAFETY: at least `count` bytes of the lent slice are left at `input`, and OpenSSL's buffer
    // holds `size` of them; the two are different memory.
    unsafe {
        ptr::copy_nonoverlapping(input.as_ptr().cast_const().cast(), buffer, count);
        wire.input.set(Some(input.add(count)));
    }
    wire.left.set(wire.left.get() - count);
    count as c_int
}

unsafe extern "C" fn write(bio: *mut Bio, bytes: *const c_char, size: c_int) -> c_int {
    // SAFETY: OpenSSL calls this with a BIO of this method.
    let Some((functions, wire)) = (unsafe { wire(bio) }) else { return -1 };
    let Ok(length) = usize::try_from(size) else { return -1 };
    // SAFETY: the BIO is alive.
    unsafe { (functions.bio_clear_flags)(bio, FLAGS_ALL_RETRY) };
    // SAFETY: OpenSSL passes `size` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
    match wire.output.get() {
        // SAFETY: lent by `Wire::lend` for the call under way, and used by nobody else meanwhile.
        Some(mut output) => unsafe { output.as_mut() }.extend_from_slice(bytes),
        None => wire.stray.borrow_mut().extend_from_slice(bytes),
    }
    size
}

unsafe extern "C" fn ctrl(
    bio: *mut Bio,
    command: c_int,
    _number: c_long,
    _argument: *mut c_void,
) -> c_long {
    match command {
        CTRL_FLUSH | CTRL_DUP => 1,
        // SAFETY: OpenSSL calls this with a BIO of this method.
        CTRL_PENDING => unsafe { wire(bio) }.map_or(0, |(_, wire)| wire.left.get() as c_long),
        // Everything else is unknown here, kernel TLS among it.
        _ => 0,
    }
}

unsafe extern "C" fn destroy(bio: *mut Bio) -> c_int {
    let Some(libssl) = Libssl::loaded() else { return 0 };
    // SAFETY: OpenSSL calls this once, when the last reference to a BIO of this method goes.
    unsafe {
        let wire = (libssl.functions.bio_data)(bio).cast::<Wire>();
        (libssl.functions.bio_set_data)(bio, ptr::null_mut());
        if !wire.is_null() {
            drop(Box::from_raw(wire));
        }
    }
    1
}
