//! Every system call of the engine, one file per kernel facility, and all of its `unsafe`.
//!
//! Another kernel is another set of files with the same names: `Epoll` (create, add, modify,
//! delete, wait), `EventFd` (new, signal, drain), `fork::generation`, and the calls of `socket`.

#![allow(unsafe_code)]

pub(crate) mod epoll;
pub(crate) mod eventfd;
pub(crate) mod fork;
pub(crate) mod socket;
