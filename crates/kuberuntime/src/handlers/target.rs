//! [`Target`]: the container that a hook or a probe is about.

use crate::pod::{Container, ContainerPort, EnvVar};

/// The container that is meant.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub container_id: &'a str,
    pub name: &'a str,
    /// The ports that it names.
    pub ports: &'a [ContainerPort],
    /// Variables of the container: those with a literal value stand in for `$(VAR)` in the commands of probes.
    pub env: &'a [EnvVar],
    /// Address of the pod; that of the node where it has the node's network. `None`: it has none yet.
    pub ip: Option<&'a str>,
    /// The pod, for the log.
    pub pod: &'a str,
}

impl<'a> Target<'a> {
    /// A container of a pod whose address is `ip`.
    #[must_use]
    pub fn new(container: &'a Container, container_id: &'a str, ip: Option<&'a str>) -> Self {
        Self { container_id, name: &container.name, ports: &container.ports, env: &container.env, ip, pod: "" }
    }

    /// With the name of the pod, as the log says it.
    #[must_use]
    pub fn in_pod(self, pod: &'a str) -> Self {
        Self { pod, ..self }
    }
}
