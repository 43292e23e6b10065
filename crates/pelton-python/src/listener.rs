//! Listening sockets: `accept` until nothing waits, a transport for each connection.
//!
//! CPython: `_start_serving`, `_accept_connection` and `_accept_connection2` of
//! `asyncio/selector_events.py`, here without a task, a future and a socket object for each.

use std::os::fd::RawFd;
use std::rc::Rc;

use pelton::net;
use pelton::reactor::{Interest, Token};

use crate::core::{LoopCore, Source};
use crate::ffi::{Context, Keywords, Obj, Raised, Ref, Result, Slot, Spec, This, Visit, borrow_fd};
use crate::names::support;
use crate::stream::{Accepted, socket_address};
use crate::watch::descriptor;

/// A listening socket and what to do with its connections.
pub(crate) struct Listener {
    fd: RawFd,
    /// The Python socket, which owns the descriptor.
    socket: Slot,
    protocol_factory: Slot,
    /// The `SSLContext`, or None.
    tls: Slot,
    server: Slot,
    /// The most connections taken in one turn.
    backlog: usize,
    /// Every argument of `_start_serving`, for Python's half.
    args: Slot,
    context: Slot,
}

impl Listener {
    pub(crate) fn traverse(&self, visit: &mut Visit<'_>) {
        for slot in [
            &self.socket,
            &self.protocol_factory,
            &self.tls,
            &self.server,
            &self.args,
            &self.context,
        ] {
            visit.slot(slot);
        }
    }
}

pub(crate) fn describe(spec: &mut Spec<LoopCore>) {
    spec.any(c"_listen", listen).one(c"_listens", |this, socket| {
        let listens = this.token_of(descriptor(socket)?).is_some();
        Ok(Ref::bool(listens))
    });
}

/// `_listen(protocol_factory, sock, sslcontext, server, backlog, *timeouts)`
fn listen(this: This<'_, LoopCore>, args: &[Obj<'_>], _: Keywords<'_>) -> Result<Ref> {
    let [protocol_factory, socket, tls, server, backlog, ..] = args else {
        return Err(Raised::type_error("_listen() takes five arguments or more"));
    };
    this.check_open()?;
    let fd = descriptor(*socket)?;
    let listener = Rc::new(Listener {
        fd,
        socket: Slot::new(socket.to_ref()),
        protocol_factory: Slot::new(protocol_factory.to_ref()),
        tls: Slot::new(tls.to_ref()),
        server: Slot::new(server.to_ref()),
        backlog: usize::try_from(backlog.to_i64()?).unwrap_or(1).max(1),
        args: Slot::new(Ref::tuple(args)?),
        context: Slot::new(Context::copy_current()?),
    });
    this.drop_registration(fd)?;
    let token =
        this.kernel()?.reactor.register(borrow_fd(fd), Interest::READ, Source::Listener(listener));
    let token = token.map_err(|error| Raised::os_error(&error))?;
    this.descriptors.borrow_mut().insert(fd, token);
    Ok(Ref::none())
}

impl LoopCore {
    pub(crate) fn drop_registration(&self, fd: RawFd) -> Result<()> {
        let token: Option<Token> = self.descriptors.borrow_mut().remove(&fd);
        if let Some(token) = token {
            let source = self.kernel()?.reactor.deregister(token);
            drop(source);
        }
        Ok(())
    }
}

/// Accepts what waits, at most a backlog's worth.
pub(crate) fn on_ready(
    core: This<'_, LoopCore>,
    token: Token,
    listener: &Rc<Listener>,
) -> Result<()> {
    let context = listener.context.get_or_none();
    for _ in 0..listener.backlog {
        if core.token_of(listener.fd) != Some(token) {
            // A callback of an earlier connection stopped the server.
            return Ok(());
        }
        match net::accept(borrow_fd(listener.fd)) {
            Ok(None) => return Ok(()),
            Ok(Some((fd, peer))) => {
                let accepted = Accepted { fd, peer };
                Context::run(context.obj(), || connect(core, listener, accepted))?;
            }
            Err(error) => {
                if net::is_exhausted(&error) {
                    // The kernel would report the socket for ever: Python's half tries again
                    // in a while.
                    core.drop_registration(listener.fd)?;
                }
                let exception = Raised::os_error(&error).take();
                let args = listener.args.get_or_none();
                support::ACCEPT_FAILED.get()?.call(&[core.obj(), exception.obj(), args.obj()])?;
                return Ok(());
            }
        }
    }
    Ok(())
}

fn connect(core: This<'_, LoopCore>, listener: &Listener, accepted: Accepted) -> Result<()> {
    let server = listener.server.get_or_none();
    if !listener.tls.get_or_none().obj().is_none() {
        let peer = socket_address(accepted.peer.as_ref())?;
        let socket = accepted.into_socket()?;
        let args = listener.args.get_or_none();
        support::ACCEPT_TLS.get()?.call(&[core.obj(), socket.obj(), peer.obj(), args.obj()])?;
        return Ok(());
    }
    let factory = listener.protocol_factory.get_or_none();
    let opened = core
        .callback(|| factory.obj().call(&[]))
        .and_then(|protocol| accepted.open(core, protocol.obj(), server.obj()));
    match opened {
        Ok(()) => Ok(()),
        Err(raised) if raised.ends_the_loop() => Err(raised),
        Err(raised) => {
            let exception = raised.take();
            support::ACCEPT_REFUSED.get()?.call(&[core.obj(), exception.obj()])?;
            Ok(())
        }
    }
}
