//! The two engines under a TLS transport. Both work on Python's genuine `SSLObject`.
//!
//! | engine | what moves application data |
//! |---|---|
//! | direct | `SSL_read` and `SSL_write` on the object's own `SSL`, from the loop's buffers |
//! | fallback | the object's C methods over a pair of `MemoryBIO`s |
//!
//! Handshake and shutdown are the object's methods in both, so callbacks, sessions, verification
//! and the texts of errors are CPython's own. A test at first use decides; the environment
//! variable `PELTON_TLS=fallback` forces the second.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use pelton::tls::libssl::{Libssl, Outcome};

use super::fallback::Fallback;
use crate::ffi::{Obj, OwnedSession, Raised, Ref, Result, Visit, find_libssl};
use crate::names::{self, Name, support};

/// How far a handshake or a shutdown has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Done,
    WantInput,
    /// A callback of OpenSSL has called back while a call is under way.
    Busy,
}

pub(super) enum Engine {
    Direct(OwnedSession),
    Fallback(Fallback),
}

/// Asks for the genuine object: `wrap(incoming, outgoing)`.
pub(super) struct Wrap<'a> {
    pub(super) context: Obj<'a>,
    pub(super) server_side: Obj<'a>,
    pub(super) server_hostname: Obj<'a>,
    pub(super) session: Obj<'a>,
}

impl Wrap<'_> {
    fn call(&self, incoming: Obj<'_>, outgoing: Obj<'_>) -> Result<Ref> {
        support::WRAP_TLS.get()?.call(&[
            self.context,
            incoming,
            outgoing,
            self.server_side,
            self.server_hostname,
            self.session,
        ])
    }
}

impl Engine {
    /// Makes the `SSLObject` and the engine under it.
    pub(super) fn new(wrap: &Wrap<'_>) -> Result<(Ref, Self)> {
        match direct()? {
            Some(libssl) => match Self::direct(libssl, wrap)? {
                Some(made) => Ok(made),
                None => Self::fallback(wrap),
            },
            None => Self::fallback(wrap),
        }
    }

    fn direct(libssl: &'static Libssl, wrap: &Wrap<'_>) -> Result<Option<(Ref, Self)>> {
        // Two objects that every connection passes and none uses: the session's own BIO takes
        // their place.
        let (incoming, outgoing) = (names::IDLE_BIO_IN.get()?, names::IDLE_BIO_OUT.get()?);
        let (object, caught) = libssl.catch(|| wrap.call(incoming, outgoing));
        let object = object?;
        let Some(caught) = caught else { return Ok(None) };
        let inner = object.obj().attr(&names::SSLOBJ)?;
        let session = OwnedSession::new(libssl, caught, inner);
        Ok(session.map(|session| (object, Self::Direct(session))))
    }

    fn fallback(wrap: &Wrap<'_>) -> Result<(Ref, Self)> {
        let class = names::MEMORY_BIO.get()?;
        let (incoming, outgoing) = (class.call(&[])?, class.call(&[])?);
        let object = wrap.call(incoming.obj(), outgoing.obj())?;
        let inner = object.obj().attr(&names::SSLOBJ)?;
        Ok((object, Self::Fallback(Fallback::new(inner, incoming, outgoing)?)))
    }

    pub(super) fn traverse(&self, visit: &mut Visit<'_>) {
        match self {
            Self::Direct(session) => visit.object(session.object_ref()),
            Self::Fallback(fallback) => fallback.traverse(visit),
        }
    }

    /// One method of the genuine object: `do_handshake` or `shutdown`.
    pub(super) fn step(
        &self,
        method: &Name,
        input: &mut &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Step> {
        let answer = match self {
            Self::Direct(session) => {
                let object = session.object();
                let lent =
                    session.session().lend(input, output, || object.call_method(method, &[]));
                match lent {
                    Some(answer) => answer,
                    None => return Ok(Step::Busy),
                }
            }
            Self::Fallback(fallback) if fallback.is_busy() => return Ok(Step::Busy),
            Self::Fallback(fallback) => fallback.step(method, input, output),
        };
        match answer {
            Ok(_) => Ok(Step::Done),
            Err(raised) if wants_input(&raised) => {
                raised.discard();
                Ok(Step::WantInput)
            }
            Err(raised) => Err(raised),
        }
    }

    /// Reads plaintext of at most one record into `plain`; see [`Outcome`]. A failure is the
    /// exception that CPython raises for it.
    pub(super) fn read(
        &self,
        input: &mut &[u8],
        plain: &mut [MaybeUninit<u8>],
        output: &mut Vec<u8>,
    ) -> Result<Outcome> {
        match self {
            Self::Direct(session) => match session.session().read(input, plain, output) {
                Outcome::Failed => Err(self.failure(output)),
                outcome => Ok(outcome),
            },
            Self::Fallback(fallback) => fallback.read(input, plain, output),
        }
    }

    /// Seals `plain` into records at the end of `output`.
    pub(super) fn write(&self, plain: &[u8], output: &mut Vec<u8>) -> Result<Outcome> {
        match self {
            Self::Direct(session) => match session.session().write(plain, output) {
                Outcome::Failed => Err(self.failure(output)),
                outcome => Ok(outcome),
            },
            Self::Fallback(fallback) => fallback.write(plain, output),
        }
    }

    /// The session has failed: the genuine object raises what OpenSSL has to say.
    fn failure(&self, output: &mut Vec<u8>) -> Raised {
        let Self::Direct(session) = self else { return Raised::runtime_error("no such session") };
        let one = match Ref::int(1) {
            Ok(one) => one,
            Err(raised) => return raised,
        };
        let object = session.object();
        let answer = session
            .session()
            .lend(&mut &[][..], output, || object.call_method(&names::READ, &[one.obj()]));
        match answer {
            Some(Err(raised)) => raised,
            Some(Ok(_)) | None => Raised::runtime_error("the TLS session has failed"),
        }
    }

    /// How many bytes of plaintext, or of records not looked at, are kept inside.
    pub(super) fn pending(&self) -> Result<usize> {
        match self {
            Self::Direct(session) => Ok(session.session().pending()),
            Self::Fallback(fallback) => fallback.pending(),
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        match self {
            Self::Direct(session) => session.session().is_busy(),
            Self::Fallback(fallback) => fallback.is_busy(),
        }
    }

    /// To be called before a batch of reads or writes.
    pub(super) fn prepare(&self) {
        if let Self::Direct(session) = self {
            session.session().clear_errors();
        }
    }
}

/// `SSLWantReadError`, and `SSLSyscallError` as asyncio has it. The classes were looked up by
/// [`direct`]: that cannot be done while an exception is set.
pub(super) fn wants_input(raised: &Raised) -> bool {
    [&names::WANT_READ, &names::SYSCALL_ERROR]
        .into_iter()
        .any(|class| class.known().is_some_and(|class| raised.is(class)))
}

/// The library for the direct engine, or that there is none. Decided once in a process.
static DIRECT: OnceLock<Option<&'static Libssl>> = OnceLock::new();

/// The library for the direct engine, if that one works here.
fn direct() -> Result<Option<&'static Libssl>> {
    if let Some(known) = DIRECT.get() {
        return Ok(*known);
    }
    for class in [&names::WANT_READ, &names::SYSCALL_ERROR, &names::ZERO_RETURN] {
        class.get()?;
    }
    let forced =
        std::env::var_os("PELTON_TLS").is_some_and(|value| value == OsStr::new("fallback"));
    let found = if forced { None } else { find_libssl()? };
    let working = match found {
        Some(libssl) if works(libssl)? => Some(libssl),
        _ => None,
    };
    Ok(*DIRECT.get_or_init(|| working))
}

/// Tries the whole way on a throw-away client: the hook fires, the `SSL` is the object's, the
/// handshake's first record comes out of our BIO, and the `SSL` goes with its object.
fn works(libssl: &'static Libssl) -> Result<bool> {
    let none = Ref::none();
    let no = Ref::bool(false);
    let context = support::TRIAL_TLS_CONTEXT.get()?.call(&[])?;
    let wrap = Wrap {
        context: context.obj(),
        server_side: no.obj(),
        server_hostname: none.obj(),
        session: none.obj(),
    };
    let (incoming, outgoing) = (names::IDLE_BIO_IN.get()?, names::IDLE_BIO_OUT.get()?);
    let (object, caught) = libssl.catch(|| wrap.call(incoming, outgoing));
    let object = object?;
    let Some(caught) = caught else { return Ok(false) };
    let inner = object.obj().attr(&names::SSLOBJ)?;
    let Some(session) = OwnedSession::new(libssl, caught, inner) else { return Ok(false) };
    let in_place = session.session().is_in_place();
    let engine = Engine::Direct(session);
    let mut hello = Vec::new();
    let step = engine.step(&names::DO_HANDSHAKE, &mut &[][..], &mut hello);
    let spoke = match step {
        // A handshake record (22) of some 3.x version: RFC 8446, 5.1.
        Ok(step) => step == Step::WantInput && hello.starts_with(&[22, 3]),
        Err(raised) => {
            raised.discard();
            false
        }
    };
    let freed = libssl.frees(caught, || drop((engine, object)));
    Ok(in_place && spoke && freed)
}

/// `"direct"` or `"fallback"`.
pub(crate) fn engine_name() -> Result<&'static str> {
    Ok(if direct()?.is_some() { "direct" } else { "fallback" })
}
