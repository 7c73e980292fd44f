//! The model of a pod: the API's types, with the few values that the pod runner derives from them. It is read from a manifest
//! as JSON (YAML is the caller's affair), strictly: an unknown field is refused by its path, and so is one that Kubernetes
//! knows and this node cannot honour, with the reason; fields that only a scheduler or an API server uses are passed over.
//!
//! Called by pod sources through [`crate::admit`], and by other readers of pods.

mod convert;
mod ephemeral;
mod images;
mod source;
mod spec;
mod unsupported;
mod values;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PodTemplateSpec;
pub use k8s_openapi::api::core::v1::{
    ContainerPort, ContainerRestartRule, ContainerRestartRuleOnExitCodes, DownwardAPIVolumeFile, EmptyDirVolumeSource,
    EnvVar, HTTPGetAction, HostAlias, KeyToPath, LifecycleHandler, ObjectFieldSelector, PodDNSConfig, Probe,
    ResourceFieldSelector, SeccompProfile, SecurityContext, ServiceAccountTokenProjection, Sysctl, Volume, VolumeMount,
};
pub use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use manifest::{FieldErrors, FieldPath, decode};
use serde_json::Value;

use crate::documents::{DocumentKind, TokenKey};
pub use images::{ImageRole, PodImage};
pub(crate) use source::{
    DocumentFiles, EnvSource, KeyRef, ProjectedSource, TOKEN_LIFETIME, VolumeSource, divisor, is_in_memory, size_limit,
    token_key,
};
pub use spec::{Container, EphemeralContainer, PodSpec, Resources};
pub(crate) use words::words;
pub use words::{
    ContainerKind, DnsPolicy, ExitCodeOperator, HostPathType, MountPropagation, ProcMount, ProfileKind, Protocol,
    RecursiveReadOnly, RestartAction, RestartPolicy, Scheme, SupplementalGroupsPolicy, TerminationMessagePolicy, Word,
};

/// A pod of API version `v1`, without its status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// Name, namespace, labels and the like.
    pub metadata: Metadata,
    /// The pod as it should be.
    pub spec: PodSpec,
}

/// Metadata of an object. Empty texts are not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Name within the namespace.
    pub name: String,
    /// Prefix of a name that an API server generates.
    pub generate_name: String,
    /// Namespace; `default` unless it is set.
    pub namespace: String,
    /// Unique id; that of a static pod is a hash of its manifest.
    pub uid: String,
    /// Labels, by which clients select objects.
    pub labels: BTreeMap<String, String>,
    /// Annotations; some are read by runtimes.
    pub annotations: BTreeMap<String, String>,
    /// Time at which the deletion was requested.
    pub deletion_timestamp: Option<jiff::Timestamp>,
    /// Grace period of the deletion in seconds.
    pub deletion_grace_period_seconds: Option<i64>,
    /// Counts the changes of its spec.
    pub generation: Option<i64>,
}

impl Pod {
    /// Reads a pod as far as it can be read, and returns everything in it that could not: for callers that need only a
    /// part of it, and for [`crate::admit`], which adds errors of its own.
    #[must_use]
    pub fn read_all(value: &Value) -> (Self, FieldErrors) {
        let mut errors = FieldErrors::default();
        if value.is_object() {
            for (name, wanted) in [("apiVersion", "v1"), ("kind", "Pod")] {
                check_type(value, name, wanted, &mut errors);
            }
        }
        let (pod, found) = Self::read_typed(value);
        errors.merge(found);
        (pod, errors.in_order_of(value, &FieldPath::default()))
    }

    /// Reads an object that is known to be a pod, since items of lists have no kind.
    pub(crate) fn read_typed(value: &Value) -> (Self, FieldErrors) {
        let root = FieldPath::default();
        let (template, found) = decode::<PodTemplateSpec>(value, &root);
        let mut errors = FieldErrors::default();
        unsupported::sort_read_errors(found, &mut errors);
        if value.is_object() && value.get("spec").is_none_or(Value::is_null) {
            errors.required(root.child("spec"), "");
        }
        let (spec, path) = (template.spec.unwrap_or_default(), root.child("spec"));
        unsupported::refuse(&spec, &path, &mut errors);
        let spec = PodSpec::of_api(spec, &path, &mut errors);
        (Self { metadata: Metadata::of_api(template.metadata.unwrap_or_default()), spec }, errors)
    }

    /// Reads a pod, without filling anything in and without asking whether it is valid. [`crate::admit`] does all three.
    ///
    /// # Errors
    /// Everything that cannot be read, with its path.
    pub fn from_json(value: &Value) -> Result<Self, FieldErrors> {
        let (pod, errors) = Self::read_all(value);
        errors.into_result().map(|()| pod)
    }

    /// Returns the pod as a Kubernetes object, with defaults and without a status, so that tools for
    /// Kubernetes can read it. Ignored fields are absent. Reading the object gives the same pod. It contains literal values
    /// of variables, so only its owner may see it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self.to_api()).expect("types of the API have texts as keys")
    }

    /// `web_default(uid)`, as the kubelet names pods in messages.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{}_{}({})", self.metadata.name, self.metadata.namespace, self.metadata.uid)
    }

    /// Returns every container with its kind: init, normal, ephemeral.
    pub fn all_containers(&self) -> impl Iterator<Item = (ContainerKind, &Container)> {
        let spec = &self.spec;
        let init = spec.init_containers.iter().map(|c| (ContainerKind::Init, c));
        let normal = spec.containers.iter().map(|c| (ContainerKind::Normal, c));
        let ephemeral = spec.ephemeral_containers.iter().map(|c| (ContainerKind::Ephemeral, &c.container));
        init.chain(normal).chain(ephemeral)
    }

    /// Returns the container of this name.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<(ContainerKind, &Container)> {
        self.all_containers().find(|(_, container)| container.name == name)
    }

    /// Kinds and names of all documents that the pod names, its pull secrets among them.
    #[must_use]
    pub fn documents(&self) -> BTreeSet<(DocumentKind, String)> {
        let mut names = BTreeSet::new();
        let mut add = |kind, name: &str| {
            names.insert((kind, name.to_owned()));
        };
        self.spec.image_pull_secrets.iter().for_each(|name| add(DocumentKind::Secret, name));
        for (kind, name) in self.spec.volumes.iter().flat_map(|volume| VolumeSource::of(volume).documents()) {
            add(kind, name);
        }
        for (_, container) in self.all_containers() {
            for from in &container.env_from {
                from.config_map_ref.iter().for_each(|from| add(DocumentKind::ConfigMap, &from.name));
                from.secret_ref.iter().for_each(|from| add(DocumentKind::Secret, &from.name));
            }
            for variable in &container.env {
                match EnvSource::of(variable) {
                    EnvSource::ConfigMapKey(key) => add(DocumentKind::ConfigMap, key.name),
                    EnvSource::SecretKey(key) => add(DocumentKind::Secret, key.name),
                    _ => {}
                }
            }
        }
        names
    }

    /// Returns the service account tokens of the pod's volumes.
    #[must_use]
    pub fn tokens(&self) -> BTreeSet<TokenKey> {
        self.spec.volumes.iter().flat_map(|volume| VolumeSource::of(volume).tokens()).map(token_key).collect()
    }

    /// Returns true if the pod shares the node's network.
    #[must_use]
    pub fn host_network(&self) -> bool {
        self.spec.host_network
    }
}

/// Checks that the field `name` of an object is `wanted`.
fn check_type(object: &Value, name: &str, wanted: &str, errors: &mut FieldErrors) {
    let path = FieldPath::new(name);
    match object.get(name) {
        None | Some(Value::Null) => errors.required(path, ""),
        Some(value) => {
            let (text, found) = decode::<String>(value, &path);
            if found.is_empty() && text != wanted {
                errors.unsupported(path, text, &[wanted]);
            }
            errors.merge(found);
        }
    }
}

#[cfg(test)]
#[path = "pod_tests.rs"]
mod tests;
