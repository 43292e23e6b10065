//! Timers, with deadlines that are not numbers among them, against a sorted list.
#![cfg_attr(fuzzing, no_main)]

use pelton::time::Timers;
use pelton_fuzz::Input;

pelton_fuzz::target!(run);

fn run(data: &[u8]) {
    let _end = drive(&mut Input::new(data));
}

fn deadline(byte: u8) -> f64 {
    match byte {
        0 => f64::NEG_INFINITY,
        1 => -0.0,
        254 => f64::INFINITY,
        255 => f64::NAN,
        _ => f64::from(byte / 4),
    }
}

fn drive(input: &mut Input<'_>) -> Option<()> {
    let mut timers = Timers::new();
    // In order; behind all others those that never come.
    let mut model: Vec<(f64, u32)> = Vec::new();
    for number in 0.. {
        match input.byte()? % 8 {
            0..4 => {
                let due = deadline(input.byte()?);
                timers.insert(due, number);
                let place = model.partition_point(|(other, _)| *other <= due || due.is_nan());
                model.insert(place, (due, number));
            }
            4 | 5 => {
                let now = deadline(input.byte()?);
                let due = model.first().is_some_and(|(first, _)| *first <= now);
                assert_eq!(timers.pop_due(now), due.then(|| model.remove(0).1));
            }
            6 => {
                let expected = (!model.is_empty()).then(|| model.remove(0).1);
                assert_eq!(timers.pop(), expected);
            }
            _ => {
                let divisor = u32::from(input.byte()?) + 1;
                let mut dead = Vec::new();
                timers.retain_into(&mut dead, |item| item % divisor != 0);
                assert!(dead.iter().all(|item| item % divisor == 0));
                let before = model.len();
                model.retain(|(_, item)| item % divisor != 0);
                assert_eq!(dead.len(), before - model.len());
            }
        }
        assert_eq!((timers.len(), timers.is_empty()), (model.len(), model.is_empty()));
        assert_eq!(timers.peek(), model.first().map(|(_, item)| item));
        let next = model.first().map(|(due, _)| *due).filter(|due| !due.is_nan());
        assert_eq!(timers.next_deadline(), next);
    }
    None
}
