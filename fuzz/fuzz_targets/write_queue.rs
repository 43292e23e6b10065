//! The write queue against one vector of bytes.
#![cfg_attr(fuzzing, no_main)]

use std::io::IoSlice;

use pelton::buf::WriteQueue;
use pelton_fuzz::Input;

pelton_fuzz::target!(run);

fn run(data: &[u8]) {
    let _end = drive(&mut Input::new(data));
}

fn drive(input: &mut Input<'_>) -> Option<()> {
    let mut queue = WriteQueue::new();
    let mut model: Vec<u8> = Vec::new();
    let mut written = 0_u8;
    let mut chunk = |size: usize| -> Vec<u8> {
        let bytes = (0..size).map(|offset| written.wrapping_add(offset as u8)).collect();
        written = written.wrapping_add(size as u8);
        bytes
    };
    loop {
        match input.byte()? % 5 {
            0 | 1 => {
                let chunk = chunk(input.size()? % 20);
                model.extend(&chunk);
                queue.push(chunk);
            }
            2 => {
                let (size, sent) = (input.size()?, input.size()?);
                if queue.is_empty() {
                    let chunk = chunk(size);
                    let sent = sent.min(size);
                    model.extend(&chunk[sent..]);
                    queue.push_rest(chunk, sent);
                }
            }
            3 => {
                let (most, sent) = (input.size()? % 8, input.size()?);
                let mut slices = [IoSlice::new(&[]); 8];
                let count = queue.gather(&mut slices[..most]);
                let bytes: Vec<u8> =
                    slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
                assert!(model.starts_with(&bytes));
                assert!(count > 0 || most == 0 || model.is_empty());
                let sent = sent.min(bytes.len());
                queue.advance(sent);
                model.drain(..sent);
            }
            _ => {
                if input.byte()? < 16 {
                    let all: Vec<u8> = queue.take_all().into_iter().flatten().collect();
                    assert!(all.ends_with(&model));
                    model.clear();
                }
            }
        }
        assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
        assert!(queue.iter().flatten().eq(&model));
    }
}
