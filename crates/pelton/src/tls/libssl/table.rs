//! The functions of libssl and libcrypto that a session needs, by name.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use super::bio;

/// OpenSSL's `SSL`, `BIO` and `BIO_METHOD`, never looked into.
pub(super) type Ssl = c_void;
pub(super) type Bio = c_void;
pub(super) type BioMethod = c_void;

/// `CRYPTO_EX_new` and `CRYPTO_EX_free` of `crypto.h`.
type ExData = unsafe extern "C" fn(
    parent: *mut c_void,
    value: *mut c_void,
    data: *mut c_void,
    index: c_int,
    argl: c_long,
    argp: *mut c_void,
);

/// `CRYPTO_EX_INDEX_SSL` of `crypto.h`.
const EX_INDEX_SSL: c_int = 0;

macro_rules! functions {
    ($($field:ident = $name:literal: fn($($argument:ty),*) $(-> $answer:ty)?;)*) => {
        /// The functions, as OpenSSL's headers declare them.
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
        }

        impl Functions {
            /// # Safety
            /// `find` answers null, or the address of OpenSSL's function of that name.
            unsafe fn load(find: &dyn Fn(&CStr) -> *const c_void) -> Option<Self> {
                Some(Self {
                    $($field: {
                        let address = find($name);
                        if address.is_null() {
                            return None;
                        }
                        // SAFETY: by the contract this is the function whose type the field has.
                        unsafe {
                            std::mem::transmute::<
                                *const c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $answer)?,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    version = c"OpenSSL_version_num": fn() -> c_ulong;
    new_ex_index = c"CRYPTO_get_ex_new_index":
        fn(c_int, c_long, *mut c_void, Option<ExData>, *mut c_void, Option<ExData>) -> c_int;
    ex_data = c"SSL_get_ex_data": fn(*const Ssl, c_int) -> *mut c_void;

    bio_type = c"BIO_get_new_index": fn() -> c_int;
    method_new = c"BIO_meth_new": fn(c_int, *const c_char) -> *mut BioMethod;
    method_read = c"BIO_meth_set_read":
        fn(*mut BioMethod, unsafe extern "C" fn(*mut Bio, *mut c_char, c_int) -> c_int) -> c_int;
    method_write = c"BIO_meth_set_write":
        fn(*mut BioMethod, unsafe extern "C" fn(*mut Bio, *const c_char, c_int) -> c_int) -> c_int;
    method_ctrl = c"BIO_meth_set_ctrl":
        fn(*mut BioMethod,
           unsafe extern "C" fn(*mut Bio, c_int, c_long, *mut c_void) -> c_long) -> c_int;
    method_destroy = c"BIO_meth_set_destroy":
        fn(*mut BioMethod, unsafe extern "C" fn(*mut Bio) -> c_int) -> c_int;
    bio_new = c"BIO_new": fn(*const BioMethod) -> *mut Bio;
    bio_free = c"BIO_free": fn(*mut Bio) -> c_int;
    bio_up_ref = c"BIO_up_ref": fn(*mut Bio) -> c_int;
    bio_set_data = c"BIO_set_data": fn(*mut Bio, *mut c_void);
    bio_data = c"BIO_get_data": fn(*mut Bio) -> *mut c_void;
    bio_set_init = c"BIO_set_init": fn(*mut Bio, c_int);
    bio_set_flags = c"BIO_set_flags": fn(*mut Bio, c_int);
    bio_clear_flags = c"BIO_clear_flags": fn(*mut Bio, c_int);

    set_bio = c"SSL_set_bio": fn(*mut Ssl, *mut Bio, *mut Bio);
    rbio = c"SSL_get_rbio": fn(*const Ssl) -> *mut Bio;
    read = c"SSL_read": fn(*mut Ssl, *mut c_void, c_int) -> c_int;
    write = c"SSL_write": fn(*mut Ssl, *const c_void, c_int) -> c_int;
    error = c"SSL_get_error": fn(*const Ssl, c_int) -> c_int;
    pending = c"SSL_pending": fn(*const Ssl) -> c_int;
    peek_error = c"ERR_peek_error": fn() -> c_ulong;
    clear_errors = c"ERR_clear_error": fn();
}

/// A loaded libssl. There is at most one in a process: see [`Libssl::load`].
pub struct Libssl {
    pub(super) functions: Functions,
    pub(super) method: NonNull<BioMethod>,
}

// SAFETY: function addresses, and a BIO_METHOD that nothing changes after it was made.
unsafe impl Send for Libssl {}
// SAFETY: as above.
unsafe impl Sync for Libssl {}

static LIBSSL: OnceLock<Option<Libssl>> = OnceLock::new();

thread_local! {
    /// The last `SSL` that this thread has made, and the last that it has freed.
    static MADE: Cell<*mut Ssl> = const { Cell::new(ptr::null_mut()) };
    static FREED: Cell<*mut Ssl> = const { Cell::new(ptr::null_mut()) };
}

unsafe extern "C" fn made(
    parent: *mut c_void,
    _value: *mut c_void,
    _data: *mut c_void,
    _index: c_int,
    _argl: c_long,
    _argp: *mut c_void,
) {
    MADE.set(parent);
}

unsafe extern "C" fn freed(
    parent: *mut c_void,
    _value: *mut c_void,
    _data: *mut c_void,
    _index: c_int,
    _argl: c_long,
    _argp: *mut c_void,
) {
    FREED.set(parent);
    // One that is gone already is not to be handed out.
    if MADE.get() == parent {
        MADE.set(ptr::null_mut());
    }
}

/// An `SSL` that was made while [`Libssl::catch`] watched.
#[derive(Clone, Copy, Debug)]
pub struct Caught(pub(super) NonNull<Ssl>);

impl Libssl {
    /// Loads the table; `None` where a function is missing. The first call decides for the whole
    /// process, later ones get the same answer.
    ///
    /// `find` gives the address of a function by its name, null where there is none.
    ///
    /// # Safety
    ///
    /// What `find` gives are OpenSSL's functions of these names, all of one library that is never
    /// unloaded.
    pub unsafe fn load(find: impl Fn(&CStr) -> *const c_void) -> Option<&'static Self> {
        LIBSSL
            .get_or_init(|| {
                // SAFETY: by this function's own contract.
                let functions = unsafe { Functions::load(&find)? };
                let method = bio::method(&functions)?;
                // SAFETY: both hooks are plain functions that live as long as the process.
                let index = unsafe {
                    (functions.new_ex_index)(
                        EX_INDEX_SSL,
                        0,
                        ptr::null_mut(),
                        Some(made),
                        ptr::null_mut(),
                        Some(freed),
                    )
                };
                (index >= 0).then_some(Self { functions, method })
            })
            .as_ref()
    }

    /// The table that [`load`](Self::load) has made.
    pub(super) fn loaded() -> Option<&'static Self> {
        LIBSSL.get()?.as_ref()
    }

    /// OpenSSL's version number, as `OPENSSL_VERSION_NUMBER`.
    pub fn version(&self) -> c_ulong {
        // SAFETY: takes nothing and answers a number.
        unsafe { (self.functions.version)() }
    }

    /// Runs `make` and answers the `SSL` that this thread made meanwhile, if it made any: the last
    /// one. OpenSSL calls a hook of ours for each new `SSL`, so its owner need not be asked.
    pub fn catch<T>(&self, make: impl FnOnce() -> T) -> (T, Option<Caught>) {
        MADE.set(ptr::null_mut());
        let answer = make();
        (answer, NonNull::new(MADE.replace(ptr::null_mut())).map(Caught))
    }

    /// Whether `caught` was freed on this thread by `let_go`.
    pub fn frees(&self, caught: Caught, let_go: impl FnOnce()) -> bool {
        FREED.set(ptr::null_mut());
        let_go();
        FREED.replace(ptr::null_mut()) == caught.0.as_ptr()
    }

    /// The application's pointer at index 0 of an `SSL` (`SSL_get_app_data`), as a number.
    ///
    /// # Safety
    ///
    /// The `SSL` is still alive.
    pub unsafe fn app_data(&self, caught: Caught) -> usize {
        // SAFETY: alive by the contract; index 0 always exists.
        unsafe { (self.functions.ex_data)(caught.0.as_ptr(), 0) as usize }
    }
}
