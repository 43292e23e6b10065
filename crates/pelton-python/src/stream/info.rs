//! `get_extra_info` and `repr`. Nothing is made before it is asked for.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, IntoRawFd};

use pelton::reactor::Interest;
use rustix::net::{SocketAddrAny, SocketAddrUnix};

use super::{Descriptor, StreamTransport};
use crate::ffi::{Keywords, Obj, Raised, Ref, Result, SocketNumber, Spec, This};
use crate::names::{self, support};

pub(super) fn describe(spec: &mut Spec<StreamTransport>) {
    spec.any(c"get_extra_info", get_extra_info)
        .get(c"_extra", |this| {
            for name in [&names::SOCKET, &names::SOCKNAME, &names::PEERNAME] {
                this.extra_info(name.obj())?;
            }
            Ok(this.extra.get_or_none())
        })
        .get(c"_sock", |this| this.socket())
        .get(c"_sock_fd", |this| Ref::int(this.descriptor.borrow().number().into()))
        .repr(repr);
}

fn get_extra_info(
    this: This<'_, StreamTransport>,
    args: &[Obj<'_>],
    keywords: Keywords<'_>,
) -> Result<Ref> {
    let [default] = keywords.read("get_extra_info", [&names::DEFAULT])?;
    let (name, default) = match args {
        [name] => (name, default),
        [name, default] => (name, Some(*default)),
        _ => return Err(Raised::type_error("get_extra_info() takes a name and a default")),
    };
    let found = this.extra_info(*name)?;
    Ok(found.unwrap_or_else(|| default.map_or_else(Ref::none, Obj::to_ref)))
}

impl This<'_, StreamTransport> {
    fn extra_info(self, name: Obj<'_>) -> Result<Option<Ref>> {
        if let Some(extra) = self.extra.get()
            && let Some(value) = extra.obj().dict_get(name)?
        {
            return Ok(Some(value));
        }
        let value = if name.eq_str(&names::SOCKET) {
            // None once it is closed; asyncio then still has a closed socket to show.
            let socket = self.socket()?;
            support::TRANSPORT_SOCKET.get()?.call(&[socket.obj()])?
        } else if name.eq_str(&names::PEERNAME) {
            address(self.peer.get())?
        } else if name.eq_str(&names::SOCKNAME) {
            self.keep_local();
            address(self.local.get())?
        } else {
            return Ok(None);
        };
        if !self.extra.is_set() {
            self.extra.set(Ref::dict()?);
        }
        self.extra.get_or_none().obj().set_item(name, value.obj())?;
        Ok(Some(value))
    }

    /// The Python socket, which owns the descriptor from here on; None once it is closed.
    fn socket(self) -> Result<Ref> {
        let number = match &*self.descriptor.borrow() {
            Descriptor::Socket { socket, .. } => return Ok(socket.clone()),
            Descriptor::Closed { .. } => return Ok(Ref::none()),
            Descriptor::Own(fd) => fd.as_raw_fd(),
        };
        let socket = support::OPEN_SOCKET.get()?.call(&[Ref::int(number.into())?.obj()])?;
        if !matches!(&*self.descriptor.borrow(), Descriptor::Own(fd) if fd.as_raw_fd() == number) {
            // That was a call into Python, and meanwhile the descriptor was closed or another
            // socket object has it: this one must not own it too.
            socket.obj().call_method(&names::DETACH, &[])?;
            return self.socket();
        }
        let owned = SocketNumber::new(socket.obj(), number);
        let owner = Descriptor::Socket { socket: socket.clone(), number: owned };
        if let Descriptor::Own(fd) = self.descriptor.replace(owner) {
            // The socket object closes it now.
            let _owned_by_socket = fd.into_raw_fd();
        }
        Ok(socket)
    }

    fn keep_local(self) {
        if self.local.get().is_none()
            && let Ok(fd) = self.descriptor.borrow().borrow()
            && let Ok(local) = rustix::net::getsockname(fd)
        {
            self.local.get_or_init(|| local);
        }
    }

    /// Keeps the local address for `get_extra_info` after the socket is closed.
    pub(super) fn keep_addresses(self) {
        self.keep_local();
    }
}

/// An address as Python's socket module has it; None where there is none.
pub(crate) fn address(address: Option<&SocketAddrAny>) -> Result<Ref> {
    let Some(any) = address else { return Ok(Ref::none()) };
    if let Ok(unix) = SocketAddrUnix::try_from(any.clone()) {
        return unix_address(&unix);
    }
    match SocketAddr::try_from(any.clone()) {
        Ok(SocketAddr::V4(v4)) => {
            let (host, port) = (Ref::str(&v4.ip().to_string())?, Ref::int(v4.port().into())?);
            Ref::tuple(&[host.obj(), port.obj()])
        }
        Ok(SocketAddr::V6(v6)) => {
            let (host, port) = (Ref::str(&v6.ip().to_string())?, Ref::int(v6.port().into())?);
            let flow = Ref::int(v6.flowinfo().into())?;
            let scope = Ref::int(v6.scope_id().into())?;
            Ref::tuple(&[host.obj(), port.obj(), flow.obj(), scope.obj()])
        }
        Err(_) => Ok(Ref::none()),
    }
}

/// A path as `str`, an abstract name as `bytes`, an unnamed socket as the empty string.
fn unix_address(unix: &SocketAddrUnix) -> Result<Ref> {
    // The kernel gives an unnamed socket's address as a family alone.
    if let Some(name) = unix.abstract_name().filter(|name| !name.is_empty()) {
        let mut full = vec![0];
        full.extend_from_slice(name);
        return Ref::bytes(&full);
    }
    match unix.path_bytes() {
        Some(path) => Ref::path(path),
        None => Ref::str(""),
    }
}

fn repr(this: This<'_, StreamTransport>) -> Result<Ref> {
    let (number, open) = {
        let descriptor = this.descriptor.borrow();
        (descriptor.number(), descriptor.is_open())
    };
    let mut text = String::from("<StreamTransport");
    if !open {
        text.push_str(" closed");
    } else if this.stream.borrow().state().is_closing() {
        text.push_str(" closing");
    }
    text.push_str(&format!(" fd={number}"));
    let interest = this.with_loop(|core| {
        let token = this.token.get().filter(|_| !core.is_closed());
        let interest = match token {
            Some(token) => core.kernel()?.reactor.interest(token),
            None => None,
        };
        Ok(interest.map(|i| (i.contains(Interest::READ), i.contains(Interest::WRITE))))
    })?;
    if let Some((read, write)) = interest {
        let word = |polling| if polling { "polling" } else { "idle" };
        let queued = this.queued();
        text.push_str(&format!(" read={}", word(read)));
        text.push_str(&format!(" write=<{}, bufsize={queued}>", word(write)));
    }
    text.push('>');
    Ref::str(&text)
}
