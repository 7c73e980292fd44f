//! Pods from manifests: which images a Pod, or the pod template of a workload, needs and under which policy. Strict
//! where a mistake would mean that an image is forgotten: unknown kinds, missing images, names that stand twice.
//! Pulls nothing, and leaves image names to whoever pulls. Called by `ensure` and `explain`.

use std::collections::BTreeMap;
use std::fmt;

use image_manager::PullPolicy;

use crate::yaml::{self, Node, Position, Value};

/// Kinds that hold a pod: the API versions in which they came, and the way to the pod.
const KINDS: [(&str, &[&str], &[&str]); 8] = [
    ("Pod", &["v1"], &[]),
    ("ReplicationController", &["v1"], &["spec", "template"]),
    ("Deployment", &["apps/v1", "apps/v1beta1", "apps/v1beta2", "extensions/v1beta1"], &["spec", "template"]),
    ("ReplicaSet", &["apps/v1", "apps/v1beta2", "extensions/v1beta1"], &["spec", "template"]),
    ("StatefulSet", &["apps/v1", "apps/v1beta1", "apps/v1beta2"], &["spec", "template"]),
    ("DaemonSet", &["apps/v1", "apps/v1beta2", "extensions/v1beta1"], &["spec", "template"]),
    ("Job", &["batch/v1"], &["spec", "template"]),
    ("CronJob", &["batch/v1", "batch/v1beta1"], &["spec", "jobTemplate", "spec", "template"]),
];

/// What to do with objects that hold no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherKinds {
    Refuse,
    Skip,
}

/// Where an object was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// File name as given; `-` is standard input.
    pub(crate) file: String,
    /// Number of the document in the file; empty ones are not counted.
    pub(crate) document: usize,
    /// First line of the object.
    pub(crate) line: u64,
}

impl fmt::Display for Source {
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
    pub(crate) source: Source,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// As written; otherwise made from kind and name, the same every time.
    pub(crate) uid: String,
    pub(crate) annotations: BTreeMap<String, String>,
    /// In the order in which the kubelet comes to them: volumes, ephemeral, init and normal containers.
    pub(crate) images: Vec<PodImage>,
}

impl Pod {
    /// `pod/web`, as kubectl names objects.
    pub(crate) fn title(&self) -> String {
        format!("{}/{}", self.kind.to_lowercase(), self.name)
    }
}

/// What an image is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    Volume,
    Ephemeral,
    Init,
    Container,
}

impl Role {
    /// The field of the spec.
    fn field(self) -> &'static str {
        match self {
            Self::Volume => "volumes",
            Self::Ephemeral => "ephemeralContainers",
            Self::Init => "initContainers",
            Self::Container => "containers",
        }
    }
}

/// One need for one image.
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

/// Why a manifest is refused: one line that says where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ManifestError {
    #[error("{}{}: {message}", shown(file), position.map(|p| format!(":{}:{}", p.line, p.column)).unwrap_or_default())]
    Yaml { file: String, position: Option<Position>, message: String },
    #[error("{}: there is no pod in it", shown(file))]
    Empty { file: String },
    #[error("{at}: {message}")]
    Object { at: Source, message: String },
}

/// The pods of one file, at least one.
pub(crate) fn parse(file: &str, text: &str, others: OtherKinds) -> Result<Vec<Pod>, ManifestError> {
    let documents = yaml::documents(text).map_err(|e| ManifestError::Yaml {
        file: file.to_owned(),
        position: e.position,
        message: e.message,
    })?;
    let mut pods = Vec::new();
    for (index, node) in documents.iter().enumerate() {
        let place = Place { file, document: index + 1 };
        place.object(node, None, others, &mut pods)?;
    }
    if pods.is_empty() {
        return Err(ManifestError::Empty { file: file.to_owned() });
    }
    Ok(pods)
}

/// Refuses an object that stands in the manifests more than once: only one of them can be meant.
pub(crate) fn refuse_duplicates(pods: &[Pod]) -> Result<(), ManifestError> {
    let mut seen = BTreeMap::new();
    for pod in pods {
        let key = (&pod.kind, &pod.namespace, &pod.name);
        if let Some(first) = seen.insert(key, &pod.source) {
            let message = format!("{} {}/{} was given before, at {first}", pod.kind, pod.namespace, pod.name);
            return Err(ManifestError::Object { at: pod.source.clone(), message });
        }
    }
    Ok(())
}

/// Which document of which file is being read.
#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'a str,
    document: usize,
}

/// Kind and API version that the objects of a typed list (`PodList`) have without saying so.
type Inherited<'a> = Option<(&'a str, &'a str)>;

impl Place<'_> {
    fn source(&self, node: &Node) -> Source {
        Source { file: self.file.to_owned(), document: self.document, line: node.position.line }
    }

    fn error<T>(&self, node: &Node, message: impl Into<String>) -> Result<T, ManifestError> {
        Err(ManifestError::Object { at: self.source(node), message: message.into() })
    }

    /// Reads an object, or the objects of a list.
    fn object(
        &self,
        node: &Node,
        inherited: Inherited<'_>,
        others: OtherKinds,
        pods: &mut Vec<Pod>,
    ) -> Result<(), ManifestError> {
        if !matches!(node.value, Value::Map(_)) {
            return self.error(node, format!("an object was expected, not {}", node.value));
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
                self.object(item, inherited, others, pods)?;
            }
            return Ok(());
        }
        match KINDS.iter().find(|(name, ..)| *name == kind) {
            Some((_, versions, way)) if versions.contains(&version) => pods.push(self.pod(node, kind, way)?),
            _ if others == OtherKinds::Skip => {}
            Some((_, versions, _)) => {
                let known = versions.join(", ");
                return self.error(node, format!("{kind} of {version} is not known, only of {known}"));
            }
            None => {
                let known: Vec<&str> = KINDS.iter().map(|(name, ..)| *name).collect();
                let message = format!(
                    "kind {kind} ({version}) holds no pod; known: {}, List (--skip-other-kinds passes over others)",
                    known.join(", ")
                );
                return self.error(node, message);
            }
        }
        Ok(())
    }

    /// Reads an object of a known kind; `way` leads to its pod or pod template.
    fn pod(&self, node: &Node, kind: &str, way: &[&str]) -> Result<Pod, ManifestError> {
        let name = match self.text_in(node, "metadata", "name")? {
            Some(name) => name.to_owned(),
            None => match self.text_in(node, "metadata", "generateName")? {
                Some(prefix) => format!("{prefix}*"),
                None => return self.error(node, format!("{kind} has no metadata.name")),
            },
        };
        let namespace = self.text_in(node, "metadata", "namespace")?.unwrap_or("default").to_owned();
        let uid = match self.text_in(node, "metadata", "uid")? {
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
        Ok(Pod { source: self.source(node), kind: kind.to_owned(), namespace, name, uid, annotations, images })
    }

    fn annotations(&self, pod: &Node) -> Result<BTreeMap<String, String>, ManifestError> {
        let Some(node) = pod.get("metadata").and_then(|m| m.get("annotations")) else { return Ok(BTreeMap::new()) };
        let Value::Map(entries) = &node.value else {
            return self.error(node, format!("metadata.annotations must be a map, not {}", node.value));
        };
        let mut annotations = BTreeMap::new();
        for (key, value) in entries {
            let Value::Text(text) = &value.value else {
                return self.error(value, format!("metadata.annotations: {key} must be text, not {}", value.value));
            };
            annotations.insert(key.clone(), text.clone());
        }
        Ok(annotations)
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

    /// Text below `key`; `path` names it in errors.
    fn text<'n>(&self, node: &'n Node, key: &str, path: &str) -> Result<Option<&'n str>, ManifestError> {
        match node.get(key) {
            None => Ok(None),
            Some(Node { value: Value::Text(text), .. }) => Ok(Some(text)),
            Some(other) => self.error(other, format!("{path} must be text, not {}", other.value)),
        }
    }

    /// Text below `outer.key`.
    fn text_in<'n>(&self, node: &'n Node, outer: &str, key: &str) -> Result<Option<&'n str>, ManifestError> {
        match node.get(outer) {
            None => Ok(None),
            Some(inner) => self.text(inner, key, &format!("{outer}.{key}")),
        }
    }

    /// The list below `key`, or an empty one.
    fn list<'n>(&self, node: &'n Node, key: &str, path: &str) -> Result<&'n [Node], ManifestError> {
        match node.get(key) {
            None => Ok(&[]),
            Some(Node { value: Value::List(list), .. }) => Ok(list),
            Some(other) => self.error(other, format!("{path} must be a list, not {}", other.value)),
        }
    }
}

/// A uid for an object that has none: the same object gives the same uid, so that records and logs can be compared.
fn made_uid(kind: &str, namespace: &str, name: &str) -> String {
    let digest = oci::Digest::sha256(format!("{kind}\0{namespace}\0{name}").as_bytes());
    digest.hex()[..32].to_owned()
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
