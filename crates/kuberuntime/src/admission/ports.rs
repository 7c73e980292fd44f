//! [`HostPorts`]: which pods have which ports of the node. The rules, the reason and the message are those of the scheduler and the kubelet. Pure. Called
//! by the sync loop for every pod, of whatever source.

use std::sync::Arc;

use super::Rejection;
use crate::pod::{Pod, Protocol};

/// Pods that have ports of the node.
#[derive(Debug, Default)]
pub(crate) struct HostPorts {
    pods: Vec<Arc<Pod>>,
}

impl HostPorts {
    /// Returns the pod whose ports are in the way of this one, if there is one. A pod is not in the way of itself.
    pub(crate) fn in_the_way(&self, pod: &Pod) -> Option<&Arc<Pod>> {
        let others = self.pods.iter().filter(|other| other.metadata.uid != pod.metadata.uid);
        others.into_iter().find(|other| conflicts(pod, other))
    }

    /// Gives a pod the ports that it asks for.
    pub(crate) fn take(&mut self, pod: &Arc<Pod>) {
        if host_ports(pod).next().is_some() {
            self.pods.push(Arc::clone(pod));
        }
    }
}

impl Rejection {
    /// Ports that another pod has.
    pub(crate) fn host_ports() -> Self {
        Self::predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    }
}

/// A port of the node.
#[derive(Clone, Copy, Debug)]
struct HostPort<'a> {
    protocol: Protocol,
    ip: &'a str,
    port: i32,
}

impl HostPort<'_> {
    fn conflicts(&self, other: &Self) -> bool {
        let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
        self.protocol == other.protocol
            && self.port == other.port
            && (self.ip == other.ip || any(self.ip) || any(other.ip))
    }
}

/// Returns true if both pods ask for a port of the node that they cannot share.
pub(crate) fn conflicts(pod: &Pod, other: &Pod) -> bool {
    host_ports(pod).any(|port| host_ports(other).any(|other| port.conflicts(&other)))
}

/// Returns the host ports that a pod requests: those of its sidecars and containers. On the node's network, every container
/// port is one.
fn host_ports(pod: &Pod) -> impl Iterator<Item = HostPort<'_>> {
    let in_host_network = pod.host_network();
    let sidecars = pod.spec.init_containers.iter().filter(|container| container.is_sidecar());
    let ports = sidecars.chain(&pod.spec.containers).flat_map(|container| &container.ports);
    ports.filter_map(move |port| {
        let number = match port.host_port.unwrap_or_default() {
            0 if in_host_network => port.container_port,
            number => number,
        };
        let ip = port.host_ip.as_deref().unwrap_or_default();
        (number > 0).then_some(HostPort { protocol: Protocol::of_port(port), ip, port: number })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value) -> Pod {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
        crate::identity::read_of_cluster(&object).0
    }

    fn with(ports: &Value) -> Pod {
        pod(&json!({"containers": [{"name": "c", "image": "x", "ports": ports}]}))
    }

    #[test]
    fn ports_conflict_as_in_the_scheduler() {
        let port = |more: Value| {
            let mut port = json!({"containerPort": 80, "hostPort": 8080});
            port.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            with(&json!([port]))
        };
        let any = || port(json!({}));
        let at = |ip: &str| port(json!({"hostIP": ip}));
        let in_host_network = |container: Value| pod(&json!({"hostNetwork": true, "containers": [container]}));
        let init = |more: Value| {
            let mut init = json!({"name": "i", "image": "x", "ports": [{"containerPort": 1, "hostPort": 8080}]});
            init.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            pod(&json!({"initContainers": [init], "containers": [{"name": "c", "image": "x"}]}))
        };
        let cases = [
            ("the same port", any(), any(), true),
            ("another port", any(), port(json!({"hostPort": 8081})), false),
            ("another protocol", any(), port(json!({"protocol": "UDP"})), false),
            ("the same protocol, named", any(), port(json!({"protocol": "TCP"})), true),
            ("one address and every address", at("192.0.2.1"), any(), true),
            ("one address and 0.0.0.0", at("192.0.2.1"), at("0.0.0.0"), true),
            ("the same address", at("192.0.2.1"), at("192.0.2.1"), true),
            ("two addresses", at("192.0.2.1"), at("192.0.2.2"), false),
            ("no port of the node", with(&json!([{"containerPort": 8080}])), any(), false),
            (
                "the network of the node",
                in_host_network(json!({"name": "c", "image": "x", "ports": [{"containerPort": 8080}]})),
                any(),
                true,
            ),
            ("the network of the node, no port", in_host_network(json!({"name": "c", "image": "x"})), any(), false),
            ("an init container, which runs before the others", init(json!({})), any(), false),
            ("a sidecar", init(json!({"restartPolicy": "Always"})), any(), true),
        ];
        for (name, one, other, expected) in cases {
            assert_eq!(conflicts(&one, &other), expected, "{name}");
            assert_eq!(conflicts(&other, &one), expected, "{name}, the other way");
        }
    }

    #[test]
    fn reason_and_message_are_the_kubelets() {
        let Rejection { reason, message } = Rejection::host_ports();
        assert_eq!(reason, "NodePorts");
        assert_eq!(message, "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports");
    }
}
