use proptest::prelude::*;

use super::Timers;

#[test]
fn earlier_deadlines_come_first_and_equal_ones_in_order() {
    let mut timers = Timers::new();
    for item in 0..100 {
        timers.insert(7_u64, item);
        timers.insert(6, item + 1000);
    }
    let order: Vec<i32> = std::iter::from_fn(|| timers.pop_due(7)).collect();
    assert!(order.into_iter().eq((1000..1100).chain(0..100)));
}

#[test]
fn nothing_is_due_before_its_deadline() {
    let mut timers = Timers::new();
    timers.insert(1.5, "a");
    assert_eq!(timers.pop_due(1.499_999), None);
    assert_eq!((timers.next_deadline(), timers.peek()), (Some(1.5), Some(&"a")));
    assert_eq!(timers.pop_due(1.5), Some("a"));
    assert!(timers.is_empty());
}

#[test]
fn a_deadline_that_never_comes_hides_none_that_does() {
    let mut timers = Timers::new();
    for (deadline, item) in
        [(f64::NAN, "n"), (f64::INFINITY, "i"), (2.0, "b"), (f64::NAN, "m"), (1.0, "a")]
    {
        timers.insert(deadline, item);
    }
    let due: Vec<_> = std::iter::from_fn(|| timers.pop_due(f64::MAX)).collect();
    assert_eq!(due, ["a", "b"]);
    assert_eq!(timers.next_deadline(), Some(f64::INFINITY));
    assert_eq!(timers.pop_due(f64::INFINITY), Some("i"));
    assert_eq!(timers.pop_due(f64::INFINITY), None);
    assert_eq!(timers.next_deadline(), None, "a poll for it would spin");
    assert_eq!((timers.pop(), timers.pop(), timers.pop()), (Some("n"), Some("m"), None));
}

#[test]
fn drain_takes_all() {
    let mut timers: Timers<u8, u8> = (0..10).fold(Timers::new(), |mut timers, item| {
        timers.insert(item, item);
        timers
    });
    assert_eq!(timers.iter().count(), 10);
    let mut drained = timers.drain();
    drained.sort_unstable();
    assert!(timers.is_empty() && drained.into_iter().eq(0..10));
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u8),
    PopDue(u8),
    Pop,
    /// Drops every item whose number has this remainder by three.
    Retain(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => any::<u8>().prop_map(Op::Insert),
        3 => any::<u8>().prop_map(Op::PopDue),
        1 => Just(Op::Pop),
        1 => (0_usize..3).prop_map(Op::Retain),
    ]
}

proptest! {
    /// The model is a list in order of deadline, then of number.
    #[test]
    fn like_a_sorted_list(ops in proptest::collection::vec(op(), 0..200)) {
        let mut timers = Timers::new();
        let mut model: Vec<(u8, usize)> = Vec::new();
        for (number, op) in ops.into_iter().enumerate() {
            match op {
                Op::Insert(deadline) => {
                    timers.insert(deadline, (deadline, number));
                    let place = model.partition_point(|item| item.0 <= deadline);
                    model.insert(place, (deadline, number));
                }
                Op::PopDue(now) => {
                    let due = model.first().is_some_and(|item| item.0 <= now);
                    let expected = due.then(|| model.remove(0));
                    prop_assert_eq!(timers.pop_due(now), expected);
                }
                Op::Pop => {
                    let expected = (!model.is_empty()).then(|| model.remove(0));
                    prop_assert_eq!(timers.pop(), expected);
                }
                Op::Retain(remainder) => {
                    let mut dead = vec![(0, usize::MAX)];
                    timers.retain_into(&mut dead, |item| item.1 % 3 != remainder);
                    let (mut gone, kept): (Vec<_>, Vec<_>) =
                        model.iter().partition(|item| item.1 % 3 == remainder);
                    prop_assert_eq!(dead.remove(0), (0, usize::MAX), "what was there stays");
                    dead.sort_unstable();
                    gone.sort_unstable();
                    prop_assert_eq!(dead, gone);
                    model = kept;
                }
            }
            prop_assert_eq!(timers.len(), model.len());
            prop_assert_eq!(timers.next_deadline(), model.first().map(|item| item.0));
            prop_assert_eq!(timers.peek(), model.first());
        }
        let rest: Vec<_> = std::iter::from_fn(|| timers.pop()).collect();
        prop_assert_eq!(rest, model);
    }
}
