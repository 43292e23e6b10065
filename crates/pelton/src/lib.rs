//! A network engine for programs that hold many connections and move many small messages.
//!
//! In steady state a connection costs nothing that it does not need: no heap request per read or
//! write, no buffer while it is idle, no wake-up for a write that the socket takes at once.
//!
//! | room | what it is | may name |
//! |---|---|---|
//! | `sys` | every system call, one file per kernel facility, and all `unsafe` | nothing here |
//! | [`time`] | deadlines in order | nothing here |
//! | [`buf`] | the write queue | nothing here |
//! | [`reactor`] | registration, readiness, wake-up from other threads | `sys` |
//! | [`stream`] | one stream connection: read path, write path, flow control, states | `buf`, `sys`, [`reactor::Interest`] |
//! | [`net`] | listen, accept, connect | `sys` |
//!
//! The state machines in `time`, `buf` and `stream` read no clock and own no descriptor: both
//! are arguments. See `examples/echo.rs` for a whole server.

#![deny(unsafe_code)]

pub mod buf;
pub mod net;
pub mod reactor;
pub mod stream;
mod sys;
pub mod time;
