//! [`SetManifest`] and [`FleetManifest`]: objects as people write them, and rules that a server would refuse with less precise words. Pure.
//! The binary reads files with these types.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oci::Reference;
use serde::Deserialize;
use serde_json::Value;

use crate::api::{FleetSpec, ImageSetSpec, MinFree, share_of};

/// An ImageSet in a file. A status is ignored, as the server ignores it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetManifest {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name, labels and annotations.
    pub metadata: ObjectMeta,
    /// The set.
    pub spec: ImageSetSpec,
    /// Not read.
    pub status: Option<Value>,
}

/// A Fleet in a file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FleetManifest {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name, labels and annotations.
    pub metadata: ObjectMeta,
    /// The settings.
    pub spec: FleetSpec,
    /// Not read.
    pub status: Option<Value>,
}

/// Returns the fields of a set that are wrong, with what is wrong.
#[must_use]
pub fn problems(set: &ImageSetSpec) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    let mut push = |path: &str, problem: String| problems.push((path.to_owned(), problem));
    if set.images.is_empty() {
        push("spec.images", "Required value: a set has at least one image".to_owned());
    }
    let mut names = BTreeSet::new();
    for (index, image) in set.images.iter().enumerate() {
        let path = format!("spec.images[{index}].name");
        match Reference::parse(&image.name) {
            Err(error) => push(&path, format!("Invalid value: {:?}: {error}", image.name)),
            Ok(_) if !names.insert(&image.name) => push(&path, format!("Duplicate value: {:?}", image.name)),
            Ok(_) => {}
        }
    }
    if set.node_selector.is_none() && set.node_names.is_empty() {
        let problem =
            "Required value: select nodes by nodeSelector, nodeNames or both; nodeSelector: {} selects every node";
        push("spec.nodeSelector", problem.to_owned());
    }
    let rollout = &set.rollout;
    for (path, wrong) in [
        ("spec.minFree", MinFree::parse(&set.min_free).err()),
        ("spec.rollout.maxConcurrent", share_of(&rollout.max_concurrent, 0).err()),
        ("spec.rollout.maxFailed", share_of(&rollout.max_failed, 0).err()),
    ] {
        if let Some(error) = wrong {
            push(path, format!("Invalid value: {error}"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_field_is_named() {
        let set: ImageSetSpec = serde_json::from_value(serde_json::json!({
            "images": [{"name": "a:1"}, {"name": "B"}, {"name": "a:1"}], "minFree": "some",
            "rollout": {"maxConcurrent": "half"},
        }))
        .expect("a spec");
        let paths: Vec<String> = problems(&set).into_iter().map(|(path, _)| path).collect();
        let want = [
            "spec.images[1].name",
            "spec.images[2].name",
            "spec.nodeSelector",
            "spec.minFree",
            "spec.rollout.maxConcurrent",
        ];
        assert_eq!(paths, want);
    }
}
