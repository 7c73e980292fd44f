//! [`ClusterPods`]: receives the pods of an API server and the objects that they name, and sends their statuses back. Converts between the
//! client of the cluster and the crate that runs pods; holds no rule of its own. Called by `run`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent::node::{Node, ServerSide};
use base::lock::Mutex;
use cluster::ClusterClient;
use cluster::mirror::Mirrors;
use cluster::node::OwnNode;
use cluster::object_cache::{ObjectCache, ObjectName};
use cluster::pod_cache::{CachedPods, PodCache};
use cluster::retry::system_random;
use cluster::status::{NodeView, NodeViews, StatusManager};
use cluster::tokens::TokenManager;
use cluster::watch::{Objects, Selected, Selection, follow};
use kuberuntime::sources::{self, DesiredPods, Source};
use kuberuntime::workers::{PodView, WorkerState};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::cluster_objects::{api_service, capacity, credentials, documents, named};
use crate::config::Config;

/// Time that a server may take for its first answer before the cached pods are started.
const FIRST_ANSWER: Duration = Duration::from_secs(15);
/// Shortest time between two writes of the pods to disk.
const GATHER: Duration = Duration::from_millis(500);

/// The pods of an API server.
pub(crate) struct ClusterPods {
    client: ClusterClient,
    node_name: String,
    /// The pods as the server has them, including mirror pods.
    pods: watch::Sender<Selected>,
    /// This node as the server has it: absent until its name is verified to be ours, so that a second node of the name starts no pod.
    own: OwnNode,
    /// The pods as the source has them.
    source: watch::Sender<sources::ClusterPods>,
    objects: ObjectCache,
    tokens: Arc<TokenManager>,
    cache: PodCache,
    /// Guards the service of the API server, in its last known state.
    service: Arc<Mutex<Option<Value>>>,
    /// Counts changes of the wanted objects.
    wanted: watch::Sender<u64>,
}

impl ClusterPods {
    /// Creates the pods; sends no request yet.
    pub(crate) fn new(cluster: &Cluster, config: &Config) -> Self {
        let client = cluster.client.clone();
        Self {
            node_name: config.pods.node_name(),
            pods: watch::Sender::new(Selected::default()),
            own: cluster.own.clone(),
            source: watch::Sender::new(sources::ClusterPods::default()),
            objects: ObjectCache::new(client.clone()),
            tokens: Arc::new(TokenManager::new(client.clone(), Arc::new(jiff::Timestamp::now), system_random())),
            cache: PodCache::new(&config.root.join(super::cluster::DIRECTORY)),
            service: Arc::default(),
            wanted: watch::Sender::new(0),
            client,
        }
    }

    /// Returns the source of these pods.
    pub(crate) fn source(&self) -> Source {
        Source::Cluster(self.source.subscribe())
    }

    /// Returns the tokens of the pods' service accounts.
    pub(crate) fn tokens(&self) -> Arc<TokenManager> {
        Arc::clone(&self.tokens)
    }

    /// Returns the documents and credentials that the server has for the pods.
    pub(crate) fn server_side(&self) -> ServerSide {
        let (objects, tokens) = (self.objects.clone(), Arc::clone(&self.tokens));
        let (secrets, service) = (self.objects.clone(), Arc::clone(&self.service));
        ServerSide {
            documents: Arc::new(move |pod| {
                let (objects, tokens, pod) = (objects.clone(), Arc::clone(&tokens), pod.clone());
                let service = service.lock().clone();
                Box::pin(async move { documents(&objects, &tokens, &pod, service).await })
            }),
            credentials: Arc::new(move |pod| credentials(&secrets, pod)),
            changes: self.objects.changes(),
        }
    }

    /// Keeps pods and statuses up to date until `stop`.
    pub(crate) async fn keep(&self, node: &Node, stop: &CancellationToken) {
        let pods = Selection::pods_of(&self.node_name);
        let manager = StatusManager::new(self.client.clone(), self.pods.subscribe());
        let agent = Arc::clone(&node.agent);
        let views = move |objects: &Objects| views(&agent.pods(), objects);
        let desired = node.desired.clone();
        let local = move || local_pods(&desired.borrow());
        let mirrors = Mirrors::new(self.client.clone(), self.pods.subscribe(), self.own.subscribe());
        tokio::join!(
            follow(&self.client, &pods, &self.pods, stop),
            self.feed(stop),
            self.want(node, stop),
            self.remember(stop),
            mirrors.run(local, self.wanted.subscribe(), stop),
            manager.run(views, node.agent.changes(), stop),
        );
    }

    /// Feeds the pods to the source, once the node to which they are admitted is known.
    async fn feed(&self, stop: &CancellationToken) {
        let (mut pods, mut own) = (self.pods.subscribe(), self.own.subscribe());
        let mut first_answer = Some(Instant::now() + FIRST_ANSWER);
        loop {
            let node = own.borrow_and_update().objects.values().next().map(|node| capacity(node));
            let selected = pods.borrow_and_update().clone();
            if let Some(node) = node.filter(|_| selected.ready) {
                let pods = selected.objects.values().map(Arc::clone).collect();
                self.source.send_replace(sources::ClusterPods { ready: true, pods, node: Arc::new(node) });
                first_answer = None;
            }
            let late = async {
                match first_answer {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                _ = pods.changed() => {}
                _ = own.changed() => {}
                () = late => {
                    first_answer = None;
                    self.recall().await;
                }
            }
        }
    }

    /// Starts the cached pods, since the server does not answer. No pod is ended because it is missing from the cache.
    async fn recall(&self) {
        let cache = self.cache.clone();
        let read = tokio::task::spawn_blocking(move || cache.read()).await;
        let Some(CachedPods { pods, node: Some(node), service }) = read.ok().flatten() else { return };
        tracing::warn!(pods = pods.len(), "API server does not answer, starting the pods that it had last");
        *self.service.lock() = service;
        let pods = pods.into_values().collect();
        self.source.send_replace(sources::ClusterPods { ready: false, pods, node: Arc::new(capacity(&node)) });
    }

    /// Writes the state of the server to disk.
    async fn remember(&self, stop: &CancellationToken) {
        let (mut pods, mut own) = (self.pods.subscribe(), self.own.subscribe());
        // The watched objects include the service of the API server.
        let mut objects = self.objects.changes();
        let mut written = CachedPods::default();
        let mut not_before = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = pods.changed() => {}
                _ = own.changed() => {}
                _ = objects.changed() => {}
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep_until(not_before) => {}
            }
            let selected = pods.borrow_and_update().clone();
            let node = own.borrow_and_update().objects.values().next().map(|node| Value::clone(node));
            if !selected.ready || node.is_none() {
                continue;
            }
            let service = self.objects.known(&api_service()).map(|service| Value::clone(&service));
            let service = {
                let mut last = self.service.lock();
                if service.is_some() {
                    *last = service;
                }
                last.clone()
            };
            let cached = CachedPods { pods: selected.objects, node, service };
            // A heartbeat of the node alone is no reason to write.
            if cached.pods == written.pods && cached.service == written.service {
                continue;
            }
            (written, not_before) = (cached.clone(), Instant::now() + GATHER);
            let cache = self.cache.clone();
            match tokio::task::spawn_blocking(move || cache.write(&cached)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    // The next change, of any kind, writes the file.
                    written = CachedPods::default();
                    tracing::warn!(%error, "cannot write the file of pods");
                }
                Err(_) => tracing::warn!("cannot write the file of pods: the writer panicked"),
            }
        }
    }

    /// Watches the objects that pods name, and stops watching those that no pod names any more.
    async fn want(&self, node: &Node, stop: &CancellationToken) {
        let mut desired = node.desired.clone();
        loop {
            let (names, uids) = {
                let desired = desired.borrow_and_update();
                let of_server = || desired.pods.values().filter(|pod| pod.is_of_server());
                let mut names: BTreeSet<ObjectName> = of_server().flat_map(|pod| named(pod)).collect();
                if of_server().next().is_some() {
                    names.insert(api_service());
                }
                (names, of_server().map(|pod| pod.metadata.uid.clone()).collect::<BTreeSet<String>>())
            };
            self.objects.want(&names);
            self.tokens.keep(&uids);
            self.wanted.send_modify(|count| *count += 1);
            tokio::select! {
                () = stop.cancelled() => return,
                heard = desired.changed() => if heard.is_err() { return },
            }
        }
    }
}

/// Returns the pods of manifests, once all sources have reported.
fn local_pods(desired: &DesiredPods) -> Option<Vec<Value>> {
    let local = desired.pods.values().filter(|pod| !pod.is_of_server());
    desired.ready.then(|| local.map(|pod| pod.to_json()).collect())
}

/// Returns the pods of the server as this node sees them, and those of local manifests that the server mirrors.
fn views(pods: &[Arc<PodView>], objects: &Objects) -> NodeViews {
    let is_mirror_of = |object: &Value, view: &PodView| {
        let metadata = &view.pod.metadata;
        object["metadata"]["annotations"][sources::MIRROR_ANNOTATION] == *metadata.uid
            && object["metadata"]["name"] == *metadata.name
            && object["metadata"]["namespace"] == *metadata.namespace
    };
    // A pod that has not been observed yet, or is queued behind another pod of its name, has no status to report.
    let observed = pods.iter().filter(|view| view.observed && view.state != WorkerState::Queued);
    let entries = observed.filter_map(|view| {
        let uid = match view.pod.is_of_server() {
            true => view.pod.metadata.uid.clone(),
            false => objects.iter().find(|(_, object)| is_mirror_of(object, view))?.0.clone(),
        };
        Some((uid.clone(), node_view(view, objects.get(&uid)?)))
    });
    entries.collect()
}

fn node_view(view: &PodView, object: &Value) -> NodeView {
    let gates = object["spec"]["readinessGates"].as_array().into_iter().flatten();
    let has_ended = view.state == WorkerState::Terminated;
    NodeView {
        status: serde_json::to_value(&view.status).unwrap_or_default(),
        may_run: !has_ended,
        has_ended,
        generation: view.pod.metadata.generation,
        readiness_gates: gates.filter_map(|gate| gate["conditionType"].as_str().map(str::to_owned)).collect(),
        restart_policy: view.pod.spec.restart_policy().as_str(),
    }
}

#[cfg(test)]
mod tests {
    use kuberuntime::pod::Pod;
    use kuberuntime::{ObservedPod, ProbeResults, StatusInput, pod_status};
    use serde_json::json;

    use super::*;

    fn view(name: &str, uid: &str, source: &str) -> PodView {
        let manifest = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "uid": uid, "generation": 2,
                         "annotations": {"kubernetes.io/config.source": source}},
            "spec": {"containers": [{"name": "c", "image": "x"}]},
        });
        let pod = Pod::from_json(&manifest).expect("a pod");
        let status = pod_status(&StatusInput {
            pod: &pod,
            observed: &ObservedPod::default(),
            probes: &ProbeResults::default(),
            waiting: &Default::default(),
            ended: None,
            host_ips: &[],
            runtime_name: "fake",
            previous: None,
            now: jiff::Timestamp::UNIX_EPOCH,
        });
        let (state, actions) = (WorkerState::Syncing, String::new());
        PodView { pod: Arc::new(pod), status, observed: true, state, actions, error: None }
    }

    // upstream: status/TestStaticPod/
    // upstream: podmanager/TestAddOrUpdatePod/static pod
    // upstream: podmanager/TestGetSetPods/Get static pod
    // upstream: podmanager/TestGetStaticPodToMirrorPodMap/
    #[test]
    fn a_local_pod_is_reported_by_its_mirror_and_an_unobserved_one_not_at_all() {
        let mirror = json!({"metadata": {"name": "local", "namespace": "shop", "uid": "m",
                                         "annotations": {"kubernetes.io/config.mirror": "hash"}}});
        let own = json!({"metadata": {"name": "own", "namespace": "shop", "uid": "u"},
                         "spec": {"readinessGates": [{"conditionType": "a/b"}]}});
        let objects: Objects = [("m".to_owned(), Arc::new(mirror)), ("u".to_owned(), Arc::new(own))].into();
        let pods = [view("local", "hash", "file"), view("own", "u", "api"), view("gone", "g", "api")].map(Arc::new);
        let told = views(&pods, &objects);
        assert_eq!(told.keys().collect::<Vec<_>>(), ["m", "u"]);
        assert_eq!((&told["u"].readiness_gates, told["u"].generation), (&vec!["a/b".to_owned()], Some(2)));
        assert_eq!((&told["m"].status["phase"], told["m"].may_run), (&json!("Pending"), true));
        let mut another = view("local", "other-hash", "file");
        assert!(views(&[Arc::new(another.clone())], &objects).is_empty());
        another = PodView { observed: false, ..view("own", "u", "api") };
        assert!(views(&[Arc::new(another)], &objects).is_empty());
    }
}
