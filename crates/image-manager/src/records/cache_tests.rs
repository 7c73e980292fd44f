//! The map with an order of use against a plain model. When memory counts is shown in `tests/memory.rs`.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Get(u8),
    Insert(u8, u32),
    Remove(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0_u8..12).prop_map(Step::Get),
        (0_u8..12, any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
        (0_u8..12).prop_map(Step::Remove),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn the_least_recently_used_goes_first(capacity in 1_usize..8, steps in steps()) {
        let mut lru = Lru::new(capacity);
        // Used last comes last.
        let mut model: Vec<(u8, u32)> = Vec::new();
        for step in steps {
            match step {
                Step::Get(key) => {
                    let at = model.iter().position(|(k, _)| *k == key);
                    let want = at.map(|at| {
                        let entry = model.remove(at);
                        model.push(entry);
                        entry.1
                    });
                    prop_assert_eq!(lru.get(&key.to_string()).copied(), want);
                }
                Step::Insert(key, value) => {
                    model.retain(|(k, _)| *k != key);
                    let evicts = model.len() == capacity;
                    if evicts {
                        model.remove(0);
                    }
                    model.push((key, value));
                    prop_assert_eq!(lru.insert(&key.to_string(), value), evicts);
                }
                Step::Remove(key) => {
                    model.retain(|(k, _)| *k != key);
                    lru.remove(&key.to_string());
                }
            }
            prop_assert_eq!(lru.index.len(), model.len());
            prop_assert!(lru.nodes.len() <= capacity, "nodes are used again");
        }
        for (key, value) in model {
            prop_assert_eq!(lru.get_mut(&key.to_string()).copied(), Some(value));
        }
    }
}
