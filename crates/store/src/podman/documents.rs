//! The documents of an additional image store as containers/storage writes them (`layers.json`, `images.json`), the ids of layers,
//! and names of files. Pure.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use oci::{Algorithm, Digest};
use serde::{Deserialize, Serialize};

/// Characters of the short name of a layer, as many as containers/storage makes.
const LINK_LENGTH: usize = 26;

/// 0000-01-01T00:00:00Z: a year before it cannot be written in RFC 3339.
const YEAR_ZERO: i64 = -62_167_219_200;

/// A row of `layers.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct PodmanLayerRow {
    pub(super) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parent: Option<String>,
    pub(super) created: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) compressed_diff_digest: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) compressed_size: Option<u64>,
    pub(super) diff_digest: Digest,
    pub(super) diff_size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) compression: Option<u8>,
}

/// A row of `images.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct PodmanImageRow {
    pub(super) id: String,
    pub(super) digest: Digest,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) names: Vec<String>,
    #[serde(rename = "layer", skip_serializing_if = "Option::is_none")]
    pub(super) top_layer: Option<String>,
    pub(super) metadata: &'static str,
    pub(super) big_data_names: Vec<String>,
    pub(super) big_data_sizes: BTreeMap<String, usize>,
    pub(super) big_data_digests: BTreeMap<String, Digest>,
    pub(super) created: String,
}

/// The id under which podman itself would have this layer on this parent, so that its pulls find it.
pub(super) fn layer_id(parent: Option<&str>, diff_id: &Digest) -> String {
    match parent {
        None if diff_id.algorithm() == Algorithm::Sha256 => diff_id.hex().to_owned(),
        None => Digest::sha256(diff_id.hex().as_bytes()).hex().to_owned(),
        Some(parent) => Digest::sha256(format!("{parent}+{}", diff_id.hex()).as_bytes()).hex().to_owned(),
    }
}

/// The short name of a layer, by which containers refer to it. The same for ever, so that a container finds its layers when they
/// were removed and have come back.
pub(super) fn link_name(layer: &str) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let hash = Digest::sha256(format!("link {layer}").as_bytes());
    // 26 letters of five bits are 130 bits: 33 digits of four.
    let bits: Vec<bool> = hash
        .hex()
        .bytes()
        .filter_map(|digit| char::from(digit).to_digit(16))
        .flat_map(|digit| [8, 4, 2, 1].map(|bit| digit & bit != 0))
        .collect();
    let letter = |five: &[bool]| five.iter().fold(0_usize, |value, bit| value * 2 + usize::from(*bit));
    bits.chunks_exact(5).take(LINK_LENGTH).map(|five| char::from(LETTERS[letter(five)])).collect()
}

/// The number that containers/storage has for the compression of a layer of this media type.
pub(super) fn compression(media_type: &str) -> u8 {
    match media_type {
        _ if media_type.ends_with("gzip") => 2,
        _ if media_type.ends_with("zstd") => 4,
        _ => 0,
    }
}

/// The name of the file for a piece of big data.
pub(super) fn file_name(key: &str) -> String {
    if key.bytes().all(|byte| matches!(byte, b'.' | b'0'..=b'9' | b'a'..=b'z')) {
        return key.to_owned();
    }
    format!("={}", STANDARD.encode(key))
}

/// Formats a time as podman reads it. One unreadable time would keep podman from reading any image, so the times of a config are
/// normalized.
pub(super) fn time(text: Option<&str>) -> String {
    let time = text.and_then(|text| text.parse::<Timestamp>().ok()).filter(|time| time.as_second() >= YEAR_ZERO);
    time.unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
#[path = "documents_tests.rs"]
mod tests;
