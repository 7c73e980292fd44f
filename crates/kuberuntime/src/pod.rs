//! The model of a pod: what a runtime on one node can honour of Kubernetes' `Pod`, as small types of our own. It is read
//! from a manifest as JSON (YAML is the caller's affair), strictly: an unknown field is refused by its path, and so is
//! one that Kubernetes knows and this node cannot honour, with the reason; fields that only a scheduler or an API server
//! uses are passed over. Zero means "not set", as in Kubernetes' own types, until `set_defaults` was there.
//!
//! Called by pod sources through [`crate::admit`], and by other readers of pods.

mod container;
mod handler;
mod images;
mod macros;
pub(crate) mod read;
mod security;
mod spec;
mod values;
mod variable;
mod volume;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::documents::{DocumentKind, TokenKey};
use manifest::{FieldErrors, FieldPath};
pub use container::{
    Container, ContainerKind, ContainerPort, EphemeralContainer, ExitCodeOperator, ExitCodes, MountPropagation,
    Protocol, RecursiveReadOnly, Resources, RestartAction, RestartPolicy, RestartRule, TerminationMessagePolicy,
    VolumeMount,
};
pub use handler::{
    ExecAction, GrpcAction, Handler, HttpGetAction, HttpHeader, Lifecycle, Probe, Scheme, SleepAction, TcpAction,
};
pub use images::{ImageRole, PodImage};
use macros::object;
pub(crate) use macros::words;
use read::{Json as _, ManifestField, ManifestFields, ManifestObject, Plain};
pub use security::{
    Capabilities, PodSecurityContext, ProcMount, Profile, ProfileKind, SeLinuxOptions, SecurityContext,
    SupplementalGroupsPolicy, Sysctl,
};
pub use spec::{DnsConfig, DnsOption, DnsPolicy, HostAlias, PodSpec};
pub(crate) use spec::{NODE_CRITICAL, PRIORITY_CLASSES};
pub use values::IntOrText;
pub use variable::{DocumentRef, EnvFromSource, EnvSource, EnvVar, FieldRef, KeyRef, ResourceFieldRef};
pub use volume::{
    DocumentVolume, DownwardApiVolume, DownwardItem, EmptyDirVolume, HostPathType, HostPathVolume, ImageVolume,
    KeyToPath, Medium, ProjectedSource, ProjectedVolume, TokenProjection, Volume, VolumeSource,
};

/// A pod of API version `v1`, without its status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// Name, namespace, labels and the like.
    pub metadata: Metadata,
    /// The pod as it should be.
    pub spec: PodSpec,
}

object! {
    /// Metadata of an object.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Metadata (ignored_in_metadata) {
        /// Name within the namespace.
        pub name: String = "name",
        /// Prefix of a name that an API server generates.
        pub generate_name: String = "generateName",
        /// Namespace; `default` unless said.
        pub namespace: String = "namespace",
        /// Unique id; that of a static pod is a hash of its manifest.
        pub uid: String = "uid",
        /// Labels, by which clients select objects.
        pub labels: BTreeMap<String, String> = "labels",
        /// Annotations; some are read by runtimes.
        pub annotations: BTreeMap<String, String> = "annotations",
        /// When its deletion was asked for.
        pub deletion_timestamp: Option<jiff::Timestamp> = "deletionTimestamp",
        /// How long it then may take to end.
        pub deletion_grace_period_seconds: Option<i64> = "deletionGracePeriodSeconds",
        /// Counts the changes of its spec.
        pub generation: Option<i64> = "generation",
    }
}

impl Pod {
    /// Reads a pod as far as it can be read, and returns everything in it that could not: for callers that need only a
    /// part of it, and for [`crate::admit`], which adds errors of its own.
    #[must_use]
    pub fn read_all(value: &Value) -> (Self, FieldErrors) {
        let mut errors = FieldErrors::default();
        let pod = Self::from_value(value, FieldPath::default(), &mut errors).unwrap_or_default();
        (pod, errors.in_order_of(value, &FieldPath::default()))
    }

    /// The same of an object of which it is known that it is a pod: items of lists do not say so.
    pub(crate) fn read_typed(value: &Value) -> (Self, FieldErrors) {
        let mut errors = FieldErrors::default();
        let typed = TypedPod::from_value(value, FieldPath::default(), &mut errors);
        (typed.map(|TypedPod(pod)| pod).unwrap_or_default(), errors)
    }

    /// Reads a pod, without filling anything in and without asking whether it is valid. [`crate::admit`] does all three.
    ///
    /// # Errors
    /// Everything that cannot be read, with its path.
    pub fn from_json(value: &Value) -> Result<Self, FieldErrors> {
        let (pod, errors) = Self::read_all(value);
        errors.into_result().map(|()| pod)
    }

    /// The pod in Kubernetes' shape, with the defaults that were filled in and without a status, so that tools which know
    /// Kubernetes can read it. Fields that were ignored are not in it. Reading it again gives the same pod. Literal values
    /// of variables are in it, so only its owner may see it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        self.to_value()
    }

    /// `web_default(uid)`, as the kubelet names pods in messages.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{}_{}({})", self.metadata.name, self.metadata.namespace, self.metadata.uid)
    }

    /// Every container with what it is: init, normal, ephemeral.
    pub fn all_containers(&self) -> impl Iterator<Item = (ContainerKind, &Container)> {
        let spec = &self.spec;
        let init = spec.init_containers.iter().map(|c| (ContainerKind::Init, c));
        let normal = spec.containers.iter().map(|c| (ContainerKind::Normal, c));
        let ephemeral = spec.ephemeral_containers.iter().map(|c| (ContainerKind::Ephemeral, &c.container));
        init.chain(normal).chain(ephemeral)
    }

    /// The container of this name.
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
        for (kind, name) in self.spec.volumes.iter().flat_map(|volume| volume.source.documents()) {
            add(kind, name);
        }
        for (_, container) in self.all_containers() {
            for from in &container.env_from {
                from.config_map.iter().for_each(|from| add(DocumentKind::ConfigMap, &from.name));
                from.secret.iter().for_each(|from| add(DocumentKind::Secret, &from.name));
            }
            for variable in &container.env {
                match &variable.source {
                    EnvSource::ConfigMapKey(key) => add(DocumentKind::ConfigMap, &key.name),
                    EnvSource::SecretKey(key) => add(DocumentKind::Secret, &key.name),
                    _ => {}
                }
            }
        }
        names
    }

    /// The tokens that volumes of the pod are made of.
    #[must_use]
    pub fn tokens(&self) -> BTreeSet<TokenKey> {
        self.spec.volumes.iter().flat_map(|volume| volume.source.tokens()).map(TokenProjection::key).collect()
    }

    /// Returns true if the pod shares the node's network.
    #[must_use]
    pub fn host_network(&self) -> bool {
        self.spec.host_network
    }
}

impl ManifestObject for Pod {
    fn read(fields: &mut ManifestFields<'_>) -> Self {
        for (name, want) in [("apiVersion", "v1"), ("kind", "Pod")] {
            let path = fields.path().child(name);
            match fields.get::<String>(name) {
                Some(text) if text == want => {}
                Some(text) => fields.errors().unsupported(path, text, &[want]),
                None => fields.errors().required(path, ""),
            }
        }
        // What was observed elsewhere says nothing about this node.
        fields.ignored(&["status"]);
        let Template(pod) = Template::read(fields);
        pod
    }

    fn write(&self, object: &mut Map<String, Value>) {
        object.insert("apiVersion".to_owned(), "v1".into());
        object.insert("kind".to_owned(), "Pod".into());
        ManifestField::write(&self.metadata, "metadata", object);
        object.insert("spec".to_owned(), self.spec.to_value());
    }
}

/// A pod of an API server, which answers nothing else where pods are asked for.
struct TypedPod(Pod);

impl ManifestObject for TypedPod {
    fn read(fields: &mut ManifestFields<'_>) -> Self {
        fields.ignored(&["apiVersion", "kind", "status"]);
        let Template(pod) = Template::read(fields);
        Self(pod)
    }

    fn write(&self, object: &mut Map<String, Value>) {
        self.0.write(object);
    }
}

/// A pod without what makes it an object of its own.
struct Template(Pod);

impl ManifestObject for Template {
    fn read(fields: &mut ManifestFields<'_>) -> Self {
        let metadata = fields.get("metadata").unwrap_or_default();
        let spec = fields.get("spec");
        if spec.is_none() && !fields.has("spec") {
            let path = fields.path().child("spec");
            fields.errors().required(path, "");
        }
        Self(Pod { metadata, spec: spec.unwrap_or_default() })
    }

    fn write(&self, object: &mut Map<String, Value>) {
        self.0.write(object);
    }
}

impl Plain for Metadata {}

fn ignored_in_metadata(fields: &mut ManifestFields<'_>) {
    fields.ignored(&[
        "clusterName",
        "creationTimestamp",
        "finalizers",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
    ]);
}

#[cfg(test)]
#[path = "pod_tests.rs"]
mod tests;
