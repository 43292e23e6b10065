//! Python's own libssl: found in the process, never linked.

use std::ffi::{CStr, CString, c_void};
use std::ptr;

use pelton::tls::libssl::{Caught, Libssl, Session};

use super::error::Result;
use super::object::{Imported, Interned, Obj, Ref};

static SSL_MODULE: Imported = Imported::new(c"ssl", c"_ssl");
static FILE: Interned = Interned::new(c"__file__");
static VERSION_NUMBER: Interned = Interned::new(c"OPENSSL_VERSION_NUMBER");

/// The libssl that Python's `_ssl` calls; `None` where it cannot be found or is no OpenSSL that
/// [`Libssl`] knows.
pub(crate) fn find_libssl() -> Result<Option<&'static Libssl>> {
    let module = SSL_MODULE.get()?;
    let version = module.attr(&VERSION_NUMBER)?.obj().to_i64()?;
    let library = match module.attr_or_none(&FILE)? {
        // Through the module's own library, so that its libssl is meant, whatever other is loaded.
        Some(file) => open(&file.obj().to_text()?),
        // Built into the interpreter: its functions are found if they are exported at all.
        None => Some(ptr::null_mut()),
    };
    let Some(library) = library else { return Ok(None) };
    // SAFETY: the addresses are functions that OpenSSL exports under these names; libraries that
    // `_ssl` needs stay loaded for the life of the process.
    let libssl = unsafe { Libssl::load(|name| symbol(library, name)) };
    Ok(libssl.filter(|libssl| i64::try_from(libssl.version()) == Ok(version)))
}

/// A handle of a library that is loaded already.
fn open(path: &str) -> Option<*mut c_void> {
    let path = CString::new(path).ok()?;
    // SAFETY: a C string; no code is loaded by this.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    (!library.is_null()).then_some(library)
}

fn symbol(library: *mut c_void, name: &CStr) -> *const c_void {
    // SAFETY: an open handle, or null for everything in the process (`RTLD_DEFAULT`).
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

/// A session on the `SSL` of Python's own `_ssl._SSLSocket`, which it keeps alive.
pub(crate) struct OwnedSession {
    // Before `object`: the session goes first.
    session: Session,
    object: Ref,
}

impl OwnedSession {
    /// `None` where `caught` is not the `SSL` of `object`, or without memory.
    pub(crate) fn new(libssl: &'static Libssl, caught: Caught, object: Ref) -> Option<Self> {
        // SAFETY: it was made a moment ago on this thread; its owner is the caller's.
        let owner = unsafe { libssl.app_data(caught) };
        if owner != object.as_ptr() as usize {
            return None;
        }
        // SAFETY: the object owns the SSL (it is its application's pointer), and is kept by the
        // value made here for longer than the session. Threads other than the loop's that use the
        // object at the same time break the rules of the `ssl` module itself.
        let session = unsafe { Session::adopt(libssl, caught)? };
        Some(Self { session, object })
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn object(&self) -> Obj<'_> {
        self.object.obj()
    }

    pub(crate) fn object_ref(&self) -> &Ref {
        &self.object
    }
}
