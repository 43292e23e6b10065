//! `get_extra_info` and `repr`. Nothing is made before it is asked for.

use super::TlsTransport;
use crate::ffi::{Keywords, Obj, Raised, Ref, Result, Spec, This};
use crate::names;

pub(super) fn describe(spec: &mut Spec<TlsTransport>) {
    spec.any(c"get_extra_info", get_extra_info)
        .get(c"_sslcontext", |this| Ok(this.tls_context.get_or_none()))
        .get(c"_sock", |this| match this.below.get() {
            Some(below) => below.obj().attr(&names::SOCK),
            None => Ok(Ref::none()),
        })
        .repr(repr);
}

fn get_extra_info(
    this: This<'_, TlsTransport>,
    args: &[Obj<'_>],
    keywords: Keywords<'_>,
) -> Result<Ref> {
    let [default] = keywords.read("get_extra_info", [&names::DEFAULT])?;
    let (name, default) = match args {
        [name] => (name, default),
        [name, default] => (name, Some(*default)),
        _ => return Err(Raised::type_error("get_extra_info() takes a name and a default")),
    };
    if let Some(value) = this.session_info(*name)? {
        return Ok(value);
    }
    let default = default.map_or_else(Ref::none, Obj::to_ref);
    match this.below.get() {
        Some(below) => below.obj().call_method(&names::GET_EXTRA_INFO, &[*name, default.obj()]),
        None => Ok(default),
    }
}

impl This<'_, TlsTransport> {
    fn session_info(self, name: Obj<'_>) -> Result<Option<Ref>> {
        if name.eq_str(&names::SSLCONTEXT) {
            return Ok(Some(self.tls_context.get_or_none()));
        }
        let state = self.state();
        if name.eq_str(&names::CLOSE_NOTIFY) {
            // How the peer's stream has ended: cleanly or not; None while it has not.
            return Ok(Some(match state.is_peer_done() {
                true => Ref::bool(!state.is_truncated()),
                false => Ref::none(),
            }));
        }
        if !self.shown.get() {
            return Ok(None); // asyncio has these after the handshake
        }
        let object = self.ssl_object.get_or_none();
        if name.eq_str(&names::SSL_OBJECT) {
            return Ok(Some(object));
        }
        let method = if name.eq_str(&names::PEERCERT) {
            &names::GETPEERCERT
        } else if name.eq_str(&names::CIPHER) {
            &names::CIPHER
        } else if name.eq_str(&names::COMPRESSION) {
            &names::COMPRESSION
        } else {
            return Ok(None);
        };
        if let Some(extra) = self.extra.get()
            && let Some(value) = extra.obj().dict_get(name)?
        {
            return Ok(Some(value));
        }
        let value = object.obj().call_method(method, &[])?;
        if !self.extra.is_set() {
            self.extra.set(Ref::dict()?);
        }
        self.extra.get_or_none().obj().set_item(name, value.obj())?;
        Ok(Some(value))
    }
}

fn repr(this: This<'_, TlsTransport>) -> Result<Ref> {
    let state = this.state();
    let word = if state.is_over() {
        "closed"
    } else if this.is_closing() {
        "closing"
    } else if state.is_open() {
        "open"
    } else {
        "in handshake"
    };
    let below = match this.below.get() {
        Some(below) => below.obj().repr()?.obj().to_text()?,
        None => "nothing".to_owned(),
    };
    Ref::str(&format!("<SSLTransport {word} over {below}>"))
}
