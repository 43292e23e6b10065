//! One session: application data through `SSL_read` and `SSL_write`.

use std::ffi::c_int;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::bio::{self, Wire};
use super::table::{Bio, Caught, Libssl, Ssl};

// ssl.h
const ERROR_WANT_READ: c_int = 2;
const ERROR_WANT_WRITE: c_int = 3;
const ERROR_ZERO_RETURN: c_int = 6;

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So many bytes of plaintext were read or taken, at least one.
    Data(usize),
    /// Nothing more without further bytes from the peer.
    WantInput,
    /// The peer has said `close_notify`: there is no more to read.
    Closed,
    /// The session is broken. Why is in OpenSSL's error queue, left as it is for whoever has to
    /// tell; the queue is emptied at the next call.
    Failed,
    /// A callback of OpenSSL has called back while a call is under way.
    Busy,
}

/// A session on an `SSL` whose owner is someone else.
///
/// It puts a BIO of its own under the `SSL`. Handshake and shutdown are the owner's: it makes
/// them inside [`lend`](Self::lend). The session itself only moves application data.
pub struct Session {
    libssl: &'static Libssl,
    ssl: NonNull<Ssl>,
    bio: NonNull<Bio>,
    wire: NonNull<Wire>,
}

impl Session {
    /// Puts a BIO under `ssl`, in place of those that it has; `None` without memory.
    ///
    /// # Safety
    ///
    /// `ssl` is alive, no other thread uses it while the session does, and it outlives every call
    /// of [`read`](Self::read), [`write`](Self::write) and [`pending`](Self::pending).
    pub unsafe fn adopt(libssl: &'static Libssl, ssl: Caught) -> Option<Self> {
        let (bio, wire) = bio::new(libssl)?;
        let functions = &libssl.functions;
        // SAFETY: the SSL is alive by the contract. Setting one BIO for both directions takes over
        // one reference; the other one stays this session's.
        unsafe {
            if (functions.bio_up_ref)(bio.as_ptr()) != 1 {
                (functions.bio_free)(bio.as_ptr());
                return None;
            }
            (functions.set_bio)(ssl.0.as_ptr(), bio.as_ptr(), bio.as_ptr());
        }
        Some(Self { libssl, ssl: ssl.0, bio, wire })
    }

    /// Whether the `SSL` still reads from this session's BIO.
    pub fn is_in_place(&self) -> bool {
        // SAFETY: the SSL is alive by the contract of `adopt`.
        unsafe { (self.libssl.functions.rbio)(self.ssl.as_ptr()) == self.bio.as_ptr() }
    }

    fn wire(&self) -> &Wire {
        // SAFETY: the wire lives as long as the BIO, of which this session has a reference.
        unsafe { self.wire.as_ref() }
    }

    /// Runs `body`, in which the owner of the `SSL` works on it: what OpenSSL reads then comes from
    /// `input`, which is moved past it, and what it writes is appended to `output`. `None` if a
    /// call is under way: a callback of OpenSSL has called back.
    pub fn lend<T>(
        &self,
        input: &mut &[u8],
        output: &mut Vec<u8>,
        body: impl FnOnce() -> T,
    ) -> Option<T> {
        self.wire().lend(input, output, body)
    }

    /// Reads plaintext into `plain`, which is not empty, from the records in `input`. What goes to
    /// the peer in answer (a key update, an alert) is appended to `output`.
    ///
    /// At most one record is read: 16 KiB (RFC 8446, 5.1).
    pub fn read(
        &self,
        input: &mut &[u8],
        plain: &mut [MaybeUninit<u8>],
        output: &mut Vec<u8>,
    ) -> Outcome {
        let functions = &self.libssl.functions;
        let size = c_int::try_from(plain.len()).unwrap_or(c_int::MAX);
        let answer = self.wire().lend(input, output, || {
            // SAFETY: the SSL is alive, and `plain` holds `size` bytes that OpenSSL writes to.
            unsafe { (functions.read)(self.ssl.as_ptr(), plain.as_mut_ptr().cast(), size) }
        });
        answer.map_or(Outcome::Busy, |answer| self.outcome(answer))
    }

    /// Seals `plain`, which is not empty, into records that are appended to `output`; all of it
    /// unless the outcome says otherwise. After [`Outcome::WantInput`] the same bytes must be
    /// given again, in the same or another place.
    pub fn write(&self, plain: &[u8], output: &mut Vec<u8>) -> Outcome {
        let functions = &self.libssl.functions;
        let size = c_int::try_from(plain.len()).unwrap_or(c_int::MAX);
        let answer = self.wire().lend(&mut &[][..], output, || {
            // SAFETY: the SSL is alive, and `plain` has at least `size` bytes.
            unsafe { (functions.write)(self.ssl.as_ptr(), plain.as_ptr().cast(), size) }
        });
        answer.map_or(Outcome::Busy, |answer| self.outcome(answer))
    }

    #[inline]
    fn outcome(&self, answer: c_int) -> Outcome {
        match usize::try_from(answer) {
            Ok(count) if count > 0 => Outcome::Data(count),
            _ => self.failure(answer),
        }
    }

    #[cold]
    fn failure(&self, answer: c_int) -> Outcome {
        // SAFETY: the SSL is alive, and this directly follows the call on the same thread.
        match unsafe { (self.libssl.functions.error)(self.ssl.as_ptr(), answer) } {
            ERROR_WANT_READ | ERROR_WANT_WRITE => Outcome::WantInput,
            ERROR_ZERO_RETURN => Outcome::Closed,
            _ => Outcome::Failed,
        }
    }

    /// How many bytes of the record that is being read are left for the next read.
    pub fn pending(&self) -> usize {
        // SAFETY: the SSL is alive by the contract of `adopt`.
        let pending = unsafe { (self.libssl.functions.pending)(self.ssl.as_ptr()) };
        usize::try_from(pending).unwrap_or(0)
    }

    /// Whether a call is under way.
    pub fn is_busy(&self) -> bool {
        self.wire().is_lent()
    }

    /// Whether the owner of the `SSL` has made it write outside of any call; the next call takes
    /// those bytes along.
    pub fn has_stray(&self) -> bool {
        self.wire().has_stray()
    }

    /// Empties OpenSSL's error queue, in which other users of the library may have left something:
    /// to be called before a batch of reads or writes.
    pub fn clear_errors(&self) {
        // SAFETY: both work on this thread's queue alone. Looking is much cheaper than emptying,
        // and nearly always there is nothing.
        unsafe {
            if (self.libssl.functions.peek_error)() != 0 {
                (self.libssl.functions.clear_errors)();
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: gives back the reference that `adopt` kept; the SSL has its own.
        unsafe { (self.libssl.functions.bio_free)(self.bio.as_ptr()) };
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("busy", &self.is_busy()).finish_non_exhaustive()
    }
}
