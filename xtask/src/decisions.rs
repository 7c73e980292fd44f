//! The records of decisions: docs/decisions/README.md lists each with its title and date, and a record that a later one replaces is
//! marked in its first lines and in the list.
//!
//! Pure; `tidy.rs` reads the files.

use std::collections::BTreeMap;

use crate::tidy_rules::{Finding, numbered};

/// The list of records.
pub(crate) const LIST: &str = "docs/decisions/README.md";
/// The directory of the records, with the list.
const DIRECTORY: &str = "docs/decisions/";
/// Words before the links to later records, and those to earlier ones.
const PAIRS: &[(&str, &str)] = &[("Superseded by [", "Replaces ["), ("Superseded in part by [", "Replaces in part [")];

/// Returns true for a file of a record.
pub(crate) fn is_record(name: &str) -> bool {
    name != LIST && name.starts_with(DIRECTORY) && name.ends_with(".md")
}

/// The faults of the list, and of the records by file. Keys are names of files from the root of the tree.
pub(crate) fn check(list: &str, records: &BTreeMap<String, String>) -> Vec<(String, Finding)> {
    let mut found = Vec::new();
    let mut fault = |name: &str, line, text: String| found.push((name.to_owned(), Finding::error(line, text)));
    let mut listed = Vec::new();
    for (number, line) in numbered(list).filter(|(_, line)| line.starts_with("| [")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [link, title, date] = cells[..] else {
            fault(LIST, Some(number), "has not the three columns".to_owned());
            continue;
        };
        let name = format!("{DIRECTORY}{}", targets(link).first().copied().unwrap_or_default());
        let Some(record) = records.get(&name) else {
            fault(LIST, Some(number), format!("lists {name}, which does not exist"));
            continue;
        };
        let (head, state) = (record.lines().next().unwrap_or_default(), state(record));
        let (title, mark) = title.split_once(" (superseded ").map_or((title, ""), |(title, mark)| (title, mark));
        if head.split_once(". ").is_none_or(|(_, of_record)| of_record != title) {
            fault(LIST, Some(number), format!("has the title {title:?}, and {name} begins with {head:?}"));
        }
        if !state.starts_with(&format!("Date: {date}")) {
            fault(LIST, Some(number), format!("has the date {date}, and {name} has {state:?}"));
        }
        let (whole, part) = (links_after(&state, PAIRS[0].0), links_after(&state, PAIRS[1].0));
        let (of_whole, of_part) =
            if mark.starts_with("in part ") { (Vec::new(), targets(mark)) } else { (targets(mark), Vec::new()) };
        if whole != of_whole || part != of_part {
            fault(LIST, Some(number), format!("does not mark {name} as its first lines do"));
        }
        listed.push(name);
    }
    for name in records.keys().filter(|name| !listed.contains(name)) {
        fault(LIST, None, format!("does not list {name}"));
    }
    for (name, record) in records {
        for (later, earlier) in PAIRS {
            for (words, reverse) in [(later, earlier), (earlier, later)] {
                for target in links_after(&state(record), words) {
                    let other = records.get(&format!("{DIRECTORY}{target}"));
                    let answers =
                        |other: &String| links_after(&state(other), reverse).iter().any(|link| name.ends_with(link));
                    if !other.is_some_and(answers) {
                        fault(
                            name,
                            None,
                            format!(
                                "says {:?} of {target}, which does not say {:?} of it",
                                words.trim_end_matches(" ["),
                                reverse.trim_end_matches(" [")
                            ),
                        );
                    }
                }
            }
        }
    }
    found
}

/// The lines between the title of a record and its first section.
fn state(record: &str) -> String {
    let lines: Vec<&str> = record.lines().skip(1).take_while(|line| !line.starts_with("## ")).collect();
    lines.join(" ").trim().to_owned()
}

/// The targets of the links in the sentence that begins with these words.
fn links_after<'a>(state: &'a str, words: &str) -> Vec<&'a str> {
    let Some((_, rest)) = state.split_once(words) else { return Vec::new() };
    targets(rest.split_once(". ").map_or(rest, |(sentence, _)| sentence))
}

fn targets(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|part| part.split(')').next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(list: &str, records: &[(&str, &str)]) -> Vec<String> {
        let records = records.iter().map(|(name, text)| (format!("{DIRECTORY}{name}"), (*text).to_owned())).collect();
        check(list, &records).into_iter().map(|(_, finding)| finding.text).collect()
    }

    const OLD: &str = "# 1. Old\n\nDate: 2026-01-01. Superseded by [2](0002-new.md): all of it.\n\n## Context\n";
    const PART: &str =
        "# 3. Part\n\nDate: 2026-01-01. Superseded in part by [2](0002-new.md): the format.\n\n## Context\n";
    const NEW: &str = "# 2. New\n\nDate: 2026-01-02. Replaces [1](0001-old.md). Replaces in part\n[3](0003-part.md).\n\n## Context\nReplaces [9](x.md).\n";
    const ROWS: [&str; 3] = [
        "| [0001](0001-old.md) | Old (superseded by [2](0002-new.md)) | 2026-01-01 |\n",
        "| [0002](0002-new.md) | New | 2026-01-02 |\n",
        "| [0003](0003-part.md) | Part (superseded in part by [2](0002-new.md)) | 2026-01-01 |\n",
    ];

    #[test]
    fn the_list_and_both_records_agree() {
        let records = [("0001-old.md", OLD), ("0002-new.md", NEW), ("0003-part.md", PART)];
        assert_eq!(faults(&ROWS.concat(), &records), Vec::<String>::new());

        let plain = "| [0001](0001-old.md) | Old | 2026-01-01 |\n".to_owned() + ROWS[1] + ROWS[2];
        assert_eq!(faults(&plain, &records), ["does not mark docs/decisions/0001-old.md as its first lines do"]);
        let wrong =
            "| [0001](0001-old.md) | Older (superseded by [2](0002-new.md)) | 2026-01-03 |\n".to_owned() + ROWS[1];
        assert_eq!(
            faults(&wrong, &records),
            [
                "has the title \"Older\", and docs/decisions/0001-old.md begins with \"# 1. Old\"",
                "has the date 2026-01-03, and docs/decisions/0001-old.md has \"Date: 2026-01-01. Superseded by [2](0002-new.md): all of it.\"",
                "does not list docs/decisions/0003-part.md",
            ]
        );
        assert_eq!(
            faults("| [0004](0004-x.md) | X | 2026-01-01 |\n", &[]),
            ["lists docs/decisions/0004-x.md, which does not exist"]
        );
    }

    #[test]
    fn a_part_is_not_taken_for_the_whole() {
        let new = "# 2. New\n\nDate: 2026-01-02. Replaces in part [3](0003-part.md).\n\n## Context\n";
        assert_eq!(
            faults(&(ROWS[1].to_owned() + ROWS[2]), &[("0002-new.md", new), ("0003-part.md", PART)]),
            Vec::<String>::new()
        );
        let whole = PART.replace("in part by", "by");
        assert_eq!(faults(&(ROWS[1].to_owned() + ROWS[2]), &[("0002-new.md", new), ("0003-part.md", &whole)]).len(), 3);
    }

    #[test]
    fn a_record_that_is_replaced_says_so() {
        let silent = "# 1. Old\n\nDate: 2026-01-01\n\n## Context\n";
        let new = "# 2. New\n\nDate: 2026-01-02. Replaces [1](0001-old.md).\n\n## Context\n";
        let rows = "| [0001](0001-old.md) | Old | 2026-01-01 |\n".to_owned() + ROWS[1];
        assert_eq!(
            faults(&rows, &[("0001-old.md", silent), ("0002-new.md", new)]),
            ["says \"Replaces\" of 0001-old.md, which does not say \"Superseded by\" of it"]
        );
        let new = "# 2. New\n\nDate: 2026-01-02\n\n## Context\n";
        assert_eq!(
            faults(&(ROWS[0].to_owned() + ROWS[1]), &[("0001-old.md", OLD), ("0002-new.md", new)]),
            ["says \"Superseded by\" of 0002-new.md, which does not say \"Replaces\" of it"]
        );
    }
}
