//! Builds the daemon of ImageSets from the configuration: the client, a manager of its own for pulls, and image collection as the daemon
//! needs it. Holds no rule of its own. Called by `serve` and `run`.

use std::sync::Arc;

use agent::api::gc::CollectRequest;
use agent::collection::{Collection, Collects as _};
use async_trait::async_trait;
use cluster::ClusterClient;
use cluster::retry::system_random;
use cri_api::{ImageService, ImageSpec};
use fleet::node::{Collector, ImageSpace, NodeDaemon, NodeDaemonOptions, SetBoard};
use image_manager::gc::Pins;
use image_manager::{LogRecorder, PullBoard, ReclaimSpace as _, WantedBy, WatchedPulls};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::Config;
use crate::exit::{Outcome, chain};
use crate::images::Images;
use crate::manager::{Managed, ManagerParts, Mode};

/// Directory of the daemon's state below the root.
pub(crate) const DIRECTORY: &str = "fleet";

/// The daemon of ImageSets, and its client.
pub(crate) struct ImageSets {
    daemon: NodeDaemon,
    client: ClusterClient,
    managed: Arc<Managed>,
}

impl ImageSets {
    /// Returns the manager of the pulls, for reloads of the configuration.
    pub(crate) fn managed(&self) -> Arc<Managed> {
        Arc::clone(&self.managed)
    }

    /// Keeps the images of ImageSets until `stop`.
    pub(crate) async fn run(self, stop: &CancellationToken) {
        tokio::join!(self.daemon.run(stop), self.client.follow_files(stop));
    }
}

/// Returns a board for the state of ImageSets; `None` if this agent follows none.
pub(crate) fn board(config: &Config) -> Option<SetBoard> {
    config.fleet.follows_sets().then(SetBoard::default)
}

/// Opens the daemon of ImageSets, which writes to `board`; `None` without a board. `collects` is true if this process removes images.
pub(crate) async fn open(
    app: &App,
    images: &Images,
    collection: &Arc<Collection>,
    collects: bool,
    board: Option<SetBoard>,
) -> Outcome<Option<ImageSets>> {
    let Some(set_board) = board else {
        // The setting was removed: no set wants an image here any more.
        collection.pin_for_image_sets(Pins::default()).await?;
        collection.pin_in_runtime().await;
        return Ok(None);
    };
    let client = match &app.config.fleet.kubeconfig {
        Some(kubeconfig) => ClusterClient::open(kubeconfig).await?,
        None => ClusterClient::in_cluster()?,
    };
    let namespace = match app.config.fleet.namespace.as_str() {
        "" => client.current().default_namespace().to_owned(),
        namespace => namespace.to_owned(),
    };
    let watched = WatchedPulls::new(images.service(), app.board.clone(), WantedBy::Command);
    let service: Arc<dyn ImageService> = Arc::new(watched);
    let parts = ManagerParts {
        service: Arc::clone(&service),
        events: Arc::new(LogRecorder),
        records: app.records().await?.clone(),
        room: None,
        namespace_access: app.namespace_access.clone(),
        tokens: None,
        // Pulls are shown on the board of the agent, as those of a service; this one has the queue of this manager.
        board: PullBoard::new(Arc::new(Instant::now), Arc::new(jiff::Timestamp::now)),
        mode: Mode::ImageSets,
    };
    let managed = Managed::new(&app.config, &app.environment, parts).await?;
    // Pulls that a killed process left unfinished.
    managed.recover(&app.config, &*service).await?;
    let pulls = app.board.clone();
    let by_pod = |by: &WantedBy| matches!(by, WantedBy::Pod { .. } | WantedBy::Client);
    let collector = NodeCollector { collection: Arc::clone(collection), service: Arc::clone(&service), collects };
    let node = app.config.pods.node_name();
    tracing::info!(node, "following the ImageSets of the cluster");
    let daemon = NodeDaemon::open(NodeDaemonOptions {
        node,
        namespace,
        client: client.clone(),
        service,
        reports_layers: images.reports_layers().await,
        manager: Arc::clone(&managed.manager),
        collector: Arc::new(collector),
        access: app.namespace_access.clone(),
        directory: app.config.root.join(DIRECTORY),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        wall_clock: Arc::new(jiff::Timestamp::now),
        random: system_random(),
        pods_pull: Arc::new(move || pulls.pulls().iter().any(|pull| pull.wanted_by.iter().any(by_pod))),
        board: set_board,
    });
    Ok(Some(ImageSets { daemon: daemon.await, client, managed: Arc::new(managed) }))
}

/// Image collection of this node.
struct NodeCollector {
    collection: Arc<Collection>,
    service: Arc<dyn ImageService>,
    /// True if this process removes images to free space.
    collects: bool,
}

/// A request about everything that nothing needs, however new it is.
fn everything() -> CollectRequest {
    CollectRequest { all_unused: true, min_age_seconds: Some(0), ..CollectRequest::default() }
}

#[async_trait]
impl Collector for NodeCollector {
    async fn pin(&self, pins: Pins) -> Result<(), String> {
        self.collection.pin_for_image_sets(pins).await.map_err(|error| chain(&error))?;
        self.collection.pin_in_runtime().await;
        Ok(())
    }

    async fn space(&self) -> Option<ImageSpace> {
        let disk = self.collection.disk().await?;
        let info = self.service.image_fs_info().await.ok()?;
        let images = info.image_filesystems.first().and_then(|usage| usage.used_bytes).unwrap_or(0);
        let reclaimable = if self.collects && self.collection.sees().is_ok() {
            self.collection.plan(&everything()).await.map_or(0, |plan| plan.frees_bytes)
        } else {
            0
        };
        Some(ImageSpace { capacity: disk.capacity_bytes, free: disk.available_bytes, images, reclaimable })
    }

    async fn reclaim(&self, bytes: u64) {
        if !self.collects {
            return;
        }
        let reclaimed = self.collection.reclaim_space(Some(bytes)).await;
        if let Some(problem) = &reclaimed.problem {
            tracing::warn!(error = problem, "cannot free space for an image of an ImageSet");
        }
    }

    async fn remove_unused(&self, id: &str) -> Result<bool, String> {
        let plan = self.collection.plan(&everything()).await.map_err(|error| chain(&error))?;
        match plan.images.iter().find(|image| image.id == id) {
            None => Ok(true),
            Some(image) if image.decision == "remove" => {
                let removed = self.service.remove_image(&ImageSpec::new(id)).await;
                removed.map(|()| true).map_err(|error| error.message().to_owned())
            }
            Some(_) => Ok(false),
        }
    }
}
