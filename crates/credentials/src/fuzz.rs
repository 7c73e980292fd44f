//! Promises that the parsers of this crate keep for any input: run by libFuzzer (`fuzz/` at the top of the repository), and over the
//! committed corpora by a test. Compiled for tests and with the feature `fuzzing` only.

use crate::docker_config::DockerConfig;
use crate::exec::fuzzed_response;
use crate::helper::fuzzed_answer;
use crate::{PathMatch, Pattern};

/// A parser with what it has to keep, by its name.
pub type Harness = (&'static str, fn(&[u8]));

/// The harnesses by name. Each panics where a parser does not keep what it has to.
pub const HARNESSES: &[Harness] = &[
    ("docker-config", docker_config),
    ("provider-output", fuzzed_response),
    ("helper-output", fuzzed_answer),
    ("pattern", pattern),
];

/// No error quotes what it could not read: it could be a part of a secret.
fn docker_config(bytes: &[u8]) {
    for parsed in [DockerConfig::parse(bytes), DockerConfig::parse_legacy(bytes)] {
        match parsed {
            Ok(config) => {
                for (location, entry) in &config.auths {
                    let _ = Pattern::location(location);
                    assert!(!entry.hash.is_empty());
                }
            }
            Err(error) => assert!(error.to_string().len() < 200, "{error}"),
        }
    }
}

/// The pattern is the first line, what it is held against the second.
fn pattern(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (pattern, repository) = text.split_once('\n').unwrap_or((&text, "docker.io/library/busybox"));
    if let Ok(pattern) = Pattern::parse(pattern) {
        let _ = (
            pattern.matches(repository, PathMatch::Segments),
            pattern.matches(repository, PathMatch::Compat),
            pattern.is_glob(),
            pattern.host(),
            pattern.port(),
        );
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
#[test]
fn corpora_are_replayed() {
    replay::replay(HARNESSES);
}
