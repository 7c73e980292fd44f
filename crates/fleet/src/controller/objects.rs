//! The watched objects as types. An object that was read before and did not change is not read again; one that cannot be read is
//! reported and left out. Called by [`super::pass`].

use std::collections::HashMap;
use std::sync::Arc;

use cluster::watch::Objects;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use crate::api::{NodeCursor, STARTUP_TAINT, decode};
use crate::selection::Labels;

/// Objects of one kind that were read, by uid.
pub(super) struct ObjectReader<T>(HashMap<String, (Arc<Value>, Option<Arc<T>>)>);

impl<T> Default for ObjectReader<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> ObjectReader<T> {
    /// Returns the objects, in the order of their uids.
    pub(super) fn read(&mut self, objects: &Objects, parse: impl Fn(&Value) -> Result<T, String>) -> Vec<Arc<T>> {
        self.0.retain(|uid, _| objects.contains_key(uid));
        let mut all = Vec::with_capacity(objects.len());
        for (uid, value) in objects {
            let known = self.0.get(uid).filter(|(known, _)| Arc::ptr_eq(known, value));
            let typed = match known {
                Some((_, typed)) => typed.clone(),
                None => {
                    let typed = parse(value).map(Arc::new);
                    let (kind, name) = (&value["kind"], &value["metadata"]["name"]);
                    let report =
                        |error: String| tracing::warn!(%kind, %name, error, "an object cannot be read and is left out");
                    let typed = typed.map_err(report).ok();
                    self.0.insert(uid.clone(), (Arc::clone(value), typed.clone()));
                    typed
                }
            };
            all.extend(typed);
        }
        all
    }
}

/// A Node, as far as the controller uses it.
#[derive(Clone, Debug)]
pub(super) struct NodeFacts {
    pub(super) cursor: NodeCursor,
    pub(super) uid: String,
    pub(super) version: String,
    pub(super) labels: Labels,
    /// All taints, if the startup taint is one of them.
    pub(super) tainted: Option<Vec<Value>>,
}

impl NodeFacts {
    /// Paths of the fields that are read.
    pub(super) const FIELDS: &[&str] = &[
        "/kind",
        "/metadata/name",
        "/metadata/uid",
        "/metadata/resourceVersion",
        "/metadata/creationTimestamp",
        "/metadata/labels",
        "/spec/taints",
    ];

    pub(super) fn parse(value: &Value) -> Result<Self, String> {
        let metadata = &value["metadata"];
        let text =
            |field: &str| metadata[field].as_str().map(str::to_owned).ok_or(format!("metadata.{field} is missing"));
        let created: Time = decode(&metadata["creationTimestamp"])?;
        let taints = value["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let labels = metadata["labels"].as_object().into_iter().flatten();
        Ok(Self {
            cursor: NodeCursor { creation_time: created, name: text("name")? },
            uid: text("uid")?,
            version: text("resourceVersion")?,
            labels: labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
            tainted: taints.iter().any(|taint| taint["key"] == STARTUP_TAINT).then_some(taints),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.cursor.name
    }
}
