//! Counts of the tree that `tidy` prints: lines of the product and of its tests, names that several types share, long files.
//!
//! Pure; `tidy.rs` reads the files.

use std::collections::BTreeMap;
use std::fmt;

/// Directories whose Rust is counted.
const COUNTED: &[&str] = &["crates/", "xtask/", "bench/"];
/// Directories, or crates, that hold tests and their support code.
const OF_TESTS: &[&str] = &["tests", "benches", "examples", "testing", "testdisk", "testfault"];
/// Files of tests and of their support code.
const FILES_OF_TESTS: &[&str] = &["tests.rs", "testing.rs", "test_support.rs"];
/// A file with more lines is counted as long.
const LONG: usize = 300;

/// Counts of the whole tree.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    product: usize,
    tests: usize,
    long: usize,
    types: BTreeMap<String, usize>,
}

impl Counts {
    /// Adds a source; files outside of the counted directories change nothing.
    pub(crate) fn add(&mut self, name: &str, text: &str) {
        if !COUNTED.iter().any(|directory| name.starts_with(directory)) {
            return;
        }
        let lines = text.lines().count();
        if is_of_tests(name) {
            self.tests += lines;
            return;
        }
        let product = lines_without_tests(text);
        self.product += product.len();
        self.tests += lines - product.len();
        self.long += usize::from(product.len() > LONG);
        for line in product {
            if let Some(name) = type_name(line) {
                *self.types.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: usize = self.types.values().sum();
        let shared: usize = self.types.values().filter(|n| **n > 1).sum();
        write!(
            f,
            "{} lines of product and {} of tests, {} files over {LONG} lines, {types} types with {} names ({shared} share theirs)",
            self.product,
            self.tests,
            self.long,
            self.types.len()
        )
    }
}

fn is_of_tests(name: &str) -> bool {
    let mut parts = name.split('/');
    let file = parts.next_back().unwrap_or_default();
    let directory = |part: &str| OF_TESTS.contains(&part) || part.ends_with("_tests");
    file.ends_with("_tests.rs") || FILES_OF_TESTS.contains(&file) || parts.any(directory)
}

/// Returns true for a file that only tests compile. Such a file may be longer: tables and scenes of one topic belong together.
pub(crate) fn is_tests(name: &str) -> bool {
    name.ends_with("_tests.rs") || name.ends_with("/tests.rs") || name.contains("/tests/") || name.contains("/testing/")
}

/// The lines outside `#[cfg(test)] mod … { … }` at the outermost level.
pub(crate) fn lines_without_tests(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut kept, mut at) = (Vec::new(), 0);
    while let Some(line) = lines.get(at) {
        let opens = *line == "#[cfg(test)]"
            && lines[at + 1..]
                .iter()
                .find(|l| !l.starts_with("#["))
                .is_some_and(|l| l.starts_with("mod ") && l.ends_with('{'));
        if opens {
            at += lines[at..].iter().position(|l| *l == "}").map_or(lines.len(), |end| end + 1);
        } else {
            kept.push(*line);
            at += 1;
        }
    }
    kept
}

/// The name of the type that a line begins to define.
pub(crate) fn type_name(line: &str) -> Option<&str> {
    let rest = after_visibility(line.trim_start());
    let rest = ["struct ", "enum ", "type ", "trait ", "union "].iter().find_map(|word| rest.strip_prefix(word))?;
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

/// A line without `pub` or `pub(…)` at its start.
pub(crate) fn after_visibility(line: &str) -> &str {
    match line.strip_prefix("pub(").and_then(|rest| rest.split_once(") ")) {
        Some((_, rest)) => rest,
        None => line.strip_prefix("pub ").unwrap_or(line),
    }
}

#[cfg(test)]
mod checks {
    use super::*;

    #[test]
    fn product_and_tests_are_counted_apart() {
        let mut counts = Counts::default();
        let source = "pub(crate) struct A;\n    pub enum B {\ntype C = A;\n// struct D\n#[cfg(test)]\nmod tests {\n    struct A;\n}\n";
        counts.add("crates/a/src/x.rs", source);
        counts.add("crates/b/src/y.rs", &"struct A;\n".repeat(301));
        counts.add("crates/b/src/y_tests.rs", "struct A;\n");
        counts.add("crates/b/tests/y.rs", "struct A;\n");
        counts.add("fuzz/x.rs", "struct A;\n");
        assert_eq!(
            counts.to_string(),
            "305 lines of product and 6 of tests, 1 files over 300 lines, 304 types with 3 names (302 share theirs)"
        );
    }
}
