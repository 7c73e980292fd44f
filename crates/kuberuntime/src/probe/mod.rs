//! Network probes: whether an HTTP server answers well, whether a port takes connections, whether a gRPC server reports
//! itself as healthy; and the fetch of one document. The rules and the words are those of the kubelet's probes. It
//! keeps no connection, follows no redirect to another host, uses no proxy, decides nothing from the answers, and knows
//! no pods.
//!
//! Called by the handlers of containers, and by the source of pods behind a URL.

mod dial;
mod exchange;
mod fetch;
mod grpc;
mod http_get;
mod tls;

use std::time::Duration;

pub use dial::tcp;
pub use fetch::{FetchError, fetch};
pub use grpc::grpc;
pub use http_get::{GetError, HttpGet, HttpReply, ask_http, http_get};

/// Outcome of one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// All is well.
    Success,
    /// The check succeeded, but its text deserves attention.
    Warning,
    /// The container does not work.
    Failure,
    /// The question itself could not be asked; it counts for nothing.
    Unknown,
}

/// Result of a probe, with its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReply {
    /// Outcome of the question.
    pub outcome: ProbeOutcome,
    /// Text of the answer; may be empty, and holds at most [`MAX_BODY`] bytes that another program wrote.
    pub text: String,
}

impl ProbeReply {
    fn success(text: impl Into<String>) -> Self {
        Self { outcome: ProbeOutcome::Success, text: text.into() }
    }

    fn failure(text: impl Into<String>) -> Self {
        Self { outcome: ProbeOutcome::Failure, text: text.into() }
    }
}

/// Maximum number of bytes of a body that are read.
pub const MAX_BODY: usize = 10 << 10;

/// Decodes `%XX`, as in URLs and in messages of gRPC; anything else stays as it is.
fn percent_decoded(bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

/// Formats a duration like Go, to the millisecond.
fn shown(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    let fraction = if millis == 0 { String::new() } else { format!(".{millis:03}").trim_end_matches('0').to_owned() };
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) if seconds == 0 && millis > 0 => format!("{millis}ms"),
        (0, 0) => format!("{rest}{fraction}s"),
        (0, _) => format!("{minutes}m{rest}{fraction}s"),
        _ => format!("{hours}h{minutes}m{rest}{fraction}s"),
    }
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
