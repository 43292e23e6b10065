//! The states of one stream connection. Everything about them is in this file; it knows neither
//! sockets nor buffers.
//!
//! A connection has two sides that end on their own, and one end for both:
//!
//! | event | reading | writing | the whole |
//! |---|---|---|---|
//! | `pause`, `resume` | stops, goes on | | |
//! | `peer_eof` | ends | | |
//! | `shut_write` | | ends when the queue is empty | |
//! | `close` | ends | goes on until the queue is empty | closing |
//! | `lose` | ends | ends | closing, lost |
//!
//! Nothing leads back: a side that has ended stays so, and a connection is lost once.

/// Where a connection stands.
#[derive(Clone, Debug, Default)]
pub struct State {
    paused: bool,
    peer_eof: bool,
    write_shut: bool,
    closing: bool,
    lost: bool,
}

/// What asking for the end of the write side means now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteShutdown {
    /// Nothing waits: shut it now.
    Now,
    /// Shut it when the queue is empty.
    AfterFlush,
    /// It has been asked for before, or the connection is closing.
    Ignored,
}

impl State {
    /// Open in both directions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops reading; false if that changes nothing.
    pub fn pause(&mut self) -> bool {
        let changes = !self.closing && !self.paused;
        self.paused |= changes;
        changes
    }

    /// Goes on reading; false if that changes nothing.
    pub fn resume(&mut self) -> bool {
        let changes = !self.closing && self.paused;
        if changes {
            self.paused = false;
        }
        changes
    }

    /// The peer sends no more.
    pub fn peer_eof(&mut self) {
        self.peer_eof = true;
    }

    /// We send no more, once the queue is empty; `empty` tells whether it is.
    pub fn shut_write(&mut self, empty: bool) -> WriteShutdown {
        if self.closing || self.write_shut {
            return WriteShutdown::Ignored;
        }
        self.write_shut = true;
        if empty { WriteShutdown::Now } else { WriteShutdown::AfterFlush }
    }

    /// The connection ends when the queue is empty; false if it was closing before.
    pub fn close(&mut self) -> bool {
        !std::mem::replace(&mut self.closing, true)
    }

    /// The connection has ended; false if it had before.
    pub fn lose(&mut self) -> bool {
        self.closing = true;
        !std::mem::replace(&mut self.lost, true)
    }

    /// Whether the owner has stopped reading.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether a read is wanted when the socket has bytes.
    #[must_use]
    pub fn wants_read(&self) -> bool {
        !self.paused && !self.peer_eof && !self.closing
    }

    /// Whether the write side is shut, or will be when the queue is empty.
    #[must_use]
    pub fn is_write_shut(&self) -> bool {
        self.write_shut
    }

    /// Whether the connection is ending or has ended.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost
    }
}
