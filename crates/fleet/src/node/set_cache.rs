//! [`SetCache`]: the parsed ImageSets of the cluster. An object is parsed once for each of its versions, because every change of one set
//! delivers all of them. Called by [`super::daemon`].

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::watch::Objects;
use serde::Deserialize as _;
use serde_json::Value;

use crate::api::ImageSet;

/// Parsed sets by UID.
#[derive(Debug, Default)]
pub(super) struct SetCache(BTreeMap<String, Entry>);

#[derive(Debug)]
struct Entry {
    object: Arc<Value>,
    name: String,
    /// `None`: the object cannot be parsed.
    set: Option<ImageSet>,
}

impl SetCache {
    /// Takes the current objects.
    pub(super) fn update(&mut self, objects: &Objects) {
        self.0.retain(|uid, _| objects.contains_key(uid));
        for (uid, object) in objects {
            if self.0.get(uid).is_some_and(|entry| Arc::ptr_eq(&entry.object, object)) {
                continue;
            }
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let set = match ImageSet::deserialize(&**object) {
                Ok(set) => Some(set),
                Err(error) => {
                    tracing::warn!(%error, name, "an ImageSet cannot be parsed, the node follows the last readable version");
                    None
                }
            };
            self.0.insert(uid.clone(), Entry { object: Arc::clone(object), name, set });
        }
    }

    /// Returns the sets that could be parsed.
    pub(super) fn sets(&self) -> impl Iterator<Item = &ImageSet> {
        self.0.values().filter_map(|entry| entry.set.as_ref())
    }

    /// Returns the names of the others.
    pub(super) fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.0.values().filter(|entry| entry.set.is_none()).map(|entry| entry.name.as_str())
    }
}
