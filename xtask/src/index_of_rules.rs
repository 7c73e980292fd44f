//! The index of rules in ARCHITECTURE.md: for each rule the one file where it stands, and the item that is it.
//!
//! Pure; `tidy.rs` reads the files.

use crate::tidy_rules::{Finding, numbered};

/// The heading under which the table stands.
const HEADING: &str = "## Index of rules";
/// The first row.
const COLUMNS: &str = "| rule | file | item |";
/// The fewest rules that make an index.
const LEAST: usize = 20;
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
    findings
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
        let text =
            format!("# A\n\n{HEADING}\n\n{COLUMNS}\n|---|---|---|\n{filler}{rows}\n## Next\n| other | table |\n");
        check(&text, &read).into_iter().map(|f| f.text).collect()
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
        let count = |text: &str| check(text, &|_| Some("struct Key;".to_owned())).len();
        assert_eq!(count("# A\n\n## Other\n"), 1);
        assert_eq!(count(&format!("{HEADING}\n{COLUMNS}\n|---|---|---|\n| r | `x` | `Key` |\n")), 1);
    }
}
