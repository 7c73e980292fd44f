//! JSON as Go programs write and read it, for OCI documents: [`from_slice`], and functions for the fields of descriptors, manifests,
//! indexes and configs.
//!
//! Go reads `null` as an absent value, and U+FFFD where a string is not valid Unicode; so does this. Go also matches keys in any case
//! and lets the last of two equal keys win. No two readers may see different content in one document, so keys that another reader
//! could take for a field of ours are refused: see `other`. Digests are of the raw bytes, which callers keep.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Stands for bytes that are not UTF-8, and for surrogates without their other half.
const REPLACEMENT: &str = "\u{fffd}";

/// Parses JSON whose strings may contain invalid UTF-8 and lone surrogates: both become U+FFFD, as in Go. Valid documents are read
/// once and not copied.
///
/// # Errors
/// Those of [`serde_json::from_slice`].
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(bytes).or_else(|error| match repaired(bytes) {
        Some(text) => serde_json::from_slice(&text),
        None => Err(error),
    })
}

/// The document with U+FFFD for what is no Unicode; `None` if there is nothing of that kind.
fn repaired(bytes: &[u8]) -> Option<Vec<u8>> {
    let text: Cow<'_, [u8]> = match std::str::from_utf8(bytes) {
        Ok(_) => Cow::Borrowed(bytes),
        Err(_) => {
            let mut text = Vec::with_capacity(bytes.len() + 64);
            for chunk in bytes.utf8_chunks() {
                text.extend_from_slice(chunk.valid().as_bytes());
                // Go replaces every byte, not every sequence.
                text.extend(chunk.invalid().iter().flat_map(|_| REPLACEMENT.as_bytes()));
            }
            Cow::Owned(text)
        }
    };
    let mut output = Vec::new();
    let (mut copied, mut at) = (0, 0);
    // Backslashes occur in strings only.
    while let Some(found) = text[at..].iter().position(|byte| *byte == b'\\') {
        at += found;
        let lone = match (escaped_unit(&text[at..]), text.get(at + 6..).and_then(escaped_unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => {
                at += 12;
                continue;
            }
            (Some(0xd800..=0xdfff), _) => true,
            (Some(_), _) => false,
            (None, _) => {
                // Another escape has two bytes; the second may be a backslash.
                at = (at + 2).min(text.len());
                continue;
            }
        };
        if lone {
            output.extend_from_slice(&text[copied..at]);
            output.extend_from_slice(REPLACEMENT.as_bytes());
            copied = at + 6;
        }
        at += 6;
    }
    if copied == 0 {
        return match text {
            Cow::Borrowed(_) => None,
            Cow::Owned(text) => Some(text),
        };
    }
    output.extend_from_slice(&text[copied..]);
    Some(output)
}

/// The UTF-16 unit of an escape such as `\ud83d` at the start of `text`.
fn escaped_unit(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
}

/// Reads `null` as the default.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads a list of strings; `null` is the empty list, and in it the empty string.
pub(crate) fn strings<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let list: Vec<Option<String>> = null_as_default(deserializer)?;
    Ok(list.into_iter().map(Option::unwrap_or_default).collect())
}

/// Reads a map of strings; `null` is the empty map, and in it the empty string.
pub(crate) fn string_map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let map: BTreeMap<String, Option<String>> = null_as_default(deserializer)?;
    Ok(map.into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect())
}

/// An object of a document whose keys are read exactly.
pub(crate) trait Fields {
    /// Keys that have a meaning in this object, for us or for another reader that has to agree.
    const FIELDS: &'static [&'static str];
}

/// Reads all keys that are no field of `T`. Refuses those that differ from a field only in case: Go takes them for the field.
/// A field that occurs twice is refused by the derived readers.
pub(crate) fn other<'de, D, T>(deserializer: D) -> Result<Map<String, Value>, D::Error>
where
    D: Deserializer<'de>,
    T: Fields,
{
    let other = Map::deserialize(deserializer)?;
    for key in other.keys() {
        if let Some(field) = T::FIELDS.iter().find(|field| *field != key && is_fold_of(key, field)) {
            return Err(D::Error::custom(format!("key {key:?} is not the same as {field:?}: keys are case-sensitive")));
        }
    }
    Ok(other)
}

/// Returns true if Go takes `key` for `field`, which is ASCII.
fn is_fold_of(key: &str, field: &str) -> bool {
    let fold = |c: char| match c {
        'ſ' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    key.chars().map(fold).eq(field.chars().map(fold))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_utf8_is_replaced_as_go_does() {
        let cases: &[(&[u8], Option<&str>)] = &[
            (br#""plain \u00e9 \ud83d\ude00""#, Some("plain é 😀")),
            (br#""\ud83d""#, Some("\u{fffd}")),
            (br#""\ude00\ud83d""#, Some("\u{fffd}\u{fffd}")),
            (br#""a\ud83d\ud83d\ude00b""#, Some("a\u{fffd}😀b")),
            (br#""\ud83dx\\ud83d\\\ud83d""#, Some("\u{fffd}x\\ud83d\\\u{fffd}")),
            (b"\"a\xff\xe2\x82b\xc3\xa9\"", Some("a\u{fffd}\u{fffd}\u{fffd}bé")),
            (b"\"\xff\\ud83d\"", Some("\u{fffd}\u{fffd}")),
            (br#""\ud83"#, None),
            (br#""\ud83d"#, None),
            (br#""\"#, None),
            (b"\"a\" \xff", None),
            (br#""\x \ud83d""#, None),
        ];
        for (text, want) in cases {
            let got: Option<String> = from_slice(text).ok();
            assert_eq!(got.as_deref(), *want, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn keys_that_go_maps_to_a_field_are_found() {
        for (key, field, want) in [
            ("Layers", "layers", true),
            ("LAYERS", "layers", true),
            ("layerſ", "layers", true),
            ("\u{212a}ind", "kind", true),
            ("layer", "layers", false),
            ("layers ", "layers", false),
            ("láyers", "layers", false),
        ] {
            assert_eq!(is_fold_of(key, field), want, "{key}");
        }
    }
}
