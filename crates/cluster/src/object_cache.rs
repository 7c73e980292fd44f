//! [`ObjectCache`]: the ConfigMaps, Secrets and Services that pods of this node name, each with its own watch, as the node
//! authorizer permits it. Immutable objects are not watched any more. A caller waits briefly for the first answer: an object
//! whose state is unknown is not reported as missing. Keeps nothing on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use base::lock::Mutex;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::client::ClusterClient;
use crate::watch::{Object, Selection, observe};

/// Kind of an object that pods name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// Source of volumes and environment variables.
    ConfigMap,
    /// Source of volumes, environment variables and pull secrets.
    Secret,
    /// Source of the environment variables by which containers reach the API server.
    Service,
}

/// Name of one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// Collection that the object is in.
    pub kind: ObjectKind,
    /// Namespace of the object.
    pub namespace: String,
    /// Name in the namespace.
    pub name: String,
}

impl ObjectName {
    fn selection(&self) -> Selection {
        let collection = match self.kind {
            ObjectKind::ConfigMap => "configmaps",
            ObjectKind::Secret => "secrets",
            ObjectKind::Service => "services",
        };
        let fields = format!("metadata.name={}", self.name);
        Selection { group: "", collection, namespace: Some(self.namespace.clone()), fields, keeps: &[] }
    }
}

/// Result of asking for an object.
pub enum Lookup {
    /// The object as JSON, without `managedFields`.
    Present(Arc<Value>),
    /// The server has no such object.
    Absent,
    /// The server has not answered.
    Unknown,
}

/// Objects that are watched. Clones are the same cache.
#[derive(Clone)]
pub struct ObjectCache(Arc<Cache>);

struct Cache {
    client: ClusterClient,
    /// Guards the watches.
    watches: Mutex<BTreeMap<ObjectName, ObjectWatch>>,
    /// Counts changes of objects.
    changed: watch::Sender<u64>,
    tasks: TaskTracker,
}

struct ObjectWatch {
    /// The object, or nothing.
    store: Store<Object>,
    /// Ends the watch.
    _stop: DropGuard,
}

impl ObjectCache {
    /// Watches nothing yet.
    #[must_use]
    pub fn new(client: ClusterClient) -> Self {
        let changed = watch::Sender::new(0);
        Self(Arc::new(Cache { client, watches: Mutex::default(), changed, tasks: TaskTracker::new() }))
    }

    /// Changes whenever an object does.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Watches these from now on, and no others.
    pub fn want(&self, names: &BTreeSet<ObjectName>) {
        let mut watches = self.0.watches.lock();
        watches.retain(|name, _| names.contains(name));
        for name in names {
            if !watches.contains_key(name) {
                watches.insert(name.clone(), self.watch(name));
            }
        }
    }

    /// Returns an object, and waits at most `patience` for its first answer. An object that was not watched is watched from now on.
    pub async fn get(&self, name: &ObjectName, patience: Duration) -> Lookup {
        let store = {
            let mut watches = self.0.watches.lock();
            watches.entry(name.clone()).or_insert_with(|| self.watch(name)).store.clone()
        };
        match tokio::time::timeout(patience, store.wait_until_ready()).await {
            Ok(Ok(())) => only(&store).map_or(Lookup::Absent, Lookup::Present),
            _ => Lookup::Unknown,
        }
    }

    /// Returns an object, if it is known.
    #[must_use]
    pub fn known(&self, name: &ObjectName) -> Option<Arc<Value>> {
        only(&self.0.watches.lock().get(name)?.store)
    }

    fn watch(&self, name: &ObjectName) -> ObjectWatch {
        let (selection, stop) = (name.selection(), CancellationToken::new());
        let (client, changed, ended) = (self.0.client.clone(), self.0.changed.clone(), stop.clone());
        let mut writer = Writer::new(selection.resource());
        let store = writer.as_reader();
        let written = store.clone();
        self.0.tasks.spawn(async move {
            // The first answer is waited for by those who need it.
            let mut is_first = true;
            let watch = observe(&client, &selection, |event| {
                writer.apply_watcher_event(&event);
                if matches!(event, Event::Init | Event::InitApply(_)) {
                    return ControlFlow::Continue(());
                }
                if !std::mem::take(&mut is_first) {
                    changed.send_modify(|count| *count += 1);
                }
                let is_last = only(&written).is_some_and(|object| object["immutable"] == true);
                if is_last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            ended.run_until_cancelled(watch).await;
        });
        ObjectWatch { store, _stop: stop.drop_guard() }
    }
}

/// Returns the object of a store of one.
fn only(store: &Store<Object>) -> Option<Arc<Value>> {
    store.state().pop().map(|object| Arc::clone(&object.value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::FakeServer;

    const MAP: &str = "/api/v1/namespaces/shop/configmaps/settings";
    const SOON: Duration = Duration::from_secs(10);

    fn name() -> ObjectName {
        ObjectName { kind: ObjectKind::ConfigMap, namespace: "shop".to_owned(), name: "settings".to_owned() }
    }

    fn map(value: &str, immutable: bool) -> Value {
        json!({"data": {"k": value}, "immutable": immutable})
    }

    async fn value(cache: &ObjectCache) -> String {
        match cache.get(&name(), SOON).await {
            Lookup::Present(object) => object["data"]["k"].as_str().unwrap_or_default().to_owned(),
            Lookup::Absent => "absent".to_owned(),
            Lookup::Unknown => "unknown".to_owned(),
        }
    }

    async fn settle() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn one_object_is_watched_and_no_others() {
        let server = FakeServer::new(true);
        server.put("/api/v1/namespaces/shop/configmaps/other", map("0", false));
        let cache = ObjectCache::new(server.client());
        cache.want(&[name()].into());
        assert_eq!(value(&cache).await, "absent");
        let mut changes = cache.changes();
        changes.mark_unchanged();
        server.put(MAP, map("1", false));
        changes.changed().await.expect("heard");
        assert_eq!(value(&cache).await, "1");
        assert!(cache.known(&name()).is_some());
        assert_eq!(server.take_requests(), ["WATCH /api/v1/namespaces/shop/configmaps"]);
        cache.want(&BTreeSet::new());
        assert!(cache.known(&name()).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_immutable_is_not_watched() {
        let server = FakeServer::new(true);
        server.put(MAP, map("1", true));
        let cache = ObjectCache::new(server.client());
        assert_eq!(value(&cache).await, "1");
        settle().await;
        server.take_requests();
        server.close_watches();
        server.put(MAP, map("2", true));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((value(&cache).await, server.take_requests().len()), ("1".to_owned(), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_of_which_nothing_is_known_is_not_absent() {
        let server = FakeServer::new(true);
        server.set_away(true);
        let cache = ObjectCache::new(server.client());
        assert_eq!(value(&cache).await, "unknown");
        server.put(MAP, map("1", false));
        server.set_away(false);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(value(&cache).await, "1");
        server.set_away(true);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(value(&cache).await, "1", "what was known goes on");
    }
}
