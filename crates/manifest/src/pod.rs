//! The pod of an object, with the place where it was written. Called by [`crate::read`].

use serde_json::Value;

use crate::error::{ManifestError, ManifestNote};
use crate::images::images;
use crate::object::{Pod, PodImage};
use crate::place::{ManifestDocument, made_uid};
use crate::workload::Workload;
use crate::workload_kind::WorkloadKind;
use crate::yaml::Node;

impl ManifestDocument<'_> {
    /// Reads an object of a kind that holds a pod.
    pub(super) fn pod(
        &self,
        node: &Node,
        kind: &WorkloadKind,
        object: &Value,
    ) -> Result<(Pod, Vec<ManifestNote>), ManifestError> {
        let Workload { namespace, name, uid, annotations, spec, priority, notes } = match Workload::read(kind, object) {
            Ok(workload) => workload,
            Err(error) => return self.error(node.at(error.field.as_str()), error.message),
        };
        let place = |field: &str| self.source(node.at(field));
        let notes =
            notes.into_iter().map(|note| ManifestNote { at: place(note.field.as_str()), message: note.message });
        let notes = notes.collect();
        let images = images(&spec).into_iter().map(|image| PodImage {
            role: image.role,
            name: image.name.to_owned(),
            image: image.image.to_owned(),
            policy: image.policy,
        });
        let images = images.collect();
        let pull_secrets = spec.image_pull_secrets.into_iter().flatten().map(|secret| secret.name);
        // The older of the two fields counts where the other one is not set.
        let accounts = [spec.service_account_name, spec.service_account];
        let account = accounts.into_iter().flatten().find(|account| !account.is_empty());
        let pod = Pod {
            source: self.source(node),
            kind: kind.name.clone(),
            uid: if uid.is_empty() { made_uid(&kind.name, &namespace, &name) } else { uid },
            namespace,
            name,
            annotations,
            images,
            pull_secrets: pull_secrets.filter(|name| !name.is_empty()).collect(),
            service_account: account.unwrap_or_else(|| "default".to_owned()),
            priority,
        };
        Ok((pod, notes))
    }
}
