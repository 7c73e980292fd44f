//! The documents are right about commands: every command and flag that they show exists.

use std::fs;
use std::path::Path;

use crate::support::Imagelet;

#[test]
fn every_command_and_flag_in_the_documents_exists() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in crates/");
    let everywhere = Imagelet::bare().ok(&["--help"]);
    let mut seen = 0;
    for document in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        let text = fs::read_to_string(repository.join(document)).expect("a document");
        // The last chapter describes unfinished work.
        let text = text.split("\n## State of the project").next().expect("a first part");
        let mut block = false;
        for line in text.lines() {
            block ^= line.starts_with("```");
            for words in calls(line, block) {
                // `imagelet help COMMAND` is the one that has no help of its own.
                let asked = if words[0] == "help" { vec!["help"] } else { vec![words[0], "--help"] };
                let mut help = Imagelet::bare().run(&asked);
                // The flags of a subcommand are in its own help.
                let subcommand =
                    words.get(1).filter(|word| !word.starts_with('-') && help.stdout.contains("Commands:"));
                if let Some(subcommand) = subcommand {
                    let own = Imagelet::bare().run(&[words[0], subcommand, "--help"]);
                    help = if own.code == Some(0) { own } else { help };
                }
                assert_eq!(help.code, Some(0), "{document} shows `imagelet {}`: {line}", words[0]);
                for flag in words.iter().filter(|w| w.starts_with("--")) {
                    let flag = flag.split('=').next().expect("a flag");
                    assert!(help.stdout.contains(flag) || everywhere.contains(flag), "{document} shows {flag}: {line}");
                }
                seen += 1;
            }
        }
    }
    assert!(seen >= 5, "only {seen} commands were found in the documents");
}

/// The words after `imagelet` in a line of a code block (`$ imagelet …`) and between back ticks.
fn calls(line: &str, in_block: bool) -> Vec<Vec<&str>> {
    let block = line.trim_start_matches("$ ").strip_prefix("imagelet ").filter(|_| in_block);
    // Every second part stands between back ticks.
    let inline = line.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix("imagelet "));
    block.into_iter().chain(inline).map(|call| call.split_whitespace().collect()).collect()
}
