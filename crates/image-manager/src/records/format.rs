//! The two documents on disk, `ImagePullIntent` and `ImagePulledRecord`, as the kubelet writes them: one line of JSON,
//! its order of fields, `v1beta1` written and `v1alpha1` still read. Pure; it refuses unknown and repeated fields, as
//! the kubelet's strict decoding does.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use oci::Digest;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::canonical;
use super::record::{PulledRecord, RecordedCredentials};

const BETA: &str = "kubelet.config.k8s.io/v1beta1";
const ALPHA: &str = "kubelet.config.k8s.io/v1alpha1";
pub(super) const INTENT: &str = "ImagePullIntent";
pub(super) const RECORD: &str = "ImagePulledRecord";
const PREFIX: &str = "sha256-";
pub(super) const DRAFT: &str = ".tmp";

/// The name of the file for an image (intents) or an image ref (records).
pub(super) fn file_name(key: &str) -> String {
    let digest = Digest::sha256(key.as_bytes());
    let mut name = String::with_capacity(PREFIX.len() + digest.hex().len());
    name.push_str(PREFIX);
    name.push_str(digest.hex());
    name
}

/// Returns true for the name of a record or an intent. Other files in the directory are left alone.
pub(super) fn is_record(name: &str) -> bool {
    name.starts_with(PREFIX) && !name.ends_with(DRAFT)
}

/// Returns true for the name of a draft, of a record or of a file of the garbage collection.
pub(super) fn is_draft(name: &str) -> bool {
    name.ends_with(DRAFT) && (name.starts_with(PREFIX) || name.contains(".json."))
}

/// Which version a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Written by older kubelets; read, and rewritten when the directory is opened.
    Alpha,
    /// Written by us.
    Beta,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct IntentOut<'a> {
    kind: &'static str,
    api_version: &'static str,
    image: &'a str,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct IntentIn {
    kind: String,
    api_version: String,
    image: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordOut<'a> {
    kind: &'static str,
    api_version: &'static str,
    last_updated_time: Option<String>,
    image_ref: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    credential_mapping: &'a BTreeMap<String, RecordedCredentials>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RecordIn {
    kind: String,
    api_version: String,
    last_updated_time: Option<Timestamp>,
    image_ref: String,
    #[serde(deserialize_with = "unique")]
    credential_mapping: BTreeMap<String, RecordedCredentials>,
}

/// The file of an intent.
pub(super) fn encode_intent(image: &str) -> Vec<u8> {
    line(&IntentOut { kind: INTENT, api_version: BETA, image })
}

/// The image of an intent's file.
pub(super) fn decode_intent(bytes: &[u8]) -> Result<(String, Version), String> {
    let IntentIn { kind, api_version, image } = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    Ok((image, version(&kind, INTENT, &api_version)?))
}

/// The file of a record.
pub(super) fn encode_record(record: &PulledRecord) -> Vec<u8> {
    line(&RecordOut {
        kind: RECORD,
        api_version: BETA,
        last_updated_time: record.last_updated.map(|time| full_seconds(time).to_string()),
        image_ref: &record.image_ref,
        credential_mapping: &record.mapping,
    })
}

/// The record in a file.
pub(super) fn decode_record(bytes: &[u8]) -> Result<(PulledRecord, Version), String> {
    match canonical::record(bytes) {
        Some(record) => Ok((record, Version::Beta)),
        None => parse_record(bytes),
    }
}

/// The same, in whatever way it is written.
pub(super) fn parse_record(bytes: &[u8]) -> Result<(PulledRecord, Version), String> {
    let RecordIn { kind, api_version, last_updated_time, image_ref, credential_mapping } =
        serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    let version = version(&kind, RECORD, &api_version)?;
    Ok((PulledRecord { last_updated: last_updated_time, image_ref, mapping: credential_mapping }, version))
}

/// The short way to read a record and the general one agree, and what is read is written so that it is read as the same.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzzed_record(bytes: &[u8]) {
    let Ok((mut record, _)) = decode_record(bytes) else {
        assert!(parse_record(bytes).is_err());
        return;
    };
    assert_eq!(parse_record(bytes).map(|(record, _)| record).as_ref(), Ok(&record));
    record.last_updated = record.last_updated.map(full_seconds);
    let written = encode_record(&record);
    assert_eq!(decode_record(&written), Ok((record, Version::Beta)));
}

/// Checks that an intent survives writing and reading.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzzed_intent(bytes: &[u8]) {
    if let Ok((image, _)) = decode_intent(bytes) {
        assert_eq!(decode_intent(&encode_intent(&image)), Ok((image, Version::Beta)));
    }
}

/// Truncates to full seconds. Files carry full seconds, so times must be truncated before they are compared with them.
pub(super) fn full_seconds(time: Timestamp) -> Timestamp {
    // Before 1970 the part below a second counts backwards.
    let second = time.as_second() - i64::from(time.subsec_nanosecond() < 0);
    Timestamp::from_second(second).unwrap_or(Timestamp::MIN)
}

fn line(document: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(document).expect("strings, lists and maps with text keys have a JSON form");
    bytes.push(b'\n');
    bytes
}

fn version(kind: &str, wanted: &str, api_version: &str) -> Result<Version, String> {
    if kind != wanted {
        return Err(format!("its kind is {kind:?}"));
    }
    match api_version {
        BETA => Ok(Version::Beta),
        ALPHA => Ok(Version::Alpha),
        other => Err(format!("its apiVersion is {other:?}")),
    }
}

/// A map whose keys are all different; null is an empty one.
fn unique<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, RecordedCredentials>, D::Error> {
    struct Unique;
    impl<'de> Visitor<'de> for Unique {
        type Value = BTreeMap<String, RecordedCredentials>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map of credentials")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(BTreeMap::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some((name, recorded)) = access.next_entry::<String, RecordedCredentials>()? {
                if map.contains_key(&name) {
                    return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
                }
                map.insert(name, recorded);
            }
            Ok(map)
        }
    }
    deserializer.deserialize_any(Unique)
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
