//! Reads a Pod, or the pod template of a workload: its images, and what decides who may have them and when. Strict where
//! a mistake would mean that an image is forgotten. Called by [`super::parse`].

use image_manager::PullPolicy;

use super::place::{Place, made_uid};
use super::{ManifestError, Pod, PodImage, Role};
use crate::yaml::{Node, Value};

/// The priority classes that every cluster has.
const CLASSES: [(&str, i32); 2] = [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

impl Place<'_> {
    /// Reads an object of a known kind; `way` leads to its pod or pod template.
    pub(super) fn pod(&self, node: &Node, kind: &str, way: &[&str]) -> Result<Pod, ManifestError> {
        let name = match self.metadata(node, "name")? {
            Some(name) => name.to_owned(),
            None => match self.metadata(node, "generateName")? {
                Some(prefix) => format!("{prefix}*"),
                None => return self.error(node, format!("{kind} has no metadata.name")),
            },
        };
        let namespace = self.metadata(node, "namespace")?.unwrap_or("default").to_owned();
        let uid = match self.metadata(node, "uid")? {
            Some(uid) => uid.to_owned(),
            None => made_uid(kind, &namespace, &name),
        };
        let mut pod = node;
        for (depth, step) in way.iter().enumerate() {
            match pod.get(step) {
                Some(next) => pod = next,
                None => return self.error(pod, format!("{kind} {name} has no {}", way[..=depth].join("."))),
            }
        }
        let path = way.iter().chain(&["spec"]).copied().collect::<Vec<_>>().join(".");
        let Some(spec) = pod.get("spec") else { return self.error(pod, format!("{kind} {name} has no {path}")) };
        if !matches!(spec.value, Value::Map(_)) {
            return self.error(spec, format!("{path} of {kind} {name} must be a map, not {}", spec.value));
        }
        let images = self.images(spec, &path)?;
        if !images.iter().any(|image| image.role == Role::Container) {
            return self.error(node, format!("{kind} {name} has no containers"));
        }
        let annotations = self.annotations(pod)?;
        Ok(Pod {
            source: self.source(node),
            kind: kind.to_owned(),
            namespace,
            name,
            uid,
            annotations,
            images,
            pull_secrets: self.names(spec, "imagePullSecrets", &format!("{path}.imagePullSecrets"))?,
            service_account: self.service_account(spec, &path)?,
            priority: self.priority(spec, &path)?,
        })
    }

    /// The account under which the pod runs: `default` unless it says otherwise.
    fn service_account(&self, spec: &Node, path: &str) -> Result<String, ManifestError> {
        for key in ["serviceAccountName", "serviceAccount"] {
            if let Some(name) = self.text(spec, key, &format!("{path}.{key}"))?.filter(|name| !name.is_empty()) {
                return Ok(name.to_owned());
            }
        }
        Ok("default".to_owned())
    }

    /// The pod's priority: as written, otherwise that of the two classes which every cluster has.
    fn priority(&self, spec: &Node, path: &str) -> Result<i32, ManifestError> {
        let class = self.text(spec, "priorityClassName", &format!("{path}.priorityClassName"))?;
        let Some(node) = spec.get("priority") else {
            let known = CLASSES.iter().find(|(name, _)| Some(*name) == class);
            return Ok(known.map_or(0, |(_, priority)| *priority));
        };
        let number = match &node.value {
            Value::Number(number) => number.as_i64().and_then(|number| i32::try_from(number).ok()),
            _ => None,
        };
        match number {
            Some(number) => Ok(number),
            None => self.error(node, format!("{path}.priority must be a whole number of 32 bits, not {}", node.value)),
        }
    }

    /// Everything in a pod's spec that needs an image.
    fn images(&self, spec: &Node, path: &str) -> Result<Vec<PodImage>, ManifestError> {
        let mut images: Vec<PodImage> = Vec::new();
        for role in [Role::Volume, Role::Ephemeral, Role::Init, Role::Container] {
            let field = role.field();
            for (index, entry) in self.list(spec, field, &format!("{path}.{field}"))?.iter().enumerate() {
                let path = format!("{path}.{field}[{index}]");
                let (holder, image_field, policy_field) = match role {
                    Role::Volume => match entry.get("image") {
                        Some(image) => (image, "reference", "pullPolicy"),
                        None => continue,
                    },
                    _ => (entry, "image", "imagePullPolicy"),
                };
                let Some(name) = self.text(entry, "name", &format!("{path}.name"))? else {
                    return self.error(entry, format!("{path} has no name"));
                };
                let inner = if role == Role::Volume { format!("{path}.image") } else { path.clone() };
                let image = self.text(holder, image_field, &format!("{inner}.{image_field}"))?;
                let Some(image) = image.filter(|image| !image.is_empty()) else {
                    return self.error(entry, format!("{path} {name:?} has no {image_field}"));
                };
                let policy = self.policy(holder, policy_field, &format!("{inner}.{policy_field}"), image)?;
                // Containers share one space of names, volumes have their own.
                let twice =
                    |other: &&PodImage| other.name == name && (other.role == Role::Volume) == (role == Role::Volume);
                if let Some(other) = images.iter().find(twice) {
                    let first = other.role.field();
                    return self.error(entry, format!("{path}: the name {name:?} is taken in {first} already"));
                }
                images.push(PodImage { role, name: name.to_owned(), image: image.to_owned(), policy });
            }
        }
        Ok(images)
    }

    fn policy(&self, node: &Node, key: &str, path: &str, image: &str) -> Result<PullPolicy, ManifestError> {
        let Some(text) = self.text(node, key, path)?.filter(|text| !text.is_empty()) else {
            return Ok(PullPolicy::default_for(image));
        };
        match text.parse() {
            Ok(policy) => Ok(policy),
            Err(_) => {
                let at = node.get(key).unwrap_or(node);
                self.error(at, format!("{path}: {text:?} is not allowed, must be Always, IfNotPresent or Never"))
            }
        }
    }
}
