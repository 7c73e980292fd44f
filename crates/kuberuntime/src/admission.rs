//! [`admit`]: whether a pod that a scheduler sent here can run on this node, in the kubelet's order, with its reasons and messages.
//! Pure. Taints are the affair of scheduler and controllers. Called once for each pod of an API server. Host ports, which local
//! pods take as well, are checked by [`ports`] for all pods.

mod affinity;
pub(crate) mod ports;

use std::collections::BTreeMap;

use oci::Quantity;
use serde_json::Value;

use crate::pod::{Container, Pod};

/// The amounts of a node that pods may use, and what pods choose a node by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeCapacity {
    /// Name of the node, for `matchFields` of a node affinity.
    pub name: String,
    /// Labels of the node, for node selectors and node affinities.
    pub labels: BTreeMap<String, String>,
    /// Amounts that pods may use together, by the names of resources; a resource that is not named is not counted.
    pub allocatable: BTreeMap<String, Quantity>,
    /// Maximum number of pods; `None` for no limit.
    pub pods: Option<usize>,
}

/// Rejection of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// Reason in one word, as in the pod's status.
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) message: String,
}

impl Rejection {
    /// Rejects a pod for a feature that this node does not have.
    pub(crate) fn unexpected(message: String) -> Self {
        Self { reason: "UnexpectedAdmissionError", message }
    }

    fn predicate(reason: &'static str, what: &str) -> Self {
        Self { reason, message: format!("Predicate {reason} failed: {what}") }
    }

    fn out_of(reason: &'static str, name: &str, (requested, used, capacity): (i64, i64, i64)) -> Self {
        let message = format!(
            "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
        );
        Self { reason, message }
    }
}

/// The resources that are counted, and the reasons of pods that ask for too much of them.
const COUNTED: [(&str, &str); 3] =
    [("cpu", "OutOfcpu"), ("memory", "OutOfmemory"), ("ephemeral-storage", "OutOfephemeral-storage")];

/// Decides whether `pod` can run in addition to the pods in `active`. `object` is the same pod as its server has it.
pub(crate) fn admit(pod: &Pod, object: &Value, active: &[&Pod], node: &NodeCapacity) -> Result<(), Rejection> {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    if let Some(most) = node.pods.filter(|most| active.len() >= *most) {
        return Err(Rejection::out_of("OutOfpods", "pods", (1, number(active.len()), number(most))));
    }
    for (name, reason) in COUNTED {
        let Some(capacity) = node.allocatable.get(name).map(|capacity| amount(name, *capacity)) else { continue };
        let requested = request(pod, name);
        let used = active.iter().map(|other| request(other, name)).fold(0_i64, i64::saturating_add);
        if requested > 0 && requested > capacity.saturating_sub(used) {
            return Err(Rejection::out_of(reason, name, (requested, used, capacity)));
        }
    }
    if !affinity::is_wanted(&object["spec"], &node.name, &node.labels) {
        return Err(Rejection::predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"));
    }
    Ok(())
}

/// Returns an amount in the unit of its resource: thousandths of cores, else whole ones.
fn amount(name: &str, quantity: Quantity) -> i64 {
    if name == "cpu" { quantity.milli_value() } else { quantity.value() }
}

/// Returns the highest request of a pod at any time: its containers and sidecars together, or an init container
/// together with the sidecars that were started before it.
fn request(pod: &Pod, name: &str) -> i64 {
    let of = |container: &Container| container.resources.requests.get(name).map_or(0, |asked| amount(name, *asked));
    let mut sidecars = 0_i64;
    let mut most = 0_i64;
    for container in &pod.spec.init_containers {
        if container.is_sidecar() {
            sidecars = sidecars.saturating_add(of(container));
            most = most.max(sidecars);
        } else {
            most = most.max(sidecars.saturating_add(of(container)));
        }
    }
    let together = pod.spec.containers.iter().map(of).fold(sidecars, i64::saturating_add);
    most.max(together)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: &Value) -> (Pod, Value) {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
        let (pod, _) = crate::identity::read_of_cluster(&object);
        (pod, object)
    }

    fn asks(name: &str, amount: &str) -> Value {
        json!({"name": "c", "image": "x", "resources": {"requests": {name: amount}}})
    }

    fn node() -> NodeCapacity {
        let amounts = [("cpu", "2"), ("memory", "1Gi"), ("ephemeral-storage", "1Gi")];
        NodeCapacity {
            name: "edge".to_owned(),
            labels: [("disk".to_owned(), "ssd".to_owned())].into(),
            allocatable: amounts.map(|(name, text)| (name.to_owned(), text.parse().expect("an amount"))).into(),
            pods: Some(3),
        }
    }

    #[test]
    fn reasons_and_messages_are_the_kubelets() {
        let one = pod(&json!({"containers": [asks("cpu", "1500m")]})).0;
        let small = pod(&json!({"containers": [{"name": "c", "image": "x"}]})).0;
        let enough = "Node didn't have enough resource:";
        let cases = [
            (
                "upstream: lifecycle/TestGeneralPredicates/",
                json!({"containers": [asks("cpu", "500m")]}),
                vec![&one],
                None,
            ),
            (
                "too many cores",
                json!({"containers": [asks("cpu", "501m")]}),
                vec![&one],
                Some(("OutOfcpu", format!("{enough} cpu, requested: 501, used: 1500, capacity: 2000"))),
            ),
            (
                "too much memory, in an init container",
                json!({"initContainers": [asks("memory", "2Gi")], "containers": [asks("memory", "1Mi")]}),
                vec![],
                Some(("OutOfmemory", format!("{enough} memory, requested: 2147483648, used: 0, capacity: 1073741824"))),
            ),
            (
                "too many pods",
                json!({"containers": [asks("cpu", "1m")]}),
                vec![&small, &small, &small],
                Some(("OutOfpods", format!("{enough} pods, requested: 1, used: 3, capacity: 3"))),
            ),
            (
                "another label",
                json!({"containers": [asks("cpu", "1m")], "nodeSelector": {"disk": "hdd"}}),
                vec![],
                Some((
                    "NodeAffinity",
                    "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector".to_owned(),
                )),
            ),
            // A node is not asked for what it does not count.
            ("a resource of somebody else", json!({"containers": [asks("example.com/gpu", "3")]}), vec![], None),
        ];
        for (name, spec, active, want) in cases {
            let (pod, object) = pod(&spec);
            let got = admit(&pod, &object, &active, &node()).err();
            assert_eq!(got.map(|rejection| (rejection.reason, rejection.message)), want, "{name}");
        }
    }

    #[test]
    fn init_containers_and_sidecars_count_as_they_run() {
        let spec = json!({
            "initContainers": [
                {"name": "s", "image": "x", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
                {"name": "i", "image": "x", "resources": {"requests": {"cpu": "500m"}}},
            ],
            "containers": [asks("cpu", "200m"), asks("cpu", "200m")],
        });
        assert_eq!(request(&pod(&spec).0, "cpu"), 600);
        assert_eq!(request(&pod(&json!({"containers": [asks("cpu", "200m")]})).0, "cpu"), 200);
    }
}
