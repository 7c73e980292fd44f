//! [`Documents`]: the ConfigMaps and Secrets that a pod may name, as they are handed in. Shows no content: of a Secret it is
//! secret, and nobody marks it. Knows no directory and no API server; made by whoever reads documents.

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroize as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DocumentKind {
    ConfigMap,
    Secret,
}

impl DocumentKind {
    /// As the kubelet's errors write it.
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

/// The ConfigMaps and Secrets of one namespace, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Documents {
    pub config_maps: BTreeMap<String, Document>,
    pub secrets: BTreeMap<String, Document>,
}

impl Documents {
    pub(crate) fn get(&self, kind: DocumentKind, name: &str) -> Option<&Document> {
        match kind {
            DocumentKind::ConfigMap => self.config_maps.get(name),
            DocumentKind::Secret => self.secrets.get(name),
        }
    }

    pub(crate) fn insert(&mut self, kind: DocumentKind, name: &str, document: Document) {
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
    /// Everything that can be a file.
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

    /// The bytes, for the file that holds them.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, where it is one: for a variable.
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
