//! `cargo xtask tidy`: walks the tree and holds every file to the habits in `tidy_rules.rs`.
//!
//! This file knows the paths and which rule applies to which file; it does not know the rules.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::book;
use crate::chore::{CHORES, ChoreReport, files_below};
use crate::counts::{Counts, is_tests};
use crate::decisions;
use crate::index_of_rules;
use crate::named_tests::Tests;
use crate::published;
use crate::release;
use crate::tidy_rules::{self as rules, Finding};
use crate::vocabulary;
use crate::words;

/// Kinds of files that are read. Everything else is left alone.
const TEXT: &[&str] = &["rs", "md", "toml", "sh", "yaml", "yml", "json", "proto"];
/// Text without an ending in its name.
const TEXT_NAMES: &[&str] = &["run", ".gitignore"];
/// Documents which a project of this kind must have.
const DOCUMENTS: &[&str] =
    &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE"];

/// The finding for a line with a word, a phrase or a name that readers do not expect.
fn odd_word(line: usize) -> Finding {
    let text = "an unusual word, phrase or name: see the table of words in CONTRIBUTING.md, xtask/src/words.rs and vocabulary.rs";
    Finding::error(Some(line), text.to_owned())
}

/// The entry point of the chore.
pub(crate) fn run(root: &Path) -> anyhow::Result<ChoreReport> {
    let files: Vec<PathBuf> = files_below(root)?.into_iter().filter(|path| is_text(path)).collect();
    let mut found: Vec<(String, Finding)> = Vec::new();
    let mut rust = 0_usize;
    let (mut tests, mut documents, mut counts) = (Tests::default(), Vec::new(), Counts::default());
    let mut sources = String::new();
    for path in &files {
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        let text = fs::read_to_string(path).with_context(|| format!("read {name}"))?;
        let mut findings = rules::any_text(&text);
        if path.extension().is_some_and(|e| e == "rs") {
            rust += 1;
            findings.extend(rules::rust(&text, is_tests(&name)));
            findings.extend(vocabulary::lines(&text, is_tests(&name)).into_iter().map(odd_word));
        }
        if path.extension().is_some_and(|e| e == "md") {
            let directory = path.parent().unwrap_or(root);
            findings.extend(rules::links(&text, &|target| directory.join(target).exists()));
            findings.extend(rules::commands(&text, &|script| root.join(script).exists(), &is_chore));
            findings.extend(vocabulary::document(&name, &text));
        }
        if name.starts_with("scripts/") || name.starts_with(".ci/") {
            findings.extend(rules::shell(&text, is_executable(path)?));
        }
        if published::is_manifest(&name) {
            let directory = path.parent().unwrap_or(root);
            findings.extend(published::check(&text, &|file| fs::read_to_string(directory.join(file)).ok()));
        }
        if name == "CHANGELOG.md" {
            findings.extend(rules::changelog(&text));
        }
        findings.extend(words::lines(&name, &text).into_iter().map(odd_word));
        found.extend(findings.into_iter().map(|f| (name.clone(), f)));
        if name.ends_with(".rs") {
            tests.add(&name, &text);
            counts.add(&name, &text);
            if name.starts_with("crates/") && !is_tests(&name) {
                sources.push_str(&text);
            }
        } else if name.ends_with(".md") {
            documents.push((name, text));
        }
    }
    let read = |file: &str| fs::read_to_string(root.join(file)).ok();
    let pages = documents.iter().map(|(name, _)| name.clone()).filter(|name| book::is_page(name)).collect();
    let records = documents.iter().filter(|(name, _)| decisions::is_record(name)).cloned().collect();
    for (name, text) in documents {
        if name == decisions::LIST {
            found.extend(decisions::check(&text, &records));
        }
        if name == book::CONTENTS {
            found.extend(book::contents(&text, &pages).into_iter().map(|f| (name.clone(), f)));
        }
        if name == book::TROUBLESHOOTING {
            let messages = book::messages(&text, &|part| sources.contains(part));
            found.extend(messages.into_iter().map(|f| (name.clone(), f)));
        }
        if name == "ARCHITECTURE.md" {
            found.extend(index_of_rules::check(&text, &read).into_iter().map(|f| (name.clone(), f)));
        }
        found.extend(tests.check(&text).into_iter().map(|f| (name.clone(), f)));
    }
    found.extend(release::check(&read(release::MANIFEST).unwrap_or_default(), &read));
    for document in DOCUMENTS {
        if !root.join(document).is_file() {
            found.push((
                (*document).to_owned(),
                Finding::error(None, "a project of this kind has this document".into()),
            ));
        }
    }
    for text in crate::upstream::check(root)? {
        found.push(("upstream cases".to_owned(), Finding::error(None, text)));
    }
    let line = |(name, f): &(String, Finding)| match f.line {
        Some(line) => format!("{name}:{line}: {}", f.text),
        None => format!("{name}: {}", f.text),
    };
    Ok(ChoreReport {
        failures: found.iter().filter(|(_, f)| f.fails).map(line).collect(),
        warnings: found.iter().filter(|(_, f)| !f.fails).map(line).collect(),
        seen: format!("{} files, {rust} of them Rust; {counts}", files.len()),
    })
}

fn is_chore(name: &str) -> bool {
    CHORES.iter().any(|(n, ..)| *n == name)
}

fn is_executable(path: &Path) -> anyhow::Result<bool> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::metadata(path)?.permissions().mode() & 0o111 != 0)
}

fn is_text(path: &Path) -> bool {
    let is =
        |part: Option<&OsStr>, known: &[&str]| part.and_then(OsStr::to_str).is_some_and(|part| known.contains(&part));
    is(path.extension(), TEXT) || is(path.file_name(), TEXT_NAMES)
}
