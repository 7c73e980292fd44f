//! [`PodRef`] and [`ObjectRef`]: the pod of a request, and the object of an event. Plain data.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The pod that wants an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodRef {
    /// Namespace of the pod; empty where no pod is known.
    pub namespace: String,
    /// Name of the pod; empty where no pod is known.
    pub name: String,
    /// Uid of the pod; empty where it is not known.
    pub uid: String,
    /// All annotations; they are sent to the runtime with the image.
    pub annotations: BTreeMap<String, String>,
}

/// The object of an event: a pod, or a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Uid of the pod.
    pub uid: String,
    /// Which part, for example `spec.containers{web}`; empty: the pod itself.
    pub field_path: String,
}

impl ObjectRef {
    /// The pod itself.
    #[must_use]
    pub fn pod(pod: &PodRef) -> Self {
        Self::part(pod, String::new())
    }

    /// A normal container of the pod: field path `spec.containers{NAME}`, as in the kubelet.
    #[must_use]
    pub fn container(pod: &PodRef, name: &str) -> Self {
        Self::part(pod, format!("spec.containers{{{name}}}"))
    }

    /// An init container of the pod: field path `spec.initContainers{NAME}`, as in the kubelet.
    #[must_use]
    pub fn init_container(pod: &PodRef, name: &str) -> Self {
        Self::part(pod, format!("spec.initContainers{{{name}}}"))
    }

    /// `NAMESPACE/NAME` of the pod, if there is one: for the log.
    #[must_use]
    pub fn pod_title(&self) -> Option<String> {
        (!self.name.is_empty()).then(|| format!("{}/{}", self.namespace, self.name))
    }

    /// Name of the container, if it is one: for the log.
    #[must_use]
    pub fn container_name(&self) -> Option<&str> {
        self.field_path.strip_suffix('}')?.split_once('{').map(|(_, name)| name)
    }

    fn part(pod: &PodRef, field_path: String) -> Self {
        Self { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone(), field_path }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)?;
        if self.field_path.is_empty() { Ok(()) } else { write!(f, " {}", self.field_path) }
    }
}
