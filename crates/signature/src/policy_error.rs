//! [`PolicyError`]: a fault of a policy's text and its place there. The reader in `read` and `written` makes it.

/// A fault of a policy, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{message}", place_text(.place), line_text(.line))]
pub struct PolicyError {
    /// The part of it, as `transports.docker."r.example"[0].keyPath`; empty where it is the whole.
    pub place: String,
    /// Line and column, where they are known.
    pub line: Option<(usize, usize)>,
    /// The fault, as a text.
    pub message: String,
}

fn place_text(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!("{place}: ") }
}

fn line_text(line: &Option<(usize, usize)>) -> String {
    line.map(|(line, column)| format!("line {line}, column {column}: ")).unwrap_or_default()
}
