//! [`NodeDaemon`]: the loop of a node: it takes changes of the sets and of the own Node, compares with the images that are present, pins,
//! starts and cancels pulls, and publishes reports. All decisions are those of [`super::model`]. One step at a time; pulls and the
//! writer of reports are tasks of their own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cluster::ClusterClient;
use cluster::retry::Random;
use cluster::watch::{Selected, Selection, follow};
use cri_api::ImageService;
use image_manager::gc::Pins;
use image_manager::{ImageManager, NamespaceAccess, NamespaceGrants, WallClock};
use serde::Deserialize as _;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::board::SetBoard;
use super::collector::{Collector, ImageSpace};
use super::desired::ImageKey;
use super::followed::NodeFacts;
use super::held::pins;
use super::model::Model;
use super::presence::Presence;
use super::progress::PullProgress;
use super::pull::{PullOrder, Puller};
use super::report::limited;
use super::secrets::SecretReader;
use super::set_cache::SetCache;
use super::state_file::{SavedState, StateFile};
use super::states::{Now, PullProblem};
use super::writer::{OutgoingReport, ReportWriter};
use crate::api::{Fleet, GROUP_VERSION};

/// Pulls for sets at the same time.
const PULLS: usize = 2;
/// Interval at which the present images are listed.
const LIST: Duration = Duration::from_secs(60);
/// The same after pulls: a set of hundreds of images is not listed after each.
const LIST_AFTER_PULL: Duration = Duration::from_secs(1);
/// Shortest interval of writes of the state. A process that is killed meanwhile does not know that it pulled the last images, and leaves
/// them to image collection.
const SAVE: Duration = Duration::from_secs(1);
/// Interval at which the space of the disk is measured for reports.
const MEASURE: Duration = Duration::from_secs(600);
/// Interval at which the bytes of running pulls are read.
const PROGRESS: Duration = Duration::from_secs(5);
/// Pause after a failure of the node's own services.
const RETRY: Duration = Duration::from_secs(10);
/// Interval at which a postponed pull checks whether pods still pull.
const POSTPONED: Duration = Duration::from_secs(1);
/// Longest time for which pulls of pods postpone the start of a pull for a set.
const LONGEST_POSTPONEMENT: Duration = Duration::from_secs(60);

/// Returns true while pods pull images.
pub type PodsPull = Arc<dyn Fn() -> bool + Send + Sync>;

/// The parts of a node's daemon.
pub struct NodeDaemonOptions {
    /// Name of the Node.
    pub node: String,
    /// Namespace of the pull secrets.
    pub namespace: String,
    /// Client of the API server.
    pub client: ClusterClient,
    /// The images of the node.
    pub service: Arc<dyn ImageService>,
    /// True if pulls of the service report which layers are missing, so that their size is checked before they are fetched.
    pub reports_layers: bool,
    /// Pulls images for sets. It must not be the manager that pulls for pods, because pods must not wait in its queue.
    pub manager: Arc<ImageManager>,
    /// Image collection of the node.
    pub collector: Arc<dyn Collector>,
    /// Receives the images that namespaces may use.
    pub access: NamespaceAccess,
    /// Directory of the state.
    pub directory: PathBuf,
    /// Version of the agent, for reports.
    pub version: String,
    /// The time of day.
    pub wall_clock: WallClock,
    /// Randomness of waits.
    pub random: Random,
    /// Returns true while pods pull images.
    pub pods_pull: PodsPull,
    /// Receives the state of the sets.
    pub board: SetBoard,
}

/// The part of an agent that keeps the images of sets on its node.
pub struct NodeDaemon {
    options: NodeDaemonOptions,
    puller: Arc<Puller>,
    file: StateFile,
    model: Model,
    saved: SavedState,
    parsed: SetCache,
    /// True once the sets of this node are known, from the server or from the last process.
    knows_sets: bool,
    /// The last pins with their names. To compile them costs more than everything else of a step.
    pins: (Vec<String>, Pins),
    /// True if image collection has them.
    is_pinned: bool,
    /// The images that namespaces may use, as they were published.
    grants: NamespaceGrants,
    space: Option<ImageSpace>,
    pulls: BTreeMap<ImageKey, RunningPull>,
    tasks: TaskTracker,
    ended: (mpsc::UnboundedSender<PullEnd>, mpsc::UnboundedReceiver<PullEnd>),
    reports: watch::Sender<Option<OutgoingReport>>,
    /// Times of the next steps.
    next_list: Instant,
    next_measure: Instant,
    next_save: Instant,
    postponed_since: Option<Instant>,
    /// True once the present images were listed.
    is_observed: bool,
}

struct RunningPull {
    progress: PullProgress,
    stop: CancellationToken,
}

/// End of a pull; without a result it was cancelled.
struct PullEnd {
    key: ImageKey,
    result: Option<Result<String, PullProblem>>,
}

impl NodeDaemon {
    /// Reads the state that the last process saved.
    pub async fn open(options: NodeDaemonOptions) -> Self {
        let file = StateFile::new(&options.directory);
        let saved = file.read().await;
        let puller = Arc::new(Puller {
            manager: Arc::clone(&options.manager),
            collector: Arc::clone(&options.collector),
            secrets: SecretReader::new(options.client.clone(), options.namespace.clone()),
            reports_layers: options.reports_layers,
        });
        let now = Instant::now();
        Self {
            puller,
            file,
            model: Model::restore(saved.clone()),
            parsed: SetCache::default(),
            knows_sets: saved != SavedState::default(),
            saved,
            pins: (Vec::new(), Pins::default()),
            is_pinned: false,
            grants: NamespaceGrants::default(),
            space: None,
            pulls: BTreeMap::new(),
            tasks: TaskTracker::new(),
            ended: mpsc::unbounded_channel(),
            reports: watch::Sender::new(None),
            next_list: now,
            next_measure: now,
            next_save: now,
            postponed_since: None,
            is_observed: false,
            options,
        }
    }

    /// Keeps the images of sets on this node until `stop`.
    pub async fn run(mut self, stop: &CancellationToken) {
        let client = self.options.client.clone();
        let (sets, fleets) = (watch::Sender::new(Selected::default()), watch::Sender::new(Selected::default()));
        let own = watch::Sender::new(Selected::default());
        let (sets_seen, fleets_seen, node_seen) = (sets.subscribe(), fleets.subscribe(), own.subscribe());
        let (all_sets, all_fleets) =
            (Selection::all_of(GROUP_VERSION, "imagesets"), Selection::all_of(GROUP_VERSION, "fleets"));
        let own_node = Selection::node(&self.options.node);
        let writer = ReportWriter {
            client: client.clone(),
            wall_clock: Arc::clone(&self.options.wall_clock),
            random: Arc::clone(&self.options.random),
            board: self.options.board.clone(),
        };
        let reports = self.reports.subscribe();
        tokio::join!(
            follow(&client, &all_sets, &sets, stop),
            follow(&client, &all_fleets, &fleets, stop),
            follow(&client, &own_node, &own, stop),
            writer.run(reports, stop),
            self.keep(sets_seen, fleets_seen, node_seen, stop),
        );
    }

    async fn keep(
        &mut self,
        mut sets: watch::Receiver<Selected>,
        mut fleets: watch::Receiver<Selected>,
        mut node: watch::Receiver<Selected>,
        stop: &CancellationToken,
    ) {
        sets.mark_changed();
        fleets.mark_changed();
        node.mark_changed();
        loop {
            let wake = self.step().await;
            tokio::select! {
                () = stop.cancelled() => break,
                Ok(()) = node.changed() => {
                    self.see_node(&node.borrow_and_update().clone());
                    self.see_sets(&sets.borrow().clone());
                }
                Ok(()) = sets.changed() => self.see_sets(&sets.borrow_and_update().clone()),
                Ok(()) = fleets.changed() => self.see_fleet(&fleets.borrow_and_update().clone()),
                Some(end) = self.ended.1.recv() => self.pull_ended(end),
                () = tokio::time::sleep_until(wake) => {}
            }
        }
        self.pulls.values().for_each(|pull| pull.stop.cancel());
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn see_node(&mut self, selected: &Selected) {
        self.model.see_node(selected.objects.values().next().and_then(|node| NodeFacts::of(node)));
    }

    fn see_fleet(&mut self, selected: &Selected) {
        let object = selected.objects.values().next().filter(|_| selected.ready);
        let fleet = object.and_then(|object| Fleet::deserialize(&**object).ok());
        if let Some(status) = fleet.and_then(|fleet| fleet.status) {
            self.model.see_nodes(status.nodes);
        }
    }

    fn see_sets(&mut self, selected: &Selected) {
        if !selected.ready {
            return;
        }
        self.parsed.update(&selected.objects);
        let has_other_images = self.model.see_sets(self.parsed.sets(), self.parsed.unreadable());
        self.knows_sets |= self.model.node().is_some();
        if has_other_images {
            self.next_list = Instant::now();
        }
    }

    fn pull_ended(&mut self, end: PullEnd) {
        let PullEnd { key, result } = end;
        if let Some(pull) = self.pulls.remove(&key) {
            self.model.progressed(&key, pull.progress.bytes());
        }
        let image = &key.name;
        match &result {
            Some(Ok(id)) => tracing::info!(image, id, "image of an ImageSet is present"),
            Some(Err(PullProblem { reason, message, .. })) => {
                self.options.board.pull_failed(reason);
                tracing::warn!(image, reason, error = message, "cannot pull an image of an ImageSet, will retry");
            }
            None => {}
        }
        let now = self.now();
        if let Some(result) = result {
            self.model.ended(&key, result, now, &self.options.random);
        }
        self.next_list = self.next_list.min(now.clock + LIST_AFTER_PULL);
        self.next_measure = self.next_measure.min(now.clock + LIST);
    }

    fn now(&self) -> Now {
        Now { clock: Instant::now(), wall: (self.options.wall_clock)() }
    }

    /// Does what is due. Returns when to do it again if nothing happens until then.
    async fn step(&mut self) -> Instant {
        let mut wake = Instant::now() + LIST;
        self.list(&mut wake).await;
        self.remove_unwanted().await;
        self.cancel_unwanted();
        if self.pin(&mut wake).await {
            self.start_pulls(&mut wake);
        }
        self.measure().await;
        self.save(&mut wake).await;
        self.grant();
        self.publish();
        let now = self.now();
        let until = |at: jiff::Timestamp| Duration::try_from(at.duration_since(now.wall)).unwrap_or_default();
        let release = self.model.next_release().map(|at| now.clock + until(at).min(LIST));
        let progress = (!self.pulls.is_empty()).then_some(now.clock + PROGRESS);
        let retry = self.model.next_retry().filter(|retry| *retry > now.clock);
        [release, progress, retry, Some(self.next_list)].into_iter().flatten().fold(wake, Instant::min)
    }

    /// Lists the present images, if that is due.
    async fn list(&mut self, wake: &mut Instant) {
        if self.next_list > Instant::now() {
            return;
        }
        match self.options.service.list_images(None).await {
            Ok(images) => {
                let disappeared = self.model.observe(&Presence::of(&images));
                for ImageKey { name, .. } in &disappeared {
                    tracing::warn!(image = name, "image of an ImageSet disappeared from this node");
                }
                self.is_observed = true;
                self.next_list = Instant::now() + LIST;
                // Another process may share the state of image collection: the pins are compared again.
                self.is_pinned = false;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot list images for ImageSets, will retry");
                self.next_list = Instant::now() + RETRY;
            }
        }
        *wake = (*wake).min(self.next_list);
    }

    /// Removes images that sets with `onDelete: Remove` no longer want. An image in use is left to image collection.
    async fn remove_unwanted(&mut self) {
        if !self.is_observed {
            return;
        }
        let removals = self.model.release((self.options.wall_clock)());
        if removals.is_empty() {
            return;
        }
        // The pins of these images end first.
        let mut ignored = Instant::now();
        self.pin(&mut ignored).await;
        for key in removals {
            let image = &key.name;
            let listed = self.options.service.list_images(None).await;
            let id = listed.ok().and_then(|images| Presence::of(&images).find(&key, false).map(str::to_owned));
            let Some(id) = id.filter(|id| !self.model.wants_id(id)) else { continue };
            match self.options.collector.remove_unused(&id).await {
                Ok(true) => tracing::info!(image, id, "image removed, no ImageSet wants it"),
                Ok(false) => tracing::info!(image, id, "image is in use, and is left to image collection"),
                Err(error) => tracing::warn!(image, id, error, "cannot remove an image that no ImageSet wants"),
            }
        }
    }

    fn cancel_unwanted(&self) {
        let unwanted = self.pulls.iter().filter(|(key, _)| self.model.image(key).is_none());
        unwanted.for_each(|(_, pull)| pull.stop.cancel());
    }

    /// Gives image collection the current pins. Returns false if it does not have them.
    async fn pin(&mut self, wake: &mut Instant) -> bool {
        if !self.knows_sets {
            // The pins of the last process stay in force.
            return false;
        }
        let names = self.model.pinned_names();
        if self.pins.0 != names {
            self.pins = (names.clone(), pins(&names));
            self.is_pinned = false;
        }
        if self.is_pinned {
            return true;
        }
        match self.options.collector.pin(self.pins.1.clone()).await {
            Ok(()) => {
                self.is_pinned = true;
                true
            }
            Err(error) => {
                tracing::warn!(error, "cannot pin the images of ImageSets, no pull starts");
                *wake = (*wake).min(Instant::now() + RETRY);
                false
            }
        }
    }

    /// Starts the pulls that are due. Pulls of pods postpone them.
    fn start_pulls(&mut self, wake: &mut Instant) {
        if !self.is_observed {
            return;
        }
        let now = Instant::now();
        let due = self.model.due(now);
        for key in due.into_iter().filter(|key| !self.pulls.contains_key(key)).collect::<Vec<_>>() {
            if self.pulls.len() >= PULLS {
                return;
            }
            if (self.options.pods_pull)() {
                let since = *self.postponed_since.get_or_insert(now);
                if now.duration_since(since) < LONGEST_POSTPONEMENT {
                    *wake = (*wake).min(now + POSTPONED);
                    return;
                }
            }
            self.postponed_since = None;
            self.start(&key);
        }
    }

    fn start(&mut self, key: &ImageKey) {
        let Some(image) = self.model.image(key) else { return };
        let order = PullOrder::new(key, image);
        let (progress, stop) = (PullProgress::default(), CancellationToken::new());
        let (puller, sender) = (Arc::clone(&self.puller), self.ended.0.clone());
        let (key, seen, stopped) = (key.clone(), progress.clone(), stop.clone());
        self.model.started(&key);
        self.pulls.insert(key.clone(), RunningPull { progress, stop });
        self.tasks.spawn(async move {
            let result = stopped.run_until_cancelled(puller.pull(&order, &seen)).await;
            // The receiver lives as long as the daemon.
            let _ = sender.send(PullEnd { key, result });
        });
    }

    async fn measure(&mut self) {
        let now = Instant::now();
        if self.next_measure <= now {
            self.space = self.options.collector.space().await;
            self.next_measure = now + MEASURE;
        }
    }

    /// Saves the state, if it changed.
    async fn save(&mut self, wake: &mut Instant) {
        let (now, state) = (Instant::now(), self.model.saved());
        if state == self.saved {
            return;
        }
        if now < self.next_save {
            *wake = (*wake).min(self.next_save);
            return;
        }
        self.next_save = now + SAVE;
        if self.file.write(&state).await {
            self.saved = state;
        } else {
            *wake = (*wake).min(Instant::now() + RETRY);
        }
    }

    /// Publishes the images that namespaces may use.
    fn grant(&mut self) {
        let grants = self.model.grants();
        if grants != self.grants {
            self.options.access.replace(grants.clone());
            self.grants = grants;
        }
    }

    /// Publishes the state for the other parts of the process, and its report for the writer.
    fn publish(&mut self) {
        let is_known = self.is_observed && self.knows_sets;
        let Some(node) = self.model.node().cloned().filter(|_| is_known) else { return };
        for (key, pull) in &self.pulls {
            self.model.progressed(key, pull.progress.bytes());
        }
        let disk = self.space.map(ImageSpace::report);
        let status = Arc::new(self.model.report((self.options.wall_clock)(), &self.options.version, disk));
        self.options.board.publish(Arc::clone(&status));
        let status = limited(&status);
        let report = OutgoingReport { status, node: node.name, node_uid: node.uid, nodes: self.model.nodes() };
        self.reports.send_replace(Some(report));
    }
}

#[cfg(test)]
#[path = "daemon_tests.rs"]
mod tests;
