//! `get_extra_info` and `repr`.

use pelton::reactor::Interest;

use super::DatagramTransport;
use crate::ffi::{Keywords, Obj, Raised, Ref, Result, Spec, This};
use crate::names;

pub(super) fn describe(spec: &mut Spec<DatagramTransport>) {
    spec.any(c"get_extra_info", get_extra_info)
        .get(c"_extra", |this| Ok(this.extra.get_or_none()))
        .get(c"_sock", |this| Ok(this.socket()))
        .get(c"_sock_fd", |this| Ref::int(this.descriptor.borrow().number().into()))
        .repr(repr);
}

fn get_extra_info(
    this: This<'_, DatagramTransport>,
    args: &[Obj<'_>],
    keywords: Keywords<'_>,
) -> Result<Ref> {
    let [default] = keywords.read("get_extra_info", [&names::DEFAULT])?;
    let (name, default) = match args {
        [name] => (name, default),
        [name, default] => (name, Some(*default)),
        _ => return Err(Raised::type_error("get_extra_info() takes a name and a default")),
    };
    let found = match this.extra.get() {
        Some(extra) => extra.obj().dict_get(*name)?,
        None => None,
    };
    Ok(found.unwrap_or_else(|| default.map_or_else(Ref::none, Obj::to_ref)))
}

fn repr(this: This<'_, DatagramTransport>) -> Result<Ref> {
    let (number, open) = {
        let descriptor = this.descriptor.borrow();
        (descriptor.number(), descriptor.is_open())
    };
    let mut text = String::from("<DatagramTransport");
    if !open {
        text.push_str(" closed");
    } else if this.endpoint.borrow().state().is_closing() {
        text.push_str(" closing");
    }
    text.push_str(&format!(" fd={number}"));
    let polled = this.with_loop(|core| {
        let token = this.token.get().filter(|_| !core.is_closed());
        Ok(match token {
            Some(token) => core.kernel()?.reactor.interest(token),
            None => None,
        })
    })?;
    if let Some(interest) = polled {
        let word = |side| if interest.contains(side) { "polling" } else { "idle" };
        let (read, write) = (word(Interest::READ), word(Interest::WRITE));
        text.push_str(&format!(" read={read} write=<{write}, bufsize={}>", this.queued()));
    }
    text.push('>');
    Ref::str(&text)
}
