//! Tests that every command of ours in docs/comparison.md exists.

use clap::Parser as _;

use super::Cli;

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/comparison.md"));

/// Returns our commands on the page, as words. Of a pipeline, only our part; optional arguments count as given.
fn commands() -> Vec<Vec<String>> {
    let codes = PAGE.split('`').skip(1).step_by(2);
    let parts = codes.flat_map(|code| code.split(['|', '&', '<', '>']));
    let ours = parts.filter_map(|part| part.trim().trim_end_matches('\\').strip_prefix("imagelet "));
    let words = |command: &str| -> Vec<String> {
        let words = command.split_whitespace().map(|word| word.replace(['\'', '…'], ""));
        let words = words.map(|word| word.trim_start_matches('[').trim_end_matches(']').to_owned());
        words.filter(|word| !word.is_empty()).collect()
    };
    ours.filter(|command| !command.starts_with("help")).map(words).collect()
}

#[test]
fn every_command_of_the_comparison_is_parsed() {
    let commands = commands();
    assert!(commands.len() > 50, "{} commands", commands.len());
    for words in commands {
        let line = words.join(" ");
        // Placeholders for values of the reader's own.
        let words = words.iter().map(|word| match word.as_str() {
            "P" => "linux/arm64",
            "RUNTIME" => "unix:///run/containerd/containerd.sock",
            word => word,
        });
        let parsed = Cli::try_parse_from(std::iter::once("imagelet").chain(words));
        assert!(parsed.is_ok(), "{line}: {}", parsed.map(drop).expect_err("refused"));
    }
}
