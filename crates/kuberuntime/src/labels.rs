//! Labels and annotations by which sandboxes and containers are recognised, by this program after a restart and by any
//! tool that knows the kubelet: its labels and annotations, both ways. Calls no runtime. Called when containers are made
//! and when statuses are read.

use std::collections::BTreeMap;

use image_manager::ObjectRef;
use manifest::decode_text;
use serde_json::{Value, json};

use crate::hash::{fnv32a, fnv64a};
use crate::pod::{Container, ContainerKind, ContainerPort, LifecycleHandler, Pod};

/// Label of sandboxes and containers: name of the pod, as in the kubelet.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Label of sandboxes and containers: namespace of the pod.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Label of sandboxes and containers: uid of the pod.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Label of containers: name within the pod.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// Label of sandboxes: the node of the pod, if the pod's name ends in it.
pub const NODE: &str = "imagelet.dev/node";
/// Label of sandboxes: the names of the pod's normal containers in order, separated by commas.
pub const CONTAINERS: &str = "imagelet.dev/containers";

const HASH: &str = "io.kubernetes.container.hash";
const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
const PORTS: &str = "io.kubernetes.container.ports";
const KIND: &str = "io.kubernetes.container.type";
const DELETION_GRACE_PERIOD: &str = "io.kubernetes.pod.deletionGracePeriod";
const TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";

type Map = BTreeMap<String, String>;

/// Returns the hash of a container's definition: when it changes, the container is created again. As in the kubelet,
/// the definition is the name and the image; a static pod whose manifest changes otherwise is another pod.
#[must_use]
pub(crate) fn container_hash(container: &Container) -> u64 {
    let text = json!({"image": container.image, "name": container.name}).to_string();
    u64::from(fnv32a(text.as_bytes()))
}

/// Returns the key under which restarts of a container are counted.
#[must_use]
pub(crate) fn backoff_key(pod: &Pod, container: &Container) -> String {
    let amounts = |map: &BTreeMap<String, oci::Quantity>| -> Value {
        map.iter().map(|(name, quantity)| (name.clone(), Value::from(quantity.to_string()))).collect()
    };
    let (metadata, resources) = (&pod.metadata, &container.resources);
    let text = json!([
        metadata.name,
        metadata.namespace,
        metadata.uid,
        container.name,
        container.image,
        amounts(&resources.limits),
        amounts(&resources.requests),
    ]);
    format!("{:x}", fnv64a(text.to_string().as_bytes()))
}

/// Labels of a pod's sandbox: the pod's own, and who it is.
#[must_use]
pub(crate) fn sandbox_labels(pod: &Pod) -> Map {
    let mut labels = pod.metadata.labels.clone();
    labels.extend(names(pod));
    labels
}

/// Returns the annotations of a pod's sandbox: the pod's own, and the names by which tools find it.
#[must_use]
pub(crate) fn sandbox_annotations(pod: &Pod) -> Map {
    let mut annotations = pod.metadata.annotations.clone();
    let containers: Vec<&str> = pod.spec.containers.iter().map(|container| &*container.name).collect();
    annotations.insert(CONTAINERS.to_owned(), containers.join(","));
    if !pod.spec.node_name.is_empty() {
        annotations.insert(NODE.to_owned(), pod.spec.node_name.clone());
    }
    annotations
}

/// Labels of a container: the names and the uid of its pod, and its own name.
#[must_use]
pub(crate) fn container_labels(pod: &Pod, container: &Container) -> Map {
    let mut labels: Map = names(pod).into_iter().collect();
    labels.insert(CONTAINER_NAME.to_owned(), container.name.clone());
    labels
}

fn names(pod: &Pod) -> [(String, String); 3] {
    let metadata = &pod.metadata;
    [
        (POD_NAME.to_owned(), metadata.name.clone()),
        (POD_NAMESPACE.to_owned(), metadata.namespace.clone()),
        (POD_UID.to_owned(), metadata.uid.clone()),
    ]
}

/// Annotations of a container: what is needed to know and to stop it when its pod is no longer known.
#[must_use]
pub(crate) fn container_annotations(pod: &Pod, kind: ContainerKind, container: &Container, restart_count: u32) -> Map {
    let mut annotations = Map::new();
    let mut set = |key: &str, value: String| annotations.insert(key.to_owned(), value);
    set(HASH, format!("{:x}", container_hash(container)));
    set(RESTART_COUNT, restart_count.to_string());
    set(TERMINATION_MESSAGE_PATH, container.termination_message_path.clone());
    set(TERMINATION_MESSAGE_POLICY, container.termination_message_policy.map_or("", |p| p.as_str()).to_owned());
    set(KIND, kind.as_str().to_owned());
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        set(DELETION_GRACE_PERIOD, seconds.to_string());
    }
    if let Some(seconds) = pod.spec.termination_grace_period_seconds {
        set(TERMINATION_GRACE_PERIOD, seconds.to_string());
    }
    if let Some(handler) = &container.lifecycle.pre_stop {
        set(PRE_STOP, json!(handler).to_string());
    }
    if !container.ports.is_empty() {
        set(PORTS, json!(container.ports).to_string());
    }
    annotations
}

/// Whose a sandbox or a container is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodOwner {
    /// Uid of the pod.
    pub uid: String,
    /// Name of the pod.
    pub name: String,
    /// Namespace of the pod.
    pub namespace: String,
}

impl PodOwner {
    /// Reads labels; `None` if they are not those of a pod.
    #[must_use]
    pub fn from_labels(labels: &Map) -> Option<Self> {
        let get = |key: &str| labels.get(key).filter(|value| !value.is_empty()).cloned();
        Some(Self { uid: get(POD_UID)?, name: get(POD_NAME)?, namespace: get(POD_NAMESPACE)? })
    }

    /// Returns the owner of all objects of a pod.
    pub(crate) fn of(pod: &Pod) -> Self {
        let metadata = &pod.metadata;
        Self { uid: metadata.uid.clone(), name: metadata.name.clone(), namespace: metadata.namespace.clone() }
    }

    /// `web_default(uid)`, as the kubelet names pods in messages.
    pub(crate) fn title(&self) -> String {
        format!("{}_{}({})", self.name, self.namespace, self.uid)
    }

    /// Object of events about a part of the pod: a container, or, without one, the pod.
    pub(crate) fn object(&self, part: Option<(ContainerKind, &str)>) -> ObjectRef {
        ObjectRef {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            field_path: part.map_or_else(String::new, |(kind, name)| format!("spec.{}{{{name}}}", kind.field())),
        }
    }
}

/// Facts about a container that its labels and annotations keep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerInfo {
    /// Name within the pod; empty without the label.
    pub name: String,
    /// Kind of the container; `None` where the annotation is missing or cannot be read.
    pub kind: Option<ContainerKind>,
    /// The hash of what it was made of.
    pub hash: Option<u64>,
    /// Number of earlier runs.
    pub restart_count: u32,
    /// The file of its last message.
    pub termination_message_path: String,
    /// True if the end of the log stands for the termination message of a container that failed.
    pub falls_back_to_logs: bool,
    /// Seconds to end that its pod's deletion gave.
    pub deletion_grace_period: Option<i64>,
    /// Seconds to end that its pod gave.
    pub termination_grace_period: Option<i64>,
    /// Hook to run before the container is stopped.
    pub pre_stop: Option<LifecycleHandler>,
    /// Ports, for hooks that name them.
    pub ports: Vec<ContainerPort>,
    /// Annotations that are there and cannot be read; they count as absent.
    pub unreadable: Vec<&'static str>,
}

impl ContainerInfo {
    /// Reads labels and annotations.
    #[must_use]
    pub fn read(labels: &Map, annotations: &Map) -> Self {
        let mut unreadable = Vec::new();
        let hash = read(annotations, HASH, &mut unreadable, |text| u64::from_str_radix(text, 16).ok());
        let restart_count = read(annotations, RESTART_COUNT, &mut unreadable, |text| text.parse().ok());
        let deletion = read(annotations, DELETION_GRACE_PERIOD, &mut unreadable, |text| text.parse().ok());
        let termination = read(annotations, TERMINATION_GRACE_PERIOD, &mut unreadable, |text| text.parse().ok());
        let pre_stop =
            read(annotations, PRE_STOP, &mut unreadable, |text| decode_text::<LifecycleHandler>(text, "handler").ok());
        let ports =
            read(annotations, PORTS, &mut unreadable, |text| decode_text::<Vec<ContainerPort>>(text, "ports").ok());
        let kind = read(annotations, KIND, &mut unreadable, |text| {
            [ContainerKind::Init, ContainerKind::Normal, ContainerKind::Ephemeral]
                .into_iter()
                .find(|k| k.as_str() == text)
        });
        let text = |map: &Map, key: &str| map.get(key).cloned().unwrap_or_default();
        Self {
            name: text(labels, CONTAINER_NAME),
            kind,
            hash,
            restart_count: restart_count.unwrap_or_default(),
            termination_message_path: text(annotations, TERMINATION_MESSAGE_PATH),
            falls_back_to_logs: text(annotations, TERMINATION_MESSAGE_POLICY)
                == crate::pod::TerminationMessagePolicy::FallbackToLogsOnError.as_str(),
            deletion_grace_period: deletion,
            termination_grace_period: termination,
            pre_stop,
            ports: ports.unwrap_or_default(),
            unreadable,
        }
    }
}

fn read<T>(
    map: &Map,
    key: &'static str,
    unreadable: &mut Vec<&'static str>,
    parse: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let parsed = parse(map.get(key)?);
    if parsed.is_none() {
        unreadable.push(key);
    }
    parsed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        let mut pod = Pod::from_json(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "labels": {"app": "web"},
                         "annotations": {"note": "x"}, "deletionGracePeriodSeconds": 7},
            "spec": {"terminationGracePeriodSeconds": 5, "containers": [{
                "name": "main", "image": "app:1", "ports": [{"containerPort": 80}],
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "lifecycle": {"preStop": {"httpGet": {"port": "http"}}},
            }]},
        }))
        .expect("a pod");
        crate::set_defaults(&mut pod);
        pod
    }

    #[test]
    fn what_is_written_is_read_again() {
        let pod = pod();
        let container = &pod.spec.containers[0];
        let labels = container_labels(&pod, container);
        let annotations = container_annotations(&pod, ContainerKind::Normal, container, 3);
        assert_eq!(annotations[HASH], format!("{:x}", container_hash(container)));
        assert_eq!(annotations[PORTS], r#"[{"containerPort":80,"protocol":"TCP"}]"#);
        assert_eq!(annotations[PRE_STOP], r#"{"httpGet":{"path":"/","port":"http","scheme":"HTTP"}}"#);
        let owner = PodOwner { uid: "u-1".into(), name: "web".into(), namespace: "shop".into() };
        assert_eq!(PodOwner::from_labels(&labels), Some(owner.clone()));
        assert_eq!(PodOwner::from_labels(&sandbox_labels(&pod)), Some(owner));
        let annotations_of_sandbox = sandbox_annotations(&pod);
        assert_eq!(sandbox_labels(&pod)["app"], "web");
        assert_eq!((&*annotations_of_sandbox["note"], &*annotations_of_sandbox[CONTAINERS]), ("x", "main"));
        assert_eq!(
            ContainerInfo::read(&labels, &annotations),
            ContainerInfo {
                name: "main".into(),
                kind: Some(ContainerKind::Normal),
                hash: Some(container_hash(container)),
                restart_count: 3,
                termination_message_path: "/dev/termination-log".into(),
                falls_back_to_logs: true,
                deletion_grace_period: Some(7),
                termination_grace_period: Some(5),
                pre_stop: container.lifecycle.pre_stop.clone(),
                ports: container.ports.clone(),
                unreadable: vec![],
            }
        );
    }

    #[test]
    fn foreign_annotations_are_read_as_far_as_possible() {
        assert_eq!(PodOwner::from_labels(&Map::from([(POD_NAME.to_owned(), "x".to_owned())])), None);
        let annotations =
            [(HASH, "xyz"), (RESTART_COUNT, "-1"), (PRE_STOP, "{"), (KIND, "what"), (TERMINATION_GRACE_PERIOD, "9")];
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect();
        let info = ContainerInfo::read(&Map::new(), &annotations);
        assert_eq!(info.unreadable, [HASH, RESTART_COUNT, PRE_STOP, KIND]);
        assert_eq!((info.hash, info.restart_count, info.termination_grace_period), (None, 0, Some(9)));
    }

    #[test]
    fn hashes_follow_what_they_are_of() {
        let (base, mut other) = (pod(), pod());
        let container = &mut other.spec.containers[0];
        assert_eq!(container_hash(container), container_hash(&base.spec.containers[0]));
        // The value on containers that run: another one would replace all of them at an upgrade.
        assert_eq!(container_hash(container), 0x6fd54626);
        let key = backoff_key(&base, &base.spec.containers[0]);
        container.command = vec!["x".into()];
        assert_eq!(container_hash(container), container_hash(&base.spec.containers[0]));
        container.resources.limits.insert("cpu".into(), oci::Quantity::milli(5));
        assert_eq!(container_hash(container), container_hash(&base.spec.containers[0]));
        assert_ne!(backoff_key(&base, container), key);
        container.image = "app:2".into();
        assert_ne!(container_hash(container), container_hash(&base.spec.containers[0]));
    }
}
