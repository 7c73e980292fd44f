//! The habits that a machine can see, each a pure function from a file's text to findings. `tidy.rs` calls them.

use crate::counts::lines_without_tests;

/// Lines without tests at which a file gets a warning, and at which it must be split.
const LINES: (usize, usize) = (400, 600);
/// The same for files of tests.
const LINES_OF_TESTS: (usize, usize) = (800, 1200);

/// Texts that must not stand in Rust sources, and the reason. Put together so that this file does not hold them.
const NOT_IN_RUST: &[(&str, &str)] = &[
    (concat!("#[", "allow("), "an exception is an expect attribute with a reason"),
    (concat!("#![", "allow("), "an exception is an expect attribute with a reason"),
    (concat!("todo", "!("), "no unfinished code"),
    (concat!("unimplemented", "!("), "no unfinished code"),
    (concat!("dbg", "!("), "no left-over debugging"),
];

/// The attribute of a test that the ordinary run leaves out, and the commands that do not.
const IGNORE: &str = "#[ignore";
const COMMANDS: &[&str] = &["scripts/test.sh\"]", "scripts/test-long.sh\"]"];

/// Texts that must stand nowhere: paths that exist on one machine only.
const NOWHERE: &[(&str, &str)] = &[
    (concat!("/wo", "rk/"), "a path of a private machine"),
    (concat!("/ro", "ot/"), "a path of a private machine"),
    (concat!("/ho", "me/"), "a path of a private machine"),
    (concat!("../sha", "red"), "the project needs nothing outside of itself"),
];

/// A broken habit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Line, counted from 1.
    pub(crate) line: Option<usize>,
    /// True if the finding breaks the build.
    pub(crate) fails: bool,
    /// The fault.
    pub(crate) text: String,
}

impl Finding {
    pub(crate) fn error(line: Option<usize>, text: String) -> Self {
        Self { line, fails: true, text }
    }
}

/// For every text file: white space and forbidden words.
pub(crate) fn any_text(text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in numbered(text) {
        if line.ends_with([' ', '\t', '\r']) {
            found.push(Finding::error(Some(number), "white space at the end of the line".into()));
        }
        for (word, why) in NOWHERE {
            if line.contains(word) {
                found.push(Finding::error(Some(number), format!("{word:?}: {why}")));
            }
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        found.push(Finding::error(None, "no line feed at the end".into()));
    }
    if text.ends_with("\n\n") {
        found.push(Finding::error(None, "empty lines at the end".into()));
    }
    found
}

/// For Rust sources: header, size, forbidden attributes and macros.
pub(crate) fn rust(text: &str, tests: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    let first = text.lines().find(|l| !l.starts_with("#!/")).unwrap_or("");
    if !first.starts_with("//! ") {
        found.push(Finding::error(
            Some(1),
            "does not start with //! and what the file is, refuses to do, is called by".into(),
        ));
    }
    let (soft, split) = if tests { LINES_OF_TESTS } else { LINES };
    let lines = lines_without_tests(text).len();
    if lines > soft {
        let text = format!("{lines} lines without tests: {}", if lines > split { "split it" } else { "look again" });
        found.push(Finding { line: None, fails: lines > split, text });
    }
    for (number, line) in numbered(text) {
        if line.trim_start().starts_with(IGNORE) && !COMMANDS.iter().any(|command| line.contains(command)) {
            let text =
                format!("an ignored test says why, and which command runs it: {IGNORE} = \"REASON: scripts/test.sh\"]");
            found.push(Finding::error(Some(number), text));
        }
        for (word, why) in NOT_IN_RUST {
            if line.contains(word) {
                found.push(Finding::error(Some(number), format!("{word:?}: {why}")));
            }
        }
    }
    found
}

/// For scripts: executable, strict, with a header.
pub(crate) fn shell(text: &str, executable: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    if lines.next() != Some("#!/usr/bin/env bash") {
        found.push(Finding::error(Some(1), "does not start with #!/usr/bin/env bash".into()));
    }
    if !lines.next().is_some_and(|l| l.starts_with("# ")) {
        found.push(Finding::error(Some(2), "does not say on its second line what it does".into()));
    }
    if !text.lines().any(|l| l == "set -euo pipefail") {
        found.push(Finding::error(None, "has no line set -euo pipefail".into()));
    }
    if !executable {
        found.push(Finding::error(None, "is not executable".into()));
    }
    found
}

/// For documents: every link to a file of the project leads somewhere.
pub(crate) fn links(text: &str, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in numbered(text) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for part in line.split("](").skip(1) {
            let target = part.split([')', ' ', '#']).next().unwrap_or("");
            let elsewhere = target.is_empty() || target.contains("://") || target.starts_with("mailto:");
            if !elsewhere && !exists(target) {
                found.push(Finding::error(Some(number), format!("leads to {target:?}, which is not there")));
            }
        }
    }
    found
}

/// For documents: every script and every chore which is named exists.
pub(crate) fn commands(text: &str, exists: &dyn Fn(&str) -> bool, is_chore: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in numbered(text) {
        let words: Vec<&str> = line
            .split(|c: char| c.is_whitespace() || "`(),;".contains(c))
            .map(|w| w.trim_start_matches("./").trim_end_matches(['.', ':']))
            .filter(|w| !w.is_empty())
            .collect();
        for word in &words {
            let script = (word.starts_with("scripts/") && word.ends_with(".sh")) || *word == ".ci/run";
            if script && !exists(word) {
                found.push(Finding::error(Some(number), format!("names {word}, which is not there")));
            }
        }
        for three in words.windows(3) {
            if three[0] == "cargo" && three[1] == "xtask" && three[2] != "NAME" && !is_chore(three[2]) {
                found.push(Finding::error(Some(number), format!("names the chore {:?}, which is not there", three[2])));
            }
        }
    }
    found
}

/// For the change log: what is not released yet has its place at the top.
pub(crate) fn changelog(text: &str) -> Vec<Finding> {
    let first = text.lines().find(|l| l.starts_with("## "));
    if first == Some("## [Unreleased]") {
        Vec::new()
    } else {
        vec![Finding::error(None, "the first section is not ## [Unreleased]".into())]
    }
}

pub(crate) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(i, l)| (i + 1, l))
}

#[cfg(test)]
#[path = "tidy_rules_tests.rs"]
mod tests;
