//! Identity of a pod of a manifest, not of an API server: uid, name, namespace and annotations as the kubelet
//! makes them, so that an unchanged manifest is the same pod after a restart. [`admit`] is the whole way from a manifest
//! to a pod that can be run. Reads no file and no clock. Called by pod sources.

use manifest::{FieldError, FieldErrors, FieldPath, FieldProblem};
use serde_json::Value;

use crate::hash::fnv128a;
use crate::pod::{Pod, ProjectedSource, VolumeSource};
use crate::{set_defaults, validate};

/// The hash of the manifest of a static pod.
pub(crate) const CONFIG_HASH_ANNOTATION: &str = "kubernetes.io/config.hash";
/// Source of a pod.
pub(crate) const CONFIG_SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";
/// Value of that annotation for pods of an API server, as in the kubelet.
pub const API_SOURCE: &str = "api";
/// Annotation with the time at which the pod was first seen.
pub(crate) const CONFIG_SEEN_ANNOTATION: &str = "kubernetes.io/config.seen";
/// Annotation of pods, and so of their sandboxes: the absolute path or the URL of the manifest.
pub const CONFIG_ORIGIN_ANNOTATION: &str = "imagelet.dev/config.origin";

/// Source of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<'a> {
    /// A file, by its absolute path.
    File(&'a str),
    /// An address.
    Url(&'a str),
    /// Standard input.
    Stdin,
}

impl Origin<'_> {
    /// Returns the kubelet's name of such sources.
    #[must_use]
    pub fn source(self) -> &'static str {
        match self {
            Self::File(_) | Self::Stdin => "file",
            Self::Url(_) => "http",
        }
    }
}

impl Pod {
    /// Returns true if the pod is from an API server, and not from a manifest of this node.
    #[must_use]
    pub fn is_of_server(&self) -> bool {
        self.metadata.annotations.get(CONFIG_SOURCE_ANNOTATION).is_some_and(|source| source == API_SOURCE)
    }
}

/// Converts a manifest to a pod that can be run on `node`: reads it, names it, fills in defaults, and validates it.
///
/// # Errors
/// Everything that is wrong with it, in the order of the manifest, each place once.
pub fn admit(manifest: &Value, node: &str, origin: Origin<'_>) -> Result<Pod, FieldErrors> {
    let (mut pod, mut errors) = Pod::read_all(manifest);
    make_static(&mut pod, manifest, node, origin);
    set_defaults(&mut pod);
    errors.merge(needs_server(&pod));
    if !pod.spec.ephemeral_containers.is_empty() {
        errors.forbidden(FieldPath::new("spec").child("ephemeralContainers"), "cannot be set on create");
    }
    if let Err(found) = validate(&pod) {
        errors.merge(found);
    }
    errors.in_order_of(manifest, &FieldPath::default()).into_result().map(|()| pod)
}

/// Fields that an API server or its clients act on, so that a node need not.
const OF_SERVER: [&str; 5] = [
    "spec.automountServiceAccountToken",
    "spec.readinessGates",
    "spec.schedulingGates",
    "spec.schedulingGroup",
    "spec.workloadRef",
];

/// Reads a pod of an API server, as far as it can be read, and answers what this node cannot honour. Fields that are not known
/// are passed over, as the kubelet's decoder does it.
pub(crate) fn read_of_cluster(object: &Value) -> (Pod, FieldErrors) {
    let (mut pod, mut errors) = Pod::read_typed(object);
    set_defaults(&mut pod);
    errors.retain(|FieldError { field, problem }| match problem {
        // What a volume is made of is not passed over: it would be an empty directory.
        FieldProblem::Unknown { .. } => is_source_of_volume(field.as_str()),
        FieldProblem::NotSupported { .. } => !OF_SERVER.contains(&field.as_str()),
        _ => true,
    });
    if let Err(found) = validate(&pod) {
        errors.merge(found);
    }
    (pod, errors.in_order_of(object, &FieldPath::default()))
}

/// Returns true for `spec.volumes[1].nfs`.
fn is_source_of_volume(field: &str) -> bool {
    let rest = field.strip_prefix("spec.volumes[").and_then(|rest| rest.split_once("]."));
    rest.is_some_and(|(_, name)| !name.contains(['.', '[']))
}

/// Returns errors for the parts of a pod that need an API server.
fn needs_server(pod: &Pod) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let lists = [("initContainers", &pod.spec.init_containers), ("containers", &pod.spec.containers)];
    for (list, containers) in lists {
        for (index, container) in containers.iter().enumerate() {
            if container.resources.limits.contains_key("ephemeral-storage") {
                let limits = FieldPath::new("spec").child(list).index(index).child("resources").child("limits");
                let reason = "what a container writes to the node's disk is limited for pods of an API server only";
                errors.not_supported(limits.key("ephemeral-storage"), reason);
            }
        }
    }
    let path = FieldPath::new("spec").child("volumes");
    for (index, volume) in pod.spec.volumes.iter().enumerate() {
        let VolumeSource::Projected(projected) = VolumeSource::of(volume) else { continue };
        let path = path.index(index).child("projected").child("sources");
        for (index, source) in projected.sources.iter().flatten().enumerate() {
            if matches!(ProjectedSource::of(source), ProjectedSource::ServiceAccountToken(_)) {
                let path = path.index(index).child("serviceAccountToken");
                errors.not_supported(path, "tokens of service accounts come from an API server");
            }
        }
    }
    errors
}

/// Gives a pod the uid, the name and the annotations of a static pod. A uid that the manifest has is kept.
pub(crate) fn make_static(pod: &mut Pod, manifest: &Value, node: &str, origin: Origin<'_>) {
    let metadata = &mut pod.metadata;
    if metadata.uid.is_empty() {
        metadata.uid = format!("{:032x}", manifest_hash(manifest, node, origin));
    }
    if !metadata.name.is_empty() {
        metadata.name = format!("{}-{}", metadata.name, node.to_lowercase());
    }
    metadata.annotations.insert(CONFIG_HASH_ANNOTATION.to_owned(), metadata.uid.clone());
    metadata.annotations.insert(CONFIG_SOURCE_ANNOTATION.to_owned(), origin.source().to_owned());
    node.clone_into(&mut pod.spec.node_name);
}

/// Returns the hash of a manifest's content, whatever its layout, with the node and the origin.
fn manifest_hash(manifest: &Value, node: &str, origin: Origin<'_>) -> u128 {
    let mut text = String::new();
    canonical(manifest, &mut text);
    match origin {
        Origin::File(path) => text.push_str(&format!("host:{node}file:{path}")),
        Origin::Url(url) => text.push_str(&format!("url:{url}")),
        Origin::Stdin => text.push_str(&format!("host:{node}")),
    }
    fnv128a(text.as_bytes())
}

/// JSON with its keys in order and without what is null.
fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().filter(|(_, value)| !value.is_null()).collect();
            entries.sort_by_key(|(key, _)| key.as_str());
            text.push('{');
            for (key, value) in entries {
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                canonical(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(list) => {
            text.push('[');
            for value in list {
                canonical(value, text);
                text.push(',');
            }
            text.push(']');
        }
        other => text.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifest() -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
               "spec": {"containers": [{"name": "a", "image": "app:1", "env": null}]}})
    }

    fn uid(manifest: &Value, node: &str, origin: Origin<'_>) -> String {
        admit(manifest, node, origin).expect("admitted").metadata.uid
    }

    #[test]
    fn a_static_pod_is_named_as_the_kubelet_names_it() {
        let pod = admit(&manifest(), "Edge-1", Origin::File("/etc/pods/web.yaml")).expect("admitted");
        let metadata = &pod.metadata;
        assert_eq!((&*metadata.name, &*metadata.namespace, &*pod.spec.node_name), ("web-edge-1", "default", "Edge-1"));
        assert_eq!(metadata.uid.len(), 32);
        assert_eq!(metadata.annotations[CONFIG_HASH_ANNOTATION], metadata.uid);
        assert_eq!(metadata.annotations[CONFIG_SOURCE_ANNOTATION], "file");
        assert_eq!(pod.title(), format!("web-edge-1_default({})", metadata.uid));
    }

    #[test]
    fn the_uid_follows_what_is_said_and_where() {
        let file = Origin::File("/etc/pods/web.yaml");
        let base = uid(&manifest(), "n", file);
        // The same, laid out otherwise.
        let other: Value = serde_json::from_str(
            r#"{"spec":{"containers":[{"image":"app:1","name":"a"}]},
                "kind":"Pod","metadata":{"name":"web","labels":null},"apiVersion":"v1"}"#,
        )
        .expect("JSON");
        assert_eq!(uid(&other, "n", file), base);
        assert_ne!(uid(&manifest(), "m", file), base);
        assert_ne!(uid(&manifest(), "n", Origin::File("/etc/pods/other.yaml")), base);
        assert_ne!(uid(&manifest(), "n", Origin::Url("http://config/pods")), base);
        let mut changed = manifest();
        changed["spec"]["containers"][0]["command"] = json!(["x"]);
        assert_ne!(uid(&changed, "n", file), base);
        changed["metadata"]["uid"] = json!("given");
        assert_eq!(uid(&changed, "n", file), "given");
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let wrong = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "Web"}, "spec": {
            "containers": [7, {"name": "a", "image": "", "imagePulPolicy": "Always"}],
            "ephemeralContainers": [{"name": "d", "image": "x"}],
            "restartPolicy": "Sometimes",
        }});
        let errors = admit(&wrong, "n", Origin::Stdin).expect_err("refused");
        let shown: Vec<String> = errors.iter().map(|e| e.to_string().chars().take(72).collect()).collect();
        assert_eq!(
            shown,
            [
                "metadata.name: Invalid value: \"Web-n\": a lowercase RFC 1123 subdomain mu",
                "spec.containers[0]: Invalid value: 7: must be a map",
                "spec.containers[1].image: Required value",
                "spec.containers[1].imagePulPolicy: Unknown field; did you mean \"imagePul",
                "spec.ephemeralContainers: Forbidden: cannot be set on create",
                "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"A",
            ]
        );
    }
}
