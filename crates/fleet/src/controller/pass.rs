//! [`Passes`]: one pass over all objects after the other. A pass computes the status of every set from the watched objects and writes those
//! that changed: transitions at once, releases at intervals, and figures as [`super::pace`] permits. Called by [`super::Controller`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::ClusterClient;
use cluster::client::{Failure, failure, text, within};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::events::{Notice, about_set, publish};
use super::index::{NodeReports, index};
use super::metrics::SetFigures;
use super::objects::{NodeFacts, ObjectReader};
use super::options::{AllSelected, ControllerOptions, FLEETS, MANAGER, NODES, REPORTS, SETS};
use super::pace::FigurePace;
use super::resolutions::Resolutions;
use super::resolver::TagResolver;
use super::silence::Silence;
use super::taints;
use crate::api::{Fleet, FleetStatus, GROUP_VERSION, ImageSet, ImageSetStatus, NodeImages, decode, share_of};
use crate::conditions::Phase;
use crate::release::{Rank, Release};
use crate::rollout::{Advanced, Begun, Observed, advance, begin};
use crate::selection::selects;
use crate::summary::NodeView;
use crate::taint::{RequiredSet, decide};

/// Shortest interval of writes of one status, transitions aside, up to and above [`MANY_NODES`].
const INTERVAL: Duration = Duration::from_secs(10);
const LONG_INTERVAL: Duration = Duration::from_secs(30);
const MANY_NODES: usize = 1000;
/// Shortest interval of writes of the fleet's status.
const FLEET_INTERVAL: Duration = Duration::from_secs(60);

/// Everything of one term of leadership.
pub(super) struct Passes {
    client: ClusterClient,
    options: ControllerOptions,
    resolutions: Resolutions,
    silence: Silence,
    nodes: ObjectReader<NodeFacts>,
    reports: ObjectReader<NodeImages>,
    sets: ObjectReader<ImageSet>,
    fleets: ObjectReader<Fleet>,
    /// When the status of each set, by uid, was last written.
    written: HashMap<String, Instant>,
    pace: FigurePace,
    fleet_written: Option<Instant>,
}

/// When a status is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// Not in this pass.
    Later,
    /// In this pass.
    Now,
    /// In this pass, as far as the pace permits: nothing but figures changed.
    Figures,
}

/// The objects of one pass.
struct World<'a> {
    nodes: &'a [Arc<NodeFacts>],
    reports: &'a HashMap<String, NodeReports<'a>>,
    is_paused: bool,
}

impl Passes {
    pub(super) fn new(
        (client, options, resolver): (&ClusterClient, &ControllerOptions, &Arc<dyn TagResolver>),
        tasks: &TaskTracker,
        resolved: &Arc<Notify>,
        stop: &CancellationToken,
    ) -> Self {
        Self {
            client: client.clone(),
            options: options.clone(),
            resolutions: Resolutions::new((client, &options.namespace, resolver), tasks, resolved, stop),
            silence: Silence::default(),
            nodes: ObjectReader::default(),
            reports: ObjectReader::default(),
            sets: ObjectReader::default(),
            fleets: ObjectReader::default(),
            written: HashMap::new(),
            pace: FigurePace::default(),
            fleet_written: None,
        }
    }

    /// Runs one pass.
    pub(super) async fn run(&mut self, selected: &AllSelected) {
        let started = Instant::now();
        let mut figures = Vec::new();
        let nodes = self.nodes.read(&selected[NODES].objects, NodeFacts::parse);
        let reports = self.reports.read(&selected[REPORTS].objects, decode);
        let sets = self.sets.read(&selected[SETS].objects, decode);
        let fleet = self.fleets.read(&selected[FLEETS].objects, decode).into_iter().next();
        let uids: HashSet<&str> = sets.iter().filter_map(|set| set.metadata.uid.as_deref()).collect();
        self.written.retain(|uid, _| uids.contains(uid.as_str()));
        self.resolutions.retain(|uid| uids.contains(uid));
        self.silence.begin(&reports, Instant::now());
        let (reported, reports) = (reports.len(), index(&reports));
        let is_paused = fleet.as_ref().is_some_and(|fleet| fleet.spec.paused);
        let world = World { nodes: &nodes, reports: &reports, is_paused };

        let mut postponable = Vec::new();
        let mut free = places(fleet.as_deref(), nodes.len()).saturating_sub(self.held(&world, &sets));
        for set in sets.iter().filter(|set| set.metadata.deletion_timestamp.is_none()) {
            let (advanced, held) = self.advance(&world, set, free);
            free = free.saturating_sub(advanced.in_progress.saturating_sub(held));
            figures.push(SetFigures::of(set.name_any(), &advanced.status));
            match self.due(set, &advanced, nodes.len()) {
                Due::Later => {}
                Due::Now => self.write(set, &advanced).await,
                Due::Figures => postponable.push((set, advanced)),
            }
        }
        // Those that have waited for the longest time are first.
        postponable.sort_by_key(|(set, _)| set.uid().and_then(|uid| self.written.get(&uid).copied()));
        for (set, advanced) in postponable {
            if !self.pace.permits(nodes.len(), Instant::now()) {
                break;
            }
            self.write(set, &advanced).await;
        }
        self.remove_taints(&world, &sets, fleet.as_deref()).await;
        if let Some(fleet) = fleet {
            let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            let status = FleetStatus {
                observed_generation: fleet.metadata.generation,
                nodes: count(nodes.len()),
                reporting: count(reported),
                image_sets: count(sets.len()),
            };
            self.write_fleet(&fleet, &status).await;
        }
        self.options.metrics.passed(started.elapsed(), nodes.len(), figures);
    }

    /// Returns the number of nodes in progress for all sets, by the statuses that are written.
    fn held(&mut self, world: &World<'_>, sets: &[Arc<ImageSet>]) -> usize {
        sets.iter().map(|set| self.held_of(world, set)).sum()
    }

    fn held_of(&mut self, world: &World<'_>, set: &ImageSet) -> usize {
        let status = set.status.clone().unwrap_or_default();
        let views = self.views(world, set, &status);
        in_progress(set, &status, &views)
    }

    /// Computes the next status of a set, and the number of nodes in progress under the last one.
    fn advance(&mut self, world: &World<'_>, set: &ImageSet, free: usize) -> (Advanced, usize) {
        let now = (self.options.clock)();
        let resolved = self.resolutions.of(set);
        let begun: Begun = begin(set, resolved.as_deref(), now);
        let held = self.held_of(world, set);
        let views = self.views(world, set, &begun.status);
        let observed = Observed { set, views: &views, is_paused: world.is_paused, free, now };
        (advance(begun, &observed), held)
    }

    /// Returns the nodes that a set selects, with their reports of the rollout in `status`.
    fn views<'a>(&mut self, world: &World<'a>, set: &ImageSet, status: &ImageSetStatus) -> Vec<NodeView<'a>> {
        let (name, uid) = (set.name_any(), set.uid().unwrap_or_default());
        let (release, generation) = (Release::of(status), status.rollout_generation);
        let deadline = Duration::from(set.spec.rollout.progress_deadline);
        let now = Instant::now();
        let selected = world.nodes.iter().filter(|node| selects(&set.spec, node.name(), &node.labels));
        let views = selected.map(|node| {
            let reports = world.reports.get(node.name());
            let report = reports.and_then(|reports| reports.set(&name, &uid, generation));
            let rank = Rank::of(&uid, generation.unwrap_or_default(), node.name());
            let view = NodeView {
                node: node.cursor.clone(),
                set: report,
                images: if report.is_some() {
                    reports.map(|reports| reports.images(&name)).unwrap_or_default()
                } else {
                    Vec::new()
                },
                is_silent: false,
            };
            let is_expected = release.covers(rank, &node.cursor) && !view.has_ended();
            let is_silent =
                is_expected && self.silence.is_silent(&uid, generation.unwrap_or_default(), node.name(), deadline, now);
            NodeView { is_silent, ..view }
        });
        views.collect()
    }

    /// Returns when the status of a set is written.
    fn due(&self, set: &ImageSet, advanced: &Advanced, nodes: usize) -> Due {
        let before = set.status.clone().unwrap_or_default();
        if advanced.is_expired || is_transition(&before, &advanced.status) {
            return Due::Now;
        }
        let interval = if nodes > MANY_NODES { LONG_INTERVAL } else { INTERVAL };
        let written = set.uid().and_then(|uid| self.written.get(&uid));
        let is_due = written.is_none_or(|written| written.elapsed() >= interval);
        if !is_due || !differs(&before, &advanced.status) {
            Due::Later
        } else if is_figure(&before, &advanced.status) {
            Due::Figures
        } else {
            Due::Now
        }
    }

    /// Writes the status, or deletes a set whose time is over.
    async fn write(&mut self, set: &ImageSet, advanced: &Advanced) {
        let (Some(uid), name) = (set.uid(), set.name_any()) else { return };
        if advanced.is_expired {
            let preconditions = Preconditions { uid: Some(uid.clone()), ..Preconditions::default() };
            let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match within(Api::<ImageSet>::all(self.client.current()).delete(&name, &parameters)).await {
                Ok(_) => tracing::info!(set = name, "a finished set was deleted"),
                Err(error) if failure(&error) == Failure::NotFound => {}
                Err(error) => {
                    self.options.metrics.write_failed("ImageSet");
                    tracing::warn!(set = name, error = text(&error), "a finished set cannot be deleted");
                }
            }
            return;
        }
        let before = set.status.clone().unwrap_or_default();
        // The version makes sure that a replica whose Lease ended changes nothing that its successor wrote.
        let patch = json!({
            "apiVersion": GROUP_VERSION, "kind": "ImageSet",
            "metadata": {"name": name, "uid": uid, "resourceVersion": set.resource_version()},
            "status": advanced.status,
        });
        let api: Api<ImageSet> = Api::all(self.client.current());
        match within(api.patch_status(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(patch))).await {
            Ok(_) => drop(self.written.insert(uid, Instant::now())),
            // The watch delivers the newer object, and the next pass starts from it.
            Err(error) if matches!(failure(&error), Failure::Conflict | Failure::NotFound) => return,
            Err(error) => {
                self.options.metrics.write_failed("ImageSet");
                tracing::warn!(set = name, error = text(&error), "the status of a set was not written");
                return;
            }
        }
        self.report(set, &before, advanced).await;
    }

    /// Writes an event if the phase changed.
    async fn report(&self, set: &ImageSet, before: &ImageSetStatus, advanced: &Advanced) {
        let reason = advanced.phase.reason();
        // The start of a rollout is news, and not that its tags are about to be resolved.
        if advanced.phase == Phase::Resolving || progressing(before).is_some_and(|(known, _)| known == reason) {
            return;
        }
        let note = progressing(&advanced.status).map(|(_, message)| message).unwrap_or_default();
        tracing::info!(set = set.name_any(), reason, note, "a rollout changed its state");
        let is_warning = advanced.phase.is_warning();
        publish(&self.client, &self.options.identity, Notice { about: about_set(set), is_warning, reason, note }).await;
    }

    async fn remove_taints(&self, world: &World<'_>, sets: &[Arc<ImageSet>], fleet: Option<&Fleet>) {
        let deadline = fleet.map_or_else(Default::default, |fleet| fleet.spec.startup_taint.clone()).deadline;
        let required: Vec<&Arc<ImageSet>> = sets.iter().filter(|set| set.spec.required_for_ready).collect();
        for node in world.nodes {
            let Some(taints) = &node.tainted else { continue };
            let selected = required.iter().filter(|set| selects(&set.spec, node.name(), &node.labels));
            let sets: Vec<RequiredSet> = selected
                .map(|set| RequiredSet { name: set.name_any(), is_ready: is_ready(world, set, node.name()) })
                .collect();
            let step = decide(&sets, node.cursor.creation_time.0, deadline.into(), (self.options.clock)());
            taints::apply(&self.client, &self.options, node, taints, step).await;
        }
    }

    async fn write_fleet(&mut self, fleet: &Fleet, status: &FleetStatus) {
        let is_due = self.fleet_written.is_none_or(|written| written.elapsed() >= FLEET_INTERVAL);
        if fleet.status.as_ref() == Some(status) || !is_due {
            return;
        }
        let name = fleet.name_any();
        let patch = json!({
            "apiVersion": GROUP_VERSION, "kind": "Fleet", "metadata": {"name": name, "uid": fleet.uid()}, "status": status,
        });
        let api: Api<Fleet> = Api::all(self.client.current());
        match within(api.patch_status(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(patch))).await {
            Ok(_) => self.fleet_written = Some(Instant::now()),
            Err(error) => {
                self.options.metrics.write_failed("Fleet");
                tracing::warn!(error = text(&error), "the status of the fleet was not written");
            }
        }
    }
}

/// Returns the number of nodes that may be in progress for all sets.
fn places(fleet: Option<&Fleet>, nodes: usize) -> usize {
    let limit = fleet.and_then(|fleet| fleet.spec.max_concurrent.as_ref());
    limit.map_or(usize::MAX, |limit| share_of(limit, nodes).unwrap_or(1).max(1))
}

/// Returns the number of nodes in progress under a status.
fn in_progress(set: &ImageSet, status: &ImageSetStatus, views: &[NodeView<'_>]) -> usize {
    let (release, generation) = (Release::of(status), status.rollout_generation.unwrap_or_default());
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    views.iter().filter(|view| view.in_rollout(uid, generation).holds_a_place(&release)).count()
}

/// Returns true if the node reported every image of the current rollout.
fn is_ready(world: &World<'_>, set: &ImageSet, node: &str) -> bool {
    let Some(status) = &set.status else { return false };
    if status.observed_generation != set.metadata.generation {
        return false;
    }
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    let report = world.reports.get(node).and_then(|all| all.set(&set.name_any(), uid, status.rollout_generation));
    report.is_some_and(|report| report.phase == crate::api::SetPhase::Ready)
}

/// Returns reason and message of the condition `Progressing`.
fn progressing(status: &ImageSetStatus) -> Option<(&str, &str)> {
    let condition = status.conditions.iter().find(|condition| condition.type_ == "Progressing")?;
    Some((&condition.reason, &condition.message))
}

/// Returns true if the change is written at once.
fn is_transition(before: &ImageSetStatus, after: &ImageSetStatus) -> bool {
    let facts = |status: &ImageSetStatus| {
        let conditions = status.conditions.iter();
        let states: Vec<_> = conditions.map(|condition| (condition.status.clone(), condition.reason.clone())).collect();
        let rollout = (status.observed_generation, status.rollout_generation, status.resolved.clone());
        (states, rollout, status.finish_time.clone())
    };
    facts(before) != facts(after)
}

/// Returns true if the statuses differ in more than the time of the last progress, which changes while a set is paused.
fn differs(before: &ImageSetStatus, after: &ImageSetStatus) -> bool {
    let last_progress_time = before.last_progress_time.clone();
    *before != ImageSetStatus { last_progress_time, ..after.clone() }
}

/// Returns true if nothing but figures differs: no node acts on them.
fn is_figure(before: &ImageSetStatus, after: &ImageSetStatus) -> bool {
    let ImageSetStatus { nodes, bytes, failures, conditions, last_progress_time, .. } = before.clone();
    *before == ImageSetStatus { nodes, bytes, failures, conditions, last_progress_time, ..after.clone() }
}
