//! Objects from manifests: which images a Pod, or the pod template of a workload, needs and under which policy, and the
//! Secrets and ServiceAccounts that it may name. Pods are read by [`crate::workload`]; this module adds the
//! place of each object in its file. It pulls nothing, does not parse image names, and never shows the data of a Secret.
//! Called by `ensure`, `explain` and the secrets directory.

use std::path::Path;

use crate::error::ManifestError;
use crate::object::Objects;
use crate::place::ManifestDocument;
use crate::workload_kind::WorkloadKind;
use crate::yaml::{self, Node, Value};

/// The API group of what kustomize builds manifests from.
const KUSTOMIZE: &str = "kustomize.config.k8s.io/";
/// The file names of a kustomization; in a file with such a name its kind may be missing.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Parses the objects of one file, which may have none. Objects that hold no pod are ignored.
pub fn parse(file: &str, text: &str) -> Result<Objects, ManifestError> {
    read(file, text, Expected::Pods)
}

/// Parses the Secrets and ServiceAccounts of one file without other objects.
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

/// Refuses an object that the manifests define more than once, and manifests without any pod. `file` is their name if they
/// are one file.
pub fn check(objects: &Objects, file: Option<&str>) -> Result<(), ManifestError> {
    match objects.duplicate() {
        Some(error) => Err(error),
        None if objects.pods.is_empty() => {
            Err(ManifestError::NoPod { file: file.map(str::to_owned), passed_by: objects.passed_by.clone() })
        }
        None => Ok(()),
    }
}

/// Objects that a file may hold.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// Pods, what they name, and anything else.
    Pods,
    /// Secrets and ServiceAccounts, and nothing else.
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
            if self.is_kustomization() {
                return self.kustomization(node);
            }
            return self.error(node, "kind is missing");
        };
        let Some(version) = self.text(node, "apiVersion", "apiVersion")?.or(inherited.map(|i| i.1)) else {
            return self.error(node, format!("apiVersion of {kind} is missing"));
        };
        if let Some((of, items)) = self.items(node, kind)? {
            let inherited = (!of.is_empty()).then_some((of, version));
            for item in items {
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
            (_, Expected::Pods) if version.starts_with(KUSTOMIZE) => return self.kustomization(node),
            (_, Expected::Pods) => self.workload(node, kind, version, objects)?,
        }
        Ok(())
    }

    /// Returns the kind of the objects of a list, empty where each object has its own, and the objects. A custom kind may end
    /// in `List` without being a list of objects.
    fn items<'k, 'n>(&self, node: &'n Node, kind: &'k str) -> Result<Option<(&'k str, &'n [Node])>, ManifestError> {
        let Some(of) = kind.strip_suffix("List") else { return Ok(None) };
        if of.is_empty() {
            return Ok(Some((of, self.list(node, "items", "items")?)));
        }
        Ok(match node.get("items").map(|items| &items.value) {
            Some(Value::List(items)) if items.iter().all(|item| matches!(item.value, Value::Map(_))) => {
                Some((of, items))
            }
            _ => None,
        })
    }

    /// Reads an object that may hold a pod.
    fn workload(&self, node: &Node, kind: &str, version: &str, objects: &mut Objects) -> Result<(), ManifestError> {
        let object = node.value.clone().into();
        match WorkloadKind::of(kind, version, &object) {
            Ok(Some(kind)) => {
                let (pod, notes) = self.pod(node, &kind, &object)?;
                objects.pods.push(pod);
                objects.notes.extend(notes);
            }
            Ok(None) => {
                let name = node.get("metadata").and_then(|metadata| metadata.get("name"));
                let name = name.map(|name| match &name.value {
                    Value::Text(name) => format!("/{name}"),
                    _ => String::new(),
                });
                objects.passed_by.push(format!("{}{}", kind.to_lowercase(), name.unwrap_or_default()));
            }
            Err(error) => return self.error(node, error.to_string()),
        }
        Ok(())
    }

    fn is_kustomization(&self) -> bool {
        let name = Path::new(self.file).file_name();
        name.is_some_and(|name| KUSTOMIZATIONS.iter().any(|kustomization| name == *kustomization))
    }

    /// Refuses a kustomization: manifests are yet to be built from it, and the images that it replaces would be the wrong ones.
    fn kustomization<T>(&self, node: &Node) -> Result<T, ManifestError> {
        self.error(node, "a kustomization is not built here: `kubectl kustomize DIR | imagelet ensure -f -`")
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
