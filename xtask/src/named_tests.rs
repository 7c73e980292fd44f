//! The tests that documents name: in tables whose last column is called `tests`. Each of them stands exactly once in the sources.
//!
//! A name that several tests have is written with the file, and with the crate where that is not enough: `token::never_panics`,
//! `registry::token::never_panics`. Pure; `tidy.rs` reads the files.

use std::collections::BTreeMap;

use crate::tidy_rules::{Finding, numbered};

/// The tests of the workspace: name → the parts of the path of each file that has one of this name.
#[derive(Debug, Default)]
pub(crate) struct Tests {
    places: BTreeMap<String, Vec<Vec<String>>>,
}

impl Tests {
    /// Adds the tests of a source.
    pub(crate) fn add(&mut self, file: &str, text: &str) {
        let parts: Vec<String> =
            file.trim_end_matches(".rs").split('/').map(|part| part.trim_end_matches("_tests").to_owned()).collect();
        for test in tests(text) {
            self.places.entry(test.to_owned()).or_default().push(parts.clone());
        }
    }

    /// The number of tests that a name means.
    fn count(&self, name: &str) -> usize {
        let (before, test) = name.rsplit_once("::").map_or((Vec::new(), name), |(b, t)| (b.split("::").collect(), t));
        let fits = |parts: &&Vec<String>| {
            let mut left = parts.iter();
            before.iter().all(|word| left.any(|part| part == word))
        };
        self.places.get(test).map_or(0, |places| places.iter().filter(fits).count())
    }

    /// The faults of a document's tables: rows without a test, tests that do not exist, names that several have.
    pub(crate) fn check(&self, document: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut in_table = false;
        for (number, line) in numbered(document) {
            let Some(row) = line.strip_prefix('|') else {
                in_table = false;
                continue;
            };
            let last = row.trim_end().trim_end_matches('|').rsplit('|').next().unwrap_or_default().trim();
            if last == "tests" {
                in_table = true;
            } else if in_table && !last.starts_with("---") {
                let named: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
                if named.is_empty() {
                    findings.push(Finding::error(Some(number), "names no test".into()));
                }
                for name in named {
                    let text = match self.count(name) {
                        0 => format!("names {name:?}, and no #[test] is called so"),
                        1 => continue,
                        many => format!("names {name:?}, which {many} tests are called: write FILE::{name}"),
                    };
                    findings.push(Finding::error(Some(number), text));
                }
            }
        }
        findings
    }
}

/// The names of the functions of a source that are tests.
fn tests(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut marked = false;
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| marked) {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            names.push(&rest[..end]);
            marked = false;
        }
    }
    names
}

#[cfg(test)]
mod checks {
    use super::*;

    const SOURCE: &str = "#[test]\nfn one() {}\nasync fn helper() {}\n#[tokio::test(flavor = \"x\")]\n// upstream: it\n\
                          #[cfg(unix)]\nasync fn two() {}\nproptest! {\n    #[test]\n    fn three(x in 0..1) {}\n}\n";

    #[test]
    fn tests_are_distinguished_from_functions() {
        assert_eq!(tests(SOURCE), ["one", "two", "three"]);
    }

    #[test]
    fn a_document_names_each_test_so_that_it_is_one() {
        let mut all = Tests::default();
        all.add("crates/a/src/x.rs", SOURCE);
        all.add("crates/b/src/y_tests.rs", "#[test]\nfn two() {}\n");
        all.add("crates/c/src/y.rs", "#[test]\nfn two() {}\n");
        let check = |rows: &str| {
            let text = format!("| attack | tests |\n|---|---|\n{rows}\n\n| other | table |\n| x | y |\n");
            all.check(&text).into_iter().map(|f| f.text).collect::<Vec<_>>()
        };
        assert_eq!(check("| a | `one`, `x::two`, `b::y::two`, `c::two` |"), Vec::<String>::new());
        assert_eq!(
            check("| a | `gone`, `helper`, `two`, `y::two` |\n| b | none |"),
            [
                "names \"gone\", and no #[test] is called so",
                "names \"helper\", and no #[test] is called so",
                "names \"two\", which 3 tests are called: write FILE::two",
                "names \"y::two\", which 2 tests are called: write FILE::y::two",
                "names no test"
            ]
        );
    }
}
