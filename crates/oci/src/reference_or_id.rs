//! [`ReferenceOrId`]: the text by which a user or a CRI client names a present image, parsed once where it arrives. It does not
//! know which images are present: the store and the runtimes look it up, each by its own precedence.

use std::fmt;

use crate::{Digest, Reference};

/// Hex digits of an image ID.
const ID_DIGITS: usize = 64;
/// The fewest hex digits that may be the beginning of an image ID.
const SHORTEST_ID_PREFIX: usize = 3;

/// A reference, an image ID or the beginning of an image ID.
///
/// One text can be several of them: `abc` is a repository of Docker Hub and the beginning of an ID, and `sha256:` with 64 digits
/// is an ID and a tag of `docker.io/library/sha256`. A text that is none of them names no image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReferenceOrId {
    text: String,
    id: Option<Digest>,
    reference: Option<Reference>,
}

impl ReferenceOrId {
    /// Parses `text`, with every meaning that it has.
    #[must_use]
    pub fn parse(text: impl Into<String>) -> Self {
        let text = text.into();
        let id = match text.len() == ID_DIGITS && is_hex(&text) {
            true => format!("sha256:{text}").parse().ok(),
            false => text.parse().ok(),
        };
        let reference = Reference::parse(&text).ok();
        Self { text, id, reference }
    }

    /// Returns the value for a reference that was parsed from `text` before.
    #[must_use]
    pub fn of_reference(reference: Reference, text: impl Into<String>) -> Self {
        Self { text: text.into(), id: None, reference: Some(reference) }
    }

    /// Returns the text as it was given, for messages.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the image ID, if the text is a whole one, with or without its algorithm.
    #[must_use]
    pub fn id(&self) -> Option<&Digest> {
        self.id.as_ref()
    }

    /// Returns the reference, if the text is one, without a default tag.
    #[must_use]
    pub fn reference(&self) -> Option<&Reference> {
        self.reference.as_ref()
    }

    /// Returns the hex digits with which an image ID may begin, if the text is that.
    #[must_use]
    pub fn id_prefix(&self) -> Option<&str> {
        let digits = self.text.strip_prefix("sha256:").unwrap_or(&self.text);
        (digits.len() >= SHORTEST_ID_PREFIX && is_hex(digits)).then_some(digits)
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

impl From<&str> for ReferenceOrId {
    fn from(text: &str) -> Self {
        Self::parse(text)
    }
}

impl From<String> for ReferenceOrId {
    fn from(text: String) -> Self {
        Self::parse(text)
    }
}

impl From<Reference> for ReferenceOrId {
    fn from(reference: Reference) -> Self {
        let text = reference.to_string();
        Self::of_reference(reference, text)
    }
}

impl From<Digest> for ReferenceOrId {
    fn from(id: Digest) -> Self {
        Self { text: id.to_string(), id: Some(id), reference: None }
    }
}

impl fmt::Display for ReferenceOrId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_every_meaning_that_they_can_have() {
        let digits = "ab".repeat(32);
        let (id, longer) = (format!("sha256:{digits}"), format!("{digits}ab"));
        let sha512 = format!("sha512:{}", "0".repeat(128));
        let cases = [
            (digits.as_str(), Some(id.as_str()), None, Some(digits.as_str())),
            (&id, Some(&id), Some(format!("docker.io/library/{id}")), Some(&digits)),
            (&sha512, Some(&sha512), Some(format!("docker.io/library/{sha512}")), None),
            ("abc", None, Some("docker.io/library/abc".to_owned()), Some("abc")),
            ("sha256:abc", None, Some("docker.io/library/sha256:abc".to_owned()), Some("abc")),
            (&longer, None, Some(format!("docker.io/library/{longer}")), Some(&longer)),
            ("ab", None, Some("docker.io/library/ab".to_owned()), None),
            ("r.example:443/app:1", None, Some("r.example/app:1".to_owned()), None),
            ("ABC", None, None, None),
            ("Not A Name", None, None, None),
            ("", None, None, None),
        ];
        for (text, want_id, reference, prefix) in cases {
            let parsed = ReferenceOrId::parse(text);
            assert_eq!(parsed.as_str(), text);
            assert_eq!(parsed.id().map(ToString::to_string).as_deref(), want_id, "{text}");
            assert_eq!(parsed.reference().map(ToString::to_string), reference, "{text}");
            assert_eq!(parsed.id_prefix(), prefix, "{text}");
        }
    }

    #[test]
    fn values_need_no_second_parse() {
        let reference = Reference::parse("r.example/app:1").expect("a reference");
        assert_eq!(ReferenceOrId::from(reference.clone()), ReferenceOrId::parse("r.example/app:1"));
        let spelled = "R.example:443/app:1";
        assert_eq!(ReferenceOrId::of_reference(reference, spelled), ReferenceOrId::parse(spelled));
        let id = Digest::sha256(b"config");
        let named = ReferenceOrId::from(id.clone());
        assert_eq!((named.id(), named.to_string()), (Some(&id), id.to_string()));
    }
}
