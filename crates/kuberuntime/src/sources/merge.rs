//! [`Merge`]: all sources together. A pure function decides which pod counts where two are the same, what is held, and
//! how refused manifests are reported; around it is the channel that the sync loop reads. Called by the sources.
//!
//! Of two pods with one name (or one uid set by hand) the one of the first source, and there of the first path, counts.
//! A new manifest waits for a moment before it replaces another one: it may be a file that is being renamed, and then
//! both changes are applied together.

use base::lock::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use image_manager::EventRecorder;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::documents::DocumentObject;
use super::manifest::ManifestProblem;
use super::store::DocumentStore;
use super::view::{DesiredPods, RefusedManifest};
use super::view::{SourceManifest, SourceView};
use crate::events::PodEvent;
use crate::labels::PodOwner;
use crate::pod::Pod;

/// All sources together.
pub(super) struct Merge {
    /// Guards the last view of each source; held only while a view is stored or copied.
    views: Mutex<Vec<SourceView>>,
    changed: Notify,
    desired: watch::Sender<DesiredPods>,
    documents: DocumentStore,
    quiet: Duration,
    events: Arc<dyn EventRecorder>,
}

/// Result of merging all views.
#[derive(Default)]
struct MergedSources {
    desired: DesiredPods,
    documents: Vec<Arc<DocumentObject>>,
    /// The report of each refusal, in the order of `desired.refused`.
    reports: Vec<RefusalReport>,
    /// Time at which the result may change without a new view of a source.
    again: Option<Instant>,
}

/// The report of a refusal.
enum RefusalReport {
    /// A line of the log.
    Line,
    /// An event of a pod.
    Event(PodOwner),
    /// None, or none yet.
    None,
}

impl Merge {
    pub(super) fn new(sources: usize, quiet: Duration, events: Arc<dyn EventRecorder>) -> Self {
        Self {
            views: Mutex::new(vec![SourceView::default(); sources]),
            changed: Notify::new(),
            desired: watch::Sender::new(DesiredPods::default()),
            documents: DocumentStore::default(),
            quiet,
            events,
        }
    }

    pub(super) fn desired(&self) -> watch::Receiver<DesiredPods> {
        self.desired.subscribe()
    }

    pub(super) fn documents(&self) -> DocumentStore {
        self.documents.clone()
    }

    /// Replaces the view of a source. A source that was ready once stays so.
    pub(super) fn update(&self, index: usize, mut view: SourceView) {
        let mut views = self.views.lock();
        view.ready |= views[index].ready;
        views[index] = view;
        drop(views);
        self.changed.notify_one();
    }

    /// Returns the pods of all sources except this one.
    pub(super) fn pods_of_other_sources(&self, index: usize) -> Vec<Arc<Pod>> {
        let views = self.views.lock();
        let others = views.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, view)| view);
        let contents = others.flat_map(|view| &view.manifests).filter_map(|manifest| manifest.content.as_ref());
        contents.flat_map(|content| &content.pods).map(Arc::clone).collect()
    }

    /// Merges the views of all sources until it is cancelled.
    pub(super) async fn run(&self) {
        let mut reported = BTreeMap::new();
        loop {
            let views = self.views.lock().clone();
            let merged = merge(&views, Instant::now(), self.quiet);
            self.report(&merged, &mut reported);
            // Documents first, since pods need them.
            self.documents.set(merged.documents);
            self.desired.send_if_modified(|desired| {
                let changed = !is_same(desired, &merged.desired);
                if changed {
                    *desired = merged.desired;
                }
                changed
            });
            let again = async {
                match merged.again {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = again => {}
            }
        }
    }

    /// Reports refused manifests, once for each reason.
    fn report(&self, merged: &MergedSources, reported: &mut BTreeMap<(String, Option<String>), BTreeSet<String>>) {
        let mut now: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        for (refused, word) in merged.desired.refused.iter().zip(&merged.reports) {
            let RefusedManifest { origin, pod, reason, skipped } = refused;
            if matches!(word, RefusalReport::None) {
                continue;
            }
            let key = (origin.clone(), pod.clone());
            let is_new = reported.get(&key).is_none_or(|reasons| !reasons.contains(reason));
            now.entry(key).or_default().insert(reason.clone());
            if !is_new {
                continue;
            }
            match word {
                RefusalReport::Line if *skipped => {
                    tracing::info!(origin, reason, "skipped objects that do not run on a node")
                }
                RefusalReport::Line => {
                    tracing::warn!(origin, pod = pod.as_deref(), error = %reason, "refused a manifest")
                }
                RefusalReport::Event(owner) => {
                    let (title, errors) = (owner.title(), format!("{reason} ({origin})"));
                    let event = PodEvent::FailedValidation { pod: &title, errors: &errors };
                    event.record(&*self.events, &owner.object(None));
                }
                RefusalReport::None => {}
            }
        }
        *reported = now;
    }
}

/// Returns true if both are the same to every reader: pods are the same if they are the same object.
fn is_same(a: &DesiredPods, b: &DesiredPods) -> bool {
    let pods = a.pods.len() == b.pods.len()
        && a.pods.iter().zip(&b.pods).all(|((left, one), (right, other))| left == right && Arc::ptr_eq(one, other));
    let sources = (a.ready, a.reported, a.cluster_ready) == (b.ready, b.reported, b.cluster_ready);
    pods && sources && a.unread == b.unread && a.held == b.held && a.refused == b.refused
}

impl MergedSources {
    fn refuse(&mut self, origin: &str, pod: Option<String>, reason: String, word: RefusalReport) {
        self.desired.refused.push(RefusedManifest { origin: origin.to_owned(), pod, reason, skipped: false });
        self.reports.push(word);
    }

    /// Records objects of kinds that do not run on a node.
    fn skip(&mut self, origin: &str, reason: String, word: RefusalReport) {
        self.desired.refused.push(RefusedManifest { origin: origin.to_owned(), pod: None, reason, skipped: true });
        self.reports.push(word);
    }

    fn problem(&mut self, origin: &str, problem: &ManifestProblem, has_content: bool) {
        let title = problem.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name));
        let reason = match has_content {
            true => format!("{}; what it said before goes on", problem.reason),
            false => problem.reason.clone(),
        };
        let word = match &problem.pod {
            _ if problem.reported => RefusalReport::None,
            Some(pod) => RefusalReport::Event(pod.clone()),
            None => RefusalReport::Line,
        };
        match problem.skipped {
            true => self.skip(origin, reason, word),
            false => self.refuse(origin, title, reason, word),
        }
    }
}

/// Merges all views at this moment.
fn merge(views: &[SourceView], now: Instant, quiet: Duration) -> MergedSources {
    let mut merged = MergedSources::default();
    merged.desired.ready = views.iter().all(|view| view.ready);
    merged.desired.reported = views.iter().all(|view| view.ready || view.unread.is_some());
    merged.desired.cluster_ready = views.iter().find(|view| view.is_cluster).map(|view| view.ready);
    for view in views {
        merged.desired.unread.extend(view.unread.clone());
        let Some((origin, problem)) = &view.problem else { continue };
        merged.problem(origin, problem, view.manifests.iter().any(|manifest| manifest.content.is_some()));
    }
    let manifests: Vec<&SourceManifest> = views.iter().flat_map(|view| &view.manifests).collect();
    for manifest in &manifests {
        if manifest.held {
            merged.desired.held.insert(manifest.origin.clone());
        }
        if let Some(problem) = &manifest.problem {
            merged.problem(&manifest.origin, problem, manifest.content.is_some());
        }
        let Some(content) = &manifest.content else { continue };
        for line in &content.passed_over {
            merged.skip(&manifest.origin, line.clone(), RefusalReport::Line);
        }
    }
    let is_young = |manifest: &SourceManifest| manifest.since + quiet > now;
    let mut order = manifests.clone();
    order.sort_by_key(|manifest| is_young(manifest));
    let (mut names, mut uids) = (BTreeMap::<_, &str>::new(), BTreeMap::<_, &str>::new());
    let (mut documents, mut is_unsettled) = (BTreeMap::new(), false);
    for manifest in order {
        let Some(content) = &manifest.content else { continue };
        let (origin, young) = (manifest.origin.as_str(), is_young(manifest));
        for pod in &content.pods {
            let metadata = &pod.metadata;
            let title = format!("{}/{}", metadata.namespace, metadata.name);
            let reason = match (names.get(&title), uids.get(&metadata.uid)) {
                (Some(other), _) => format!("the pod {title} is in {other} already"),
                (None, Some(other)) => format!("the uid {:?} is that of a pod in {other} already", metadata.uid),
                (None, None) => {
                    names.insert(title, origin);
                    uids.insert(metadata.uid.clone(), origin);
                    merged.desired.pods.insert(metadata.uid.clone(), Arc::clone(pod));
                    if let Some(status) = content.statuses.get(&metadata.uid) {
                        merged.desired.statuses.insert(metadata.uid.clone(), Arc::clone(status));
                    }
                    continue;
                }
            };
            is_unsettled |= young;
            let word = if young { RefusalReport::None } else { RefusalReport::Event(PodOwner::of(pod)) };
            merged.refuse(origin, Some(title), reason, word);
        }
        for object in &content.documents {
            match documents.entry((object.kind, &object.namespace, &object.name)) {
                std::collections::btree_map::Entry::Vacant(place) => {
                    place.insert(origin);
                    merged.documents.push(Arc::clone(object));
                }
                std::collections::btree_map::Entry::Occupied(other) => {
                    is_unsettled |= young;
                    let reason = format!("{} is in {} already", object.title(), other.get());
                    merged.refuse(origin, None, reason, if young { RefusalReport::None } else { RefusalReport::Line });
                }
            }
        }
    }
    if is_unsettled {
        merged.again = manifests.iter().map(|manifest| manifest.since + quiet).filter(|at| *at > now).min();
    }
    merged
}
