//! [`Trouble`]: one failing object with its cause, the next retry and the command that shows more. Plain data, and the texts that all
//! entries share. Pure. Used by [`super`] and the rules of pods.

/// Most characters of a cause.
const LONGEST_CAUSE: usize = 140;

/// The object that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::page) enum Subject {
    /// A pod, as NAMESPACE/NAME.
    Pod(String),
    /// An image by name, and the pods that wait for it.
    Image(String, Vec<String>),
    /// An image by name, and the image sets that name it.
    SetImage(String, Vec<String>),
    /// A refused manifest: its pod, or the file or URL it is from.
    Manifest(String),
    /// The image file system.
    Disk,
    /// The image service.
    Service,
}

/// The time of the next retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) enum Retry {
    /// In so many milliseconds; 0: at once.
    In(u64),
    /// When the client requests the image again.
    OnRequest,
    /// No retry happens by itself.
    Never,
}

/// A failing object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::page) struct Trouble {
    /// Distinguishes entries of one report.
    pub(in crate::page) key: String,
    pub(in crate::page) subject: Subject,
    /// A few words.
    pub(in crate::page) cause: String,
    pub(in crate::page) retry: Retry,
    /// The words of the command that shows more.
    pub(in crate::page) command: Vec<String>,
    /// Full messages, each once.
    pub(in crate::page) details: Vec<String>,
}

impl Trouble {
    /// Returns the command as it is typed into a shell.
    pub(in crate::page) fn command_line(&self) -> String {
        self.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }
}

/// Returns a command of this program.
pub(super) fn words(arguments: &[&str]) -> Vec<String> {
    std::iter::once("imagelet").chain(arguments.iter().copied()).map(str::to_owned).collect()
}

/// Returns the messages that are not empty, each once.
pub(super) fn details<'a>(messages: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for message in messages.into_iter().filter(|message| !message.is_empty()) {
        if !all.iter().any(|known| known == message) {
            all.push(message.to_owned());
        }
    }
    all
}

/// Returns the first line of a message, shortened.
pub(super) fn short(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    match line.char_indices().nth(LONGEST_CAUSE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// Returns a word as a POSIX shell needs it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@,+=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        let cases = [("a/b:1@sha256:0", "a/b:1@sha256:0"), ("", "''"), ("a b", "'a b'"), ("a'$(x)", r"'a'\''$(x)'")];
        for (word, want) in cases {
            assert_eq!(quoted(word), want);
        }
        assert_eq!(short(&"ä".repeat(200)).chars().count(), LONGEST_CAUSE + 1);
    }
}
