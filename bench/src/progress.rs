//! Progress on standard error, so that standard output has the tables alone.

/// Prints a line of progress.
pub(crate) fn say(line: &str) {
    eprintln!("bench-pull: {line}");
}
