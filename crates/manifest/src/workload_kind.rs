//! [`WorkloadKind`]: which objects hold a pod, and where. The kinds of Kubernetes are known by their names; those of others (a
//! Rollout of Argo, a CloneSet of OpenKruise, a DeploymentConfig of OpenShift, a Service of Knative) by their shape: a pod template
//! stands where workloads have theirs. Reads no pod. Called by the readers of manifests.

use serde_json::Value;

/// An object that holds a pod: its kind, and the way to the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadKind {
    /// Kind as the object has it.
    pub name: String,
    /// Fields that lead from the object to its pod template.
    pub(crate) template: &'static [&'static str],
    /// False for a kind that was recognised by its shape.
    pub(crate) is_of_kubernetes: bool,
}

/// Reason for which an object is of no known kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KindError {
    /// The kind has no such version.
    #[error("{kind} of {version} is not known, only of {}", known.join(", "))]
    Version {
        /// Kind of the object.
        kind: String,
        /// `apiVersion` of the object.
        version: String,
        /// API versions that have the kind, the newest first.
        known: &'static [&'static str],
    },
    /// The API group has no such kind, but one of a similar name.
    #[error("kind {kind} ({version}) is not known; did you mean {closest:?}?")]
    Misspelt {
        /// Kind of the object.
        kind: String,
        /// `apiVersion` of the object.
        version: String,
        /// The kind that was probably meant.
        closest: &'static str,
    },
}

/// A kind of Kubernetes that holds a pod.
struct KubernetesKind {
    name: &'static str,
    /// API versions that have the kind, the newest first.
    versions: &'static [&'static str],
    template: &'static [&'static str],
}

const TEMPLATE: &[&str] = &["spec", "template"];
const JOB_TEMPLATE: &[&str] = &["spec", "jobTemplate", "spec", "template"];

/// All kinds of Kubernetes that hold a pod.
const KINDS: [KubernetesKind; 9] = [
    KubernetesKind { name: "Pod", versions: &["v1"], template: &[] },
    KubernetesKind { name: "PodTemplate", versions: &["v1"], template: &["template"] },
    KubernetesKind { name: "ReplicationController", versions: &["v1"], template: TEMPLATE },
    KubernetesKind {
        name: "Deployment",
        versions: &["apps/v1", "apps/v1beta1", "apps/v1beta2", "extensions/v1beta1"],
        template: TEMPLATE,
    },
    KubernetesKind {
        name: "ReplicaSet",
        versions: &["apps/v1", "apps/v1beta2", "extensions/v1beta1"],
        template: TEMPLATE,
    },
    KubernetesKind { name: "StatefulSet", versions: &["apps/v1", "apps/v1beta1", "apps/v1beta2"], template: TEMPLATE },
    KubernetesKind {
        name: "DaemonSet",
        versions: &["apps/v1", "apps/v1beta2", "extensions/v1beta1"],
        template: TEMPLATE,
    },
    KubernetesKind { name: "Job", versions: &["batch/v1"], template: TEMPLATE },
    KubernetesKind { name: "CronJob", versions: &["batch/v1", "batch/v1beta1"], template: JOB_TEMPLATE },
];

/// Kinds that hold no pod, and that pods need.
const AUXILIARY_KINDS: &[&str] = &["ConfigMap", "List", "Secret", "ServiceAccount"];

/// Paths of pod templates in kinds of other projects. Deeper ones are ignored: policies have patterns of pods there.
const SHAPES: [&[&str]; 4] =
    [TEMPLATE, JOB_TEMPLATE, &["spec", "template", "jobTemplate", "spec", "template"], &["template"]];

impl WorkloadKind {
    /// Returns the kind of an object, or `None` if no pod is made of such an object.
    ///
    /// # Errors
    /// The kind is one of Kubernetes' own, and misspelt.
    pub fn of(kind: &str, version: &str, object: &Value) -> Result<Option<Self>, KindError> {
        if let Some(known) = KINDS.iter().find(|known| known.name == kind)
            && KINDS.iter().any(|known| known.is_of_group(version))
        {
            if !known.versions.contains(&version) {
                let (kind, version) = (kind.to_owned(), version.to_owned());
                return Err(KindError::Version { kind, version, known: known.versions });
            }
            return Ok(Some(Self { name: kind.to_owned(), template: known.template, is_of_kubernetes: true }));
        }
        let of_version = KINDS.iter().filter(|known| known.versions.contains(&version)).map(|known| known.name);
        let auxiliary = if version == "v1" { AUXILIARY_KINDS } else { &[] };
        let closest = base::nearest(kind, of_version.chain(auxiliary.iter().copied()));
        if let Some(closest) = closest.filter(|closest| *closest != kind) {
            return Err(KindError::Misspelt { kind: kind.to_owned(), version: version.to_owned(), closest });
        }
        let shape = SHAPES.into_iter().find(|path| below(object, path).is_some_and(is_pod_template));
        Ok(shape.map(|template| Self { name: kind.to_owned(), template, is_of_kubernetes: false }))
    }
}

impl KubernetesKind {
    /// Returns true if a version is of the API group of the kind, or of one that had it.
    fn is_of_group(&self, version: &str) -> bool {
        let group = |version: &str| version.split_once('/').map(|(group, _)| group.to_owned());
        self.versions.iter().any(|known| group(known) == group(version))
    }
}

fn below<'v>(object: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(object, |value, name| value.get(name))
}

/// Returns true if a value has containers as a pod has them.
fn is_pod_template(value: &Value) -> bool {
    let containers = below(value, &["spec", "containers"]).and_then(Value::as_array);
    containers.is_some_and(|list| !list.is_empty() && list.iter().all(Value::is_object))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_are_known_by_name_or_by_shape() {
        let template = json!({"spec": {"containers": [{"image": "i"}]}});
        let deep = json!({"spec": {"template": {"jobTemplate": {"spec": {"template": template}}}}});
        let simple = json!({"spec": {"template": template}});
        for (version, kind, object, want) in [
            ("v1", "Pod", json!({}), Some(0)),
            ("apps/v1", "Deployment", json!({}), Some(2)),
            ("batch/v1", "CronJob", json!({}), Some(4)),
            ("v1", "PodTemplate", json!({}), Some(1)),
            ("argoproj.io/v1alpha1", "Rollout", simple.clone(), Some(2)),
            ("apps.kruise.io/v1alpha1", "CloneSet", simple.clone(), Some(2)),
            ("apps.kruise.io/v1beta1", "StatefulSet", simple.clone(), Some(2)),
            ("apps.openshift.io/v1", "DeploymentConfig", simple.clone(), Some(2)),
            ("serving.knative.dev/v1", "Service", simple.clone(), Some(2)),
            ("apps.kruise.io/v1alpha1", "AdvancedCronJob", deep, Some(5)),
            ("example.dev/v1", "Timer", json!({"spec": {"jobTemplate": simple}}), Some(4)),
            ("argoproj.io/v1alpha1", "Rollout", json!({"spec": {"workloadRef": {"name": "web"}}}), None),
            ("v1", "Service", json!({"spec": {"template": "odd", "ports": []}}), None),
            ("v1", "ConfigMap", json!({"data": {"template": "spec: {containers: []}"}}), None),
            ("external-secrets.io/v1", "ExternalSecret", json!({"spec": {"template": {"spec": {}}}}), None),
            (
                "kyverno.io/v1",
                "ClusterPolicy",
                json!({"spec": {"rules": [{"mutate": {"patchStrategicMerge": simple}}]}}),
                None,
            ),
        ] {
            let got = WorkloadKind::of(kind, version, &object).expect(kind);
            assert_eq!(got.map(|kind| kind.template.len()), want, "{kind}");
        }
    }

    #[test]
    fn a_misspelt_kind_is_not_passed_by() {
        for (version, kind, want) in [
            (
                "apps/v2",
                "Deployment",
                "Deployment of apps/v2 is not known, only of apps/v1, apps/v1beta1, apps/v1beta2, \
                                       extensions/v1beta1",
            ),
            ("apps/v1", "Deploymnet", "kind Deploymnet (apps/v1) is not known; did you mean \"Deployment\"?"),
            ("v1", "pod", "kind pod (v1) is not known; did you mean \"Pod\"?"),
            ("v1", "Job", "Job of v1 is not known, only of batch/v1"),
            ("v1", "Secrets", "kind Secrets (v1) is not known; did you mean \"Secret\"?"),
            ("batch/v1", "Cronjob", "kind Cronjob (batch/v1) is not known; did you mean \"CronJob\"?"),
        ] {
            let error = WorkloadKind::of(kind, version, &json!({})).expect_err(kind);
            assert_eq!(error.to_string(), want);
        }
        for (version, kind) in [
            ("v1", "Node"),
            ("v1", "Service"),
            ("v1", "Secret"),
            ("apps/v1", "ControllerRevision"),
            ("x.dev/v1", "Deploy"),
        ] {
            assert_eq!(WorkloadKind::of(kind, version, &json!({})), Ok(None));
        }
    }
}
