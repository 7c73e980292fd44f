//! Bytes as base64 in JSON, for serde's `with`. Called for documents that pass a local API byte by byte.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};

/// Writes bytes as a string of standard base64 with padding.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

/// Reads a string of standard base64 with padding.
///
/// # Errors
/// Those of the deserializer; the string is not base64.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    STANDARD.decode(&text).map_err(|error| D::Error::custom(format!("not base64: {error}")))
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Document(#[serde(with = "super")] Vec<u8>);

    #[test]
    fn bytes_that_are_not_utf_8_survive_json() {
        let document = Document(b"x\xff\0".to_vec());
        let json = serde_json::to_string(&document).expect("serializes");
        assert_eq!(json, r#""eP8A""#);
        assert_eq!(serde_json::from_str::<Document>(&json).expect("reads"), document);
        assert!(serde_json::from_str::<Document>(r#""{}""#).is_err());
    }
}
