//! Promises that the parsers of this crate keep for any input: run by libFuzzer (`fuzz/` at the top of the repository), and over the
//! committed corpora by a test. Compiled for tests and with the feature `fuzzing` only.

/// A parser with what it has to keep, by its name.
pub type Harness = (&'static str, fn(&[u8]));

/// The harnesses by name. Each panics where a parser does not keep what it has to.
pub const HARNESSES: &[Harness] =
    &[("pull-record", crate::records::fuzzed_record), ("pull-intent", crate::records::fuzzed_intent)];

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
#[test]
fn corpora_are_replayed() {
    replay::replay(HARNESSES);
}
