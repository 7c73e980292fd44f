//! Pods of an API server: read as a kubelet's decoder reads them, admitted once, and kept as long as the server has
//! them. A field that this program does not know is passed over; a pod with a field that it knows and cannot honour
//! fails, with a reason that names the field. Makes no requests: the watcher of the server provides [`ClusterPods`].
//! Called by the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::manifest::ManifestContent;
use super::options::SourceOptions;
use super::view::{SourceManifest, SourceView};
use crate::admission::{self, NodeCapacity, Rejection};
use crate::events::PodEvent;
use crate::identity::{
    API_SOURCE, CONFIG_ORIGIN_ANNOTATION, CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION, read_of_cluster,
};
use crate::labels::PodOwner;
use crate::pod::Pod;
use crate::status::api::PodStatus;

/// Annotation of mirror pods, which a node creates to show its local pods. They are not run.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The pods of this node as its API server has them.
#[derive(Clone, Debug, Default)]
pub struct ClusterPods {
    /// True once the server has listed all of them. Before that, a missing pod may only be late.
    pub ready: bool,
    /// Pods as JSON. An object that has not changed should be the same `Arc`.
    pub pods: Vec<Arc<Value>>,
    /// The node that admits the pods.
    pub node: Arc<NodeCapacity>,
}

/// A pod that was read.
struct AdmittedPod {
    object: Arc<Value>,
    pod: Arc<Pod>,
    /// The initial status, if there is one: that of before this process, or that of a rejection.
    status: Option<Arc<PodStatus>>,
    /// True if the pod has not ended and uses resources of the node.
    is_active: bool,
}

/// Pods of one API server that were read, by uid.
struct ClusterReader<'a> {
    options: &'a SourceOptions,
    pods: BTreeMap<String, AdmittedPod>,
    /// Uids and texts for which events were recorded.
    reported: BTreeSet<(String, String)>,
}

/// Reads pods whenever the list changes, for ever, and reports them. `others` returns the pods of all other sources.
pub(super) async fn run(
    source: &watch::Receiver<ClusterPods>,
    options: &SourceOptions,
    others: &(dyn Fn() -> Vec<Arc<Pod>> + Sync),
    publish: &(dyn Fn(SourceView) + Sync),
) {
    let (mut source, since) = (source.clone(), Instant::now());
    let mut reader = ClusterReader { options, pods: BTreeMap::new(), reported: BTreeSet::new() };
    loop {
        let cluster = source.borrow_and_update().clone();
        reader.read(&cluster, &others());
        let content = Some(Arc::new(reader.content()));
        let origin = API_SOURCE.to_owned();
        let manifest = SourceManifest { origin, since, content, held: false, problem: None };
        publish(SourceView {
            ready: cluster.ready,
            is_cluster: true,
            manifests: vec![manifest],
            ..SourceView::default()
        });
        if source.changed().await.is_err() {
            // The last list stays in force.
            return;
        }
    }
}

impl ClusterReader<'_> {
    fn read(&mut self, cluster: &ClusterPods, others: &[Arc<Pod>]) {
        let word = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let mut objects: Vec<&Arc<Value>> = cluster.pods.iter().filter(|object| !is_mirror(object)).collect();
        // As in the kubelet, the oldest is admitted first.
        objects.sort_by_cached_key(|object| (word(object, "creationTimestamp"), word(object, "uid")));
        let uids: BTreeSet<String> = objects.iter().map(|object| word(object, "uid")).collect();
        self.pods.retain(|uid, _| uids.contains(uid));
        self.reported.retain(|(uid, _)| uids.contains(uid));
        for object in objects {
            let uid = word(object, "uid");
            if self.pods.get(&uid).is_some_and(|known| Arc::ptr_eq(&known.object, object)) || uid.is_empty() {
                continue;
            }
            let read = match self.pods.get(&uid) {
                Some(_) => self.follow(&uid, object),
                None => self.admit(object, others, &cluster.node),
            };
            self.pods.insert(uid, read);
        }
    }

    /// Admits a new pod.
    fn admit(&self, object: &Arc<Value>, others: &[Arc<Pod>], node: &NodeCapacity) -> AdmittedPod {
        let now = (self.options.wall_clock)();
        let (mut pod, errors) = read_of_cluster(object);
        annotate(&mut pod, &now.to_string());
        let is_over = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let mut status = PodStatus::from_json(&object["status"], &pod, created(object).unwrap_or(now));
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        // A pod that is to end needs no admission.
        if !is_over && !is_deleted {
            let mine = self.pods.values().filter(|other| other.is_active).map(|other| &*other.pod);
            let active: Vec<&Pod> = mine.chain(others.iter().map(|other| &**other)).collect();
            let refused = match errors.into_result() {
                Err(errors) => Err(Rejection::unexpected(errors.to_string())),
                // An earlier process admitted it.
                Ok(()) if object["status"]["phase"] == "Running" => Ok(()),
                Ok(()) => admission::admit(&pod, object, &active, node),
            };
            if let Err(Rejection { reason, message }) = refused {
                let event = PodEvent::Rejected { reason, message: &message };
                event.record(&*self.options.events, &PodOwner::of(&pod).object(None));
                let message = format!("Pod was rejected: {message}");
                let begun = status.as_ref().map_or(now, |status| status.start_time);
                status = Some(PodStatus::failed(&pod, reason.to_owned(), message, begun));
            }
        }
        let is_active = !status.as_ref().is_some_and(PodStatus::is_over);
        AdmittedPod { object: Arc::clone(object), pod: Arc::new(pod), status: status.map(Arc::new), is_active }
    }

    /// Follows a change of a known pod, if the new content can be honoured.
    fn follow(&mut self, uid: &str, object: &Arc<Value>) -> AdmittedPod {
        let known = &self.pods[uid];
        let (mut pod, errors) = read_of_cluster(object);
        let seen = known.pod.metadata.annotations.get(CONFIG_SEEN_ANNOTATION).cloned().unwrap_or_default();
        annotate(&mut pod, &seen);
        let rejected = known.status.as_ref().is_some_and(|status| status.is_over());
        let is_over = rejected || matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let failed = object["status"]["phase"] == "Failed" && !rejected;
        let status = match PodStatus::from_json(&object["status"], &pod, created(object).unwrap_or_default()) {
            Some(status) if failed => Some(Arc::new(status)),
            _ => known.status.clone(),
        };
        let mut kept = Arc::clone(&known.pod);
        if !errors.is_empty() && !is_over {
            let text = errors.to_string();
            // A deletion counts even if other changes are refused.
            let mut old = Pod::clone(&kept);
            old.metadata.deletion_timestamp = pod.metadata.deletion_timestamp;
            old.metadata.deletion_grace_period_seconds = pod.metadata.deletion_grace_period_seconds;
            pod = old;
            if self.reported.insert((uid.to_owned(), text.clone())) {
                let owner = PodOwner::of(&pod);
                let event = PodEvent::FailedValidation { pod: &owner.title(), errors: &text };
                event.record(&*self.options.events, &owner.object(None));
            }
        }
        if *kept != pod {
            kept = Arc::new(pod);
        }
        AdmittedPod { object: Arc::clone(object), pod: kept, status, is_active: !is_over }
    }

    fn content(&self) -> ManifestContent {
        let statuses = self.pods.iter().filter_map(|(uid, pod)| Some((uid.clone(), Arc::clone(pod.status.as_ref()?))));
        let pods = self.pods.values().map(|admitted| Arc::clone(&admitted.pod));
        ManifestContent { pods: pods.collect(), statuses: statuses.collect(), ..ManifestContent::default() }
    }
}

/// Returns true for a mirror pod.
fn is_mirror(object: &Value) -> bool {
    object["metadata"]["annotations"].get(MIRROR_ANNOTATION).is_some()
}

fn created(object: &Value) -> Option<Timestamp> {
    object["metadata"]["creationTimestamp"].as_str()?.parse().ok()
}

fn annotate(pod: &mut Pod, seen: &str) {
    let all = [
        (CONFIG_SOURCE_ANNOTATION, API_SOURCE),
        (CONFIG_SEEN_ANNOTATION, seen),
        (CONFIG_ORIGIN_ANNOTATION, API_SOURCE),
    ];
    pod.metadata.annotations.extend(all.map(|(key, value)| (key.to_owned(), value.to_owned())));
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
