//! ARCHITECTURE.md names items of the sources: its index has the file and the item of each rule, and its walks name functions as
//! `` `function` (`crate/src/file.rs`) ``. Both must exist.
//!
//! Pure; `tidy.rs` reads the files.

use crate::tidy_rules::{Finding, numbered};

/// The heading under which the table stands.
const HEADING: &str = "## Index of rules";
/// The first row.
const COLUMNS: &str = "| rule | file | item |";
/// The fewest rules that make an index.
const LEAST: usize = 20;
/// The headings of the walks, each a list of [`STEPS`] steps.
const WALKS: &[&str] = &["## One pull", "## One pod", "## One collection"];
const STEPS: usize = 10;
/// The words after which an item's name stands where it is defined.
const DEFINES: &[&str] = &["fn ", "struct ", "enum ", "trait ", "type ", "const ", "static ", "impl "];

/// The faults of the index. `read` answers with a file's text if there is such a file.
pub(crate) fn check(document: &str, read: &dyn Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let section = numbered(document).skip_while(|(_, line)| *line != HEADING).skip(1);
    let section = section.take_while(|(_, line)| !line.starts_with("## "));
    let table: Vec<(usize, &str)> = section.filter(|(_, line)| line.starts_with('|')).collect();
    if table.first().is_none_or(|(_, line)| *line != COLUMNS) {
        return vec![Finding::error(None, format!("has no table {COLUMNS:?} under {HEADING:?}"))];
    }
    let rules = table.get(2..).unwrap_or_default();
    if rules.len() < LEAST {
        findings.push(Finding::error(None, format!("the index has {} rules, {LEAST} at least", rules.len())));
    }
    for (number, line) in rules {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let fault = match cells[..] {
            [_, file, item] => match (code(file), code(item)) {
                (Some(file), Some(item)) => match read(file) {
                    None => Some(format!("names {file}, which is not there")),
                    Some(text) if !defines(&text, item) => {
                        Some(format!("names {item:?}, which {file} does not define"))
                    }
                    Some(_) => None,
                },
                _ => Some("has a file or an item that is not in backticks".to_owned()),
            },
            _ => Some("has not the three columns".to_owned()),
        };
        findings.extend(fault.map(|text| Finding::error(Some(*number), text)));
    }
    findings.extend(walks(document, read));
    findings
}

/// The faults of the walks: a step that names no function, and a function that its file does not define.
fn walks(document: &str, read: &dyn Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for walk in WALKS {
        let section = document.split_once(&format!("\n{walk}")).map_or("", |(_, rest)| rest);
        let section = section.split("\n## ").next().unwrap_or_default();
        for step in 1..=STEPS {
            // A step may have several lines; the next one, or an empty line, ends it.
            let start = section.split_once(&format!("\n{step}. ")).map_or("", |(_, rest)| rest);
            let text = start.split(&format!("\n{}. ", step + 1)).next().unwrap_or_default();
            let text = text.split("\n\n").next().unwrap_or_default();
            let functions = functions(text);
            if functions.is_empty() {
                findings.push(Finding::error(
                    None,
                    format!("{walk:?} has no step {step} that names a function and its file"),
                ));
            }
            for (function, file) in functions {
                let path = format!("crates/{file}");
                if !read(&path).is_some_and(|source| defines(&source, &function)) {
                    findings.push(Finding::error(
                        None,
                        format!("{walk:?} names {function:?}, which {path} does not define"),
                    ));
                }
            }
        }
    }
    findings
}

/// The functions of a text, each with its file: `` `function` (`crate/src/file.rs`) ``, on one line or two.
fn functions(text: &str) -> Vec<(String, String)> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts: Vec<&str> = text.split('`').collect();
    let named = parts.windows(3).filter(|part| part[1] == " (" && part[2].ends_with(".rs"));
    named.map(|part| (part[0].to_owned(), part[2].to_owned())).collect()
}

/// Returns the text in backticks if the cell holds nothing else.
fn code(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`').filter(|inner| !inner.is_empty() && !inner.contains('`'))
}

/// Returns true if a source defines an item of that name.
fn defines(text: &str, item: &str) -> bool {
    DEFINES.iter().any(|word| {
        let whole = format!("{word}{item}");
        text.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| {
            line.match_indices(&whole).any(|(at, _)| {
                let (before, after) = (line[..at].chars().next_back(), line[at + whole.len()..].chars().next());
                let part_of_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                !part_of_word(before) && !part_of_word(after)
            })
        })
    })
}

#[cfg(test)]
mod checks {
    use super::*;

    fn faults(rows: &str) -> Vec<String> {
        let read = |file: &str| {
            (file == "crates/a/src/x.rs")
                .then(|| "// fn told()\npub(crate) fn decide<T>() {}\nstruct Key;\n".to_owned())
        };
        let filler = "| r | `crates/a/src/x.rs` | `Key` |\n".repeat(LEAST);
        let walks = walk_texts("decide");
        let text = format!(
            "# A\n{walks}\n{HEADING}\n\n{COLUMNS}\n|---|---|---|\n{filler}{rows}\n## Next\n| other | table |\n"
        );
        check(&text, &read).into_iter().map(|f| f.text).collect()
    }

    /// Three walks whose steps name this function.
    fn walk_texts(function: &str) -> String {
        let step = |n: usize| format!("{n}. A pod calls `{function}`\n   (`a/src/x.rs`), and `other` is text.\n");
        let steps: String = (1..=STEPS).map(step).collect();
        WALKS.iter().map(|walk| format!("\n{walk}\nText.\n\n{steps}\nMore text.\n")).collect()
    }

    #[test]
    fn every_function_of_a_walk_exists() {
        let read = |file: &str| (file == "crates/a/src/x.rs").then(|| "async fn decide() {}\n".to_owned());
        let texts = |document: &str| walks(document, &read).into_iter().map(|f| f.text).collect::<Vec<_>>();
        assert_eq!(texts(&walk_texts("decide")), Vec::<String>::new());
        let found = texts(&walk_texts("decided"));
        assert_eq!(found.len(), WALKS.len() * STEPS);
        assert_eq!(found[0], "\"## One pull\" names \"decided\", which crates/a/src/x.rs does not define");
        assert_eq!(texts("# A\n").len(), WALKS.len() * STEPS);
        let silent = walk_texts("decide").replacen("`a/src/x.rs`", "`a/src/x`", 1);
        assert_eq!(texts(&silent), ["\"## One pull\" has no step 1 that names a function and its file"]);
    }

    #[test]
    fn every_rule_leads_to_the_item_that_is_it() {
        assert_eq!(faults("| r | `crates/a/src/x.rs` | `decide` |\n"), Vec::<String>::new());
        assert_eq!(
            faults(
                "| r | `crates/a/src/x.rs` | `told` |\n| r | `crates/a/src/x.rs` | `deci` |\n| r | `gone.rs` | `decide` |\n\
                 | r | crates/a/src/x.rs | `decide` |\n| r | `crates/a/src/x.rs` |\n"
            ),
            [
                "names \"told\", which crates/a/src/x.rs does not define",
                "names \"deci\", which crates/a/src/x.rs does not define",
                "names gone.rs, which is not there",
                "has a file or an item that is not in backticks",
                "has not the three columns"
            ]
        );
    }

    #[test]
    fn the_index_is_there_and_long_enough() {
        let read = |_: &str| Some("struct Key;\nfn decide() {}\n".to_owned());
        let count = |text: &str| check(&(walk_texts("decide") + text), &read).len();
        assert_eq!(count("# A\n\n## Other\n"), 1);
        assert_eq!(count(&format!("{HEADING}\n{COLUMNS}\n|---|---|---|\n| r | `x` | `Key` |\n")), 1);
    }
}
