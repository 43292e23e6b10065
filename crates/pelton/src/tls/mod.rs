//! One TLS session: ciphertext in, plaintext out, and the other way; it knows no socket.
//!
//! | part | what it is |
//! |---|---|
//! | [`State`] | the table of a connection's states, from the handshake to the two goodbyes |
//! | [`Framing`] | where records begin and end |
//! | [`libssl`] | a session over a table of OpenSSL's functions, which someone else has loaded |
//!
//! Bytes are arguments: what the peer sent lies in the caller's buffer, what goes to the peer is
//! appended to one, plaintext is written where the caller wants it. A session that is established
//! holds no buffer of its own.

mod framing;
pub mod libssl;
mod state;

pub use framing::Framing;
pub use state::{Closing, State};
