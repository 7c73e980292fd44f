//! What the documents say of commands is true: every command that they show exists, and so does every flag.

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
        for line in text.lines() {
            // `imagelet command --flag …` in code, be it a block or between back ticks.
            for call in line.split(['`', '|', '#']).filter_map(|part| part.split("imagelet ").nth(1)) {
                let words: Vec<&str> = call.split_whitespace().collect();
                let Some(command) = words.iter().find(|w| w.chars().all(|c| c.is_ascii_lowercase())) else { continue };
                if !line.contains(&format!("`imagelet {}", words[0])) && !line.trim_start().starts_with("imagelet ") {
                    continue;
                }
                let help = Imagelet::bare().run(&[command, "--help"]);
                assert_eq!(help.code, Some(0), "{document} shows `imagelet {command}`: {line}");
                for flag in words.iter().filter(|w| w.starts_with("--")) {
                    let flag = flag.split('=').next().expect("a flag");
                    assert!(
                        help.stdout.contains(flag) || everywhere.contains(flag),
                        "{document} shows {flag} of `imagelet {command}`"
                    );
                }
                seen += 1;
            }
        }
    }
    assert!(seen > 5, "only {seen} commands were found in the documents");
}
