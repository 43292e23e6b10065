//! OpenSSL as a bare C server calls it: a context, and a session on each socket.
//!
//! Found at run time, so that nothing links to it; the only unsafe code of this program.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::rc::Rc;

const FILETYPE_PEM: c_int = 1;
const CTRL_MODE: c_int = 33;
const MODE_ENABLE_PARTIAL_WRITE: c_long = 1;
const MODE_ACCEPT_MOVING_WRITE_BUFFER: c_long = 2;
const MODE_RELEASE_BUFFERS: c_long = 16;
const ERROR_WANT_READ: c_int = 2;
const ERROR_WANT_WRITE: c_int = 3;
const ERROR_ZERO_RETURN: c_int = 6;

/// An object of OpenSSL's whose fields are its own affair.
type Opaque = c_void;

/// Loads the functions of this list, each by its name and C type.
macro_rules! functions {
    ($($name:ident: fn($($type:ty),*) $(-> $result:ty)?;)*) => {
        #[allow(non_snake_case)]
        struct Functions { $($name: unsafe extern "C" fn($($type),*) $(-> $result)?,)* }

        impl Functions {
            fn find(library: NonNull<c_void>) -> Result<Self, String> {
                Ok(Self { $($name: {
                    let symbol = symbol(library, concat!(stringify!($name), "\0"))?;
                    // SAFETY: OpenSSL's manual gives the function of this name this type, since
                    // 1.1.0 and without a change.
                    unsafe { std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($type),*) $(-> $result)?>(symbol) }
                },)* })
            }
        }
    };
}

functions! {
    TLS_server_method: fn() -> *const Opaque;
    SSL_CTX_new: fn(*const Opaque) -> *mut Opaque;
    SSL_CTX_free: fn(*mut Opaque);
    SSL_CTX_ctrl: fn(*mut Opaque, c_int, c_long, *mut c_void) -> c_long;
    SSL_CTX_use_certificate_chain_file: fn(*mut Opaque, *const c_char) -> c_int;
    SSL_CTX_use_PrivateKey_file: fn(*mut Opaque, *const c_char, c_int) -> c_int;
    SSL_new: fn(*mut Opaque) -> *mut Opaque;
    SSL_free: fn(*mut Opaque);
    SSL_set_fd: fn(*mut Opaque, c_int) -> c_int;
    SSL_set_accept_state: fn(*mut Opaque);
    SSL_read: fn(*mut Opaque, *mut c_void, c_int) -> c_int;
    SSL_write: fn(*mut Opaque, *const c_void, c_int) -> c_int;
    SSL_get_error: fn(*const Opaque, c_int) -> c_int;
    ERR_clear_error: fn();
}

/// A server's context.
pub(crate) struct Context {
    functions: Rc<Functions>,
    context: NonNull<Opaque>,
}

impl Context {
    /// Loads the library and the folder's certificate.
    pub(crate) fn new(libssl: &str, folder: &Path, release: bool) -> Result<Self, String> {
        let functions = Rc::new(Functions::find(load(libssl)?)?);
        // SAFETY: the method is a static of OpenSSL's.
        let context = unsafe { (functions.SSL_CTX_new)((functions.TLS_server_method)()) };
        let context = NonNull::new(context).ok_or("OpenSSL gives no context")?;
        let new = Self { functions, context };
        let mut mode = MODE_ENABLE_PARTIAL_WRITE | MODE_ACCEPT_MOVING_WRITE_BUFFER;
        if release {
            mode |= MODE_RELEASE_BUFFERS;
        }
        let context = new.context.as_ptr();
        // SAFETY: the context is alive, and this control takes a number.
        unsafe { (new.functions.SSL_CTX_ctrl)(context, CTRL_MODE, mode, std::ptr::null_mut()) };
        let chain = c_path(&folder.join("cert.pem"))?;
        let key = c_path(&folder.join("key.pem"))?;
        // SAFETY: the context is alive, and both are strings with an end.
        let taken = unsafe {
            (new.functions.SSL_CTX_use_certificate_chain_file)(context, chain.as_ptr()) == 1
                && (new.functions.SSL_CTX_use_PrivateKey_file)(context, key.as_ptr(), FILETYPE_PEM)
                    == 1
        };
        if taken { Ok(new) } else { Err(format!("no certificate and key in {}", folder.display())) }
    }

    /// A server's session on a socket, before its handshake.
    pub(crate) fn accept(&self, stream: TcpStream) -> io::Result<Session> {
        // SAFETY: the context is alive.
        let session = unsafe { (self.functions.SSL_new)(self.context.as_ptr()) };
        let session = NonNull::new(session).ok_or_else(|| io::Error::other("no session"))?;
        // SAFETY: the session is alive; the socket is closed after it, see `Session`.
        unsafe {
            (self.functions.SSL_set_fd)(session.as_ptr(), stream.as_raw_fd());
            (self.functions.SSL_set_accept_state)(session.as_ptr());
        }
        Ok(Session { functions: Rc::clone(&self.functions), session, stream })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it is ours, and sessions hold references of their own.
        unsafe { (self.functions.SSL_CTX_free)(self.context.as_ptr()) };
    }
}

/// A TLS session on its socket.
pub(crate) struct Session {
    functions: Rc<Functions>,
    session: NonNull<Opaque>,
    /// Closed when the session has been freed: fields are dropped after `drop()`.
    stream: TcpStream,
}

impl Session {
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The content of the next record; 0 at the end of the stream.
    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let length = c_int::try_from(room.len()).unwrap_or(c_int::MAX);
        // SAFETY: the session is alive, and the buffer has at least this length.
        let got = unsafe {
            (self.functions.SSL_read)(self.session.as_ptr(), room.as_mut_ptr().cast(), length)
        };
        self.outcome(got)
    }

    /// Sends one record; what is not taken must be offered again.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = c_int::try_from(bytes.len()).unwrap_or(c_int::MAX);
        // SAFETY: the session is alive, and there are at least as many bytes.
        let sent = unsafe {
            (self.functions.SSL_write)(self.session.as_ptr(), bytes.as_ptr().cast(), length)
        };
        self.outcome(sent)
    }

    fn outcome(&self, result: c_int) -> io::Result<usize> {
        if result > 0 {
            return Ok(result as usize);
        }
        // SAFETY: the session is alive, and this was its last result.
        let error = unsafe { (self.functions.SSL_get_error)(self.session.as_ptr(), result) };
        match error {
            ERROR_ZERO_RETURN => Ok(0),
            ERROR_WANT_READ | ERROR_WANT_WRITE => Err(ErrorKind::WouldBlock.into()),
            _ => {
                // SAFETY: it may be called at any time.
                unsafe { (self.functions.ERR_clear_error)() };
                Err(io::Error::other(format!("OpenSSL's error {error}")))
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nobody uses it afterwards.
        unsafe { (self.functions.SSL_free)(self.session.as_ptr()) };
    }
}

fn load(name: &str) -> Result<NonNull<c_void>, String> {
    let file = CString::new(name).map_err(|_| "a file name has no zero byte".to_owned())?;
    // SAFETY: a string with an end; what the library does when it is loaded is OpenSSL's.
    let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    NonNull::new(library).ok_or_else(|| format!("cannot load {name}: {}", why()))
}

/// `name` ends in a zero byte. Found in the library or in what it depends on, so libcrypto's too.
fn symbol(library: NonNull<c_void>, name: &str) -> Result<NonNull<c_void>, String> {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).expect("names end in a zero byte");
    // SAFETY: the library is never unloaded, and the name has an end.
    let found = unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) };
    NonNull::new(found).ok_or_else(|| format!("no function {name:?} in libssl: {}", why()))
}

fn why() -> String {
    // SAFETY: it may be called at any time, and gives null or a string that is copied at once.
    let text = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.unwrap_or_default()
}

fn c_path(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| format!("{} has a zero byte", path.display()))
}
