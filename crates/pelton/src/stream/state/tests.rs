use std::collections::HashSet;

use proptest::prelude::*;

use super::{State, WriteShutdown};

const INPUTS: [Input; 7] = [
    Input::Pause,
    Input::Resume,
    Input::PeerEof,
    Input::ShutDrained,
    Input::ShutQueued,
    Input::Close,
    Input::Lose,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Pause,
    Resume,
    PeerEof,
    ShutDrained,
    ShutQueued,
    Close,
    Lose,
}

/// What is to be seen of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Model {
    paused: bool,
    peer_eof: bool,
    write_shut: bool,
    closing: bool,
    lost: bool,
}

impl Model {
    /// asyncio's flags, one condition after the other, without a table. CPython:
    /// asyncio/selector_events.py, `_SelectorTransport` and `_SelectorSocketTransport`.
    fn apply(&mut self, input: Input) {
        match input {
            Input::Pause => self.paused |= !self.closing,
            Input::Resume => self.paused &= self.closing,
            Input::PeerEof => self.peer_eof |= !self.lost,
            Input::ShutDrained | Input::ShutQueued => self.write_shut |= !self.closing,
            Input::Close => self.closing = true,
            Input::Lose => (self.closing, self.lost) = (true, true),
        }
    }
}

fn seen(state: &State) -> Model {
    Model {
        paused: state.is_paused(),
        peer_eof: state.is_peer_eof(),
        write_shut: state.is_write_shut(),
        closing: state.is_closing(),
        lost: state.is_lost(),
    }
}

/// Applies `input`; whether the state said that it changed anything.
fn apply(state: &mut State, input: Input) -> bool {
    match input {
        Input::Pause => state.pause(),
        Input::Resume => state.resume(),
        Input::PeerEof => state.peer_eof(),
        Input::ShutDrained => match state.shut_write(true) {
            WriteShutdown::Now => true,
            WriteShutdown::Ignored => false,
            WriteShutdown::AfterFlush => panic!("nothing to flush"),
        },
        Input::ShutQueued => match state.shut_write(false) {
            WriteShutdown::AfterFlush => true,
            WriteShutdown::Ignored => false,
            WriteShutdown::Now => panic!("ended ahead of queued bytes"),
        },
        Input::Close => state.close(),
        Input::Lose => state.lose(),
    }
}

fn check(before: State, input: Input) -> State {
    let mut model = seen(&before);
    let mut state = before;
    model.apply(input);
    let changed = apply(&mut state, input);
    assert_eq!(seen(&state), model, "{before:?} after {input:?}");
    assert_eq!(changed, state != before, "{before:?} after {input:?}");
    assert_eq!(state.is_open(), !model.closing);
    assert_eq!(state.wants_read(), !model.paused && !model.peer_eof && !model.closing);
    state
}

/// Every input in every state that inputs lead to.
#[test]
fn the_whole_table() {
    let mut reached = HashSet::new();
    let mut todo = vec![State::new()];
    while let Some(state) = todo.pop() {
        if reached.insert((state.phase, state.marks)) {
            todo.extend(INPUTS.map(|input| check(state, input)));
        }
    }
    // Three phases, eight sets of marks: all can be.
    assert_eq!(reached.len(), 24);
}

#[test]
fn nothing_leads_back() {
    let mut state = State::new();
    assert!(state.lose());
    for input in INPUTS {
        assert!(!apply(&mut state, input), "{input:?} changed a lost connection");
    }
    assert!(state.is_lost() && state.is_closing() && !state.wants_read());
}

proptest! {
    #[test]
    fn like_asyncios_flags(inputs in proptest::collection::vec(0_usize..INPUTS.len(), 0..60)) {
        let mut model = Model::default();
        let mut state = State::new();
        let mut losses = 0;
        for input in inputs.into_iter().map(|index| INPUTS[index]) {
            model.apply(input);
            let changed = apply(&mut state, input);
            losses += usize::from(changed && input == Input::Lose);
            prop_assert_eq!(seen(&state), model);
        }
        prop_assert_eq!(losses, usize::from(model.lost), "a connection is lost once");
    }
}
