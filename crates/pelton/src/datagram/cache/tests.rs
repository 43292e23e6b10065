use proptest::prelude::*;

use super::Cache;

/// The same, written as plainly as can be: newest last.
#[derive(Default)]
struct Model(Vec<(u8, u32)>);

impl Model {
    fn get(&mut self, key: u8) -> Option<u32> {
        let at = self.0.iter().position(|(known, _)| *known == key)?;
        let entry = self.0.remove(at);
        self.0.push(entry);
        Some(entry.1)
    }

    fn insert(&mut self, capacity: usize, key: u8, value: u32) -> Option<(u8, u32)> {
        let at = self.0.iter().position(|(known, _)| *known == key);
        let full = self.0.len() == capacity;
        let at = if full { at.or(Some(0)) } else { at };
        let gone = at.map(|at| self.0.remove(at));
        self.0.push((key, value));
        gone
    }
}

proptest! {
    #[test]
    fn is_the_model(
        capacity in 1_usize..6,
        steps in prop::collection::vec((any::<bool>(), 0_u8..9), 0..200),
    ) {
        let (mut cache, mut model) = (Cache::new(capacity), Model::default());
        for (number, (asks, key)) in (0_u32..).zip(steps) {
            if asks {
                prop_assert_eq!(cache.get(&key).copied(), model.get(key));
            } else {
                prop_assert_eq!(
                    cache.insert(key, number),
                    model.insert(capacity, key, number)
                );
            }
            prop_assert_eq!(cache.len(), model.0.len());
            prop_assert!(cache.places.len() == cache.len() && cache.len() <= capacity);
        }
    }
}

#[test]
fn a_thousand_peers_in_turn_all_stay() {
    let mut cache = Cache::new(1024);
    (0..1024).for_each(|peer| assert_eq!(cache.insert(peer, peer), None));
    for _ in 0..3 {
        (0..1024).for_each(|peer| assert_eq!(cache.get(&peer), Some(&peer)));
    }
    assert_eq!(cache.insert(2000, 0), Some((0, 0)));
}

#[test]
#[should_panic(expected = "a capacity")]
fn a_capacity_of_nothing() {
    drop(Cache::<u8, u8>::new(0));
}
