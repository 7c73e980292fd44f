//! Names beyond memory, against a map.

use std::collections::BTreeMap;

use super::super::{Inode, Kind, Nid};
use super::*;

fn spill() -> Spill {
    Spill::new(Box::new(tempfile::tempfile))
}

fn inode(n: u64) -> Entry {
    Entry::Inode(Inode { nid: Nid(n), kind: Kind::File, extended: false })
}

/// A number after another, without an order that one sees.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

#[test]
fn number_of_runs_is_bounded() {
    let mut spill = spill();
    // Each name is put aside by itself.
    let mut names = Names::new(0);
    for n in 0..5000_u64 {
        let before = names.put(Dir(0), n.to_string().as_bytes(), Some(inode(n + 1)), &mut spill).expect("put");
        assert_eq!(before, None);
        // Seven on each level: five levels of eight reach beyond 5,000.
        assert!(names.runs.len() <= 35, "{} runs of {n} names", names.runs.len());
        assert!(names.runs.is_sorted_by(|older, newer| older.0 >= newer.0));
    }
}

#[test]
fn merged_runs_are_the_same_names() {
    let mut spill = spill();
    let (mut names, mut map) = (Names::new(0), BTreeMap::new());
    let mut seed = 7;
    for n in 0..6000 {
        let key = (u32::try_from(next(&mut seed) % 5).expect("small"), format!("{}", next(&mut seed) % 900));
        let entry = (!next(&mut seed).is_multiple_of(3)).then(|| inode(n + 1));
        let before = names.put(Dir(key.0), key.1.as_bytes(), entry, &mut spill).expect("put");
        let known = match entry {
            Some(entry) => map.insert(key, entry),
            None => map.remove(&key),
        };
        assert_eq!(before, known);
    }
    for dir in 0..5 {
        for n in 0..900 {
            let key = (dir, n.to_string());
            let found = names.get(Dir(dir), key.1.as_bytes(), &spill).expect("read");
            assert_eq!(found, map.get(&key).copied(), "{key:?}");
        }
    }
    let sealed = names.seal();
    let (mut order, mut visited) = (sealed.in_order(), Vec::new());
    for dir in 0..5 {
        let mut visit = |name: &[u8], entry, _: &mut Spill| {
            visited.push(((dir, String::from_utf8_lossy(name).into_owned()), entry));
            Ok(())
        };
        order.each(Dir(dir), &mut spill, &mut visit).expect("read");
    }
    assert_eq!(visited, map.into_iter().collect::<Vec<_>>());
}
