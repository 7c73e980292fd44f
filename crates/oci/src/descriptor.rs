//! [`Descriptor`]: digest, size and media type of content; and [`Platform::select`], which orders those of an index. Unknown fields survive a
//! round trip.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::json::{Fields, null_as_default, other, string_map, strings};
use crate::platform::nested_platform;
use crate::{Digest, Platform};

/// A content descriptor (image specification, "OCI Content Descriptors").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Media type of the content.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub media_type: String,
    /// Digest of the content.
    pub digest: Digest,
    /// Size of the content in bytes.
    pub size: u64,
    /// Foreign places of the content. They are kept and never followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "strings")]
    pub urls: Vec<String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "string_map")]
    pub annotations: BTreeMap<String, String>,
    /// The platform that a manifest in an index is for.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "nested_platform")]
    pub platform: Option<Platform>,
    /// Everything else.
    #[serde(flatten, deserialize_with = "other::<_, Descriptor>")]
    pub other: serde_json::Map<String, serde_json::Value>,
}

impl Fields for Descriptor {
    const FIELDS: &'static [&'static str] = &["mediaType", "digest", "size", "urls", "annotations", "platform", "data"];
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

impl Platform {
    /// The descriptors of an index that can run here, best first and otherwise in the index's order. Descriptors
    /// without a platform are last, since only their config names it; those of unknown platform (attestations) and of
    /// other platforms are left out.
    #[must_use]
    pub fn select<'a>(&self, manifests: &'a [Descriptor]) -> Vec<&'a Descriptor> {
        let mut ranked: Vec<(usize, &Descriptor)> = manifests
            .iter()
            .filter_map(|d| match &d.platform {
                None => Some((usize::MAX, d)),
                Some(p) if p.os.is_empty() && p.architecture.is_empty() => Some((usize::MAX, d)),
                Some(p) => self.rank(p).map(|rank| (rank, d)),
            })
            .collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        ranked.into_iter().map(|(_, d)| d).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn select_orders_and_drops() {
        let p = |text: &str| text.parse::<Platform>().expect("parses");
        let d = |n: &str, platform: Option<&str>| Descriptor {
            platform: platform.map(p),
            ..Descriptor::new("", Digest::sha256(n.as_bytes()), 1)
        };
        let index = [
            d("none", None),
            d("386", Some("linux/386")),
            d("att", Some("unknown/unknown")),
            d("arm", Some("linux/arm64")),
            d("amd", Some("linux/amd64")),
        ];
        let got: Vec<_> = p("linux/amd64").select(&index).into_iter().map(|d| d.digest.clone()).collect();
        let want: Vec<_> = ["amd", "386", "none"].iter().map(|n| Digest::sha256(n.as_bytes())).collect();
        assert_eq!(got, want);
    }
}
