//! [`Documents`]: the ConfigMaps and Secrets that a pod may reference. Debug output has no content,
//! because the data of a Secret is not marked as such. Reads no directory and no API server; created by the readers of
//! documents.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use zeroize::Zeroize as _;

/// Kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DocumentKind {
    /// A ConfigMap: settings in plain text.
    ConfigMap,
    /// A Secret; files made of it are in memory only.
    Secret,
}

impl DocumentKind {
    /// Returns the kind as written in the kubelet's errors.
    pub(crate) fn lower_case(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }
}

impl fmt::Display for DocumentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        })
    }
}

/// The ConfigMaps and Secrets that a pod can have, by their names, and what an API server makes for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Documents {
    /// ConfigMaps by name.
    pub config_maps: BTreeMap<String, Document>,
    /// Secrets by name.
    pub secrets: BTreeMap<String, Document>,
    /// Documents of which it is not known whether they exist.
    pub unknown: BTreeSet<(DocumentKind, String)>,
    /// Tokens of the pod's service account, or why there is none.
    pub tokens: BTreeMap<TokenKey, Result<DocumentContent, String>>,
    /// Variables by which containers find the API server.
    pub service_variables: Vec<(String, String)>,
    /// True if there are such variables and they are not known yet.
    pub services_unknown: bool,
}

/// Identifies a token of a pod by its audience and its lifetime.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenKey {
    /// Empty: the API server.
    pub audience: String,
    /// Lifetime in seconds.
    pub expiration: i64,
}

/// Reason for a missing document, with the kubelet's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MissingDocument {
    /// The server has not answered: the document may exist.
    Unknown(DocumentKind),
    Absent(DocumentKind, String),
}

impl Documents {
    pub(crate) fn get(&self, kind: DocumentKind, name: &str) -> Option<&Document> {
        match kind {
            DocumentKind::ConfigMap => self.config_maps.get(name),
            DocumentKind::Secret => self.secrets.get(name),
        }
    }

    /// Returns the reason for which a document is missing.
    pub(crate) fn missing(&self, kind: DocumentKind, name: &str) -> MissingDocument {
        match self.unknown.contains(&(kind, name.to_owned())) {
            true => MissingDocument::Unknown(kind),
            false => MissingDocument::Absent(kind, name.to_owned()),
        }
    }

    /// Adds a document.
    pub fn insert(&mut self, kind: DocumentKind, name: &str, document: Document) {
        let documents = match kind {
            DocumentKind::ConfigMap => &mut self.config_maps,
            DocumentKind::Secret => &mut self.secrets,
        };
        documents.insert(name.to_owned(), document);
    }
}

/// Data of a ConfigMap or Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// `data`, by key.
    pub data: BTreeMap<String, DocumentContent>,
    /// `binaryData` of a ConfigMap, by key: for files only.
    pub binary: BTreeMap<String, DocumentContent>,
}

impl Document {
    /// Reads `data` and `binaryData` of an object of an API server. What cannot be read is left out.
    #[must_use]
    pub fn from_object(kind: DocumentKind, object: &Value) -> Self {
        let content = |field: &str, encoded: bool| {
            let entries = object[field].as_object().into_iter().flatten();
            let read = |text: &str| match encoded {
                true => STANDARD.decode(text).ok().map(DocumentContent::new),
                false => Some(DocumentContent::new(text)),
            };
            entries.filter_map(|(key, value)| Some((key.clone(), read(value.as_str()?)?))).collect()
        };
        match kind {
            DocumentKind::ConfigMap => Self { data: content("data", false), binary: content("binaryData", true) },
            DocumentKind::Secret => Self { data: content("data", true), binary: BTreeMap::new() },
        }
    }

    /// Returns all entries, as files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&String, &DocumentContent)> {
        self.data.iter().chain(&self.binary)
    }

    /// Content of a key, as a file.
    pub(crate) fn file(&self, key: &str) -> Option<&DocumentContent> {
        self.data.get(key).or_else(|| self.binary.get(key))
    }
}

/// Content of a key of a ConfigMap or Secret. `Debug` shows nothing of it, and its memory is wiped on drop.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DocumentContent(Vec<u8>);

impl DocumentContent {
    /// Takes the bytes over.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Returns the content as bytes, for a file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the content as text, if it is valid UTF-8, for a variable.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl Drop for DocumentContent {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for DocumentContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Content(…)")
    }
}

impl fmt::Display for MissingDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(kind) => {
                write!(f, "failed to sync {} cache: timed out waiting for the condition", kind.lower_case())
            }
            Self::Absent(kind, name) => write!(f, "{} {name:?} not found", kind.lower_case()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_of_a_server_are_read_and_not_shown() {
        let map = json!({"data": {"a": "1", "n": 7}, "binaryData": {"b": "AP8="}});
        let map = Document::from_object(DocumentKind::ConfigMap, &map);
        assert_eq!((map.data["a"].text(), map.data.len(), map.binary["b"].bytes()), (Some("1"), 1, &[0, 255][..]));
        let secret = json!({"data": {"k": "c3dvcmRmaXNo", "bad": "?"}});
        let secret = Document::from_object(DocumentKind::Secret, &secret);
        assert_eq!((secret.data["k"].text(), secret.data.len()), (Some("swordfish"), 1));
        assert!(!format!("{secret:?}").contains("swordfish"));
    }

    #[test]
    fn missing_documents_are_reported_in_the_kubelets_words() {
        let unknown = [(DocumentKind::Secret, "s".to_owned())].into();
        let documents = Documents { unknown, ..Documents::default() };
        let missing = |kind| documents.missing(kind, "s").to_string();
        assert_eq!(missing(DocumentKind::Secret), "failed to sync secret cache: timed out waiting for the condition");
        assert_eq!(missing(DocumentKind::ConfigMap), "configmap \"s\" not found");
    }
}
