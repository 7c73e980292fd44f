//! [`TarError`]: why the tar archive of a layer cannot be unpacked.

use std::fmt;
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
        /// The offset of the block, or of its end.
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

/// A name in a layer, for messages: printable, and no longer than a line. `Display` and `Debug` differ in the quotation marks
/// around it alone, so that nothing is escaped twice.
#[derive(Clone, PartialEq, Eq)]
pub struct PrintableName(String);

impl fmt::Display for PrintableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PrintableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

impl From<&str> for PrintableName {
    fn from(name: &str) -> Self {
        shown(name.as_bytes())
    }
}

/// Makes a name printable.
pub(crate) fn shown(name: &[u8]) -> PrintableName {
    const MOST: usize = 256;
    let cut = &name[..name.len().min(MOST)];
    let mut text = String::from_utf8_lossy(cut).escape_debug().to_string();
    if name.len() > MOST {
        text.push('…');
    }
    PrintableName(text)
}

/// Makes the name of an extended attribute and that of its file one.
pub(crate) fn shown_xattr(name: &[u8], path: &[u8]) -> PrintableName {
    PrintableName(format!("{}\" of \"{}", shown(name), shown(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_once() {
        for (name, want) in [
            ("a", "a"),
            ("say \"hi\"", r#"say \"hi\""#),
            ("back\\slash", r"back\\slash"),
            ("line\nbreak\u{1b}", r"line\nbreak\u{1b}"),
        ] {
            let name = shown(name.as_bytes());
            assert_eq!((name.to_string(), format!("{name:?}")), (want.to_owned(), format!("\"{want}\"")));
        }
        let xattr = shown_xattr(b"user.\"x\"", b"a\"b");
        assert_eq!(format!("{xattr:?}"), r#""user.\"x\"" of "a\"b""#);
        assert_eq!(shown(&[b'a'; 300]).to_string().chars().count(), 257);
    }
}
