//! [`Workload`]: a pod, or the pod template of a workload, read for the images that it needs. Lenient: errors count only in
//! the fields that decide which images are needed, when they are pulled and who may have them; in those fields nothing is
//! passed over, because an image would be forgotten. An unknown field counts where it resembles one of those, and is a
//! [note](WorkloadNote) elsewhere. Called by [`crate::read`].

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::decode::{decode, shown};
use crate::field::{FieldError, FieldErrors, FieldPath, FieldProblem};
use crate::images::{Role, images, priority_of_class, refuse_unknown_policies};
use crate::workload_kind::WorkloadKind;

/// Fields of an object in which an error counts.
const OBJECT_FIELDS: [&str; 6] =
    ["", "metadata", "metadata.name", "metadata.generateName", "metadata.namespace", "metadata.uid"];
/// Fields of a pod template in which an error counts; `[]` stands for an entry of a list or a map.
const TEMPLATE_FIELDS: [&str; 30] = [
    "",
    "metadata",
    "metadata.annotations",
    "metadata.annotations[]",
    "spec.volumes",
    "spec.volumes[].image",
    "spec.volumes[].image.reference",
    "spec.volumes[].image.pullPolicy",
    "spec.ephemeralContainers",
    "spec.ephemeralContainers[]",
    "spec.ephemeralContainers[].name",
    "spec.ephemeralContainers[].image",
    "spec.ephemeralContainers[].imagePullPolicy",
    "spec.initContainers",
    "spec.initContainers[]",
    "spec.initContainers[].name",
    "spec.initContainers[].image",
    "spec.initContainers[].imagePullPolicy",
    "spec.containers",
    "spec.containers[]",
    "spec.containers[].name",
    "spec.containers[].image",
    "spec.containers[].imagePullPolicy",
    "spec.imagePullSecrets",
    "spec.imagePullSecrets[]",
    "spec.imagePullSecrets[].name",
    "spec.serviceAccount",
    "spec.serviceAccountName",
    "spec.priority",
    "spec.priorityClassName",
];

/// A pod as a workload has it.
#[derive(Clone, PartialEq)]
pub(crate) struct Workload {
    /// Namespace of the object, `default` unless it has one.
    pub(crate) namespace: String,
    /// Name of the object, or `PREFIX*` where the name is generated.
    pub(crate) name: String,
    /// Uid of the object, empty unless it has one.
    pub(crate) uid: String,
    /// Annotations of the pod template.
    pub(crate) annotations: BTreeMap<String, String>,
    /// The pod, of which only the fields can be relied on that decide about images.
    pub(crate) spec: PodSpec,
    /// Priority of the pod: as written, otherwise that of the two classes which every cluster has.
    pub(crate) priority: i32,
    /// Problems that change nothing about the images.
    pub(crate) notes: Vec<WorkloadNote>,
}

/// A problem of a workload that its user should know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkloadNote {
    /// The field of the object that it is about.
    pub(crate) field: FieldPath,
    /// Message in one line, with the field's name.
    pub(crate) message: String,
}

/// The first error in a workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct WorkloadError {
    /// The field of the object that is wrong, or that lacks something.
    pub(crate) field: FieldPath,
    /// Message in one line, with the field's name if the field has one.
    pub(crate) message: String,
}

/// Shows no value of a variable: people write secrets there.
impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workload").field("namespace", &self.namespace).field("name", &self.name).finish_non_exhaustive()
    }
}

impl Workload {
    /// Reads an object of this kind.
    ///
    /// # Errors
    /// The first error in a field that counts.
    pub(crate) fn read(kind: &WorkloadKind, object: &Value) -> Result<Self, WorkloadError> {
        let root = FieldPath::default();
        let (metadata, mut errors) = match set(object, "metadata") {
            Some(value) => decode::<ObjectMeta>(value, &FieldPath::new("metadata")),
            None => Default::default(),
        };
        let name = match (text(metadata.name), text(metadata.generate_name)) {
            (None, prefix) => prefix.map(|prefix| format!("{prefix}*")),
            (name, _) => name,
        };
        let title = name.as_ref().map_or_else(|| kind.name.clone(), |name| format!("{} {name}", kind.name));
        let (value, path) = template(kind, object, &title).or_else(|lacks| {
            // Of two mistakes, the one that stands first.
            check(&errors, kind, &root, &root).and(Err(lacks))
        })?;
        let (template, found) = decode::<PodTemplateSpec>(value, &path);
        errors.merge(found);
        let mut spec = template.spec.unwrap_or_default();
        refuse_unknown_policies(&spec, &path.child("spec"), &mut errors);
        let errors = errors.in_order_of(object, &root);
        check(&errors, kind, &root, &path)?;
        let Some(name) = name else {
            return Err(missing(object, &root, "metadata", format!("{title} has no metadata.name")));
        };
        let mut notes = notes(&errors, kind, &path);
        if !kind.is_of_kubernetes {
            fill_in(&mut spec, &path.child("spec"), &mut notes);
        }
        check_images(&spec, &path.child("spec"))?;
        if spec.containers.is_empty() && kind.is_of_kubernetes {
            return Err(error(&root, format!("{title} has no containers")));
        }
        Ok(Self {
            namespace: text(metadata.namespace).unwrap_or_else(|| "default".to_owned()),
            name,
            uid: metadata.uid.unwrap_or_default(),
            annotations: template.metadata.and_then(|metadata| metadata.annotations).unwrap_or_default(),
            priority: spec
                .priority
                .or_else(|| priority_of_class(spec.priority_class_name.as_deref()?))
                .unwrap_or_default(),
            spec,
            notes,
        })
    }
}

/// Returns the text, or `None` for an empty one.
fn text(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn error(field: &FieldPath, message: String) -> WorkloadError {
    WorkloadError { field: field.clone(), message }
}

/// Returns the field `name` of an object, unless it is null.
fn set<'v>(object: &'v Value, name: &str) -> Option<&'v Value> {
    object.get(name).filter(|value| !value.is_null())
}

/// Returns the error of an object at `path` without the field `name`, with a suggestion of the field that was probably meant.
fn missing(object: &Value, path: &FieldPath, name: &str, message: String) -> WorkloadError {
    let keys = object.as_object().into_iter().flat_map(|map| map.keys());
    let meant = keys.map(String::as_str).find(|key| *key != name && base::nearest(key, [name]).is_some());
    match meant {
        Some(wrong) => {
            let wrong = path.child(wrong);
            let closest = Some(name.to_owned());
            error(&wrong, format!("{message}; {wrong}: {}", FieldProblem::Unknown { closest }))
        }
        None => error(path, message),
    }
}

/// Returns the pod template of an object with a spec, and its path.
fn template<'v>(kind: &WorkloadKind, object: &'v Value, title: &str) -> Result<(&'v Value, FieldPath), WorkloadError> {
    let (mut value, mut path) = (object, FieldPath::default());
    for name in kind.template {
        let child = path.child(name);
        value = set(value, name).ok_or_else(|| missing(value, &path, name, format!("{title} has no {child}")))?;
        path = child;
    }
    let child = path.child("spec");
    match set(value, "spec") {
        Some(Value::Object(_)) => Ok((value, path)),
        Some(other) => Err(error(&child, format!("{child} of {title} must be a map, not {}", shown(other)))),
        None => Err(missing(value, &path, "spec", format!("{title} has no {child}"))),
    }
}

/// Returns the form of a field below `root`: `spec.containers[].image`.
fn form(field: &FieldPath, root: &FieldPath) -> Option<String> {
    let below = field.as_str().strip_prefix(root.as_str())?;
    Some(without_keys(below.trim_start_matches('.')))
}

/// Returns the field that an error is about: for an unknown field, the one that was probably meant.
fn meant(error: &FieldError) -> FieldPath {
    let FieldProblem::Unknown { closest: Some(closest) } = &error.problem else { return error.field.clone() };
    let outer = error.field.as_str().rsplit_once('.').map_or(FieldPath::default(), |(outer, _)| FieldPath::new(outer));
    outer.child(closest)
}

/// Fails with the first error in a field of the object, or of the template at `path`, that counts.
fn check(errors: &FieldErrors, kind: &WorkloadKind, root: &FieldPath, path: &FieldPath) -> Result<(), WorkloadError> {
    let counts = |error: &&FieldError| {
        // Objects that are not of Kubernetes may have additional fields next to those of a pod.
        if matches!(error.problem, FieldProblem::Unknown { .. }) && !kind.is_of_kubernetes {
            return false;
        }
        let field = meant(error);
        let is_one_of = |root: &FieldPath, fields: &[&str]| {
            let form = form(&field, root).unwrap_or_default();
            // An entry of this list that is null counts as absent.
            let is_absent = form == "spec.imagePullSecrets[]"
                && matches!(&error.problem, FieldProblem::Invalid { value, .. } if value == "null");
            fields.contains(&form.as_str()) && !is_absent
        };
        is_one_of(root, &OBJECT_FIELDS) || is_one_of(path, &TEMPLATE_FIELDS)
    };
    match errors.iter().find(counts) {
        Some(found) => Err(error(&found.field, sentence(found))),
        None => Ok(()),
    }
}

/// Returns notes about unknown fields. Objects that are not of Kubernetes have fields of their own: of those, only
/// fields that are probably misspelt are noted.
fn notes(errors: &FieldErrors, kind: &WorkloadKind, template: &FieldPath) -> Vec<WorkloadNote> {
    let unknown = errors.iter().filter(|error| match &error.problem {
        FieldProblem::Unknown { closest } => {
            let of_object =
                kind.template.is_empty() && ["apiVersion", "kind", "status"].contains(&error.field.as_str());
            // The API had it until version 1.20; objects that were written out then may have it, empty.
            let of_old_version = error
                .field
                .as_str()
                .strip_prefix(template.as_str())
                .is_some_and(|field| field.trim_start_matches('.') == "metadata.clusterName");
            (kind.is_of_kubernetes || closest.is_some()) && !of_object && !of_old_version
        }
        _ => false,
    });
    unknown.map(|error| WorkloadNote { field: error.field.clone(), message: sentence(error) }).collect()
}

/// Fills in the names of containers, which kinds that are not of Kubernetes may leave to their controllers, and leaves out
/// containers whose image is set later.
fn fill_in(spec: &mut PodSpec, path: &FieldPath, notes: &mut Vec<WorkloadNote>) {
    let lists = [("initContainers", spec.init_containers.as_mut()), ("containers", Some(&mut spec.containers))];
    for (list, containers) in lists {
        let Some(containers) = containers else { continue };
        let has_image = |image: &Option<String>| image.as_ref().is_some_and(|image| !image.trim().is_empty());
        for (index, container) in containers.iter_mut().enumerate() {
            let field = FieldPath::new(list).index(index);
            if container.name.is_empty() {
                field.as_str().clone_into(&mut container.name);
            }
            if !has_image(&container.image) {
                let field = path.child(field.as_str());
                let message = format!("{field} has no image yet: it is passed by");
                notes.push(WorkloadNote { field, message });
            }
        }
        containers.retain(|container| has_image(&container.image));
    }
}

/// `spec.containers[].image` of `spec.containers[3].image`.
fn without_keys(path: &str) -> String {
    // The key of an annotation may have brackets itself.
    if path.starts_with("metadata.annotations[") {
        return "metadata.annotations[]".to_owned();
    }
    let mut form = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('[') {
        form.push_str(before);
        form.push_str("[]");
        rest = after.split_once(']').map_or("", |(_, rest)| rest);
    }
    form + rest
}

/// Returns an error as one sentence.
fn sentence(error: &FieldError) -> String {
    let path = error.field.as_str();
    let entry = |list: &str| path.contains(list) && path.ends_with(']');
    match &error.problem {
        FieldProblem::Invalid { value, detail } if entry(".imagePullSecrets[") => {
            format!("{path} {detail} with a name, not {value}")
        }
        FieldProblem::Invalid { value, detail } => match path.split_once("metadata.annotations[") {
            Some((_, key)) => {
                format!("metadata.annotations: {} {detail}, not {value}", key.strip_suffix(']').unwrap_or(key))
            }
            None => format!("{path} {detail}, not {value}"),
        },
        FieldProblem::Unsupported { value, supported } => {
            let (last, others) = supported.split_last().map_or(("", &[][..]), |(last, others)| (last.as_str(), others));
            format!("{path}: {value:?} is not allowed, must be {} or {last}", others.join(", "))
        }
        other => format!("{path}: {other}"),
    }
}

/// Checks that all images of a pod have a unique name and a reference. Containers share one space of names, volumes have
/// theirs.
fn check_images(spec: &PodSpec, path: &FieldPath) -> Result<(), WorkloadError> {
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        if volume.image.is_some() && crate::images::has_further_source(volume) {
            let field = path.child("volumes").index(index);
            return Err(error(&field, format!("{field} has an image and another source")));
        }
    }
    let mut seen: Vec<(bool, &str, &'static str)> = Vec::new();
    for image in images(spec) {
        let (list, name) = (image.role.field(), image.name);
        let field = path.child(list).index(image.index);
        let is_volume = image.role == Role::Volume;
        if name.is_empty() {
            return Err(error(&field, format!("{field} has no name")));
        }
        if image.image.is_empty() {
            let lacks = if is_volume { "reference" } else { "image" };
            return Err(error(&field, format!("{field} {name:?} has no {lacks}")));
        }
        if let Some((.., first)) = seen.iter().find(|(volume, other, _)| (*volume, *other) == (is_volume, name)) {
            return Err(error(&field, format!("{field}: the name {name:?} is taken in {first} already")));
        }
        seen.push((is_volume, name, list));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(kind: &str, object: &Value) -> Result<Workload, WorkloadError> {
        let version = if kind == "Pod" { "v1" } else { "batch/v1" };
        let kind = WorkloadKind::of(kind, version, object).expect("no mistake").expect("a kind");
        Workload::read(&kind, object)
    }

    #[test]
    fn only_fields_that_decide_about_images_count() {
        let object = json!({"metadata": {"generateName": "web-"}, "spec": {"template": {
            "metadata": {"labels": 7},
            "spec": {
                "containers": [{"name": "c", "image": "i:1", "prots": [], "command": "x"}],
                "volumes": [{"name": 1, "persistentVolumeClaim": {}}, 7],
                "automountServiceAccountToken": true, "restartPolicy": "Sometimes",
            },
        }}});
        let read = read("Job", &object).expect("read");
        assert_eq!((&*read.namespace, &*read.name, &*read.uid, read.priority), ("default", "web-*", "", 0));
        assert_eq!(images(&read.spec).iter().map(|image| image.image).collect::<Vec<_>>(), ["i:1"]);
    }

    #[test]
    fn an_annotation_with_brackets_in_its_key_counts() {
        let object = json!({
            "metadata": {"name": "p", "annotations": {"a]b": 1}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        });
        let error = read("Pod", &object).expect_err("not text");
        assert_eq!(error.message, "metadata.annotations: a]b must be text, not 1");
    }

    #[test]
    fn no_image_is_forgotten() {
        let container = json!({"name": "c", "image": "i"});
        for (spec, field, message) in [
            (json!({"containers": [7]}), "spec.containers[0]", "spec.containers[0] must be a map, not 7"),
            (
                json!({"containers": [container], "volumes": [{"name": "v", "image": "i"}]}),
                "spec.volumes[0].image",
                "spec.volumes[0].image must be a map, not \"i\"",
            ),
            (
                json!({"containers": [container], "volumes": [{"name": "v", "emptyDir": {}, "image": {"reference": "i"}}]}),
                "spec.volumes[0]",
                "spec.volumes[0] has an image and another source",
            ),
        ] {
            let error = read("Pod", &json!({"metadata": {"name": "p"}, "spec": spec})).expect_err(message);
            assert_eq!((error.field.as_str(), &*error.message), (field, message));
        }
    }
}
