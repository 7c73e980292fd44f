//! Quality of service: the class of a pod, and its effect on the containers when memory runs out. Pure; the sums are
//! the kubelet's. Called when a container is created and when a status is made.

use oci::Quantity;

use manifest::NODE_CRITICAL;

use crate::pod::{Container, Pod, words};

words! {
    /// Quality of service class of a pod.
    QosClass {
        /// Every container has all that it may use.
        Guaranteed = "Guaranteed",
        /// Some container needs something.
        Burstable = "Burstable",
        /// No container requests or limits anything.
        BestEffort = "BestEffort",
    }
}

/// `oom_score_adj` of containers that are killed last, and of those that are killed first.
const GUARANTEED: i64 = -997;
const BEST_EFFORT: i64 = 1000;

/// Returns the class of a pod. Ephemeral containers do not count.
#[must_use]
pub(crate) fn qos_class(pod: &Pod) -> QosClass {
    const COUNTED: [&str; 2] = ["cpu", "memory"];
    let mut any = false;
    let mut guaranteed = true;
    for container in pod.spec.containers.iter().chain(&pod.spec.init_containers) {
        let amount = |map: &std::collections::BTreeMap<String, Quantity>, name: &str| {
            map.get(name).copied().filter(|quantity| *quantity > Quantity::ZERO)
        };
        for name in COUNTED {
            let limit = amount(&container.resources.limits, name);
            let request = amount(&container.resources.requests, name).or(limit);
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && limit == request;
        }
    }
    match (any, guaranteed) {
        (false, _) => QosClass::BestEffort,
        (true, true) => QosClass::Guaranteed,
        (true, false) => QosClass::Burstable,
    }
}

/// `oom_score_adj` of a container on a node with so many bytes of memory: the more of it a container asked for, the later
/// it is killed. A sidecar is never killed before the normal containers that it serves.
#[must_use]
pub(crate) fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity: u64) -> i64 {
    if pod.spec.priority == Some(NODE_CRITICAL) {
        return GUARANTEED;
    }
    match qos_class(pod) {
        QosClass::Guaranteed => return GUARANTEED,
        QosClass::BestEffort => return BEST_EFFORT,
        QosClass::Burstable => {}
    }
    let capacity = i128::from(memory_capacity).max(1);
    let asked = |container: &Container| container.resources.requests.get("memory").map_or(0, |memory| memory.value());
    let score = |bytes: i64| 1000 - 1000 * i128::from(bytes) / capacity;
    let mut adjust = score(asked(container));
    let is_sidecar = pod.spec.init_containers.iter().any(|c| c.is_sidecar() && c.name == container.name);
    if is_sidecar && let Some(least) = pod.spec.containers.iter().map(asked).min() {
        adjust = adjust.min(score(least));
    }
    // Above the score of guaranteed pods, below that of best-effort pods.
    let adjust = i64::try_from(adjust).unwrap_or(0).max(BEST_EFFORT + GUARANTEED);
    if adjust == BEST_EFFORT { adjust - 1 } else { adjust }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(containers: Value, init: Value) -> Pod {
        let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                              "spec": {"containers": containers, "initContainers": init}});
        let mut pod = Pod::from_json(&manifest).expect("a pod");
        crate::set_defaults(&mut pod);
        pod
    }

    fn with(name: &str, requests: Value, limits: Value) -> Value {
        json!({"name": name, "image": "x:1", "resources": {"requests": requests, "limits": limits}})
    }

    #[test]
    fn classes() {
        let all = json!({"cpu": "1", "memory": "1Gi"});
        let half = json!({"memory": "1Gi"});
        let less = json!({"cpu": "500m", "memory": "1Gi"});
        let none = json!({});
        let cases = [
            (json!([with("a", none.clone(), none.clone())]), json!([]), QosClass::BestEffort),
            (json!([with("a", json!({"cpu": "0"}), none.clone())]), json!([]), QosClass::BestEffort),
            (json!([with("a", json!({"ephemeral-storage": "1Gi"}), none.clone())]), json!([]), QosClass::BestEffort),
            (json!([with("a", none.clone(), all.clone())]), json!([]), QosClass::Guaranteed),
            (json!([with("a", all.clone(), all.clone())]), json!([]), QosClass::Guaranteed),
            (json!([with("a", none.clone(), half.clone())]), json!([]), QosClass::Burstable),
            (json!([with("a", less, all.clone())]), json!([]), QosClass::Burstable),
            (json!([with("a", half, none.clone())]), json!([]), QosClass::Burstable),
            (
                json!([with("a", none.clone(), all.clone()), with("b", none.clone(), none.clone())]),
                json!([]),
                QosClass::Burstable,
            ),
            (
                json!([with("a", none.clone(), all.clone())]),
                json!([with("i", none.clone(), none.clone())]),
                QosClass::Burstable,
            ),
            (json!([with("a", none.clone(), all.clone())]), json!([with("i", none, all)]), QosClass::Guaranteed),
        ];
        for (containers, init, want) in cases {
            assert_eq!(qos_class(&pod(containers.clone(), init)), want, "{containers}");
        }
    }

    #[test]
    fn who_is_killed_first() {
        const CAPACITY: u64 = 8 << 30;
        let memory = |text: &str| json!({"memory": text});
        let score = |pod: &Pod, name: &str| oom_score_adj(pod, pod.container(name).expect("there").1, CAPACITY);
        let burstable = |text: &str| pod(json!([with("a", memory(text), json!({}))]), json!([]));
        assert_eq!(score(&pod(json!([with("a", json!({}), json!({}))]), json!([])), "a"), 1000);
        let all = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(score(&pod(json!([with("a", json!({}), all)]), json!([])), "a"), -997);
        assert_eq!(score(&burstable("2Gi"), "a"), 750);
        assert_eq!(score(&burstable("8Gi"), "a"), 3);
        assert_eq!(score(&burstable("80Gi"), "a"), 3);
        assert_eq!(score(&burstable("1Ki"), "a"), 999);
        let mut critical = burstable("1Ki");
        critical.spec.priority = Some(NODE_CRITICAL);
        assert_eq!(score(&critical, "a"), -997);
        let mut sidecar = with("s", memory("1Ki"), json!({}));
        sidecar["restartPolicy"] = json!("Always");
        let both =
            pod(json!([with("a", memory("2Gi"), json!({})), with("b", memory("4Gi"), json!({}))]), json!([sidecar]));
        assert_eq!((score(&both, "a"), score(&both, "b"), score(&both, "s")), (750, 500, 750));
    }
}
