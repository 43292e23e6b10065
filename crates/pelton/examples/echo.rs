//! An echo server on the engine: `cargo run --example echo -- 127.0.0.1:7777`.

use std::error::Error;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use pelton::net::{self, Listener};
use pelton::reactor::{Event, Events, Interest, Reactor};
use pelton::stream::{Flushed, Read, Sent, Stream};

struct Client {
    fd: Rc<OwnedFd>,
    stream: Stream<Vec<u8>>,
}

enum Source {
    Listener,
    Client(Client),
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7777".to_owned());
    let listener = Listener::bind(address.parse()?, 128)?;
    println!("listening on {}", listener.local_addr()?);
    let mut reactor = Reactor::new()?;
    reactor.register(listener.as_fd(), Interest::READ, Source::Listener)?;
    let poller = reactor.poller();
    let mut events = Events::with_capacity(256);
    let mut space = vec![0; 64 * 1024];
    loop {
        poller.wait(&mut events, None)?;
        for event in events.iter() {
            match reactor.get_mut(event.token) {
                Some(Source::Listener) => {
                    while let Some((fd, _peer)) = net::accept(listener.as_fd())? {
                        net::set_nodelay(fd.as_fd());
                        let client = Client { fd: Rc::new(fd), stream: Stream::new() };
                        let fd = Rc::clone(&client.fd);
                        reactor.register(fd.as_fd(), Interest::READ, Source::Client(client))?;
                    }
                }
                Some(Source::Client(client)) => {
                    // An error ends this connection only.
                    if echo(client, event, &mut space).unwrap_or(false) {
                        let interest = client.stream.interest();
                        reactor.set_interest(event.token, interest)?;
                    } else {
                        reactor.deregister(event.token);
                    }
                }
                None => {}
            }
        }
    }
}

/// Serves one event; false when the connection is over.
fn echo(client: &mut Client, event: Event, space: &mut [u8]) -> std::io::Result<bool> {
    let Client { fd, stream } = client;
    if event.readiness.writable() && stream.flush(fd.as_fd())? == Flushed::Drained {
        stream.state_mut().resume();
    }
    if event.readiness.readable() && stream.state().wants_read() {
        match Stream::<Vec<u8>>::read(fd.as_fd(), space)? {
            Read::Data(count) => {
                if stream.write(fd.as_fd(), space[..count].to_vec())? == Sent::Queued {
                    stream.state_mut().pause(); // a client that does not read is not read from
                }
            }
            Read::Eof => return Ok(false),
            Read::WouldBlock => {}
        }
    }
    Ok(true)
}
