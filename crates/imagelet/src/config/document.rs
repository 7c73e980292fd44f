//! A configuration file as a YAML document of the right kind. Knows no setting. Called by [`crate::config`] and
//! [`super::kubelet`].

use std::path::{Path, PathBuf};

use manifest::yaml::{self, Node, Value};

use super::error::{ConfigError, Origin};

/// A parsed configuration file: one document of the right kind.
pub(super) struct Document {
    pub(super) path: PathBuf,
    node: Node,
}

impl Document {
    /// Reads a file that must have this head.
    pub(super) fn read(path: &Path, api_version: &str, kind: &str) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), message: error.to_string() })?;
        let shape = |line, message: String| ConfigError::Shape { path: path.to_owned(), line, message };
        let mut documents = yaml::documents(&text).map_err(|e| shape(e.position.map(|p| p.line), e.message))?;
        let (1, Some(node)) = (documents.len(), documents.pop()) else {
            return Err(shape(None, format!("{} documents instead of one", documents.len())));
        };
        if !matches!(node.value, Value::Map(_)) {
            return Err(shape(Some(node.position.line), format!("a map was expected, not {}", node.value)));
        }
        for (field, want) in [("apiVersion", api_version), ("kind", kind)] {
            match node.get(field) {
                Some(Node { value: Value::Text(got), .. }) if got == want => {}
                Some(Node { value, position }) => {
                    let message = format!("{field}: {value} is not allowed, must be {want}");
                    return Err(shape(Some(position.line), message));
                }
                None => return Err(shape(None, format!("{field} is missing, must be {want}"))),
            }
        }
        Ok(Self { path: path.to_owned(), node })
    }

    /// Returns the fields below the head, in their order.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &Node)> {
        let entries: &[(String, Node)] = match &self.node.value {
            Value::Map(entries) => entries,
            _ => &[],
        };
        entries.iter().map(|(key, node)| (key.as_str(), node)).filter(|(key, _)| *key != "apiVersion" && *key != "kind")
    }

    /// Returns the directory that relative paths are resolved against.
    pub(super) fn base(&self) -> PathBuf {
        let absolute = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        absolute.parent().unwrap_or(Path::new("/")).to_owned()
    }

    pub(super) fn origin(&self, node: &Node) -> Origin {
        Origin::File { path: self.path.clone(), line: node.position.line }
    }

    pub(super) fn error<T>(&self, node: &Node, message: String) -> Result<T, ConfigError> {
        Err(ConfigError::Shape { path: self.path.clone(), line: Some(node.position.line), message })
    }
}
