//! [`Descriptor`]: digest, size and media type of content. Unknown fields survive a round trip.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Digest, Platform};

/// A content descriptor (image specification, "OCI Content Descriptors").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Media type of the content.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    /// Digest of the content.
    pub digest: Digest,
    /// Size of the content in bytes.
    pub size: u64,
    /// Foreign places of the content. They are kept and never followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    /// Annotations.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "crate::manifest::null_as_default"
    )]
    pub annotations: BTreeMap<String, String>,
    /// The platform that a manifest in an index is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Everything else.
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

impl Descriptor {
    /// A descriptor with nothing but the three fields that matter.
    #[must_use]
    pub fn new(media_type: impl Into<String>, digest: Digest, size: u64) -> Self {
        Self {
            media_type: media_type.into(),
            digest,
            size,
            urls: Vec::new(),
            annotations: BTreeMap::new(),
            platform: None,
            other: serde_json::Map::new(),
        }
    }
}
