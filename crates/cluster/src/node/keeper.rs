//! [`NodeKeeper`]: registers this node and keeps its Lease and status for as long as the process runs. A status is computed every
//! ten seconds, and written when it changed or after five minutes. Made by the binary.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::lock::Mutex;
use image_manager::{EventRecorder, EventRef, EventType, ObjectRef};
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use kube::Api;
use kube::api::{Patch, PatchParams};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::conditions::{PressureMonitor, changes};
use super::lease::{LeaseKeeper, NameTaken, is_foreign};
use super::machine::Load;
use super::observed::Observe;
use super::options::NodeOptions;
use super::own_node::{OwnNode, read};
use super::patch::{has_changed, is_unknown_field, status_patch, without_newer_fields};
use super::register::{adopt, initial_node, register};
use super::status::node_status;
use crate::client::{ClusterClient, Failure, failure, text, within};
use crate::retry::{Backoff, jittered};

/// Interval at which the status is computed.
const COMPUTE: Duration = Duration::from_secs(10);
/// Interval at which an unchanged status is written.
const REPORT: Duration = Duration::from_secs(300);

/// Keeps this node in the cluster.
pub struct NodeKeeper {
    client: ClusterClient,
    options: NodeOptions,
    observe: Arc<dyn Observe>,
    events: Arc<dyn EventRecorder>,
    own: OwnNode,
    /// Guards the memory of pressures.
    pressures: Mutex<PressureMonitor>,
    reboot_is_recorded: AtomicBool,
}

impl NodeKeeper {
    /// Creates a keeper without any request.
    #[must_use]
    pub fn new(
        client: ClusterClient,
        options: NodeOptions,
        own: OwnNode,
        observe: Arc<dyn Observe>,
        events: Arc<dyn EventRecorder>,
    ) -> Self {
        Self {
            client,
            options,
            observe,
            events,
            own,
            pressures: Mutex::default(),
            reboot_is_recorded: AtomicBool::new(false),
        }
    }

    /// Registers the node and keeps it until `stop`.
    ///
    /// # Errors
    /// [`NameTaken`]: another one is the node of this name. Everything else is tried again.
    pub async fn keep(&self, stop: &CancellationToken) -> Result<(), NameTaken> {
        let Some(node) = stop.run_until_cancelled(self.register(stop)).await.transpose()?.flatten() else {
            return Ok(());
        };
        self.put(&node);
        let lease = LeaseKeeper::new(&self.client, &self.options, &self.own);
        let watched = self.own.keep(&self.client, &self.options.identity.name, stop);
        let all = async { tokio::join!(watched, self.report(stop)) };
        tokio::select! {
            // The Lease runs until `stop`, like the other tasks.
            ended = lease.run(stop) => ended,
            _ = all => Ok(()),
        }
    }

    /// Returns the Node, once it is registered and the name is ours; `None` after `stop`.
    async fn register(&self, stop: &CancellationToken) -> Result<Option<Node>, NameTaken> {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(7));
        while !stop.is_cancelled() {
            match self.try_register(stop).await? {
                Ok(node) => return Ok(Some(node)),
                Err(error) if backoff.is_first() => {
                    tracing::warn!(error = text(&error), "this node is not registered yet, will retry");
                }
                Err(error) => tracing::debug!(error = text(&error), "this node is not registered yet"),
            }
            stop.run_until_cancelled(tokio::time::sleep(backoff.next(&self.options.random))).await;
        }
        Ok(None)
    }

    async fn try_register(&self, stop: &CancellationToken) -> Result<Result<Node, kube::Error>, NameTaken> {
        let status = self.status(&NodeStatus::default()).await;
        let initial = initial_node(&self.options, status);
        let registered = match register(&self.client, &initial).await {
            Ok(registered) => registered,
            Err(error) => return Ok(Err(error)),
        };
        let foreign = !registered.created && is_foreign(&registered.node, &self.options.instance);
        LeaseKeeper::new(&self.client, &self.options, &self.own).claim(foreign, stop).await?;
        if registered.created {
            tracing::info!(node = self.options.identity.name, "this node is registered");
            return Ok(Ok(registered.node));
        }
        let adopted = adopt(&self.client, &initial, registered.node).await;
        if adopted.is_ok() {
            tracing::info!(node = self.options.identity.name, "this node was registered before");
        }
        Ok(adopted)
    }

    /// Computes the current status.
    async fn status(&self, old: &NodeStatus) -> NodeStatus {
        let seen = self.observe.observe().await;
        let load = tokio::task::spawn_blocking(Load::read).await.unwrap_or_default();
        let now = (self.options.clock)();
        let pressures = self.pressures.lock().observe(load, &seen, now, self.options.transition);
        node_status(old, &self.options.identity, &self.options.machine, &seen, pressures, now)
    }

    /// Writes the status when it changed, and from time to time, until `stop`.
    async fn report(&self, stop: &CancellationToken) {
        let random = &self.options.random;
        // The nodes of a cluster that started together do not all write in the same second.
        let mut due = Instant::now() + jittered(REPORT, 0.5, random);
        let mut writer = Writer { newer_fields: true };
        let mut recorded = Vec::new();
        while !stop.is_cancelled() {
            let turn = self.turn(&mut due, &mut writer, &mut recorded);
            if let Some(Err(error)) = stop.run_until_cancelled(turn).await {
                tracing::warn!(error = text(&error), "the status of this node was not written");
            }
            let wait = jittered(COMPUTE, 0.04, random);
            let mut changed = self.own.subscribe();
            // Another client changed the Node, such as the controller that missed the heartbeats.
            let foreign = async {
                while changed.changed().await.is_ok() {
                    if read(&changed.borrow_and_update()).is_some_and(|node| is_unknown(&node)) {
                        return;
                    }
                }
            };
            let waited = async {
                tokio::select! { () = tokio::time::sleep(wait) => {}, () = foreign => {} }
            };
            stop.run_until_cancelled(waited).await;
        }
    }

    async fn turn(
        &self,
        due: &mut Instant,
        writer: &mut Writer,
        recorded: &mut Vec<&'static str>,
    ) -> Result<(), kube::Error> {
        let Some(node) = self.own.get() else {
            // The Node was deleted. As with a kubelet, it is registered again at the next start.
            return Ok(());
        };
        let old = node.status.clone().unwrap_or_default();
        let new = self.status(&old).await;
        let (before, after) = (old.conditions.as_deref(), new.conditions.as_deref());
        let events = changes(before.unwrap_or_default(), after.unwrap_or_default());
        self.note_reboot(&old);
        // A status that cannot be written is computed again and again; its event is one.
        for event in events.iter().filter(|event| !recorded.contains(*event)) {
            let message = format!("Node {} status is now: {event}", self.options.identity.name);
            self.record(EventType::Normal, event, &message);
        }
        *recorded = events;
        let new = writer.known(new);
        if !has_changed(&writer.known(old.clone()), &new) && Instant::now() < *due {
            return Ok(());
        }
        let written = writer.write(&self.client, &node, &old, new).await?;
        recorded.clear();
        self.put(&written);
        *due = Instant::now() + REPORT;
        Ok(())
    }

    /// Stores the Node of the server's response.
    fn put(&self, node: &Node) {
        match serde_json::to_value(node) {
            Ok(node) => self.own.put(&node),
            Err(error) => tracing::warn!(%error, "the own Node cannot be kept"),
        }
    }

    /// Records an event once if the machine was rebooted since the Node was written.
    fn note_reboot(&self, old: &NodeStatus) {
        let (name, boot) = (&self.options.identity.name, &self.options.machine.boot_id);
        let before = old.node_info.as_ref().map_or("", |info| &info.boot_id);
        if before.is_empty() || before == boot || self.reboot_is_recorded.swap(true, Ordering::Relaxed) {
            return;
        }
        self.record(EventType::Warning, "Rebooted", &format!("Node {name} has been rebooted, boot id: {boot}"));
    }

    fn record(&self, kind: EventType, reason: &'static str, message: &str) {
        let object = ObjectRef { name: self.options.identity.name.clone(), ..ObjectRef::default() };
        self.events.record(EventRef { object: &object, kind, reason, message });
    }
}

/// Returns true if a controller gave the node up for now.
fn is_unknown(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "Unknown")
}

/// Writes statuses, in the words that the server understands.
struct Writer {
    /// The server knows the fields that were added after its first versions.
    newer_fields: bool,
}

impl Writer {
    /// Returns the status as this server stores it.
    fn known(&self, status: NodeStatus) -> NodeStatus {
        if self.newer_fields { status } else { without_newer_fields(&status) }
    }

    async fn write(
        &mut self,
        client: &ClusterClient,
        node: &Node,
        old: &NodeStatus,
        new: NodeStatus,
    ) -> Result<Node, kube::Error> {
        let written = self.patch(client, node, old, &new).await;
        match written {
            Err(kube::Error::Api(status)) if self.newer_fields && is_unknown_field(&status.message) => {
                tracing::info!(reason = status.message, "the API server is an older one: newer fields are left out");
                self.newer_fields = false;
                self.patch(client, node, old, &without_newer_fields(&new)).await
            }
            Err(error) if failure(&error) == Failure::Conflict => {
                // A conflict: another Node of this name, or a concurrent write. Compute the patch again from the current object.
                let name = node.metadata.name.as_deref().unwrap_or_default();
                let api: Api<Node> = Api::all(client.current());
                let there = within(api.get(name)).await?;
                let old = there.status.clone().unwrap_or_default();
                self.patch(client, &there, &old, &new).await
            }
            written => written,
        }
    }

    async fn patch(
        &self,
        client: &ClusterClient,
        node: &Node,
        old: &NodeStatus,
        new: &NodeStatus,
    ) -> Result<Node, kube::Error> {
        let (name, uid) = (node.metadata.name.as_deref(), node.metadata.uid.as_deref());
        let Some(patch) = status_patch(uid.unwrap_or_default(), &self.known(old.clone()), new) else {
            return Ok(node.clone());
        };
        let api: Api<Node> = Api::all(client.current());
        let patch = Patch::Strategic(&patch);
        let written = within(api.patch_status(name.unwrap_or_default(), &PatchParams::default(), &patch)).await?;
        if written.metadata.uid.as_deref() != uid {
            return Err(kube::Error::Service("the API server answered with another object than this Node".into()));
        }
        Ok(written)
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
