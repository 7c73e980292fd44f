//! [`FollowedSet`]: an image set as this node follows it: the images of its rollout, the permission to pull them, and the options that
//! count on a node. [`follow`] makes it of the newest object and of what was followed before. Pure. Called by [`super::model`].

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::{ImageSet, ImageSetSpec, Mode, NodeCursor, OnDelete, PullPolicy, Resolution, ResolvedImage};
use crate::release::may_start;
use crate::selection::selects;

/// Facts about the own Node by which sets select it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeFacts {
    pub(super) name: String,
    pub(super) uid: String,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    /// Time at which the Node was created.
    #[serde(default)]
    pub(super) created: Option<Timestamp>,
}

impl NodeFacts {
    /// Reads a Node object; `None` if it has no name or no UID.
    pub(super) fn of(node: &Value) -> Option<Self> {
        let metadata = &node["metadata"];
        let labels = metadata["labels"].as_object().into_iter().flatten();
        Some(Self {
            name: metadata["name"].as_str()?.to_owned(),
            uid: metadata["uid"].as_str()?.to_owned(),
            labels: labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
            created: metadata["creationTimestamp"].as_str().and_then(|time| time.parse().ok()),
        })
    }
}

/// Options of a set that count on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetOptions {
    pub(super) pin: bool,
    /// Seconds for which an image stays protected after the set no longer wants it.
    pub(super) release_after: u64,
    pub(super) on_delete: OnDelete,
    pub(super) mode: Mode,
    pub(super) min_free: IntOrString,
    pub(super) pull_secrets: Vec<String>,
    pub(super) namespaces: Vec<String>,
    /// True if nodes resolve the tags themselves.
    pub(super) resolves_on_node: bool,
}

impl SetOptions {
    fn of(spec: &ImageSetSpec) -> Self {
        let release_after: std::time::Duration =
            if spec.release_after.is_negative() { std::time::Duration::ZERO } else { spec.release_after.into() };
        Self {
            pin: spec.pin,
            release_after: release_after.as_secs(),
            on_delete: spec.on_delete,
            mode: spec.mode,
            min_free: spec.min_free.clone(),
            pull_secrets: spec.pull_secrets.iter().map(|secret| secret.name.clone()).collect(),
            namespaces: spec.access.namespaces.clone(),
            resolves_on_node: spec.resolution == Resolution::OnNode,
        }
    }
}

/// A set as this node follows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FollowedSet {
    pub(super) name: String,
    pub(super) uid: String,
    /// Generation that the images are of.
    pub(super) generation: i64,
    pub(super) images: Vec<ResolvedImage>,
    /// True if this node may pull the images of this generation.
    pub(super) released: bool,
    /// True if a set of mode `Once` has ended.
    pub(super) finished: bool,
    pub(super) options: SetOptions,
}

/// Returns the set as the node follows it from now on; `None` if the set does not select the node. `before` is what was followed of
/// the set so far: a status that is older than the set changes nothing.
pub(super) fn follow(set: &ImageSet, node: &NodeFacts, before: Option<&FollowedSet>) -> Option<FollowedSet> {
    let name = set.metadata.name.clone()?;
    let uid = set.metadata.uid.clone()?;
    if !selects(&set.spec, &node.name, &node.labels) {
        return None;
    }
    let options = SetOptions::of(&set.spec);
    let wanted = set.metadata.generation.unwrap_or_default();
    let current = set.status.as_ref().filter(|status| status.observed_generation == Some(wanted));
    let Some(status) = current else {
        let before = before.filter(|before| before.uid == uid);
        return Some(match before {
            Some(before) => FollowedSet { options, ..before.clone() },
            None => FollowedSet {
                name,
                uid,
                generation: wanted,
                images: unresolved(&set.spec),
                released: false,
                finished: false,
                options,
            },
        });
    };
    let generation = status.rollout_generation.unwrap_or(wanted);
    let cursor = node.created.map(|created| NodeCursor { creation_time: Time(created), name: node.name.clone() });
    let released = cursor.is_some_and(|cursor| may_start(status, &uid, &cursor));
    Some(FollowedSet {
        name,
        uid,
        generation,
        images: if status.resolved.is_empty() { unresolved(&set.spec) } else { status.resolved.clone() },
        released,
        finished: status.finish_time.is_some(),
        options,
    })
}

/// Returns a set whose images were pulled before the node had an API server. The first object from the server replaces it.
pub(super) fn baked(name: &str, spec: &ImageSetSpec, images: &[ResolvedImage]) -> FollowedSet {
    FollowedSet {
        name: name.to_owned(),
        uid: String::new(),
        generation: 0,
        images: images.to_vec(),
        released: true,
        finished: false,
        options: SetOptions::of(spec),
    }
}

fn unresolved(spec: &ImageSetSpec) -> Vec<ResolvedImage> {
    let image = |name: &String, pull_policy: PullPolicy| ResolvedImage {
        name: name.clone(),
        pull_policy,
        ..ResolvedImage::default()
    };
    spec.images.iter().map(|wanted| image(&wanted.name, wanted.pull_policy)).collect()
}

#[cfg(test)]
#[path = "followed_tests.rs"]
mod tests;
