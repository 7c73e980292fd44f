//! Promises that the parsers of this crate keep, whatever comes: run by libFuzzer (`fuzz/` at the top of the repository), and over the
//! committed corpora by a test. Compiled for tests and with the feature `fuzzing` only.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::inflate;
use crate::transfer::tar::{Member, index};

/// A parser with what it has to keep, by its name.
pub type Harness = (&'static str, fn(&[u8]));

/// The harnesses by name. Each panics where a parser does not keep what it has to.
pub const HARNESSES: &[Harness] = &[("archive", archive), ("gzip", inflate::fuzz::gzip), ("zstd", inflate::fuzz::zstd)];

thread_local! {
    static FILE: RefCell<File> = RefCell::new(tempfile::tempfile().expect("a temporary file"));
}

/// Every member of an archive lies within it, and has a name that leads nowhere else.
fn archive(bytes: &[u8]) {
    FILE.with_borrow_mut(|file| {
        file.set_len(0).expect("cuts");
        file.write_all_at(bytes, 0).expect("writes");
        let Ok(members) = index(file) else { return };
        for (name, member) in members {
            assert!(
                !name.is_empty()
                    && !name.starts_with('/')
                    && name.split('/').all(|part| !matches!(part, "" | "." | "..")),
                "{name:?}"
            );
            if let Member::File { offset, size } = member {
                assert!(offset.checked_add(size).is_some_and(|end| end <= bytes.len() as u64));
            }
        }
    });
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
#[test]
fn corpora_are_replayed() {
    replay::replay(HARNESSES);
}
