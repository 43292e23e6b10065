//! An echo server on the engine: `cargo run --release --example echo -- 127.0.0.1:7777`.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use pelton::net::{Listener, set_nodelay};
use pelton::reactor::{Events, Interest, Reactor, Readiness};
use pelton::stream::{Flushed, Read, Sent, Stream};

enum Source {
    Listener,
    Client(Rc<OwnedFd>, Stream<Vec<u8>>),
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7777".into());
    let listener = Listener::bind(address.parse()?, 1024)?;
    println!("listening on {}", listener.local_addr()?);
    let mut reactor = Reactor::new()?;
    reactor.register(listener.as_fd(), Interest::READ, Source::Listener)?;
    let poller = reactor.poller();
    let mut events = Events::with_capacity(256);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match poller.wait(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            answer => answer?,
        };
        for event in events.iter() {
            match reactor.get_mut(event.token) {
                None => {} // its connection ended earlier in this turn
                Some(Source::Listener) => {
                    while let Some((fd, _peer)) = listener.accept()? {
                        set_nodelay(fd.as_fd());
                        let fd = Rc::new(fd);
                        let source = Source::Client(fd.clone(), Stream::new());
                        reactor.register(fd.as_fd(), Interest::READ, source)?;
                    }
                }
                Some(Source::Client(fd, stream)) => {
                    // An error ends this connection only, like the end of the stream.
                    if echo(fd, stream, event.readiness, &mut buffer).unwrap_or(false) {
                        let interest = stream.interest();
                        reactor.set_interest(event.token, interest)?;
                    } else {
                        reactor.deregister(event.token);
                    }
                }
            }
        }
    }
}

/// Serves one event; false when the connection is over.
fn echo(
    fd: &OwnedFd,
    stream: &mut Stream<Vec<u8>>,
    ready: Readiness,
    buffer: &mut [u8],
) -> io::Result<bool> {
    if ready.writable() && stream.flush(fd.as_fd())? == Flushed::Drained {
        stream.state_mut().resume();
    }
    if !ready.readable() || !stream.state().wants_read() {
        return Ok(true);
    }
    match Stream::<Vec<u8>>::read(fd.as_fd(), buffer)? {
        Read::Eof => return Ok(false),
        Read::WouldBlock => {}
        Read::Data(count) => {
            if stream.write(fd.as_fd(), buffer[..count].to_vec())? == Sent::Queued {
                stream.state_mut().pause(); // who does not read is not read from
            }
        }
    }
    Ok(true)
}
