//! [`PodCache`]: the pods that an API server last had for this node, on disk, for a process that starts while the server is away.
//! There is no Secret, no ConfigMap and no token in it; values of variables that stand in a pod itself are, so that only root may
//! read the file. What cannot be read counts as absent. Blocks; called by the node's keeper of pods on threads that may.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::write_private;
use serde_json::{Value, json};

use crate::watch::Objects;

/// The largest file that is read.
const MAX_BYTES: u64 = 64 << 20;
/// Version of the file.
const FORMAT: u64 = 1;

/// A file with pods.
#[derive(Clone, Debug)]
pub struct PodCache {
    path: PathBuf,
}

/// The objects that the server had last.
#[derive(Clone, Debug, Default)]
pub struct CachedPods {
    /// Pods of the node by uid, with the status that the server had.
    pub pods: Objects,
    /// This node.
    pub node: Option<Value>,
    /// The service by which containers find the API server.
    pub service: Option<Value>,
}

impl PodCache {
    /// Creates a cache in a directory, which need not exist.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self { path: directory.join("pods.json") }
    }

    /// Writes the file, at once or not at all.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, cached: &CachedPods) -> io::Result<()> {
        let pods: Vec<&Value> = cached.pods.values().map(|pod| &**pod).collect();
        let text = json!({"format": FORMAT, "pods": pods, "node": cached.node, "service": cached.service}).to_string();
        write_private(&self.path, text.as_bytes())
    }

    /// Reads the file; `None` if there is none that can be read.
    #[must_use]
    pub fn read(&self) -> Option<CachedPods> {
        let metadata = fs::metadata(&self.path).ok()?;
        if metadata.len() > MAX_BYTES {
            tracing::warn!(path = %self.path.display(), "file of pods is too large, ignoring it");
            return None;
        }
        let bytes = fs::read(&self.path).ok()?;
        let Ok(mut file) = serde_json::from_slice::<Value>(&bytes) else {
            tracing::warn!(path = %self.path.display(), "file of pods cannot be read, ignoring it");
            return None;
        };
        if file["format"] != FORMAT {
            return None;
        }
        let pods = file["pods"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let uid = |pod: &Value| pod["metadata"]["uid"].as_str().map(str::to_owned);
        let pods = pods.into_iter().filter_map(|pod| Some((uid(&pod)?, Arc::new(pod)))).collect();
        let object = |value: Value| value.is_object().then_some(value);
        Some(CachedPods { pods, node: object(file["node"].take()), service: object(file["service"].take()) })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn pods_are_read_as_they_were_written_by_root_alone() {
        let top = tempfile::tempdir().expect("a directory");
        let cache = PodCache::new(&top.path().join("cluster"));
        assert!(cache.read().is_none());
        let pod = Arc::new(json!({"metadata": {"uid": "u", "name": "web"}}));
        let node = Some(json!({"metadata": {"name": "edge"}}));
        let cached = CachedPods { pods: [("u".to_owned(), pod)].into(), node, service: None };
        for _ in 0..2 {
            cache.write(&cached).expect("written");
        }
        let read = cache.read().expect("read");
        assert_eq!((&read.pods, &read.node, &read.service), (&cached.pods, &cached.node, &None));
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&cache.path), mode(cache.path.parent().expect("a directory"))), (0o600, 0o700));
    }

    #[test]
    fn what_cannot_be_read_counts_as_absent() {
        let top = tempfile::tempdir().expect("a directory");
        let cache = PodCache::new(top.path());
        for text in ["", "{", "[]", "{\"format\": 2, \"pods\": []}", "\u{0}"] {
            fs::write(&cache.path, text).expect("written");
            assert!(cache.read().is_none(), "{text}");
        }
        fs::write(&cache.path, r#"{"format": 1, "pods": [7, {"metadata": {}}], "node": 3}"#).expect("written");
        let read = cache.read().expect("read");
        assert!(read.pods.is_empty() && read.node.is_none());
    }
}
