//! Settings of the controller, and the names and numbers that its parts share.

use std::sync::Arc;

use cluster::watch::Selected;
use jiff::Timestamp;

use super::metrics::ControllerMetrics;

/// Name under which the controller writes.
pub(super) const MANAGER: &str = "imagelet-fleet-controller";
/// Returns the current time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Settings of a controller.
#[derive(Clone)]
pub struct ControllerOptions {
    /// Namespace of the Lease and the pull secrets.
    pub namespace: String,
    /// Name of this replica, unlike that of any other one.
    pub identity: String,
    /// Several replicas elect a leader. Without election this one works at once.
    pub leader_election: bool,
    /// Returns the current time.
    pub clock: Clock,
    /// Receives the figures of this replica.
    pub metrics: ControllerMetrics,
}

/// The watched kinds, in the order of [`AllSelected`].
pub(super) const NODES: usize = 0;
/// Reports of nodes.
pub(super) const REPORTS: usize = 1;
/// Sets.
pub(super) const SETS: usize = 2;
/// The settings of the fleet.
pub(super) const FLEETS: usize = 3;

/// Objects of the four watched kinds.
pub(super) type AllSelected = [Selected; 4];
