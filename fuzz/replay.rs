//! Runs harnesses over their committed corpora, in the ordinary test run. Taken in by the tests of every crate that has a
//! module `fuzz`; where a harness panics, the test fails and names the file.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

type Harness = (&'static str, fn(&[u8]));

/// Every file of every harness's corpus. A harness without a corpus is a mistake.
pub(crate) fn replay(harnesses: &[Harness]) {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, harness) in harnesses {
        let directory =
            fs::read_dir(corpora.join(name)).unwrap_or_else(|error| panic!("the corpus of {name}: {error}"));
        let mut files: Vec<PathBuf> = directory.map(|entry| entry.expect("an entry").path()).collect();
        files.sort();
        assert!(!files.is_empty(), "the corpus of {name} is empty");
        for file in files {
            let bytes = fs::read(&file).expect("a file of a corpus");
            let kept = catch_unwind(AssertUnwindSafe(|| harness(&bytes)));
            assert!(kept.is_ok(), "{name} does not keep what it has to: {}", file.display());
        }
    }
}
