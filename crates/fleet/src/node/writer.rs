//! [`ReportWriter`]: writes the reports of this node to its `NodeImages` by server-side apply, no more often than [`Cadence`] permits. The
//! object is created with the first report, and is owned by the Node. Called by [`super::daemon`].

use std::time::Duration;

use cluster::ClusterClient;
use cluster::client::{Failure, failure, text, within};
use cluster::retry::{Backoff, Random};
use image_manager::WallClock;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::board::SetBoard;
use super::cadence::{Cadence, change};
use crate::api::{GROUP_VERSION, NodeImages, NodeImagesStatus};

/// Name under which the fields of the status are owned.
const MANAGER: &str = "imagelet";

/// A report, and what its writer must know.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OutgoingReport {
    pub(super) status: NodeImagesStatus,
    pub(super) node: String,
    pub(super) node_uid: String,
    /// Number of nodes of the cluster.
    pub(super) nodes: u32,
}

/// Writes reports.
pub(super) struct ReportWriter {
    pub(super) client: ClusterClient,
    pub(super) wall_clock: WallClock,
    pub(super) random: Random,
    pub(super) board: SetBoard,
}

impl ReportWriter {
    /// Writes the newest report whenever it is due, until `stop`.
    pub(super) async fn run(&self, mut reports: watch::Receiver<Option<OutgoingReport>>, stop: &CancellationToken) {
        let mut cadence = Cadence::new();
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let mut written: Option<NodeImagesStatus> = None;
        let mut not_before = Instant::now();
        loop {
            let current = reports.borrow_and_update().clone();
            let due = current.as_ref().map(|report| {
                cadence.nodes = report.nodes;
                let empty = NodeImagesStatus::default();
                let change = change(written.as_ref().unwrap_or(&empty), &report.status);
                cadence.due(change, Instant::now()).max(not_before)
            });
            let sleep = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = reports.changed() => if changed.is_err() { return } else { continue },
                () = sleep => {}
            }
            let Some(report) = current else { continue };
            match self.write(&report).await {
                Ok(()) => {
                    self.board.report_written((self.wall_clock)());
                    cadence.written(Instant::now(), &self.random);
                    backoff.reset();
                    written = Some(report.status);
                }
                Err(error) => {
                    self.board.report_failed();
                    let (is_first, error) = (backoff.is_first(), text(&error));
                    not_before = Instant::now() + backoff.next(&self.random);
                    if is_first {
                        tracing::warn!(error, node = report.node, "cannot report the images of this node, will retry");
                    } else {
                        tracing::debug!(error, node = report.node, "cannot report the images of this node, will retry");
                    }
                }
            }
        }
    }

    async fn write(&self, report: &OutgoingReport) -> Result<(), kube::Error> {
        match self.apply_status(report).await {
            Err(error) if failure(&error) == Failure::NotFound => {
                self.create(report).await?;
                self.apply_status(report).await
            }
            result => result,
        }
    }

    async fn apply_status(&self, report: &OutgoingReport) -> Result<(), kube::Error> {
        let status = NodeImagesStatus { report_time: Some(Time((self.wall_clock)())), ..report.status.clone() };
        let object = json!({
            "apiVersion": GROUP_VERSION, "kind": "NodeImages",
            "metadata": {"name": report.node}, "status": status,
        });
        let parameters = PatchParams::apply(MANAGER).force();
        within(self.api().patch_status(&report.node, &parameters, &Patch::Apply(&object))).await.map(drop)
    }

    /// Creates the object, owned by the Node.
    async fn create(&self, report: &OutgoingReport) -> Result<(), kube::Error> {
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: report.node.clone(),
            uid: report.node_uid.clone(),
            ..OwnerReference::default()
        };
        let metadata = ObjectMeta {
            name: Some(report.node.clone()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        let object = json!({"apiVersion": GROUP_VERSION, "kind": "NodeImages", "metadata": metadata});
        let parameters = PatchParams::apply(MANAGER).force();
        within(self.api().patch(&report.node, &parameters, &Patch::Apply(&object))).await.map(drop)
    }

    fn api(&self) -> Api<NodeImages> {
        Api::all(self.client.current())
    }
}
