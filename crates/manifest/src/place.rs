//! [`ManifestDocument`]: reads fields out of a node of a document, and names file, line and document where they are not as they
//! should be. Knows no kind. Used by the readers of pods and of secrets.

use std::collections::BTreeMap;

use crate::error::{ManifestError, ObjectOrigin};
use crate::yaml::{Node, Value};

/// Which document of which file is being read.
#[derive(Clone, Copy)]
pub(super) struct ManifestDocument<'a> {
    pub(super) file: &'a str,
    pub(super) document: usize,
}

impl ManifestDocument<'_> {
    pub(super) fn source(&self, node: &Node) -> ObjectOrigin {
        ObjectOrigin { file: self.file.to_owned(), document: self.document, line: node.position.line }
    }

    pub(super) fn error<T>(&self, node: &Node, message: impl Into<String>) -> Result<T, ManifestError> {
        Err(ManifestError::Object { at: self.source(node), message: message.into() })
    }

    /// Text below `metadata.key` that is not empty.
    pub(super) fn metadata<'n>(&self, node: &'n Node, key: &str) -> Result<Option<&'n str>, ManifestError> {
        Ok(self.text_in(node, "metadata", key)?.filter(|text| !text.is_empty()))
    }

    /// Returns the annotations of an object, or none.
    pub(super) fn annotations(&self, object: &Node) -> Result<BTreeMap<String, String>, ManifestError> {
        let Some(node) = object.get("metadata").and_then(|m| m.get("annotations")) else { return Ok(BTreeMap::new()) };
        let Value::Map(entries) = &node.value else {
            return self.error(node, format!("metadata.annotations must be a map, not {}", node.value));
        };
        let mut annotations = BTreeMap::new();
        for (key, value) in entries {
            let Value::Text(text) = &value.value else {
                return self.error(value, format!("metadata.annotations: {key} must be text, not {}", value.value));
            };
            annotations.insert(key.clone(), text.clone());
        }
        Ok(annotations)
    }

    /// Returns the non-empty `name`s of a list of references to objects (`[{name: a}]`), in order.
    pub(super) fn names(&self, node: &Node, key: &str, path: &str) -> Result<Vec<String>, ManifestError> {
        let mut names = Vec::new();
        for (index, entry) in self.list(node, key, path)?.iter().enumerate() {
            if !matches!(entry.value, Value::Map(_) | Value::Null) {
                return self.error(entry, format!("{path}[{index}] must be a map with a name, not {}", entry.value));
            }
            if let Some(name) = self.text(entry, "name", &format!("{path}[{index}].name"))?.filter(|n| !n.is_empty()) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Text below `key`; `path` names it in errors.
    pub(super) fn text<'n>(&self, node: &'n Node, key: &str, path: &str) -> Result<Option<&'n str>, ManifestError> {
        match node.get(key) {
            None => Ok(None),
            Some(Node { value: Value::Text(text), .. }) => Ok(Some(text)),
            Some(other) => self.error(other, format!("{path} must be text, not {}", other.value)),
        }
    }

    /// Text below `outer.key`.
    pub(super) fn text_in<'n>(&self, node: &'n Node, outer: &str, key: &str) -> Result<Option<&'n str>, ManifestError> {
        match node.get(outer) {
            None => Ok(None),
            Some(inner) => self.text(inner, key, &format!("{outer}.{key}")),
        }
    }

    /// Returns the list below `key`, or an empty one.
    pub(super) fn list<'n>(&self, node: &'n Node, key: &str, path: &str) -> Result<&'n [Node], ManifestError> {
        match node.get(key) {
            None => Ok(&[]),
            Some(Node { value: Value::List(list), .. }) => Ok(list),
            Some(other) => self.error(other, format!("{path} must be a list, not {}", other.value)),
        }
    }
}

/// Returns a uid for an object without one: the same object has the same uid, so that records and logs can be compared.
pub(super) fn made_uid(kind: &str, namespace: &str, name: &str) -> String {
    let digest = oci::Digest::sha256(format!("{kind}\0{namespace}\0{name}").as_bytes());
    digest.hex()[..32].to_owned()
}
