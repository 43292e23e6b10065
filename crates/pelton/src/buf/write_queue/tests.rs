use std::io::IoSlice;

use proptest::prelude::*;

use super::WriteQueue;

fn gathered(queue: &WriteQueue<Vec<u8>>, most: usize) -> Vec<u8> {
    let mut slices = vec![IoSlice::new(&[]); most];
    let count = queue.gather(&mut slices);
    assert!(slices[count..].iter().all(|slice| slice.is_empty()));
    slices[..count].iter().flat_map(|slice| slice.to_vec()).collect()
}

#[test]
fn an_empty_chunk_never_enters() {
    let mut queue = WriteQueue::new();
    queue.push(vec![]);
    queue.push_rest(vec![], 0);
    assert!(queue.is_empty() && queue.iter().next().is_none());
    queue.push(vec![1]);
    queue.push(vec![]);
    assert_eq!((queue.len(), queue.iter().count()), (1, 1));
}

#[test]
fn the_rest_is_what_was_not_sent() {
    let mut queue = WriteQueue::new();
    queue.push_rest(b"all".to_vec(), 3);
    assert!(queue.is_empty());
    queue.push_rest(b"hello".to_vec(), 2);
    assert_eq!((queue.len(), queue.single()), (3, Some(b"llo".as_slice())));
    queue.push(b"!".to_vec());
    assert_eq!((queue.len(), queue.single()), (4, None));
    assert_eq!(gathered(&queue, 1), b"llo", "no more than there is room for");
    assert_eq!(gathered(&queue, 8), b"llo!");
}

#[test]
fn a_chunk_is_dropped_when_its_last_byte_is_sent() {
    let chunk: std::rc::Rc<[u8]> = [1, 2].into();
    let mut queue = WriteQueue::new();
    queue.push(chunk.clone());
    queue.push(chunk.clone());
    queue.advance(1);
    assert_eq!(std::rc::Rc::strong_count(&chunk), 3);
    queue.advance(1);
    assert_eq!(std::rc::Rc::strong_count(&chunk), 2);
    queue.advance(2);
    assert_eq!(std::rc::Rc::strong_count(&chunk), 1);
}

#[test]
fn a_drained_queue_holds_no_memory() {
    let mut queue = WriteQueue::new();
    (0..100).for_each(|byte| queue.push(vec![byte]));
    assert!(queue.rest.capacity() > 0);
    queue.advance(100);
    assert_eq!(queue.rest.capacity(), 0);
    queue.push(vec![1]);
    assert_eq!(queue.rest.capacity(), 0, "one chunk asks for none");
}

#[test]
fn what_is_taken_out_is_whole_and_in_order() {
    let mut queue = WriteQueue::new();
    queue.push_rest(b"ab".to_vec(), 1);
    queue.push(b"c".to_vec());
    assert_eq!(queue.take_all(), [b"ab".to_vec(), b"c".to_vec()]);
    assert!(queue.is_empty());
    queue.push(b"d".to_vec());
    assert_eq!(gathered(&queue, 4), b"d", "nothing of the old chunk's offset is left");
    queue.clear();
    assert!(queue.is_empty());
}

#[test]
#[should_panic(expected = "more bytes sent than were waiting")]
fn advance_past_the_end() {
    let mut queue = WriteQueue::new();
    queue.push(vec![1]);
    queue.advance(2);
}

#[test]
#[should_panic(expected = "went out ahead")]
fn push_rest_behind_others() {
    let mut queue = WriteQueue::new();
    queue.push(vec![1]);
    queue.push_rest(vec![2], 0);
}

#[derive(Clone, Debug)]
enum Op {
    Push(usize),
    /// A chunk, of which this many hundredths were sent; only on an empty queue.
    PushRest(usize, usize),
    /// Gathers this many chunks and sends this many hundredths of them.
    Send(usize, usize),
    TakeAll,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0_usize..40).prop_map(Op::Push),
        2 => (0_usize..40, 0_usize..=100).prop_map(|(size, sent)| Op::PushRest(size, sent)),
        6 => (0_usize..9, 0_usize..=100).prop_map(|(most, sent)| Op::Send(most, sent)),
        1 => Just(Op::TakeAll),
    ]
}

proptest! {
    /// The model is one vector of bytes.
    #[test]
    fn like_a_vector_of_bytes(ops in proptest::collection::vec(op(), 0..80)) {
        let mut queue = WriteQueue::new();
        let mut model: Vec<u8> = Vec::new();
        let mut written = 0_u8;
        let mut chunk = |size| -> Vec<u8> {
            (0..size).map(|_| { written = written.wrapping_add(1); written }).collect()
        };
        for op in ops {
            match op {
                Op::Push(size) => {
                    let chunk = chunk(size);
                    model.extend(&chunk);
                    queue.push(chunk);
                }
                Op::PushRest(size, sent) => {
                    if model.is_empty() {
                        let (chunk, sent) = (chunk(size), size * sent / 100);
                        model.extend(&chunk[sent..]);
                        queue.push_rest(chunk, sent);
                    }
                }
                Op::Send(most, sent) => {
                    let bytes = gathered(&queue, most);
                    prop_assert!(model.starts_with(&bytes));
                    let sent = bytes.len() * sent / 100;
                    model.drain(..sent);
                    queue.advance(sent);
                }
                Op::TakeAll => {
                    prop_assert!(queue.take_all().into_iter().flatten().count() >= model.len());
                    model.clear();
                }
            }
            prop_assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
            prop_assert_eq!(queue.iter().flatten().copied().collect::<Vec<_>>(), model.clone());
            prop_assert_eq!(gathered(&queue, 100), model.clone());
        }
    }
}
