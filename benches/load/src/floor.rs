//! The floor: a bare level-triggered epoll echo server.
//!
//! One wait, one receive and one send per message, one buffer for all connections, no buffer per
//! idle connection. It stands for the least that a server of this shape can do. Over TLS, OpenSSL
//! has the socket, and a record takes the place of a message.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::event::epoll::EventFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::cli::FloorOptions;
use crate::openssl::{Context, Session};
use crate::poller::Poller;
use crate::{Failure, descriptors};

/// One receive takes at most this much.
const RECEIVE: usize = 256 * 1024;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// The token of the listening socket; connections have their index in the table.
const LISTENER: u64 = u64::MAX;

pub(crate) fn run(options: &FloorOptions) -> Result<(), Failure> {
    descriptors::raise_limit();
    let address = SocketAddr::new(options.host, options.port);
    let listener =
        listen(address).map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let served = match &options.certificates {
        None => serve(&listener, Ok),
        Some(folder) => {
            let context = Context::new(&options.libssl, folder, options.release_buffers)?;
            serve(&listener, |stream| context.accept(stream))
        }
    };
    served.map_err(|error| format!("cannot go on serving: {error}"))
}

/// What a connection is read and written through.
trait Carrier {
    /// Whether readiness is used up to the last byte: OpenSSL takes one record at a time, and may
    /// hold what the poller then does not see.
    const DRAINS: bool;

    fn stream(&self) -> &TcpStream;
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize>;
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
}

impl Carrier for TcpStream {
    const DRAINS: bool = false;

    fn stream(&self) -> &TcpStream {
        self
    }

    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        Read::read(self, room)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(self, bytes)
    }
}

impl Carrier for Session {
    const DRAINS: bool = true;

    fn stream(&self) -> &TcpStream {
        self.stream()
    }

    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.read(room)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write(bytes)
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

fn serve<C: Carrier>(
    listener: &TcpListener,
    carry: impl Fn(TcpStream) -> io::Result<C>,
) -> io::Result<()> {
    let mut server = Server {
        poller: Poller::new()?,
        carry,
        connections: Vec::new(),
        free: Vec::new(),
        buffer: vec![0; RECEIVE],
    };
    server.poller.add(listener, LISTENER, EventFlags::IN)?;
    println!("ready {}", listener.local_addr()?.port());
    loop {
        server.poller.wait(None)?;
        for index in 0..server.poller.len() {
            match server.poller.token(index) {
                LISTENER => server.accept(listener)?,
                token => server.serve(token as usize),
            }
        }
    }
}

struct Server<C, F> {
    poller: Poller,
    carry: F,
    /// Connections by token; a closed one leaves its place to the next.
    connections: Vec<Option<Connection<C>>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
}

struct Connection<C> {
    carrier: C,
    /// What the socket would not take yet; nothing more is received until it is gone.
    queued: Vec<u8>,
}

impl<C: Carrier, F: Fn(TcpStream) -> io::Result<C>> Server<C, F> {
    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let place = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.poller.add(&stream, place as u64, EventFlags::IN)?;
            let carrier = (self.carry)(stream)?;
            self.connections[place] = Some(Connection { carrier, queued: Vec::new() });
        }
    }

    /// Serves a ready connection; one that has ended or failed is closed.
    fn serve(&mut self, place: usize) {
        let Some(connection) = &mut self.connections[place] else {
            return;
        };
        let served = if connection.queued.is_empty() {
            connection.echo(&mut self.buffer, &self.poller, place as u64)
        } else {
            connection.send_queued(&mut self.buffer, &self.poller, place as u64)
        };
        if !served.unwrap_or(false) {
            self.connections[place] = None;
            self.free.push(place);
        }
    }
}

impl<C: Carrier> Connection<C> {
    /// One receive and one send, and again while the carrier may hold more; false at the end.
    fn echo(&mut self, buffer: &mut [u8], poller: &Poller, token: u64) -> io::Result<bool> {
        loop {
            let count = match self.carrier.read(buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => count,
                Err(error) if is_temporary(&error) => return Ok(true),
                Err(error) => return Err(error),
            };
            let sent = self.send(&buffer[..count])?;
            if sent < count {
                self.queued = buffer[sent..count].to_vec();
                poller.modify(self.carrier.stream(), token, EventFlags::OUT)?;
                return Ok(true);
            }
            if !C::DRAINS {
                return Ok(true);
            }
        }
    }

    /// Sends from the queue, and goes back to receiving once it is empty.
    fn send_queued(&mut self, buffer: &mut [u8], poller: &Poller, token: u64) -> io::Result<bool> {
        let queued = std::mem::take(&mut self.queued);
        let sent = self.send(&queued)?;
        if sent == queued.len() {
            poller.modify(self.carrier.stream(), token, EventFlags::IN)?;
            if C::DRAINS {
                return self.echo(buffer, poller, token);
            }
        } else {
            self.queued = queued;
            self.queued.drain(..sent);
        }
        Ok(true)
    }

    /// One send; how much was taken.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.carrier.write(bytes) {
            Err(error) if is_temporary(&error) => Ok(0),
            outcome => outcome,
        }
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
