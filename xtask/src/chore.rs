//! The names of the chores, their reports, and the walk over files that several need. `main.rs` runs them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Name and what it does.
pub(crate) const CHORES: &[(&str, &str)] = &[
    ("bench-pull", "measure pulls of imagelet and of other engines (the crate in bench/); --help has its arguments"),
    ("commits", "judge the messages of the commits since the last tag"),
    ("containerd-versions", "write docs/containerd-versions.md from what scripts/containerd-of.sh found"),
    ("deps", "check the arrows between crates and to third parties, and circles inside crates"),
    ("tidy", "check file headers, sizes, forbidden words, documents, generated pages"),
    ("upstream", "write docs/upstream-cases.md from the lists and the tests"),
];

/// The findings of a chore.
#[derive(Debug, Default)]
pub(crate) struct ChoreReport {
    /// Each breaks the build.
    pub(crate) failures: Vec<String>,
    /// Findings that do not fail the check.
    pub(crate) warnings: Vec<String>,
    /// Number of checked items, as one line, so that a check of nothing is visible.
    pub(crate) seen: String,
}

/// Every file below a directory, sorted; what git and cargo keep for themselves is left out.
pub(crate) fn files_below(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let (mut files, mut pending) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(at) = pending.pop() {
        for entry in fs::read_dir(&at).with_context(|| format!("read {}", at.display()))? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_file() {
                files.push(entry.path());
            } else if kind.is_dir() && entry.file_name() != ".git" && entry.file_name() != "target" {
                pending.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}
