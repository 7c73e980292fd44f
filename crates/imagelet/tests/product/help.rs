//! The help of every command, frozen in tests/help: a changed text, a new command and a removed command show in a file there.
//! `FREEZE=1` rewrites the files.

use std::collections::BTreeMap;

use crate::support::Imagelet;
use crate::support::frozen::{Frozen, is_frozen};

/// The help of a command, in lines of 100 letters.
fn help(path: &[&str]) -> String {
    Imagelet::bare().env("COLUMNS", "100").ok(&[path, &["--help"]].concat())
}

/// Names in the lists of commands of a help text. `help` has no help of its own.
fn commands(help: &str) -> Vec<&str> {
    const TITLES: [&str; 6] = ["Commands:", "Images:", "Pods:", "Disk:", "Agent:", "Files:"];
    let is_title = |line: &&str| !line.starts_with(' ');
    let mut in_list = false;
    let mut names = Vec::new();
    for line in help.lines().filter(|line| !line.is_empty()) {
        if is_title(&line) {
            in_list = TITLES.contains(&line);
        } else if let Some(line) = line.strip_prefix("  ").filter(|line| in_list && !line.starts_with(' ')) {
            let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
            names.push(first.trim_end_matches(','));
            names.extend(rest.split(' ').next().filter(|_| first.ends_with(',')));
        }
    }
    names.into_iter().filter(|name| *name != "help").collect()
}

/// The text cut before each option and each heading.
fn blocks(help: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    for line in help.lines() {
        let inside = line.trim_start();
        // A list of values stands further to the right.
        let is_option = inside.starts_with('-') && line.len() - inside.len() <= 6;
        let begins = !inside.is_empty() && (is_option || line == inside);
        match blocks.last_mut() {
            Some(block) if !begins => *block = format!("{block}\n{line}"),
            _ => blocks.push(line.to_owned()),
        }
    }
    blocks
}

/// A help text without the options of every command, which are frozen with `version`, whose only options they are.
fn own(help: &str, everywhere: &[String]) -> String {
    let is_option = |block: &str| block.trim_start().starts_with('-');
    let kept = blocks(help).into_iter().filter(|block| !is_option(block) || !everywhere.contains(block));
    kept.collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn the_help_of_every_command_is_frozen() {
    let everywhere = blocks(&help(&["version"]));
    let mut texts = BTreeMap::new();
    let mut left: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(path) = left.pop() {
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        let text = help(&words);
        left.extend(commands(&text).into_iter().map(|name| [path.as_slice(), &[name.to_owned()]].concat()));
        let whole = path.is_empty() || words == ["version"];
        let name = [&["imagelet"], &words[..]].concat().join("-");
        texts.insert(name, if whole { text } else { own(&text, &everywhere) });
    }
    assert!(texts.len() > 50, "{:?}", texts.keys());
    // The topic is a command that the list of commands leaves out.
    texts.insert("imagelet-settings".to_owned(), Imagelet::bare().env("COLUMNS", "100").ok(&["help", "settings"]));
    is_frozen(&Frozen { directory: "help", texts });
}
