//! The rules of the book that `scripts/book.sh` builds from docs/: its table of contents lists every page for users and no other, and the
//! page of troubleshooting names no message that the program does not have. Pure functions; `tidy.rs` calls them.

use std::collections::BTreeSet;

use crate::tidy_rules::{Finding, numbered};

/// The table of contents.
pub(crate) const CONTENTS: &str = "docs/SUMMARY.md";
/// Messages, and what to do.
pub(crate) const TROUBLESHOOTING: &str = "docs/troubleshooting.md";
/// Pages that stay in the repository: they are for contributors, or have raw figures.
const IN_REPOSITORY: &[&str] = &["docs/decisions/", "docs/performance.md", "docs/upstream-cases.md"];
/// Shorter parts of a message would be found anywhere.
const SHORTEST: usize = 6;

/// Returns true for a page of the book.
pub(crate) fn is_page(name: &str) -> bool {
    let stays = IN_REPOSITORY.iter().any(|start| name.starts_with(start));
    name != CONTENTS && name.starts_with("docs/") && name.ends_with(".md") && !stays
}

/// Pages that the contents leave out, and those that they list although they are not for users.
pub(crate) fn contents(text: &str, pages: &BTreeSet<String>) -> Vec<Finding> {
    let listed: BTreeSet<String> = text
        .split("](")
        .skip(1)
        .filter_map(|part| part.split(')').next())
        .map(|target| format!("docs/{target}"))
        .collect();
    let missing = pages.difference(&listed).map(|page| format!("does not list {page}"));
    let surplus =
        listed.iter().filter(|page| !is_page(page)).map(|page| format!("lists {page}, which is no page for users"));
    missing.chain(surplus).map(|text| Finding::error(None, text)).collect()
}

/// Messages in the first column of the tables, in backticks, of which a part stands nowhere in the sources. Parts are divided by an ellipsis.
pub(crate) fn messages(text: &str, is_in_sources: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut of_messages = false;
    let mut count = 0;
    for (number, line) in numbered(text) {
        let Some(row) = line.strip_prefix("| ") else { continue };
        let first = row.split(" | ").next().unwrap_or_default();
        if !first.contains('`') {
            of_messages = first == "message" || of_messages && first.starts_with('-');
            continue;
        }
        for message in first.split('`').skip(1).step_by(2).filter(|_| of_messages) {
            count += 1;
            let mut parts = message.split('…').filter(|part| !part.is_empty()).peekable();
            if parts.peek().is_none_or(|part| part.len() < SHORTEST && message.matches('…').count() < 2) {
                found.push(Finding::error(Some(number), format!("{message:?} says too little to be found")));
            }
            for part in parts.filter(|part| !is_in_sources(part)) {
                found.push(Finding::error(Some(number), format!("no source has {part:?}")));
            }
        }
    }
    if count == 0 {
        found.push(Finding::error(None, "has no table of messages".into()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(found: Vec<Finding>) -> Vec<String> {
        found.into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn the_contents_list_every_page_for_users_and_no_other() {
        let pages = ["docs/a.md", "docs/tasks/b.md", "docs/c.md"].map(str::to_owned).into();
        let text = "- [A](a.md)\n  - [B](tasks/b.md)\n- [Figures](performance.md)\n";
        assert_eq!(
            texts(contents(text, &pages)),
            ["does not list docs/c.md", "lists docs/performance.md, which is no page for users"]
        );
        for (name, is) in [
            ("docs/tasks/b.md", true),
            (CONTENTS, false),
            ("docs/decisions/0001-a.md", false),
            ("docs/decisions/README.md", false),
            ("docs/upstream-cases.md", false),
            ("README.md", false),
        ] {
            assert_eq!(is_page(name), is, "{name}");
        }
    }

    #[test]
    fn every_message_is_the_programs() {
        let source = |part: &str| "no space left on {path}, image {id} is mounted on {}".contains(part);
        let page = |row: &str| format!("| message | cause |\n|---|---|\n| {row} | full |\n");
        assert_eq!(texts(messages(&page("`no space left on…`, `image…is mounted on…`"), &source)), [""; 0]);
        assert_eq!(texts(messages(&page("`no room left`"), &source)), ["no source has \"no room left\""]);
        assert_eq!(texts(messages(&page("`no space left on…is gone`"), &source)), ["no source has \"is gone\""]);
        assert_eq!(texts(messages(&page("`on…`"), &source)), ["\"on…\" says too little to be found"]);
        assert_eq!(texts(messages("| question | command |\n| `x` | y |\n", &source)), ["has no table of messages"]);
    }
}
