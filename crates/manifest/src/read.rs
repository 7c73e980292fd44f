//! Objects from manifests: which images a Pod, or the pod template of a workload, needs and under which policy, and the
//! Secrets and ServiceAccounts that it may name. Pods are read by [`kuberuntime::pod::Workload`]; what stands here is the
//! place of each object in its file. Pulls nothing, leaves image names to whoever pulls, and never shows
//! what is in a Secret. Called by `ensure`, `explain` and the secrets directory.

use kuberuntime::pod::WORKLOAD_KINDS;

use crate::error::ManifestError;
use crate::object::{Objects, Pod};
use crate::place::ManifestDocument;
use crate::yaml::{self, Node, Value};

/// Treatment of objects that hold no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherKinds {
    Refuse,
    Skip,
}

/// The objects of one file, at least one.
pub fn parse(file: &str, text: &str, others: OtherKinds) -> Result<Objects, ManifestError> {
    let objects = read(file, text, Expected::Pods(others))?;
    if objects == Objects::default() {
        return Err(ManifestError::Empty { file: file.to_owned() });
    }
    Ok(objects)
}

/// The Secrets and ServiceAccounts of one file that has nothing else.
pub fn parse_secrets(file: &str, text: &str) -> Result<Objects, ManifestError> {
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
pub fn check(objects: &Objects) -> Result<(), ManifestError> {
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
#[path = "read_tests.rs"]
mod tests;
