//! Listen, accept, connect.
//!
//! Every socket that is made here is non-blocking and closed on exec.

mod accept;
mod connect;
mod listener;

pub use accept::{accept, is_exhausted, set_nodelay};
pub use connect::{connect, connect_result};
pub use listener::Listener;

#[cfg(all(test, not(loom)))]
mod tests;
