//! The controller of a fleet: it resolves tags, releases nodes, and writes what their reports add up to. It creates no pod and
//! copies no secret. Of several replicas the one with the Lease works. Every pass starts from the objects of the API server, so a
//! replica that takes over continues where the last one stopped. Called by the binary.

mod events;
mod index;
mod leader;
mod metrics;
mod objects;
mod options;
mod pace;
mod pass;
mod resolutions;
mod resolver;
mod silence;
mod taints;

use std::sync::Arc;
use std::time::Duration;

use cluster::ClusterClient;
use cluster::watch::{Selected, Selection, follow};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::GROUP_VERSION;
use leader::Election;
pub use metrics::ControllerMetrics;
use objects::NodeFacts;
use options::AllSelected;
pub use options::{Clock, ControllerOptions};
use pass::Passes;
pub use resolver::{RegistryResolver, TagResolver};

/// Time in which changes are gathered before a pass.
const GATHER: Duration = Duration::from_millis(500);
/// Interval of passes without changes: for deadlines, and for writes that had to wait.
const TICK: Duration = Duration::from_secs(5);

/// A replica of the controller.
pub struct Controller {
    client: ClusterClient,
    options: ControllerOptions,
    resolver: Arc<dyn TagResolver>,
}

impl Controller {
    /// Creates a replica. Sends nothing yet.
    #[must_use]
    pub fn new(client: ClusterClient, options: ControllerOptions, resolver: Arc<dyn TagResolver>) -> Self {
        Self { client, options, resolver }
    }

    /// Runs until `stop`. A replica that loses the Lease waits for it again.
    pub async fn run(&self, stop: &CancellationToken) {
        if !self.options.leader_election {
            return self.lead(stop).await;
        }
        let mut election = Election::new(&self.client, &self.options);
        while election.acquire(stop).await {
            let term = stop.child_token();
            tracing::info!(identity = self.options.identity, "this replica leads");
            tokio::select! {
                () = election.hold(stop) => term.cancel(),
                () = self.lead(&term) => {}
            }
            if stop.is_cancelled() {
                election.release().await;
                return;
            }
            tracing::warn!(identity = self.options.identity, "this replica lost the Lease");
        }
    }

    /// Watches and writes until `stop`.
    async fn lead(&self, stop: &CancellationToken) {
        let stop = stop.child_token();
        // Ends the tasks of this term also when the caller drops it.
        let _ended = stop.clone().drop_guard();
        let _leading = self.options.metrics.lead();
        let tasks = TaskTracker::new();
        let mut watches = Watches::start(&self.client, &tasks, &stop);
        let resolved = Arc::new(Notify::new());
        let mut passes = Passes::new((&self.client, &self.options, &self.resolver), &tasks, &resolved, &stop);
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => break,
                () = watches.changed() => {}
                () = resolved.notified() => {}
                () = tokio::time::sleep(TICK) => {}
            }
            if stop.run_until_cancelled(tokio::time::sleep(GATHER)).await.is_none() {
                break;
            }
            let selected = watches.current();
            if selected.iter().all(|selected| selected.ready) {
                stop.run_until_cancelled(passes.run(&selected)).await;
            }
        }
        tasks.close();
        tasks.wait().await;
    }
}

struct Watches([watch::Receiver<Selected>; 4]);

impl Watches {
    fn start(client: &ClusterClient, tasks: &TaskTracker, stop: &CancellationToken) -> Self {
        let start = |selection: Selection| {
            let (sender, receiver) = watch::channel(Selected::default());
            let (client, stop) = (client.clone(), stop.clone());
            tasks.spawn(async move { follow(&client, &selection, &sender, &stop).await });
            receiver
        };
        Self([
            start(Selection::all_of("", "nodes").keeping(NodeFacts::FIELDS)),
            start(Selection::all_of(GROUP_VERSION, "nodeimages")),
            start(Selection::all_of(GROUP_VERSION, "imagesets")),
            start(Selection::all_of(GROUP_VERSION, "fleets")),
        ])
    }

    /// Returns when one of the kinds changed. A watch that ended does not change.
    async fn changed(&mut self) {
        let [nodes, reports, sets, fleets] = &mut self.0;
        let changed = tokio::select! {
            changed = nodes.changed() => changed,
            changed = reports.changed() => changed,
            changed = sets.changed() => changed,
            changed = fleets.changed() => changed,
        };
        if changed.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn current(&mut self) -> AllSelected {
        self.0.each_mut().map(|receiver| receiver.borrow_and_update().clone())
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
