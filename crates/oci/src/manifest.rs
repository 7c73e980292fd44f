//! [`Manifest`] and [`Index`], and [`Document::parse`], which distinguishes them and refuses documents that could be
//! read as either (CVE-2021-41190). Digests are of the raw bytes, which the caller keeps.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json::{self, Fields, null_as_default, other, string_map};
use crate::{Descriptor, media_type};

/// An image manifest (image specification, or Docker schema 2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always 2.
    pub schema_version: u32,
    /// Media type, where the document says it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Type of an artifact that is no image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The config; its digest is the image id.
    pub config: Descriptor,
    /// The layers, lowest first.
    #[serde(deserialize_with = "null_as_default")]
    pub layers: Vec<Descriptor>,
    /// The manifest that this one is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Descriptor>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "string_map")]
    pub annotations: BTreeMap<String, String>,
    /// Everything else.
    #[serde(flatten, deserialize_with = "other::<_, Manifest>")]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// An image index (Docker: manifest list).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// Always 2.
    pub schema_version: u32,
    /// Media type, where the document says it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Type of an artifact that is no image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The manifests, in the author's order of preference.
    #[serde(deserialize_with = "null_as_default")]
    pub manifests: Vec<Descriptor>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "string_map")]
    pub annotations: BTreeMap<String, String>,
    /// Everything else.
    #[serde(flatten, deserialize_with = "other::<_, Index>")]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// Keys of either kind: a document that another reader takes for the other kind is refused, in whatever case its keys are.
const FIELDS: &[&str] = &[
    "schemaVersion",
    "mediaType",
    "artifactType",
    "config",
    "layers",
    "manifests",
    "subject",
    "annotations",
    "fsLayers",
    "history",
    "signatures",
];

impl Fields for Manifest {
    const FIELDS: &'static [&'static str] = FIELDS;
}

impl Fields for Index {
    const FIELDS: &'static [&'static str] = FIELDS;
}

/// The keys that show the kind of a document. None of them may occur twice.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Marks {
    schema_version: Option<Value>,
    media_type: Option<Value>,
    config: Option<IgnoredAny>,
    layers: Option<IgnoredAny>,
    manifests: Option<IgnoredAny>,
    fs_layers: Option<IgnoredAny>,
    history: Option<IgnoredAny>,
    signatures: Option<IgnoredAny>,
}

/// The reason why bytes are no manifest or index that can be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON, or JSON of another shape.
    #[error("not a manifest: {0}")]
    Json(#[source] serde_json::Error),
    /// Docker schema 1.
    #[error("manifest is of Docker schema 1, which is no longer supported: push the image again with a current tool")]
    Schema1,
    /// A schema version other than 2.
    #[error("manifest has schema version {0}; only version 2 is supported")]
    SchemaVersion(u64),
    /// The document has the marks of both kinds, or other ones than its type says.
    #[error("ambiguous manifest: {0}")]
    Confusion(String),
    /// A type that is neither a manifest nor an index.
    #[error("unsupported manifest media type {0:?}")]
    MediaType(String),
}

#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
/// A parsed document of one of the two kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// An image manifest.
    Manifest(Manifest),
    /// An index.
    Index(Index),
}

impl Document {
    /// Parses `bytes`. `declared` is the media type under which they came (`Content-Type` or descriptor), if any; it
    /// must agree with the document's own `mediaType` and with its fields.
    ///
    /// # Errors
    /// See [`ManifestError`].
    pub fn parse(bytes: &[u8], declared: Option<&str>) -> Result<Self, ManifestError> {
        let declared = declared.map(media_type::essence).filter(|d| !d.is_empty());
        if declared.as_deref().is_some_and(media_type::is_schema1) {
            return Err(ManifestError::Schema1);
        }
        let marks: Marks = json::from_slice(bytes).map_err(ManifestError::Json)?;
        if marks.fs_layers.is_some() || marks.history.is_some() && marks.signatures.is_some() {
            return Err(ManifestError::Schema1);
        }
        match marks.schema_version.as_ref().and_then(Value::as_u64) {
            Some(2) => {}
            Some(1) => return Err(ManifestError::Schema1),
            other => return Err(ManifestError::SchemaVersion(other.unwrap_or(0))),
        }
        let own = match &marks.media_type {
            None => None,
            Some(Value::String(text)) => Some(media_type::essence(text)).filter(|t| !t.is_empty()),
            Some(_) => return Err(ManifestError::Confusion("mediaType is not a string".into())),
        };
        // A registry that serves plain JSON says nothing about the kind.
        let generic = |t: &String| matches!(t.as_str(), "application/json" | "application/octet-stream" | "text/plain");
        let declared = declared.filter(|t| !generic(t));
        if let (Some(declared), Some(own)) = (&declared, &own)
            && declared != own
        {
            return Err(ManifestError::Confusion(format!("served as {declared}, but its mediaType is {own}")));
        }
        let has_manifests = marks.manifests.is_some();
        let has_image = marks.config.is_some() || marks.layers.is_some();
        if has_manifests && has_image {
            return Err(ManifestError::Confusion("it has both manifests and config or layers".into()));
        }
        let is_index = match declared.or(own) {
            Some(t) if media_type::is_index(&t) => {
                if has_image {
                    return Err(ManifestError::Confusion(format!("{t} with config or layers")));
                }
                true
            }
            Some(t) if media_type::is_manifest(&t) => {
                if has_manifests {
                    return Err(ManifestError::Confusion(format!("{t} with manifests")));
                }
                false
            }
            Some(t) => return Err(ManifestError::MediaType(t)),
            None => has_manifests,
        };
        if is_index {
            json::from_slice(bytes).map(Self::Index).map_err(ManifestError::Json)
        } else {
            json::from_slice(bytes).map(Self::Manifest).map_err(ManifestError::Json)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media_type::{DOCKER_MANIFEST, DOCKER_SCHEMA1_SIGNED, OCI_INDEX, OCI_MANIFEST};

    const CONFIG: &str = r#"{"mediaType":"application/vnd.oci.image.config.v1+json","size":2,"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}"#;

    #[test]
    fn kinds() {
        let manifest = format!(r#"{{"schemaVersion":2,"config":{CONFIG},"layers":[]}}"#);
        let index = r#"{"schemaVersion":2,"manifests":[]}"#.to_owned();
        let typed = |t: &str, rest: &str| format!(r#"{{"schemaVersion":2,"mediaType":"{t}",{rest}}}"#);
        let image = format!(r#""config":{CONFIG},"layers":null"#);
        let both = format!(r#"{{"schemaVersion":2,"manifests":[],"config":{CONFIG},"layers":[]}}"#);
        let cases: Vec<(String, Option<&str>, &str)> = vec![
            (manifest.clone(), None, "manifest"),
            (manifest.clone(), Some(OCI_MANIFEST), "manifest"),
            (manifest.clone(), Some("application/json"), "manifest"),
            (manifest.clone(), Some(OCI_INDEX), "ambiguous"),
            (manifest, Some("text/html"), "unsupported manifest media type"),
            (index.clone(), None, "index"),
            (index.clone(), Some(OCI_MANIFEST), "ambiguous"),
            (index, Some("application/vnd.oci.image.index.v1+json; charset=utf-8"), "index"),
            (typed(DOCKER_MANIFEST, &image), None, "manifest"),
            (typed(DOCKER_MANIFEST, &image), Some(OCI_MANIFEST), "ambiguous"),
            (typed(OCI_INDEX, &image), None, "ambiguous"),
            (typed(OCI_MANIFEST, r#""manifests":[]"#), None, "ambiguous"),
            (both, None, "ambiguous"),
            ("<html>".into(), Some("text/html"), "not a manifest"),
            ("[]".into(), None, "not a manifest"),
            (r#"{"schemaVersion":1,"fsLayers":[]}"#.into(), None, "schema 1"),
            (r#"{"schemaVersion":1}"#.into(), None, "schema 1"),
            ("{}".into(), Some(DOCKER_SCHEMA1_SIGNED), "schema 1"),
            ("{}".into(), None, "schema version 0"),
            (r#"{"schemaVersion":2,"mediaType":7}"#.into(), None, "ambiguous"),
            (r#"{"schemaVersion":2}"#.into(), None, "not a manifest"),
        ];
        for (text, declared, want) in cases {
            let got = match Document::parse(text.as_bytes(), declared) {
                Ok(Document::Manifest(_)) => "manifest".to_owned(),
                Ok(Document::Index(_)) => "index".to_owned(),
                Err(e) => e.to_string(),
            };
            assert!(got.contains(want), "{text} as {declared:?}: {got}, not {want}");
        }
    }

    #[test]
    fn unknown_fields_survive() {
        let text = format!(
            r#"{{"schemaVersion":2,"config":{CONFIG},"layers":[],"annotations":{{"a":"b"}},"x-new":{{"y":1}}}}"#
        );
        let Ok(Document::Manifest(manifest)) = Document::parse(text.as_bytes(), None) else { panic!("no manifest") };
        let back = serde_json::to_value(&manifest).expect("serialises");
        assert_eq!(back, serde_json::from_str::<serde_json::Value>(&text).expect("JSON"));
    }

    #[test]
    fn digest_containing_a_path_is_refused() {
        let text =
            r#"{"schemaVersion":2,"config":{"mediaType":"x","size":1,"digest":"sha256:../../etc/passwd"},"layers":[]}"#;
        assert!(Document::parse(text.as_bytes(), None).is_err());
    }

    #[test]
    fn null_is_absent_in_every_optional_field() {
        let descriptor = CONFIG.replace('}', r#","urls":null,"annotations":{"a":null},"platform":null,"data":null}"#);
        let platform = CONFIG.replace('}', r#","platform":{"os":null,"architecture":"amd64","variant":null}}"#);
        let untyped = CONFIG.replace(r#""application/vnd.oci.image.config.v1+json""#, "null");
        let manifest = format!(
            r#"{{"schemaVersion":2,"mediaType":null,"artifactType":null,"config":{descriptor},"layers":[{untyped}],"subject":null,"annotations":null,"manifests":null}}"#
        );
        let Ok(Document::Manifest(manifest)) = Document::parse(manifest.as_bytes(), None) else { panic!("{manifest}") };
        assert_eq!(manifest.config.urls, Vec::<String>::new());
        assert_eq!(manifest.config.annotations["a"], "", "as Go reads it");
        assert_eq!((manifest.layers[0].media_type.as_str(), manifest.media_type), ("", None));
        let index = format!(r#"{{"schemaVersion":2,"manifests":[{platform}],"config":null,"layers":null}}"#);
        let Ok(Document::Index(index)) = Document::parse(index.as_bytes(), None) else { panic!("{index}") };
        assert_eq!(index.manifests[0].platform, Some(crate::Platform::new("", "amd64", "")));
        let empty = r#"{"schemaVersion":2,"manifests":null}"#;
        assert!(matches!(Document::parse(empty.as_bytes(), Some(OCI_INDEX)), Ok(Document::Index(_))));
    }

    #[test]
    fn annotations_with_invalid_utf8_are_accepted() {
        let text = |value: &[u8]| {
            let start = format!(r#"{{"schemaVersion":2,"config":{CONFIG},"layers":[],"annotations":{{"a":""#);
            [start.as_bytes(), value, b"\"}}"].concat()
        };
        for value in [&b"x\\ud83d"[..], b"x\xff"] {
            let Ok(Document::Manifest(manifest)) = Document::parse(&text(value), None) else { panic!("{value:?}") };
            assert_eq!(manifest.annotations["a"], "x\u{fffd}");
        }
        let digest = CONFIG.replace("44136", "4413\\ud83d");
        let broken = format!(r#"{{"schemaVersion":2,"config":{digest},"layers":[]}}"#);
        assert!(Document::parse(broken.as_bytes(), None).is_err(), "a digest stays exact");
    }

    /// Go's reader takes the last of these for the field; others take the first, or the exact one.
    #[test]
    fn ambiguous_keys_are_refused() {
        let doubled = |key: &str, value: &str| CONFIG.replace('{', &format!(r#"{{"{key}":{value},"#));
        let plain = |extra: &str| format!(r#"{{"schemaVersion":2,"config":{CONFIG},"layers":[]{extra}}}"#);
        let of = |config: &str| format!(r#"{{"schemaVersion":2,"config":{config},"layers":[]}}"#);
        let index = |platform: &str| {
            let entry = CONFIG.replace('}', &format!(r#","platform":{platform}}}"#));
            format!(r#"{{"schemaVersion":2,"manifests":[{entry}]}}"#)
        };
        let other = "\"sha256:0000000000000000000000000000000000000000000000000000000000000000\"";
        let cases = [
            plain(r#","layers":[]"#),
            plain(r#","Layers":[]"#),
            plain(r#","layerſ":[]"#),
            plain(r#","Config":{}"#),
            plain(r#","Manifests":[]"#),
            plain(r#","MediaType":"x""#),
            plain(r#","fslayers":[]"#),
            plain(r#","schemaVersion":2"#),
            of(&doubled("digest", other)),
            of(&doubled("Digest", other)),
            of(&doubled("size", "1")),
            of(&doubled("Size", "1")),
            of(&doubled("urlS", "[]")),
            index(r#"{"os":"linux","OS":"windows","architecture":"amd64"}"#),
            index(r#"{"os":"linux","os":"windows","architecture":"amd64"}"#),
        ];
        for text in cases {
            assert!(Document::parse(text.as_bytes(), None).is_err(), "{text}");
        }
        let fine = plain(r#","x":1,"X":2,"annotations":{"Layers":"a","layers":"b","LAYERS":"c"}"#);
        assert!(Document::parse(fine.as_bytes(), None).is_ok(), "keys without a meaning may be any");
    }
}
