//! A TLS session over OpenSSL's functions, found by someone else: nothing is linked.
//!
//! The room of raw pointers into libssl. A program that has an `SSL*` (Python's `ssl` module makes
//! one for each connection) gives it a [`Session`]: the session puts its own BIO beneath it, which
//! reads from the caller's slice and appends to the caller's buffer, so that no byte is stored in
//! between. OpenSSL takes records from the slice piece by piece and keeps partial ones itself:
//! when it wants more, the slice is empty.
//!
//! OpenSSL 1.1.1 and 3 are known to work. Other libraries with the same names (LibreSSL, BoringSSL)
//! lack some of the functions, and [`Libssl::load`] says so.

#![allow(unsafe_code)]

mod bio;
mod session;
mod table;

pub use session::{Outcome, Session};
pub use table::{Caught, Libssl};
