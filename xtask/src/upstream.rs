//! `cargo xtask upstream`: writes docs/upstream-cases.md, the table of the kubelet's test cases and of our tests that mirror
//! them. `tidy` asks [`check`] whether the page is up to date, and whether anything is missing.
//!
//! The cases upstream are in `docs/upstream/PACKAGE.txt`, one `test | case | n/a: reason` a line; the reason only
//! where a case does not apply here. Which test of ours mirrors a case is marked at the test: a text
//! `upstream: PACKAGE/TEST/CASE`, as the name of a row in a table of cases, or as a comment above a test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::chore::{ChoreReport, files_below};

const LISTS: &str = "docs/upstream";
const PAGE: &str = "docs/upstream-cases.md";
const SOURCES: &str = "crates";
const MARK: &str = "upstream: ";
const HEAD: &str = "# The kubelet's test cases, and ours\n\n\
    Every case of the kubelet's own tests (Kubernetes 1.36) for the part of it that imagelet is, with the test of ours that\n\
    mirrors it. A case that does not apply says why. Written by `cargo xtask upstream` from `docs/upstream/` and the tests'\n\
    sources; `cargo xtask tidy` fails when it is not up to date, and when a case has neither a test nor a reason.\n";

/// A case upstream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct UpstreamCase {
    package: String,
    test: String,
    /// Empty: the whole test.
    case: String,
}

/// A case as a list has it.
#[derive(Debug)]
struct ListedCase {
    case: UpstreamCase,
    /// Why it does not apply.
    reason: Option<String>,
    at: String,
}

/// A test of ours that mirrors a case.
#[derive(Debug)]
struct Marker {
    case: UpstreamCase,
    /// File and function.
    ours: String,
    line: usize,
}

/// The page and the faults that follow from lists and sources.
#[derive(Debug, Default)]
struct Generated {
    page: String,
    problems: Vec<String>,
    seen: String,
}

/// The entry point of the chore: writes the page.
pub(crate) fn run(root: &Path) -> anyhow::Result<ChoreReport> {
    let found = find(root)?;
    fs::write(root.join(PAGE), &found.page).with_context(|| format!("write {PAGE}"))?;
    Ok(ChoreReport { failures: found.problems, warnings: Vec::new(), seen: found.seen })
}

/// Returns the faults of lists, markers and page; writes nothing.
pub(crate) fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = find(root)?;
    let there = fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    if there != found.page {
        found.problems.push(format!("{PAGE}: not up to date: run `cargo xtask upstream`"));
    }
    Ok(found.problems)
}

fn find(root: &Path) -> anyhow::Result<Generated> {
    let mut listed = Vec::new();
    let mut problems = Vec::new();
    for path in files_below(&root.join(LISTS))?.iter().filter(|path| path.extension().is_some_and(|e| e == "txt")) {
        let package = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        read_list(&package, &text, &mut listed, &mut problems);
    }
    let mut markers = Vec::new();
    for path in files_below(&root.join(SOURCES))?.iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        let text = fs::read_to_string(path).with_context(|| format!("read {name}"))?;
        read_markers(&name, &text, &mut markers, &mut problems);
    }
    Ok(join(&listed, &markers, problems))
}

fn read_list(package: &str, text: &str, listed: &mut Vec<ListedCase>, problems: &mut Vec<String>) {
    for (index, line) in text.lines().enumerate() {
        let at = format!("{LISTS}/{package}.txt:{}", index + 1);
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [test, case, rest] = parts[..] else {
            problems
                .push(format!("{at}: a line is `test | case | reason`, with an empty reason where the case applies"));
            continue;
        };
        let reason = match (rest, rest.strip_prefix("n/a:").map(str::trim)) {
            ("", _) => None,
            (_, Some(reason)) if !reason.is_empty() => Some(reason.to_owned()),
            _ => {
                problems.push(format!("{at}: {rest:?} is no reason, which is written `n/a: why`"));
                continue;
            }
        };
        let case = UpstreamCase { package: package.to_owned(), test: test.to_owned(), case: case.to_owned() };
        if test.is_empty() || listed.iter().any(|other| other.case == case) {
            problems.push(format!("{at}: no test, or listed twice"));
            continue;
        }
        listed.push(ListedCase { case, reason, at });
    }
}

fn read_markers(file: &str, text: &str, markers: &mut Vec<Marker>, problems: &mut Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let (told, function) = if let Some(told) = trimmed.strip_prefix("// ").and_then(|l| l.strip_prefix(MARK)) {
            (told.trim_end(), lines[index..].iter().find_map(|l| function_name(l)))
        } else if trimmed.starts_with("//") {
            continue;
        } else {
            // The literal begins with the mark, so that a text which merely speaks of it is none.
            let Some((_, told)) = line.split_once(&format!("\"{MARK}")) else { continue };
            let Some((told, _)) = told.split_once('"') else {
                problems.push(format!("{file}:{}: a marker stands on one line", index + 1));
                continue;
            };
            (told, lines[..=index].iter().rev().find_map(|l| function_name(l)))
        };
        let mut parts = told.splitn(3, '/');
        let (Some(package), Some(test)) = (parts.next(), parts.next()) else {
            problems
                .push(format!("{file}:{}: a marker is `{MARK}PACKAGE/TEST` or `{MARK}PACKAGE/TEST/CASE`", index + 1));
            continue;
        };
        let case = parts.next().unwrap_or_default();
        markers.push(Marker {
            case: UpstreamCase { package: package.to_owned(), test: test.to_owned(), case: case.to_owned() },
            ours: format!("`{file}` {}", function.unwrap_or_default()),
            line: index + 1,
        });
    }
}

fn function_name(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let plain =
        before.split_whitespace().all(|word| matches!(word, "pub" | "async" | "const") || word.starts_with("pub("));
    let name = rest.split(['(', '<']).next()?.trim();
    (plain && !name.is_empty()).then_some(name)
}

fn join(listed: &[ListedCase], markers: &[Marker], mut problems: Vec<String>) -> Generated {
    let mut ours: BTreeMap<&UpstreamCase, BTreeSet<&str>> = BTreeMap::new();
    for marker in markers {
        if listed.iter().any(|listed| listed.case == marker.case) {
            ours.entry(&marker.case).or_default().insert(&marker.ours);
        } else {
            let UpstreamCase { package, test, case } = &marker.case;
            let (file, line) = (marker.ours.split('`').nth(1).unwrap_or_default(), marker.line);
            problems.push(format!("{file}:{line}: {test} | {case} | is not listed in {LISTS}/{package}.txt"));
        }
    }
    let mut page = HEAD.to_owned();
    let (mut mirrored, mut apart) = (0, 0);
    let mut package = "";
    for ListedCase { case, reason, at } in listed {
        if package != case.package {
            package = &case.package;
            let _ = write!(page, "\n## {package}\n\n| upstream test | case | our test |\n|---|---|---|\n");
        }
        let tests: Vec<&str> = ours.get(case).into_iter().flatten().copied().collect();
        let cell = match (reason, tests.is_empty()) {
            (None, false) => {
                mirrored += 1;
                tests.join(", ")
            }
            (Some(reason), true) => {
                apart += 1;
                format!("does not apply: {reason}")
            }
            (None, true) => {
                problems.push(format!("{at}: {} | {} | has neither a test nor a reason", case.test, case.case));
                "none".to_owned()
            }
            (Some(_), false) => {
                problems.push(format!("{at}: {} | {} | has a reason not to apply, and a test", case.test, case.case));
                tests.join(", ")
            }
        };
        let _ = writeln!(page, "| {} | {} | {cell} |", case.test, shown(&case.case));
    }
    let _ = write!(page, "\n{} cases: {mirrored} mirrored, {apart} do not apply.\n", listed.len());
    let seen = format!("{} upstream cases, {mirrored} mirrored, {apart} do not apply", listed.len());
    Generated { page, problems, seen }
}

/// A case in a cell: patterns with stars stay as they are.
fn shown(case: &str) -> String {
    if case.contains(['*', '_', '<', '`']) { format!("`{}`", case.replace('`', "'")) } else { case.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str =
        "# a comment\nTestA | one, two | \nTestA | x/y:* | \nTestB |  | \nTestC | gone | n/a: no clock\n";
    const SOURCE: &str = "fn cases() {\n    let c = [\n        (\"upstream: images/TestA/one, two\", 1),\n        \
                          (\"upstream: images/TestA/x/y:*\", 2),\n    ];\n}\n\n// upstream: images/TestB\n#[tokio::test]\n\
                          async fn b() {}\n// speaks of \"upstream: images/TestZ/none\"\n";

    fn found(list: &str, source: &str) -> Generated {
        let (mut listed, mut markers, mut problems) = (Vec::new(), Vec::new(), Vec::new());
        read_list("images", list, &mut listed, &mut problems);
        read_markers("crates/a/src/t.rs", source, &mut markers, &mut problems);
        join(&listed, &markers, problems)
    }

    #[test]
    fn rows_and_comments_are_found() {
        let found = found(LIST, SOURCE);
        assert_eq!(found.problems, Vec::<String>::new());
        for row in [
            "| TestA | one, two | `crates/a/src/t.rs` cases |",
            "| TestA | `x/y:*` | `crates/a/src/t.rs` cases |",
            "| TestB |  | `crates/a/src/t.rs` b |",
            "| TestC | gone | does not apply: no clock |",
            "4 cases: 3 mirrored, 1 do not apply.",
        ] {
            assert!(found.page.contains(row), "{row}\n{}", found.page);
        }
    }

    #[test]
    fn missing_cases_are_reported() {
        let one = |list: &str, source: &str| found(list, source).problems.join("\n");
        assert!(one("TestD | case | \n", "").contains("neither a test nor a reason"));
        assert!(one("", "// upstream: images/TestD\nfn d() {}\n").contains("is not listed"));
        assert!(one("TestD |  | n/a: x\n", "// upstream: images/TestD\nfn d() {}\n").contains("and a test"));
        assert!(one("TestD | case\n", "").contains("a line is"));
        assert!(one("TestD |  | later\n", "").contains("is no reason"));
        assert!(one("TestD |  | n/a: x\nTestD |  | n/a: x\n", "").contains("twice"));
        assert!(one("", "// upstream: images\nfn d() {}\n").contains("a marker is"));
    }
}
