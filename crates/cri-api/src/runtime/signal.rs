//! Signals that end a container, by the names that a pod's `stopSignal` uses.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A signal of Linux that CRI knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signal(&'static str);

/// All of them, in CRI's order.
const NAMES: [&str; 65] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMAX-14",
    "SIGRTMAX-13",
    "SIGRTMAX-12",
    "SIGRTMAX-11",
    "SIGRTMAX-10",
    "SIGRTMAX-9",
    "SIGRTMAX-8",
    "SIGRTMAX-7",
    "SIGRTMAX-6",
    "SIGRTMAX-5",
    "SIGRTMAX-4",
    "SIGRTMAX-3",
    "SIGRTMAX-2",
    "SIGRTMAX-1",
    "SIGRTMAX",
];

impl Signal {
    /// The usual one.
    pub const TERM: Self = Self("SIGTERM");

    /// Returns the signal of this name, for example `SIGTERM` or `SIGRTMIN+3`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|known| **known == name).map(|known| Self(known))
    }

    /// Name of the signal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.0
    }

    /// Returns every signal, in CRI's order.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.into_iter().map(Self)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Serialize for Signal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0)
    }
}

impl<'de> Deserialize<'de> for Signal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::from_name(&name).ok_or_else(|| serde::de::Error::custom(format!("{name:?} is no signal that CRI knows")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for signal in Signal::all() {
            let text = serde_json::to_string(&signal).expect("a text");
            assert_eq!(serde_json::from_str::<Signal>(&text).expect("the same signal"), signal);
            assert_eq!(Signal::from_name(signal.as_str()), Some(signal));
        }
        assert_eq!(Signal::from_name("SIGTERM"), Some(Signal::TERM));
        for wrong in ["", "TERM", "sigterm", "SIGRTMIN+16", "SIGNAL_SIGTERM"] {
            assert_eq!(Signal::from_name(wrong), None, "{wrong}");
        }
        assert!(serde_json::from_str::<Signal>("\"SIGNO\"").unwrap_err().to_string().contains("SIGNO"));
    }
}
