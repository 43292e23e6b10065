//! A connection's state and flow control, against what must hold at every step.
#![cfg_attr(fuzzing, no_main)]

use pelton::reactor::Interest;
use pelton::stream::{Stream, WriteShutdown};
use pelton_fuzz::Input;

pelton_fuzz::target!(run);

fn run(data: &[u8]) {
    let _end = drive(&mut Input::new(data));
}

fn drive(input: &mut Input<'_>) -> Option<()> {
    let mut stream: Stream<Vec<u8>> = Stream::new();
    let (mut losses, mut shutdowns, mut pauses, mut resumes) = (0, 0, 0, 0);
    loop {
        let before = stream.state();
        match input.byte()? % 10 {
            0 => _ = stream.state_mut().pause(),
            1 => _ = stream.state_mut().resume(),
            2 => _ = stream.state_mut().peer_eof(),
            3 => {
                let drained = stream.queued() == 0;
                let answer = stream.state_mut().shut_write(drained);
                if answer != WriteShutdown::Ignored {
                    assert_eq!(answer == WriteShutdown::Now, drained);
                }
                shutdowns += i32::from(answer != WriteShutdown::Ignored);
            }
            4 => _ = stream.state_mut().close(),
            5 => losses += i32::from(stream.state_mut().lose()),
            6 => stream.hold(vec![0; input.size()?]),
            7 => drop(stream.take_queue()),
            8 => {
                let limits = (input.size()?, input.size()?);
                let (high, low) =
                    (Some(limits.0).filter(|n| *n > 9), Some(limits.1).filter(|n| *n > 9));
                let old = stream.flow().limits();
                match stream.flow_mut().set_limits(high, low) {
                    Ok(()) => assert!(stream.flow().limits().0 <= stream.flow().limits().1),
                    Err(error) => {
                        assert!(error.high < error.low);
                        assert_eq!(stream.flow().limits(), old);
                    }
                }
            }
            _ => {
                let queued = stream.queued();
                pauses += i32::from(stream.flow_mut().on_grow(queued));
                resumes += i32::from(stream.flow_mut().on_shrink(queued));
                assert_eq!(pauses - resumes, i32::from(stream.flow().is_paused()));
            }
        }
        let state = stream.state();
        assert!(state.is_closing() || !before.is_closing(), "nothing leads back");
        assert!(state.is_lost() || !before.is_lost());
        assert!(state.is_write_shut() || !before.is_write_shut());
        assert!(state.is_closing() || !state.is_lost());
        assert!(!state.wants_read() || !(state.is_closing() || state.is_paused()));
        assert!(losses <= 1 && shutdowns <= 1);
        let interest = stream.interest();
        assert_eq!(interest.contains(Interest::READ), state.wants_read());
        let writes = stream.queued() > 0 && !state.is_lost();
        assert_eq!(interest.contains(Interest::WRITE), writes);
    }
}
