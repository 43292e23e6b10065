//! How a TLS transport comes to be, and its handshake.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pelton::buf::WriteQueue;
use pelton::stream::FlowControl;
use pelton::tls::{Framing, State};

use super::engine::{Engine, Step, Wrap};
use super::{Inside, TlsTransport};
use crate::core::LoopCore;
use crate::ffi::{Keywords, Obj, Raised, Ref, Result, Slot, Spec, This, finally, make};
use crate::flow::Limits;
use crate::names::{self, support};

/// Writing pauses above this many bytes. CPython: `FLOW_CONTROL_HIGH_WATER_SSL_WRITE`.
pub(super) const WRITE_HIGH: usize = 512 * 1024;

/// CPython: `FLOW_CONTROL_HIGH_WATER_SSL_READ`.
pub(super) const READ_HIGH: usize = 256 * 1024;

pub(crate) fn describe_loop(spec: &mut Spec<LoopCore>) {
    spec.any(c"_make_tls", make_tls);
}

pub(super) fn describe(spec: &mut Spec<TlsTransport>) {
    spec.one(c"connection_made", |this, below| {
        this.with_loop(|core| this.begin(core, below))?;
        Ok(Ref::none())
    })
    .any(c"_begin", |this, args, _| {
        let [below, early] = args else {
            return Err(Raised::type_error("_begin() takes two arguments"));
        };
        this.with_loop(|core| {
            this.begin(core, *below)?;
            this.feed_object(core, *early)
        })?;
        Ok(Ref::none())
    })
    .none(c"_handshake_timed_out", |this| {
        if this.state().is_handshaking() {
            let seconds = Ref::float(this.handshake_timeout)?;
            let exception = support::HANDSHAKE_TIMED_OUT.get()?.call(&[seconds.obj()])?;
            let raised = Raised::from_exception(exception);
            this.with_loop(|core| this.fatal(core, raised, "Fatal error on transport"))?;
        }
        Ok(Ref::none())
    })
    .one(c"set_protocol", |this, protocol| {
        this.set_protocol(protocol)?;
        Ok(Ref::none())
    })
    .none(c"get_protocol", |this| Ok(this.protocol.get_or_none()))
    .get(c"_loop", |this| Ok(this.owner.get_or_none()))
    .get(c"_ssl_protocol", |this| Ok(this.obj().to_ref()));
}

/// `_make_tls(protocol, sslcontext, waiter, server_side, server_hostname, handshake_timeout,
/// shutdown_timeout, upgraded, session)`: a transport that waits for the one below.
fn make_tls(this: This<'_, LoopCore>, args: &[Obj<'_>], _: Keywords<'_>) -> Result<Ref> {
    let [protocol, context, waiter, server_side, hostname, handshake, shutdown, upgraded, session] =
        args
    else {
        return Err(Raised::type_error("_make_tls() takes nine arguments"));
    };
    this.check_open()?;
    let wrap = Wrap {
        context: *context,
        server_side: *server_side,
        server_hostname: *hostname,
        session: *session,
    };
    let (ssl_object, engine) = Engine::new(&wrap)?;
    let mut flow = FlowControl::new();
    Limits::below(WRITE_HIGH).set(&mut flow);
    let upgraded = upgraded.is_true()?;
    let value = TlsTransport {
        owner: Slot::new(this.obj().to_ref()),
        protocol: Slot::empty(),
        deliver: Slot::empty(),
        get_buffer: Slot::empty(),
        below: Slot::empty(),
        ssl_object: Slot::new(ssl_object),
        tls_context: Slot::new(context.to_ref()),
        waiter: if waiter.is_none() { Slot::empty() } else { Slot::new(waiter.to_ref()) },
        timer: Slot::empty(),
        extra: Slot::empty(),
        engine: RefCell::new(Some(Rc::new(engine))),
        state: Cell::new(State::new()),
        flow: RefCell::new(flow),
        backlog: RefCell::new(WriteQueue::new()),
        rest: RefCell::default(),
        framing: Cell::new(Framing::new()),
        server_side: server_side.is_true()?,
        handshake_timeout: handshake.to_f64()?,
        shutdown_timeout: shutdown.to_f64()?,
        read_limits: Cell::new(Limits::below(READ_HIGH)),
        below_full: Cell::new(false),
        below_paused: Cell::new(false),
        holding: Cell::new(false),
        told: Cell::new(upgraded),
        upgraded,
        eof_told: Cell::new(false),
        shown: Cell::new(false),
        half_close: Cell::new(false),
        goodbye_said: Cell::new(false),
        left_at_timer: Cell::new(0),
        dropped: Cell::new(0),
        lost: Cell::new(0),
    };
    let transport = make(|| value)?;
    let tls = This::<TlsTransport>::of(transport.obj())
        .ok_or_else(|| Raised::type_error("not a TLS transport"))?;
    tls.set_protocol(*protocol)?;
    Ok(transport)
}

impl This<'_, TlsTransport> {
    /// The transport below is there.
    fn begin(self, core: This<'_, LoopCore>, below: Obj<'_>) -> Result<()> {
        if !self.change(|state| state.begin()) {
            return Ok(());
        }
        self.below.set(below.to_ref());
        if self.upgraded
            && let Some(paused) = below.attr_or_none(&names::PROTOCOL_PAUSED)?
            && paused.obj().is_true()?
        {
            // The protocol was told to pause by the transport below; it is told to resume by us.
            let _told = self.flow.borrow_mut().on_grow(usize::MAX);
            self.below_full.set(true);
        }
        if core.is_debug() {
            support::TLS_LOG.get()?.call(&[self.obj(), Ref::str("starts SSL handshake")?.obj()])?;
        }
        self.set_timer(core, self.handshake_timeout, &names::HANDSHAKE_TIMED_OUT)?;
        if self.server_side {
            return Ok(()); // the client speaks first
        }
        self.handshake(core, &mut &[][..], Inside::Context)
    }

    /// Goes on with the handshake, by what has come from the peer.
    pub(super) fn handshake(
        self,
        core: This<'_, LoopCore>,
        input: &mut &[u8],
        inside: Inside,
    ) -> Result<()> {
        let mut output = Vec::new();
        let engine = self.engine()?;
        engine.prepare();
        let step = engine.step(&names::DO_HANDSHAKE, input, &mut output);
        match step {
            Ok(step) => {
                self.send_below(core, &output)?;
                if step != Step::Done || !self.change(|state| state.established()) {
                    return Ok(());
                }
                self.established(core, inside)
            }
            Err(raised) => {
                // The alert that tells the peer why goes out first.
                let exception = raised.take();
                self.send_below(core, &output)?;
                self.handshake_failed(core, Raised::from_exception(exception))
            }
        }
    }

    fn established(self, core: This<'_, LoopCore>, inside: Inside) -> Result<()> {
        self.shown.set(true);
        core.stats.handshake();
        self.cancel_timer()?;
        if core.is_debug() {
            support::TLS_LOG.get()?.call(&[self.obj(), Ref::str("SSL handshake done")?.obj()])?;
        }
        if !self.upgraded {
            self.told.set(true);
            let made = self.in_connection(core, inside, || {
                self.call_protocol(&names::CONNECTION_MADE, &[self.obj()])
            });
            if let Err(raised) = made {
                return self.fatal(core, raised, "Fatal error on SSL protocol");
            }
        }
        self.wake_waiter(None)?;
        self.update_reading(core)?;
        self.pump(core)
    }

    /// The handshake has failed: whoever waits for it hears why, and the connection ends.
    pub(super) fn handshake_failed(self, core: This<'_, LoopCore>, raised: Raised) -> Result<()> {
        if raised.ends_the_loop() {
            return Err(raised);
        }
        let exception = raised.take();
        // The waiter first: `fatal` ends the connection, which would tell it the same later.
        let told = self.wake_waiter(Some(exception.obj()));
        finally(told, || {
            let message = if exception.obj().is_instance(names::CERTIFICATE_ERROR.get()?)? {
                "SSL handshake failed on verifying the certificate"
            } else {
                "SSL handshake failed"
            };
            self.fatal(core, Raised::from_exception(exception), message)
        })
    }

    /// Ends the wait for the handshake, if anyone waits.
    pub(super) fn wake_waiter(self, exception: Option<Obj<'_>>) -> Result<()> {
        let Some(waiter) = self.waiter.take() else { return Ok(()) };
        if waiter.obj().call_method(&names::DONE, &[])?.obj().is_true()? {
            return Ok(());
        }
        match exception {
            Some(exception) => waiter.obj().call_method(&names::SET_EXCEPTION, &[exception])?,
            None => waiter.obj().call_method(&names::SET_RESULT, &[Ref::none().obj()])?,
        };
        Ok(())
    }

    /// Calls a method of this transport after so many seconds, in place of the timer before.
    pub(super) fn set_timer(
        self,
        core: This<'_, LoopCore>,
        seconds: f64,
        method: &names::Name,
    ) -> Result<()> {
        self.cancel_timer()?;
        let (seconds, method) = (Ref::float(seconds)?, self.obj().attr(method)?);
        let timer = core.obj().call_method(&names::CALL_LATER, &[seconds.obj(), method.obj()])?;
        self.timer.set(timer);
        Ok(())
    }

    pub(super) fn cancel_timer(self) -> Result<()> {
        match self.timer.take() {
            Some(timer) => timer.obj().call_method(&names::CANCEL, &[]).map(drop),
            None => Ok(()),
        }
    }
}
