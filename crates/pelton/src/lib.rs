//! A network engine for programs that hold many connections and move many small messages.
//!
//! The crate is a set of parts, not a runtime: there is no global state, no thread and no clock
//! that the caller did not ask for. From the bottom up:
//!
//! | room | what it holds |
//! |---|---|
//! | [`time`] | deadlines: a heap that is told the time |
//! | [`buf`] | bytes that wait for the kernel |
//! | [`stream`] | one stream connection: reads, writes, flow control, its states |
//! | [`datagram`] | one datagram endpoint: batches, the peers it knows, flow control |
//! | [`reactor`] | which descriptors are ready; wake-up from other threads |
//! | [`net`] | listen, accept, connect |
//! | [`tls`] | one TLS session: its states, and records over OpenSSL's functions |
//!
//! State machines ([`time::Timers`], [`buf::WriteQueue`], [`stream::FlowControl`],
//! [`stream::State`], [`datagram::Cache`]) do no I/O and read no clock: time and bytes are arguments. A read or a
//! write in steady state asks the heap for nothing.
//!
//! # Examples
//!
//! One turn of an echo server; `examples/echo.rs` is a whole one.
//!
//! ```
//! use std::io::{Read as _, Write as _};
//! use std::os::fd::AsFd;
//! use std::os::unix::net::UnixStream;
//! use pelton::reactor::{Events, Interest, Reactor};
//! use pelton::stream::{Read, Stream};
//!
//! let (socket, mut client) = UnixStream::pair()?;
//! let mut reactor = Reactor::new()?;
//! let token = reactor.register(socket.as_fd(), Interest::READ, Stream::<Vec<u8>>::new())?;
//! client.write_all(b"hello")?;
//!
//! let mut events = Events::default();
//! reactor.poller().wait(&mut events, None)?;
//! for event in events.iter() {
//!     let Some(stream) = reactor.get_mut(event.token) else { continue };
//!     let mut buffer = [0; 1024];
//!     if let Read::Data(count) = Stream::<Vec<u8>>::read(socket.as_fd(), &mut buffer)? {
//!         stream.write(socket.as_fd(), buffer[..count].to_vec())?;
//!     }
//!     let interest = stream.interest();
//!     reactor.set_interest(event.token, interest)?;
//! }
//!
//! let mut echo = [0; 5];
//! client.read_exact(&mut echo)?;
//! assert_eq!(&echo, b"hello");
//! reactor.deregister(token);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Panics
//!
//! Bytes from the network never make this crate panic. A panic is a broken promise of the caller,
//! and the method that can panic says which.

#![deny(unsafe_code)]

pub mod buf;
pub mod datagram;
pub mod net;
pub mod reactor;
pub mod stream;
mod sys;
pub mod time;
pub mod tls;
