//! [`Endpoint`]: where a question over the network goes, by the kubelet's rules. Pure. Called by [`super::Handlers`].

use super::Target;
use crate::pod::IntOrText;

/// A host and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Endpoint<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
}

impl<'a> Endpoint<'a> {
    /// The host that is said, or the pod's address; the port by its number, by its name among the container's ports, or by
    /// a number that was written as text.
    ///
    /// # Errors
    /// There is no such place.
    pub(super) fn of(host: &'a str, port: &IntOrText, target: &Target<'a>) -> Result<Self, String> {
        let number = match port {
            IntOrText::Int(number) => *number,
            IntOrText::Text(name) => match target.ports.iter().find(|port| port.name == *name) {
                Some(port) => port.container_port,
                None => name.parse().map_err(|_| format!("container {:?} has no port {name:?}", target.name))?,
            },
        };
        let port = u16::try_from(number).ok().filter(|port| *port > 0);
        let port = port.ok_or_else(|| format!("invalid port number: {number}"))?;
        let host = match host {
            "" => target.ip.ok_or("the pod has no address yet")?,
            said => said,
        };
        Ok(Self { host, port })
    }
}
