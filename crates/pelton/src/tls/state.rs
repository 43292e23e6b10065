//! The states of one TLS connection.
//!
//! Rules:
//!
//! 1. Everything about a connection's state is here; this file knows no session and no bytes.
//! 2. A connection goes one way: idle, handshake, open, flushing, ending, over. Steps may be left
//!    out, nothing leads back.
//! 3. Flushing means: what was written goes out, then our `close_notify`. Ending means: ours is
//!    sent, the peer's is waited for, and what else comes is dropped (RFC 8446, 6.1).
//! 4. Before the handshake is done there is nothing to flush: closing ends the connection.
//! 5. Remembered beside the phase: the program has paused reading; the peer has said that it is
//!    done, or has gone without saying so; our side has said so while the peer may go on.

/// What a TLS connection may do now.
///
/// # Examples
///
/// ```
/// use pelton::tls::{Closing, State};
///
/// let mut state = State::new();
/// assert!(state.begin());
/// assert!(state.established());
/// assert!(state.is_open() && state.delivers());
/// assert_eq!(state.close(), Closing::Flush);
/// assert!(!state.delivers(), "a closed connection hands nothing over");
/// assert!(state.notified());
/// assert!(state.is_ending());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    phase: Phase,
    marks: Marks,
}

/// The answer to [`State::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Send what is queued, then say goodbye.
    Flush,
    /// There is nothing that could be flushed: end the connection below.
    Abort,
    /// It was asked before.
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Handshake,
    Open,
    Flushing,
    Ending,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Begin,
    Established,
    Close,
    Notified,
    Lose,
}

/// What is remembered beside the phase.
type Marks = u8;
const PAUSED: Marks = 1;
const PEER_DONE: Marks = 2;
const TRUNCATED: Marks = 4;
const HALF_CLOSED: Marks = 8;

/// The table: where an input leads; `None` where it changes nothing.
const fn next(phase: Phase, input: Input) -> Option<Phase> {
    use Phase::{Ending, Flushing, Handshake, Idle, Open, Over};
    #[rustfmt::skip]
    let row = match input {
        //                    idle             handshake    open            flushing      ending      over
        Input::Begin       => [Some(Handshake), None,       None,           None,         None,       None],
        Input::Established => [None,            Some(Open), None,           None,         None,       None],
        Input::Close       => [Some(Over),      Some(Over), Some(Flushing), None,         None,       None],
        Input::Notified    => [None,            None,       None,           Some(Ending), None,       None],
        Input::Lose        => [Some(Over),      Some(Over), Some(Over),     Some(Over),   Some(Over), None],
    };
    let [idle, handshake, open, flushing, ending, over] = row;
    match phase {
        Idle => idle,
        Handshake => handshake,
        Open => open,
        Flushing => flushing,
        Ending => ending,
        Over => over,
    }
}

impl State {
    /// A connection that has not begun.
    pub const fn new() -> Self {
        Self { phase: Phase::Idle, marks: 0 }
    }

    /// The connection below is there: the handshake begins. True if this is news.
    pub fn begin(&mut self) -> bool {
        self.apply(Input::Begin)
    }

    /// The handshake is done. True if this is news.
    pub fn established(&mut self) -> bool {
        self.apply(Input::Established)
    }

    /// The program closes the connection, or the peer's goodbye does.
    pub fn close(&mut self) -> Closing {
        let before = self.phase;
        match (self.apply(Input::Close), before) {
            (false, _) => Closing::Ignored,
            (true, Phase::Open) => Closing::Flush,
            (true, _) => Closing::Abort,
        }
    }

    /// Our `close_notify` is sent. True if this is news.
    pub fn notified(&mut self) -> bool {
        self.apply(Input::Notified)
    }

    /// The connection below has ended. True if this is news.
    pub fn lose(&mut self) -> bool {
        self.apply(Input::Lose)
    }

    /// Stops handing plaintext over; true if it was not paused before.
    pub const fn pause(&mut self) -> bool {
        let news = self.marks & PAUSED == 0;
        self.marks |= PAUSED;
        news
    }

    /// Hands plaintext over again; true if it was paused before.
    pub const fn resume(&mut self) -> bool {
        let news = self.marks & PAUSED != 0;
        self.marks &= !PAUSED;
        news
    }

    /// The peer's `close_notify` has come: the stream has a clean end.
    pub const fn peer_closed(&mut self) {
        self.marks |= PEER_DONE;
    }

    /// The peer's side has ended below; without a `close_notify` before, the stream is truncated.
    pub const fn peer_eof(&mut self) {
        if self.marks & PEER_DONE == 0 {
            self.marks |= PEER_DONE | TRUNCATED;
        }
    }

    /// Ends our direction of an open connection; true if this is news.
    pub const fn half_close(&mut self) -> bool {
        let news = self.is_open() && self.marks & HALF_CLOSED == 0;
        if news {
            self.marks |= HALF_CLOSED;
        }
        news
    }

    /// Whether the handshake is under way.
    pub const fn is_handshaking(&self) -> bool {
        matches!(self.phase, Phase::Handshake)
    }

    /// Whether the connection is established and nobody has closed it.
    pub const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Whether what was written still goes out before our goodbye.
    pub const fn is_flushing(&self) -> bool {
        matches!(self.phase, Phase::Flushing)
    }

    /// Whether our goodbye is sent and the peer's is waited for.
    pub const fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending)
    }

    /// Whether the connection below is gone, or was given up.
    pub const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// Whether the connection is closing or over.
    pub const fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Flushing | Phase::Ending | Phase::Over)
    }

    /// Whether the program has paused reading.
    pub const fn is_paused(&self) -> bool {
        self.marks & PAUSED != 0
    }

    /// Whether the peer's stream has ended, cleanly or not.
    pub const fn is_peer_done(&self) -> bool {
        self.marks & PEER_DONE != 0
    }

    /// Whether the peer's stream has ended without its `close_notify`.
    pub const fn is_truncated(&self) -> bool {
        self.marks & TRUNCATED != 0
    }

    /// Whether our direction has ended, or will behind what is queued.
    pub const fn is_half_closed(&self) -> bool {
        self.marks & HALF_CLOSED != 0
    }

    /// Whether plaintext is handed to the program now.
    pub const fn delivers(&self) -> bool {
        self.is_open() && !self.is_paused()
    }

    fn apply(&mut self, input: Input) -> bool {
        match next(self.phase, input) {
            Some(phase) => {
                self.phase = phase;
                true
            }
            None => false,
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Closing, State};

    fn open() -> State {
        let mut state = State::new();
        assert!(state.begin() && state.established());
        state
    }

    #[test]
    fn closing_before_the_handshake_is_done_aborts() {
        let mut idle = State::new();
        assert_eq!(idle.close(), Closing::Abort);
        assert!(idle.is_over());

        let mut state = State::new();
        state.begin();
        assert_eq!(state.close(), Closing::Abort);
        assert_eq!(state.close(), Closing::Ignored);
        assert!(!state.established(), "a handshake that ends late changes nothing");
    }

    #[test]
    fn an_open_connection_flushes_then_says_goodbye() {
        let mut state = open();
        assert!(!state.notified(), "not before it is closed");
        assert_eq!(state.close(), Closing::Flush);
        assert!(state.is_flushing() && state.is_closing() && !state.delivers());
        assert!(state.notified());
        assert!(state.is_ending() && !state.notified());
        assert!(state.lose());
        assert!(state.is_over() && !state.lose());
    }

    #[test]
    fn a_goodbye_before_the_end_is_clean_and_without_one_is_truncated() {
        let mut clean = open();
        clean.peer_closed();
        clean.peer_eof();
        assert!(clean.is_peer_done() && !clean.is_truncated());

        let mut cut = open();
        cut.peer_eof();
        assert!(cut.is_peer_done() && cut.is_truncated());
    }

    #[test]
    fn pausing_is_remembered_and_says_what_is_news() {
        let mut state = open();
        assert!(state.pause() && !state.pause());
        assert!(!state.delivers());
        assert!(state.resume() && !state.resume());
        assert!(state.delivers());
    }

    #[test]
    fn only_an_open_connection_ends_one_direction_and_once() {
        let mut idle = State::new();
        assert!(!idle.half_close());
        let mut state = open();
        assert!(state.half_close() && !state.half_close());
        assert!(state.delivers(), "the other direction goes on");
        assert_eq!(state.close(), Closing::Flush);
    }
}
