//! [`HandlerTarget`]: the container that a hook or a probe is about, and where its questions over the network go, by the kubelet's
//! rules. Pure.

use crate::pod::{Container, ContainerPort, EnvVar, IntOrString};

/// The container that is meant.
#[derive(Clone, Copy)]
pub(crate) struct HandlerTarget<'a> {
    pub container_id: &'a str,
    pub name: &'a str,
    pub ports: &'a [ContainerPort],
    /// Variables of the container: those with a literal value stand in for `$(VAR)` in the commands of probes.
    pub env: &'a [EnvVar],
    /// Address of the pod; that of the node where it has the node's network. `None`: it has none yet.
    pub ip: Option<&'a str>,
    /// The pod, for the log.
    pub pod: &'a str,
}

impl<'a> HandlerTarget<'a> {
    /// Creates the target for a container of a pod with address `ip`.
    #[must_use]
    pub(crate) fn new(container: &'a Container, container_id: &'a str, ip: Option<&'a str>, pod: &'a str) -> Self {
        Self { container_id, name: &container.name, ports: &container.ports, env: &container.env, ip, pod }
    }
}

/// A host and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostPort<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
}

impl<'a> HostPort<'a> {
    /// Returns the given host, or the pod's address, and the port: by its number, by its name among the container's ports, or by
    /// a number that was written as text.
    ///
    /// # Errors
    /// There is no such place.
    pub(super) fn of(host: Option<&'a str>, port: &IntOrString, target: &HandlerTarget<'a>) -> Result<Self, String> {
        let number = match port {
            IntOrString::Int(number) => *number,
            IntOrString::String(name) => match target.ports.iter().find(|port| port.name.as_ref() == Some(name)) {
                Some(port) => port.container_port,
                None => name.parse().map_err(|_| format!("container {:?} has no port {name:?}", target.name))?,
            },
        };
        let port = u16::try_from(number).ok().filter(|port| *port > 0);
        let port = port.ok_or_else(|| format!("invalid port number: {number}"))?;
        let host = match host {
            None | Some("") => target.ip.ok_or("the pod has no address yet")?,
            Some(set) => set,
        };
        Ok(Self { host, port })
    }
}
