//! The pod of an object, as `kuberuntime` reads it, with the place where it was written. Called by [`crate::read`].

use kuberuntime::pod::{ContainerKind, ImageRole, Workload, WorkloadKind};
use serde_json::Value;

use crate::error::{ManifestError, ManifestNote};
use crate::object::{Pod, PodImage, Role};
use crate::place::{ManifestDocument, at, made_uid};
use crate::yaml::Node;

impl ManifestDocument<'_> {
    /// Reads an object of a kind that holds a pod.
    pub(super) fn pod(
        &self,
        node: &Node,
        kind: &WorkloadKind,
        object: &Value,
    ) -> Result<(Pod, Vec<ManifestNote>), ManifestError> {
        let Workload { namespace, name, uid, pod, priority, notes } = match Workload::read(kind, object) {
            Ok(workload) => workload,
            Err(error) => return self.error(at(node, error.field.as_str()), error.message),
        };
        let place = |field: &str| self.source(at(node, field));
        let notes =
            notes.into_iter().map(|note| ManifestNote { at: place(note.field.as_str()), message: note.message });
        let notes = notes.collect();
        let images = pod.images().into_iter().map(|image| PodImage {
            role: image.role.into(),
            name: image.name.to_owned(),
            image: image.image.to_owned(),
            policy: image.policy,
        });
        let images = images.collect();
        let spec = pod.spec;
        let account = spec.service_account_name;
        let pod = Pod {
            source: self.source(node),
            kind: kind.name.clone(),
            uid: if uid.is_empty() { made_uid(&kind.name, &namespace, &name) } else { uid },
            namespace,
            name,
            annotations: pod.metadata.annotations,
            images,
            pull_secrets: spec.image_pull_secrets.into_iter().filter(|name| !name.is_empty()).collect(),
            service_account: if account.is_empty() { "default".to_owned() } else { account },
            priority,
        };
        Ok((pod, notes))
    }
}

impl From<ImageRole> for Role {
    fn from(role: ImageRole) -> Self {
        match role {
            ImageRole::Volume => Self::Volume,
            ImageRole::Container(ContainerKind::Ephemeral) => Self::Ephemeral,
            ImageRole::Container(ContainerKind::Init) => Self::Init,
            ImageRole::Container(ContainerKind::Normal) => Self::Container,
        }
    }
}
