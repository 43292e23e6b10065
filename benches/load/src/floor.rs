//! The floor: a bare level-triggered epoll echo server.
//!
//! One wait, one receive and one send per message, one buffer for all connections, no buffer per
//! idle connection. It stands for the least that a server of this shape can do.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::event::epoll::EventFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::cli::FloorOptions;
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
    serve(&listener).map_err(|error| format!("cannot go on serving: {error}"))
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

fn serve(listener: &TcpListener) -> io::Result<()> {
    let mut server = Server {
        poller: Poller::new()?,
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

struct Server {
    poller: Poller,
    /// Connections by token; a closed one leaves its place to the next.
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    /// What the socket would not take yet; nothing more is received until it is gone.
    queued: Vec<u8>,
}

impl Server {
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
            self.connections[place] = Some(Connection { stream, queued: Vec::new() });
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
            connection.send_queued(&self.poller, place as u64)
        };
        if !served.unwrap_or(false) {
            self.connections[place] = None;
            self.free.push(place);
        }
    }
}

impl Connection {
    /// One receive and one send; false at the end of the stream.
    fn echo(&mut self, buffer: &mut [u8], poller: &Poller, token: u64) -> io::Result<bool> {
        let count = match self.stream.read(buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(error) if is_temporary(&error) => return Ok(true),
            Err(error) => return Err(error),
        };
        let sent = self.send(&buffer[..count])?;
        if sent < count {
            self.queued = buffer[sent..count].to_vec();
            poller.modify(&self.stream, token, EventFlags::OUT)?;
        }
        Ok(true)
    }

    /// Sends from the queue, and goes back to receiving once it is empty.
    fn send_queued(&mut self, poller: &Poller, token: u64) -> io::Result<bool> {
        let sent = self.send(&self.queued)?;
        if sent == self.queued.len() {
            self.queued = Vec::new();
            poller.modify(&self.stream, token, EventFlags::IN)?;
        } else {
            self.queued.drain(..sent);
        }
        Ok(true)
    }

    /// One send; how much the socket took.
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match (&self.stream).write(bytes) {
            Err(error) if is_temporary(&error) => Ok(0),
            outcome => outcome,
        }
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
