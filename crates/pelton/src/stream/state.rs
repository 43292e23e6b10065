//! The states of one stream connection.
//!
//! Rules:
//!
//! 1. Everything about a connection's state is here; this file knows no socket and no bytes.
//! 2. A connection goes one way: open, closing, lost. Nothing leads back.
//! 3. Closing means: no more reads, what is queued goes out, then the connection is lost.
//! 4. Three things are remembered beside the phase: reading is paused, the peer has ended its
//!    side, our side has ended or will when the queue is empty. Only an open connection can pause,
//!    resume or end its side; only a lost one cannot hear that the peer has.
//! 5. An input that the table ignores changes nothing and is not an error: the two ends of a
//!    connection, and the program, do things at the same time.

/// What a connection may do now.
///
/// # Examples
///
/// ```
/// use pelton::stream::{State, WriteShutdown};
///
/// let mut state = State::new();
/// assert!(state.wants_read());
/// assert_eq!(state.shut_write(false), WriteShutdown::AfterFlush);
/// assert_eq!(state.shut_write(true), WriteShutdown::Ignored, "once is enough");
/// state.close();
/// assert!(state.is_closing() && !state.is_lost() && !state.wants_read());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    phase: Phase,
    marks: Marks,
}

/// The answer to [`State::shut_write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteShutdown {
    /// Nothing waits: end our side now.
    Now,
    /// Bytes wait: end our side when the last one is with the kernel.
    AfterFlush,
    /// It was asked before, or the connection is closing: do nothing.
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Open,
    Closing,
    Lost,
}

#[derive(Clone, Copy, Debug)]
enum Input {
    Pause,
    Resume,
    PeerEof,
    ShutWrite,
    Close,
    Lose,
}

/// What is remembered beside the phase.
type Marks = u8;
const PAUSED: Marks = 1;
const PEER_EOF: Marks = 2;
const WRITE_SHUT: Marks = 4;

/// What an input does.
enum Effect {
    Ignore,
    Set(Marks),
    Clear(Marks),
    Go(Phase),
}

/// The table: a row for each input, a column for each phase.
const fn effect(phase: Phase, input: Input) -> Effect {
    use Effect::{Clear, Go, Ignore, Set};
    use Phase::{Closing, Lost, Open};
    #[rustfmt::skip]
    let row = match input {
        //                 open              closing        lost
        Input::Pause     => [Set(PAUSED),      Ignore,        Ignore],
        Input::Resume    => [Clear(PAUSED),    Ignore,        Ignore],
        Input::PeerEof   => [Set(PEER_EOF),    Set(PEER_EOF), Ignore],
        Input::ShutWrite => [Set(WRITE_SHUT),  Ignore,        Ignore],
        Input::Close     => [Go(Closing),      Ignore,        Ignore],
        Input::Lose      => [Go(Lost),         Go(Lost),      Ignore],
    };
    let [open, closing, lost] = row;
    match phase {
        Open => open,
        Closing => closing,
        Lost => lost,
    }
}

impl State {
    /// An open connection that reads.
    pub const fn new() -> Self {
        Self { phase: Phase::Open, marks: 0 }
    }

    /// Stops reading; true if it was reading before.
    pub fn pause(&mut self) -> bool {
        self.apply(Input::Pause)
    }

    /// Reads again; true if it was paused before.
    pub fn resume(&mut self) -> bool {
        self.apply(Input::Resume)
    }

    /// The peer has ended its side: there is nothing more to read. True if this is news.
    pub fn peer_eof(&mut self) -> bool {
        self.apply(Input::PeerEof)
    }

    /// The program ends our side. `drained` says whether the write queue is empty.
    pub fn shut_write(&mut self, drained: bool) -> WriteShutdown {
        match (self.apply(Input::ShutWrite), drained) {
            (false, _) => WriteShutdown::Ignored,
            (true, true) => WriteShutdown::Now,
            (true, false) => WriteShutdown::AfterFlush,
        }
    }

    /// The program closes the connection: no more reads; what is queued goes out, then it ends.
    /// True if it was open before.
    pub fn close(&mut self) -> bool {
        self.apply(Input::Close)
    }

    /// The connection has ended, by whatever cause. True if this is news.
    pub fn lose(&mut self) -> bool {
        self.apply(Input::Lose)
    }

    /// Whether the program has not closed the connection and nothing else has ended it.
    pub const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Whether the connection is closing or lost.
    pub const fn is_closing(&self) -> bool {
        !self.is_open()
    }

    /// Whether the connection has ended.
    pub const fn is_lost(&self) -> bool {
        matches!(self.phase, Phase::Lost)
    }

    /// Whether reading is paused.
    pub const fn is_paused(&self) -> bool {
        self.marks & PAUSED != 0
    }

    /// Whether the peer has ended its side.
    pub const fn is_peer_eof(&self) -> bool {
        self.marks & PEER_EOF != 0
    }

    /// Whether our side has ended, or will when the queue is empty.
    pub const fn is_write_shut(&self) -> bool {
        self.marks & WRITE_SHUT != 0
    }

    /// Whether bytes from the peer are wanted now.
    pub const fn wants_read(&self) -> bool {
        self.is_open() && self.marks & (PAUSED | PEER_EOF) == 0
    }

    fn apply(&mut self, input: Input) -> bool {
        let before = *self;
        match effect(self.phase, input) {
            Effect::Ignore => {}
            Effect::Set(marks) => self.marks |= marks,
            Effect::Clear(marks) => self.marks &= !marks,
            Effect::Go(phase) => self.phase = phase,
        }
        *self != before
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
