//! [`Workload`]: a pod, or the pod template of a workload, read by the reader of all pods ([`Pod::read_template`]) for the
//! images that it needs. Lenient: errors count only in the fields that decide which images are needed, when they are pulled
//! and who may have them; there, nothing is passed over, because an image would be forgotten. Called by `imagelet ensure`.

use serde_json::Value;

use super::read::{self, Json as _};
use super::{ContainerKind, Metadata, PRIORITY_CLASSES, Pod, VolumeSource};
use crate::field::{FieldError, FieldErrors, FieldPath, FieldProblem};

/// A kind of object that holds a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadKind {
    pub name: &'static str,
    /// API versions in which the kind came, the newest first.
    pub versions: &'static [&'static str],
    /// Fields that lead from the object to its pod template.
    template: &'static [&'static str],
}

/// All kinds that hold a pod.
pub const WORKLOAD_KINDS: [WorkloadKind; 8] = [
    WorkloadKind { name: "Pod", versions: &["v1"], template: &[] },
    WorkloadKind { name: "ReplicationController", versions: &["v1"], template: &["spec", "template"] },
    WorkloadKind {
        name: "Deployment",
        versions: &["apps/v1", "apps/v1beta1", "apps/v1beta2", "extensions/v1beta1"],
        template: &["spec", "template"],
    },
    WorkloadKind {
        name: "ReplicaSet",
        versions: &["apps/v1", "apps/v1beta2", "extensions/v1beta1"],
        template: &["spec", "template"],
    },
    WorkloadKind {
        name: "StatefulSet",
        versions: &["apps/v1", "apps/v1beta1", "apps/v1beta2"],
        template: &["spec", "template"],
    },
    WorkloadKind {
        name: "DaemonSet",
        versions: &["apps/v1", "apps/v1beta2", "extensions/v1beta1"],
        template: &["spec", "template"],
    },
    WorkloadKind { name: "Job", versions: &["batch/v1"], template: &["spec", "template"] },
    WorkloadKind {
        name: "CronJob",
        versions: &["batch/v1", "batch/v1beta1"],
        template: &["spec", "jobTemplate", "spec", "template"],
    },
];

/// Fields of an object in which an error counts.
const OBJECT_FIELDS: [&str; 5] =
    ["metadata", "metadata.name", "metadata.generateName", "metadata.namespace", "metadata.uid"];
/// Fields of a pod template in which an error counts; `[]` stands for an entry of a list or a map.
const TEMPLATE_FIELDS: [&str; 29] = [
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
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Namespace of the object, `default` unless it has one.
    pub namespace: String,
    /// Name of the object, or `PREFIX*` where the name is generated.
    pub name: String,
    /// Uid of the object, empty unless it has one.
    pub uid: String,
    /// The pod, of which only the fields can be relied on that decide about images.
    pub pod: Pod,
    /// Priority of the pod: as written, otherwise that of the two classes which every cluster has.
    pub priority: i32,
}

/// The first error in a workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WorkloadError {
    /// The field of the object that is wrong, or that lacks something.
    pub field: FieldPath,
    /// Message in one line for people, with the field's name where the field has one.
    pub message: String,
}

impl Workload {
    /// Reads an object of this kind.
    ///
    /// # Errors
    /// The first error in a field that counts.
    pub fn read(kind: WorkloadKind, object: &Value) -> Result<Self, WorkloadError> {
        let mut errors = FieldErrors::default();
        let metadata = object.get("metadata").filter(|value| !value.is_null());
        let metadata = metadata.and_then(|value| Metadata::from_value(value, FieldPath::new("metadata"), &mut errors));
        check(&errors, &FieldPath::default(), &OBJECT_FIELDS)?;
        let Metadata { name, generate_name, namespace, uid, .. } = metadata.unwrap_or_default();
        let name = match (name.as_str(), generate_name.as_str()) {
            ("", "") => return Err(error(&FieldPath::default(), format!("{} has no metadata.name", kind.name))),
            ("", prefix) => format!("{prefix}*"),
            _ => name,
        };
        let title = format!("{} {name}", kind.name);
        let (template, path) = template(kind, object, &title)?;
        let (pod, errors) = Pod::read_template(template, path.clone());
        check(&errors, &path, &TEMPLATE_FIELDS)?;
        check_images(&pod, &path.child("spec"))?;
        if pod.spec.containers.is_empty() {
            return Err(error(&FieldPath::default(), format!("{title} has no containers")));
        }
        let class = PRIORITY_CLASSES.iter().find(|(name, _)| *name == pod.spec.priority_class_name);
        let priority = pod.spec.priority.or(class.map(|(_, priority)| *priority)).unwrap_or_default();
        let namespace = if namespace.is_empty() { "default".to_owned() } else { namespace };
        Ok(Self { namespace, name, uid, pod, priority })
    }
}

fn error(field: &FieldPath, message: String) -> WorkloadError {
    WorkloadError { field: field.clone(), message }
}

/// The pod template of an object, which has a spec, and its path.
fn template<'v>(kind: WorkloadKind, object: &'v Value, title: &str) -> Result<(&'v Value, FieldPath), WorkloadError> {
    let (mut value, mut path) = (object, FieldPath::default());
    let set = |value: &'v Value, name: &str| value.get(name).filter(|value| !value.is_null());
    for name in kind.template {
        let child = path.child(name);
        value = set(value, name).ok_or_else(|| error(&path, format!("{title} has no {child}")))?;
        path = child;
    }
    let child = path.child("spec");
    match set(value, "spec") {
        Some(Value::Object(_)) => Ok((value, path)),
        Some(other) => {
            let shown = read::shown(other);
            Err(error(&child, format!("{child} of {title} must be a map, not {shown}")))
        }
        None => Err(error(&path, format!("{title} has no {child}"))),
    }
}

/// Fails with the first error in one of these fields below `root`.
fn check(errors: &FieldErrors, root: &FieldPath, fields: &[&str]) -> Result<(), WorkloadError> {
    let counts = |error: &&FieldError| {
        let below = error.field.as_str().strip_prefix(root.as_str()).unwrap_or_default();
        let form = without_keys(below.trim_start_matches('.'));
        // An entry of this list that is null counts as absent.
        let is_absent = form == "spec.imagePullSecrets[]"
            && matches!(&error.problem, FieldProblem::Invalid { value, .. } if value == "null");
        fields.contains(&form.as_str()) && !is_absent
    };
    match errors.iter().find(counts) {
        Some(found) => Err(error(&found.field, sentence(found))),
        None => Ok(()),
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

/// An error as one sentence.
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

/// Every need for an image has a name of its own and an image. Containers share one space of names, volumes have theirs.
fn check_images(pod: &Pod, spec: &FieldPath) -> Result<(), WorkloadError> {
    let mut seen: Vec<(bool, &str, &'static str)> = Vec::new();
    let volumes = pod.spec.volumes.iter().enumerate().filter_map(|(index, volume)| match &volume.source {
        VolumeSource::Image(image) => Some((index, volume.name.as_str(), image.reference.as_str())),
        _ => None,
    });
    let mut needs: Vec<(&'static str, usize, &str, &str)> =
        volumes.map(|(index, name, image)| ("volumes", index, name, image)).collect();
    let both = pod.spec.volumes.iter().position(|volume| volume.further.contains(&"image"));
    if let Some(index) = both {
        let field = spec.child("volumes").index(index);
        return Err(error(&field, format!("{field} has an image and another source")));
    }
    for kind in [ContainerKind::Ephemeral, ContainerKind::Init, ContainerKind::Normal] {
        let containers = pod.all_containers().filter(|(each, _)| *each == kind).enumerate();
        needs.extend(containers.map(|(index, (_, c))| (kind.field(), index, c.name.as_str(), c.image.as_str())));
    }
    for (list, index, name, image) in needs {
        let field = spec.child(list).index(index);
        let is_volume = list == "volumes";
        if name.is_empty() {
            return Err(error(&field, format!("{field} has no name")));
        }
        if image.is_empty() {
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
        Workload::read(WORKLOAD_KINDS.into_iter().find(|known| known.name == kind).expect("a kind"), object)
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
        assert_eq!(read.pod.images().iter().map(|image| image.image).collect::<Vec<_>>(), ["i:1"]);
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
