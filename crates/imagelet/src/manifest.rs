//! Objects from manifests: which images a Pod, or the pod template of a workload, needs and under which policy, and the
//! Secrets and ServiceAccounts that it may name. Pods are read by [`kuberuntime::pod::Workload`]; what stands here is the
//! place of each object in its file. Pulls nothing, leaves image names to whoever pulls, and never shows
//! what is in a Secret. Called by `ensure`, `explain` and the secrets directory.

mod place;
mod pod;
mod secret;

use std::collections::BTreeMap;
use std::fmt;

use credentials::{PullSecret, ServiceAccount};
use image_manager::PullPolicy;
use kuberuntime::pod::WORKLOAD_KINDS;

use crate::yaml::{self, Node, Position, Value};
use place::ManifestDocument;
pub(crate) use secret::unknown_account;

/// Treatment of objects that hold no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherKinds {
    Refuse,
    Skip,
}

/// Where an object was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectOrigin {
    /// File name as given; `-` is standard input.
    pub(crate) file: String,
    /// Number of the document in the file; empty ones are not counted.
    pub(crate) document: usize,
    /// First line of the object.
    pub(crate) line: u64,
}

impl fmt::Display for ObjectOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: document {}", shown(&self.file), self.line, self.document)
    }
}

fn shown(file: &str) -> &str {
    if file == "-" { "standard input" } else { file }
}

/// A pod, or what a workload makes pods from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) source: ObjectOrigin,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// As written; otherwise made from kind and name, the same every time.
    pub(crate) uid: String,
    pub(crate) annotations: BTreeMap<String, String>,
    /// In the order in which the kubelet comes to them: volumes, ephemeral, init and normal containers.
    pub(crate) images: Vec<PodImage>,
    /// `imagePullSecrets`, by name and in their order.
    pub(crate) pull_secrets: Vec<String>,
    /// Name of the account under which it runs.
    pub(crate) service_account: String,
    pub(crate) priority: i32,
}

impl Pod {
    /// `pod/web`, as kubectl names objects.
    pub(crate) fn title(&self) -> String {
        format!("{}/{}", self.kind.to_lowercase(), self.name)
    }
}

/// Role of an image in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    Volume,
    Ephemeral,
    Init,
    Container,
}

impl Role {
    /// Field of the spec.
    fn field(self) -> &'static str {
        match self {
            Self::Volume => "volumes",
            Self::Ephemeral => "ephemeralContainers",
            Self::Init => "initContainers",
            Self::Container => "containers",
        }
    }
}

/// An image that a pod needs, and the container or volume that needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodImage {
    pub(crate) role: Role,
    /// Name of the container or volume.
    pub(crate) name: String,
    /// Image as written.
    pub(crate) image: String,
    /// As written, otherwise what the API server would fill in.
    pub(crate) policy: PullPolicy,
}

impl PodImage {
    /// Name for people; a volume may be called like a container.
    pub(crate) fn title(&self) -> String {
        match self.role {
            Role::Volume => format!("volume/{}", self.name),
            _ => self.name.clone(),
        }
    }

    /// `spec.containers{main}`, as events name it.
    pub(crate) fn field_path(&self) -> String {
        format!("spec.{}{{{}}}", self.role.field(), self.name)
    }
}

/// A Secret, with the place where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretObject {
    pub(crate) source: ObjectOrigin,
    pub(crate) secret: PullSecret,
}

/// A ServiceAccount, with the place where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccountObject {
    pub(crate) source: ObjectOrigin,
    pub(crate) account: ServiceAccount,
    /// `imagePullSecrets`, by name and in their order.
    pub(crate) pull_secrets: Vec<String>,
}

/// Objects of manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Objects {
    pub(crate) pods: Vec<Pod>,
    pub(crate) secrets: Vec<SecretObject>,
    pub(crate) accounts: Vec<AccountObject>,
}

impl Objects {
    /// With everything of `other` behind.
    pub(crate) fn extend(&mut self, other: Self) {
        self.pods.extend(other.pods);
        self.secrets.extend(other.secrets);
        self.accounts.extend(other.accounts);
    }

    /// The first object that was given before.
    pub(crate) fn duplicate(&self) -> Option<ManifestError> {
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

/// Why a manifest is refused: one line that says where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ManifestError {
    #[error("{}{}: {message}", shown(file), position.map(|p| format!(":{}:{}", p.line, p.column)).unwrap_or_default())]
    Yaml { file: String, position: Option<Position>, message: String },
    #[error("{}: there is no pod in it", shown(file))]
    Empty { file: String },
    #[error("there is no pod in any of the manifests")]
    NoPod,
    #[error("{at}: {message}")]
    Object { at: ObjectOrigin, message: String },
}

/// The objects of one file, at least one.
pub(crate) fn parse(file: &str, text: &str, others: OtherKinds) -> Result<Objects, ManifestError> {
    let objects = read(file, text, Expected::Pods(others))?;
    if objects == Objects::default() {
        return Err(ManifestError::Empty { file: file.to_owned() });
    }
    Ok(objects)
}

/// The Secrets and ServiceAccounts of one file that has nothing else.
pub(crate) fn parse_secrets(file: &str, text: &str) -> Result<Objects, ManifestError> {
    read(file, text, Expected::Secrets)
}

fn read(file: &str, text: &str, expected: Expected) -> Result<Objects, ManifestError> {
    let documents = yaml::documents(text).map_err(|e| ManifestError::Yaml {
        file: file.to_owned(),
        position: e.position,
        message: e.message,
    })?;
    let mut objects = Objects::default();
    for (index, node) in documents.iter().enumerate() {
        let place = ManifestDocument { file, document: index + 1 };
        place.object(node, None, expected, &mut objects)?;
    }
    Ok(objects)
}

/// Refuses an object that stands in the manifests more than once, of which only one can be meant, and manifests without
/// any pod.
pub(crate) fn check(objects: &Objects) -> Result<(), ManifestError> {
    match objects.duplicate() {
        Some(error) => Err(error),
        None if objects.pods.is_empty() => Err(ManifestError::NoPod),
        None => Ok(()),
    }
}

/// Objects that a file may hold.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Pods(OtherKinds),
    Secrets,
}

/// Kind and API version that the objects of a typed list (`PodList`) have without saying so.
type Inherited<'a> = Option<(&'a str, &'a str)>;

impl ManifestDocument<'_> {
    /// Reads an object, or the objects of a list.
    fn object(
        &self,
        node: &Node,
        inherited: Inherited<'_>,
        expected: Expected,
        objects: &mut Objects,
    ) -> Result<(), ManifestError> {
        if !matches!(node.value, Value::Map(_)) {
            // Not the value: a file that is no manifest may be a secret as a whole.
            return self.error(node, format!("an object was expected, not {}", node.value.kind()));
        }
        let Some(kind) = self.text(node, "kind", "kind")?.or(inherited.map(|i| i.0)) else {
            return self.error(node, "kind is missing");
        };
        let Some(version) = self.text(node, "apiVersion", "apiVersion")?.or(inherited.map(|i| i.1)) else {
            return self.error(node, format!("apiVersion of {kind} is missing"));
        };
        if let Some(of) = kind.strip_suffix("List") {
            let inherited = (!of.is_empty()).then_some((of, version));
            for item in self.list(node, "items", "items")? {
                self.object(item, inherited, expected, objects)?;
            }
            return Ok(());
        }
        match (kind, expected) {
            ("Secret", _) if version == "v1" => objects.secrets.push(self.secret(node)?),
            ("ServiceAccount", _) if version == "v1" => objects.accounts.push(self.account(node)?),
            (_, Expected::Secrets) => {
                return self
                    .error(node, format!("kind {kind} ({version}) is none of Secret, ServiceAccount, List (v1)"));
            }
            (_, Expected::Pods(others)) => self.workload(node, kind, version, others, &mut objects.pods)?,
        }
        Ok(())
    }

    /// Reads an object that should hold a pod.
    fn workload(
        &self,
        node: &Node,
        kind: &str,
        version: &str,
        others: OtherKinds,
        pods: &mut Vec<Pod>,
    ) -> Result<(), ManifestError> {
        match WORKLOAD_KINDS.into_iter().find(|known| known.name == kind) {
            Some(known) if known.versions.contains(&version) => pods.push(self.pod(node, known)?),
            _ if others == OtherKinds::Skip => {}
            Some(known) => {
                let known = known.versions.join(", ");
                return self.error(node, format!("{kind} of {version} is not known, only of {known}"));
            }
            None => {
                let message = format!(
                    "kind {kind} ({version}) holds no pod; known: {}, Secret, ServiceAccount, List (--skip-other-kinds \
                     passes over others)",
                    WORKLOAD_KINDS.map(|known| known.name).join(", ")
                );
                return self.error(node, message);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
