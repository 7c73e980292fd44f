//! [`NodeOptions`]: how a node registers and keeps itself. Plain data, made by the binary. Read by [`super::NodeKeeper`] and its parts.

use std::net::IpAddr;
use std::time::Duration;

use image_manager::WallClock;

use super::labels::Label;
use super::machine::Machine;
use super::taint::Taint;
use crate::retry::{Random, system_random};

/// Annotation of Node and Lease: which installation wrote it.
pub(super) const INSTANCE: &str = "imagelet.dev/instance";

/// Identity of this node. Does not change while the process runs.
#[derive(Clone, Debug, Default)]
pub struct NodeIdentity {
    /// Name of the Node.
    pub name: String,
    /// Name of the host: an address of type `Hostname`, and the label `kubernetes.io/hostname`.
    pub hostname: String,
    /// The primary one first.
    pub addresses: Vec<IpAddr>,
    /// The version that the node reports as its kubelet's.
    pub version: String,
    /// The port of the kubelet's API; 0 where none is served.
    pub port: u16,
    /// Most pods that the node runs: `pods` of capacity and allocatable.
    pub max_pods: u64,
}

/// Options of a node and its registration.
#[derive(Clone)]
pub struct NodeOptions {
    /// Name, addresses and version that the Node reports.
    pub identity: NodeIdentity,
    /// Processors, memory and ids that the Node reports.
    pub machine: Machine,
    /// Labels of the configuration, which win over the default ones. A Node that exists gets the well-known ones only.
    pub labels: Vec<Label>,
    /// Given at creation.
    pub taints: Vec<Taint>,
    /// Given at creation.
    pub provider_id: Option<String>,
    /// A name of this installation that no other has.
    pub instance: String,
    /// Time for which a pressure condition lasts after its cause has ended.
    pub transition: Duration,
    /// Time of heartbeats and Lease renewals.
    pub clock: WallClock,
    /// Spreads Lease renewals, and the waits after failures.
    pub random: Random,
}

impl NodeOptions {
    /// Creates the options of a node without labels, taints and providerID of its own.
    #[must_use]
    pub fn new(identity: NodeIdentity, machine: Machine, instance: String, clock: WallClock) -> Self {
        Self {
            identity,
            machine,
            labels: Vec::new(),
            taints: Vec::new(),
            provider_id: None,
            instance,
            transition: Duration::from_secs(300),
            clock,
            random: system_random(),
        }
    }
}
