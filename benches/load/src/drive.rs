//! The closed loop: many connections, one request in flight on each, on one epoll.
//!
//! Descriptors are registered once, edge-triggered for both directions, so a message costs one
//! send, one receive and a share of one wait, and the load is never what is measured.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;

use crate::channel::{self, Channel};
use crate::cli::Target;
use crate::histogram::Histogram;
use crate::poller::Poller;
use crate::report::Report;
use crate::{Failure, descriptors};

/// One receive takes at most this much.
const RECEIVE: usize = 256 * 1024;

/// How long a connection may take to open, and an answer to come once the run is over.
const GRACE: Duration = Duration::from_secs(10);

/// The answer that a connection is waiting for: it says where the answer ends.
pub(crate) trait Reply {
    /// The most bytes that may still belong to this answer.
    fn want(&self) -> usize;

    /// Takes received bytes; true when they complete the answer.
    ///
    /// A complete answer makes room for the next one.
    fn feed(&mut self, bytes: &[u8]) -> Result<bool, Failure>;
}

/// What ends a run: time, or a number of messages if that comes first.
pub(crate) struct Limit {
    pub(crate) seconds: Duration,
    pub(crate) messages: Option<u64>,
}

/// A finished run: its figures, and the connections, still open.
pub(crate) struct Finished<R> {
    pub(crate) report: Report,
    pub(crate) connections: Vec<Connection<R>>,
}

/// One connection and how far its request and answer have come.
pub(crate) struct Connection<R> {
    channel: Channel,
    pub(crate) reply: R,
    sent: usize,
    started: Instant,
    busy: bool,
}

/// What all connections share during a run.
struct Run<'a> {
    request: &'a [u8],
    scratch: Vec<u8>,
    /// What TLS receives: records, whose content goes into `scratch`.
    wire: Vec<u8>,
    latencies: Histogram,
    deadline: Instant,
    /// Requests that may still be started.
    budget: u64,
    /// Connections with a request in flight.
    busy: usize,
    last_answer: Instant,
}

/// Connects, runs until the limit, and waits for the answers that are in flight then.
pub(crate) fn run<R: Reply>(
    target: &Target,
    limit: &Limit,
    request: &[u8],
    reply: impl Fn() -> R,
) -> Result<Finished<R>, Failure> {
    let mut poller = Poller::new().map_err(|error| format!("cannot create an epoll: {error}"))?;
    let mut connections = connect_all(target, &poller, reply)?;

    let start = Instant::now();
    let mut run = Run {
        request,
        scratch: vec![0; RECEIVE],
        wire: vec![0; RECEIVE],
        latencies: Histogram::new(),
        deadline: start + limit.seconds,
        budget: limit.messages.unwrap_or(u64::MAX),
        busy: 0,
        last_answer: start,
    };
    for connection in &mut connections {
        run.start(connection, Instant::now())?;
    }
    let give_up = run.deadline + GRACE;
    while run.busy > 0 {
        let now = Instant::now();
        if now >= give_up {
            let (busy, all) = (run.busy, connections.len());
            return Err(format!("{busy} of {all} connections were still waiting for an answer"));
        }
        poller.wait(Some(give_up - now)).map_err(|error| format!("cannot wait: {error}"))?;
        for index in 0..poller.len() {
            run.advance(&mut connections[poller.token(index) as usize])?;
        }
    }
    let elapsed = run.last_answer - start;
    let report = Report { latencies: run.latencies, elapsed, non_ok: None };
    Ok(Finished { report, connections })
}

impl Run<'_> {
    /// Starts a request, unless the run is over.
    fn start<R: Reply>(
        &mut self,
        connection: &mut Connection<R>,
        now: Instant,
    ) -> Result<(), Failure> {
        if self.budget == 0 || now >= self.deadline {
            return Ok(());
        }
        self.budget -= 1;
        self.busy += 1;
        connection.busy = true;
        connection.sent = 0;
        connection.started = now;
        self.send(connection)
    }

    /// Sends what the socket takes of the request.
    fn send<R: Reply>(&self, connection: &mut Connection<R>) -> Result<(), Failure> {
        let outcome = loop {
            let rest = &self.request[connection.sent..];
            if rest.is_empty() {
                break connection.channel.flush();
            }
            match connection.channel.write(rest) {
                Ok(count) => connection.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        match outcome {
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                Err(format!("cannot send: {error}"))
            }
            _ => Ok(()),
        }
    }

    /// Goes on with a connection that is ready: sends, receives, and starts the next request.
    ///
    /// A receive that fills less than it asked for has emptied the socket, and so has one that
    /// completes an answer, as the server has nothing more to say; whatever comes later is a new
    /// edge. So neither needs a second receive that would only be refused.
    fn advance<R: Reply>(&mut self, connection: &mut Connection<R>) -> Result<(), Failure> {
        if connection.busy {
            self.send(connection)?;
        }
        loop {
            let room = connection.reply.want().min(self.scratch.len());
            match connection.channel.read(&mut self.scratch[..room], &mut self.wire) {
                Ok(0) => return Err("the server closed a connection".to_owned()),
                Ok(_) if !connection.busy => {
                    return Err("the server sent bytes that nobody asked for".to_owned());
                }
                Ok(count) => {
                    if connection.reply.feed(&self.scratch[..count])? {
                        let now = Instant::now();
                        self.finish(connection, now);
                        return self.start(connection, now);
                    }
                    if count < room {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("cannot receive: {error}")),
            }
        }
    }

    /// Accounts for a complete answer.
    fn finish<R: Reply>(&mut self, connection: &mut Connection<R>, now: Instant) {
        let nanos = (now - connection.started).as_nanos();
        self.latencies.record(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.last_answer = now;
        self.busy -= 1;
        connection.busy = false;
    }
}

fn connect_all<R>(
    target: &Target,
    poller: &Poller,
    reply: impl Fn() -> R,
) -> Result<Vec<Connection<R>>, Failure> {
    let address = resolve(target)?;
    let trust = target.certificates.as_deref().map(channel::trust).transpose()?;
    descriptors::raise_limit();
    let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
    let mut connections = Vec::with_capacity(target.conns as usize);
    for token in 0..target.conns {
        let channel = connect(address).and_then(|stream| {
            let channel = match &trust {
                Some(trust) => Channel::secure(stream, trust)?,
                None => Channel::Plain(stream),
            };
            channel.stream().set_nonblocking(true)?;
            poller.add(channel.stream(), token, flags)?;
            Ok(channel)
        });
        let channel = channel.map_err(|error| {
            format!("cannot open connection {} to {address}: {error}", token + 1)
        })?;
        connections.push(Connection {
            channel,
            reply: reply(),
            sent: 0,
            started: Instant::now(),
            busy: false,
        });
    }
    Ok(connections)
}

/// A connected blocking socket, which gives up on a silent server.
pub(crate) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, GRACE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GRACE))?;
    Ok(stream)
}

pub(crate) fn resolve(target: &Target) -> Result<SocketAddr, Failure> {
    let Target { host, port, .. } = target;
    (host.as_str(), *port)
        .to_socket_addrs()
        .map_err(|error| format!("cannot resolve {host}: {error}"))?
        .next()
        .ok_or_else(|| format!("{host} has no address"))
}
