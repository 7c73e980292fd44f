//! [`TarError`]: why the tar archive of a layer cannot be unpacked.

use std::io;

/// An error in the tar archive of a layer. Offsets count bytes of the uncompressed stream.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// The source failed.
    #[error("reading the layer")]
    Read(#[source] io::Error),
    /// The sink of the raw bytes failed.
    #[error("writing the recipe")]
    Raw(#[source] io::Error),
    /// The stream ends too early.
    #[error("the layer ends inside {inside}, at byte {offset}")]
    Truncated {
        /// The header or the entry.
        inside: String,
        /// Where it ends.
        offset: u64,
    },
    /// Something has no meaning, or more than one.
    #[error("malformed layer at byte {offset}: {what}")]
    Malformed {
        /// Where the block stands, or ends.
        offset: u64,
        /// The fault.
        what: String,
    },
    /// More than the limits permit.
    #[error("{subject} has {seen} {limit_name}, over the limit of {limit}")]
    Limit {
        /// The layer, or the entry.
        subject: String,
        /// The limit, in words.
        limit_name: &'static str,
        /// The limit.
        limit: u64,
        /// The value that was seen.
        seen: u64,
    },
}

/// A name for messages: printable, not longer than a line.
pub(crate) fn shown(name: &[u8]) -> String {
    const MOST: usize = 256;
    let cut = &name[..name.len().min(MOST)];
    let mut text = String::from_utf8_lossy(cut).escape_debug().to_string();
    if name.len() > MOST {
        text.push('…');
    }
    text
}
