//! The images that a pod needs, in the order in which the kubelet visits them, and the fields of a pod that decide about them.
//! Reads no manifest and pulls nothing. Called by the reader of manifests, and for priorities by the pod runner.

use image_manager::PullPolicy;
use k8s_openapi::api::core::v1::{PodSpec, Volume};

use crate::field::{FieldErrors, FieldPath};

/// The least priority of the pods that a cluster cannot do without.
pub const CLUSTER_CRITICAL: i32 = 2_000_000_000;
/// Priority of pods that a node cannot do without.
pub const NODE_CRITICAL: i32 = 2_000_001_000;
/// The priority classes that every cluster has.
const PRIORITY_CLASSES: [(&str, i32); 2] =
    [("system-cluster-critical", CLUSTER_CRITICAL), ("system-node-critical", NODE_CRITICAL)];

/// Role of an image in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// An image volume.
    Volume,
    /// An ephemeral container.
    Ephemeral,
    /// An init container.
    Init,
    /// A container.
    Container,
}

impl Role {
    /// Field of the spec.
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::Volume => "volumes",
            Self::Ephemeral => "ephemeralContainers",
            Self::Init => "initContainers",
            Self::Container => "containers",
        }
    }
}

/// An image that a pod needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NeededImage<'a> {
    /// The kind of container or volume that needs it.
    pub(crate) role: Role,
    /// Number of the container or volume in its list.
    pub(crate) index: usize,
    /// Name of the container or volume.
    pub(crate) name: &'a str,
    /// Image as written; empty if there is none.
    pub(crate) image: &'a str,
    /// Policy as written, otherwise the default of the API server.
    pub(crate) policy: PullPolicy,
}

/// Returns every image of a pod: those of volumes, of ephemeral, init and normal containers.
pub(crate) fn images(spec: &PodSpec) -> Vec<NeededImage<'_>> {
    let written = written(spec);
    let images = written.into_iter().map(|WrittenImage { role, index, name, image, policy }| {
        let image = image.unwrap_or_default();
        let policy = policy.and_then(pull_policy).unwrap_or_else(|| PullPolicy::default_for(image));
        NeededImage { role, index, name, image, policy }
    });
    images.collect()
}

/// Returns the pull policy that a manifest names.
pub(crate) fn pull_policy(text: &str) -> Option<PullPolicy> {
    POLICIES.into_iter().find(|policy| policy.as_str() == text)
}

const POLICIES: [PullPolicy; 3] = [PullPolicy::Always, PullPolicy::IfNotPresent, PullPolicy::Never];

/// Reports pull policies that do not exist.
pub(crate) fn refuse_unknown_policies(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    for image in written(spec) {
        let Some(policy) = image.policy.filter(|policy| !policy.is_empty() && pull_policy(policy).is_none()) else {
            continue;
        };
        let entry = path.child(image.role.field()).index(image.index);
        let field = match image.role {
            Role::Volume => entry.child("image").child("pullPolicy"),
            _ => entry.child("imagePullPolicy"),
        };
        errors.unsupported(field, policy, &POLICIES.map(PullPolicy::as_str));
    }
}

/// Returns the priority of a class, if it is one that every cluster has.
#[must_use]
pub fn priority_of_class(class: &str) -> Option<i32> {
    PRIORITY_CLASSES.iter().find(|(name, _)| *name == class).map(|(_, priority)| *priority)
}

/// Returns true if a volume has a source in addition to its image.
pub(crate) fn has_further_source(volume: &Volume) -> bool {
    let alone = Volume { name: volume.name.clone(), image: volume.image.clone(), ..Volume::default() };
    *volume != alone
}

/// An image as a pod names it.
struct WrittenImage<'a> {
    role: Role,
    index: usize,
    name: &'a str,
    image: Option<&'a str>,
    policy: Option<&'a str>,
}

fn written(spec: &PodSpec) -> Vec<WrittenImage<'_>> {
    let volumes = spec.volumes.iter().flatten().enumerate().filter_map(|(index, volume)| {
        let source = volume.image.as_ref()?;
        let (image, policy) = (source.reference.as_deref(), source.pull_policy.as_deref());
        Some(WrittenImage { role: Role::Volume, index, name: &volume.name, image, policy })
    });
    let ephemeral = spec.ephemeral_containers.iter().flatten().enumerate().map(|(index, c)| WrittenImage {
        role: Role::Ephemeral,
        index,
        name: &c.name,
        image: c.image.as_deref(),
        policy: c.image_pull_policy.as_deref(),
    });
    let lists =
        [(Role::Init, spec.init_containers.as_deref().unwrap_or_default()), (Role::Container, &spec.containers)];
    let containers = lists.into_iter().flat_map(|(role, containers)| {
        containers.iter().enumerate().map(move |(index, c)| WrittenImage {
            role,
            index,
            name: &c.name,
            image: c.image.as_deref(),
            policy: c.image_pull_policy.as_deref(),
        })
    });
    volumes.chain(ephemeral).chain(containers).collect()
}
