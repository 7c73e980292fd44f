//! The objects of manifests as they are read: pods with their images, Secrets and ServiceAccounts, each with the place where it
//! was written. Made by the readers of [`super`].

use std::collections::BTreeMap;

use credentials::{PullSecret, ServiceAccount};
use image_manager::PullPolicy;

use crate::error::{ManifestError, ManifestNote, ObjectOrigin};
use crate::images::Role;

/// A pod, or what a workload makes pods from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The place of the object in its manifest.
    pub source: ObjectOrigin,
    /// `Pod`, or the kind of the workload.
    pub kind: String,
    /// Namespace as written, otherwise `default`.
    pub namespace: String,
    /// Name of the pod or workload.
    pub name: String,
    /// Uid as written; otherwise derived from kind and name, always the same.
    pub uid: String,
    /// Annotations of the pod or of the pod template.
    pub annotations: BTreeMap<String, String>,
    /// Images in the order in which the kubelet visits them: volumes, ephemeral, init and normal containers.
    pub images: Vec<PodImage>,
    /// `imagePullSecrets`, by name and in their order.
    pub pull_secrets: Vec<String>,
    /// Name of the account under which it runs.
    pub service_account: String,
    /// `priority` of the spec; 0 if it is not written.
    pub priority: i32,
}

impl Pod {
    /// `pod/web`, as kubectl names objects.
    pub fn title(&self) -> String {
        format!("{}/{}", self.kind.to_lowercase(), self.name)
    }
}

/// An image that a pod needs, and the container or volume that needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodImage {
    /// The kind of container or volume that needs it.
    pub role: Role,
    /// Name of the container or volume.
    pub name: String,
    /// Image as written.
    pub image: String,
    /// Policy as written, otherwise the default of the API server.
    pub policy: PullPolicy,
}

impl PodImage {
    /// Returns the display name; a volume may have the name of a container.
    pub fn title(&self) -> String {
        match self.role {
            Role::Volume => format!("volume/{}", self.name),
            _ => self.name.clone(),
        }
    }

    /// `spec.containers{main}`, as events name it.
    pub fn field_path(&self) -> String {
        format!("spec.{}{{{}}}", self.role.field(), self.name)
    }
}

/// A Secret, with the place where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretObject {
    /// The place of the object in its manifest.
    pub source: ObjectOrigin,
    /// The Secret with its data, which no output shows.
    pub secret: PullSecret,
}

/// A ServiceAccount, with the place where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountObject {
    /// The place of the object in its manifest.
    pub source: ObjectOrigin,
    /// The account as credential providers know it.
    pub account: ServiceAccount,
    /// `imagePullSecrets`, by name and in their order.
    pub pull_secrets: Vec<String>,
}

/// Objects of manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Pods, and pod templates of workloads.
    pub pods: Vec<Pod>,
    /// Secrets with credentials of registries.
    pub secrets: Vec<SecretObject>,
    /// ServiceAccounts.
    pub accounts: Vec<AccountObject>,
    /// Objects that hold no pod, as kubectl names objects.
    pub passed_by: Vec<String>,
    /// Problems that change nothing about the images.
    pub notes: Vec<ManifestNote>,
}

impl Objects {
    /// Appends the objects of `other`.
    pub fn extend(&mut self, other: Self) {
        self.pods.extend(other.pods);
        self.secrets.extend(other.secrets);
        self.accounts.extend(other.accounts);
        self.passed_by.extend(other.passed_by);
        self.notes.extend(other.notes);
    }

    /// Returns an error for the first object that was given before.
    pub fn duplicate(&self) -> Option<ManifestError> {
        let mut seen = BTreeMap::new();
        self.keys().find_map(|(kind, namespace, name, source)| {
            let first = seen.insert((kind, namespace, name), source)?;
            let message = format!("{kind} {namespace}/{name} was given before, at {first}");
            Some(ManifestError::Object { at: source.clone(), message })
        })
    }

    /// Kind, namespace, name and place of every object.
    fn keys(&self) -> impl Iterator<Item = (&str, &str, &str, &ObjectOrigin)> {
        let pods = self.pods.iter().map(|p| (p.kind.as_str(), p.namespace.as_str(), p.name.as_str(), &p.source));
        let secrets = self.secrets.iter().map(|s| ("Secret", &*s.secret.namespace, &*s.secret.name, &s.source));
        let accounts = self.accounts.iter();
        let accounts = accounts.map(|a| ("ServiceAccount", &*a.account.namespace, &*a.account.name, &a.source));
        pods.chain(secrets).chain(accounts)
    }
}
