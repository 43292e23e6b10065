use proptest::prelude::*;

use super::Timers;

#[test]
fn equal_deadlines_keep_their_order() {
    let mut timers = Timers::new();
    for item in 0..100 {
        timers.insert(7_u64, item);
    }
    let order: Vec<_> = std::iter::from_fn(|| timers.pop_due(7)).collect();
    assert_eq!(order, (0..100).collect::<Vec<_>>());
}

#[test]
fn nothing_is_due_before_its_deadline() {
    let mut timers = Timers::new();
    timers.insert(1.5_f64, "a");
    assert_eq!(timers.pop_due(1.499_999), None);
    assert_eq!(timers.next_deadline(), Some(1.5));
    assert_eq!(timers.pop_due(1.5), Some("a"));
    assert!(timers.is_empty());
}

#[test]
fn not_a_number_is_never_due_and_hides_nothing() {
    let mut timers = Timers::new();
    timers.insert(f64::NAN, "never");
    timers.insert(f64::INFINITY, "far");
    timers.insert(2.0, "b");
    timers.insert(f64::NAN, "never");
    timers.insert(1.0, "a");
    assert_eq!(timers.pop_due(1e300), Some("a"));
    assert_eq!(timers.pop_due(1e300), Some("b"));
    assert_eq!(timers.pop_due(1e300), None);
    assert_eq!(timers.pop_due(f64::INFINITY), Some("far"));
    assert_eq!(timers.pop_due(f64::INFINITY), None);
    assert_eq!(timers.len(), 2);
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8),
    PopDue(u8),
    DropOdd,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<u8>().prop_map(Step::Insert),
        2 => any::<u8>().prop_map(Step::PopDue),
        1 => Just(Step::DropOdd),
    ]
}

proptest! {
    /// Against a list kept in order by sorting.
    #[test]
    fn behaves_like_a_sorted_list(steps in proptest::collection::vec(step(), 0..200)) {
        let mut timers = Timers::new();
        let mut model: Vec<(u8, usize)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert(deadline) => {
                    timers.insert(deadline, (deadline, number));
                    model.push((deadline, number));
                    model.sort();
                }
                Step::PopDue(now) => {
                    let due = model.first().is_some_and(|first| first.0 <= now);
                    let expected = due.then(|| model.remove(0));
                    prop_assert_eq!(timers.pop_due(now), expected);
                }
                Step::DropOdd => {
                    let mut dead = Vec::new();
                    timers.retain_into(&mut dead, |item| item.1 % 2 == 0);
                    prop_assert!(dead.iter().all(|item| item.1 % 2 == 1));
                    model.retain(|item| item.1 % 2 == 0);
                }
            }
            prop_assert_eq!(timers.len(), model.len());
            prop_assert_eq!(timers.next_deadline(), model.first().map(|first| first.0));
        }
        let rest: Vec<_> = std::iter::from_fn(|| timers.pop()).collect();
        prop_assert_eq!(rest, model);
    }
}
