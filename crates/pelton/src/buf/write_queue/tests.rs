use std::io::IoSlice;

use proptest::prelude::*;

use super::WriteQueue;

fn content(queue: &WriteQueue<Vec<u8>>) -> Vec<u8> {
    let mut slices = [IoSlice::new(&[]); 64];
    let filled = queue.gather(&mut slices);
    slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect()
}

#[test]
fn an_empty_chunk_never_enters() {
    let mut queue = WriteQueue::new();
    queue.push(Vec::new());
    assert!(queue.is_empty());
    assert_eq!(queue.gather(&mut [IoSlice::new(&[])]), 0);
}

#[test]
fn the_rest_of_a_chunk_is_what_was_not_sent() {
    let mut queue = WriteQueue::new();
    queue.push_rest(b"hello".to_vec(), 2);
    assert_eq!((queue.len(), content(&queue)), (3, b"llo".to_vec()));
    queue.advance(3);
    queue.push_rest(b"all".to_vec(), 3);
    assert!(queue.is_empty());
}

#[test]
fn take_leaves_an_empty_queue() {
    let mut queue = WriteQueue::new();
    queue.push_rest(b"hello".to_vec(), 2);
    assert_eq!(queue.take(), [b"hello".to_vec()]);
    queue.push(b"next".to_vec());
    assert_eq!(content(&queue), b"next");
}

#[test]
#[should_panic(expected = "more sent than there was")]
fn advance_checks_its_count() {
    let mut queue = WriteQueue::new();
    queue.push(vec![1]);
    queue.advance(2);
}

proptest! {
    /// Against one vector of bytes.
    #[test]
    fn behaves_like_a_vector_of_bytes(
        steps in proptest::collection::vec((any::<bool>(), 0_usize..40), 0..60),
    ) {
        let mut queue = WriteQueue::new();
        let mut model = Vec::new();
        let mut next = 0_u8;
        for (push, size) in steps {
            if push {
                let chunk: Vec<u8> = (0..size).map(|_| { next = next.wrapping_add(1); next }).collect();
                model.extend_from_slice(&chunk);
                queue.push(chunk);
            } else {
                let count = size.min(model.len());
                model.drain(..count);
                queue.advance(count);
            }
            prop_assert_eq!(queue.len(), model.len());
            prop_assert_eq!(content(&queue), model.clone());
        }
    }
}
