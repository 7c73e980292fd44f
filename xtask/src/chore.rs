//! The names of the chores, and what each hands back. `main.rs` runs them.

/// Name and what it does.
pub(crate) const CHORES: &[(&str, &str)] = &[
    ("bench-pull", "measure pulls beside other engines (the crate in bench/); --help has its arguments"),
    ("deps", "check the arrows between crates and to third parties, and circles inside crates"),
    ("tidy", "check file headers, sizes, forbidden words, documents, generated pages"),
    ("upstream", "write docs/upstream-cases.md from the lists and the tests"),
];

/// The findings of a chore.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Each breaks the build.
    pub(crate) failures: Vec<String>,
    /// Each deserves a second look.
    pub(crate) warnings: Vec<String>,
    /// A line of what was looked at, so that a check of nothing is seen.
    pub(crate) seen: String,
}
