//! [`EventWriter`]: writes the events that wait, oldest first, as long as the budget lasts. A server that is away gets them when it
//! is back, as far as the queue reaches. Called by the binary.

use std::time::Duration;

use hashlink::LruCache;
use image_manager::{Event, ObjectRef};
use k8s_openapi::api::{core, events};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::budget::Budget;
use super::object::{again, core_event, event, name, namespace};
use super::{ApiRecorder, Pending};
use crate::client::{ClusterClient, Failure, failure, text, within};
use crate::retry::{Backoff, Random};

/// Number of events that are remembered, to count repeated ones.
const REMEMBERED: usize = 1000;
/// The group of events on servers that have it.
const GROUP: &str = "events.k8s.io/v1";

/// An event by what makes it the same: object, type, reason and message.
type Key = (String, [String; 3]);

fn key(event: &Event) -> Key {
    let ObjectRef { namespace, name, uid, field_path } = &event.object;
    let object = format!("{namespace}/{name}/{uid}/{field_path}");
    (object, [event.kind.as_str().to_owned(), event.reason.to_owned(), event.message.clone()])
}

/// An event that the server has.
#[derive(Clone, Debug)]
struct Written {
    name: String,
    count: i32,
}

/// Writes the events that a recorder took.
pub struct EventWriter {
    client: ClusterClient,
    recorder: ApiRecorder,
    /// Name of the node.
    node: String,
    random: Random,
}

/// State of the server, as far as the writer knows it.
struct Server {
    /// True if the events are written to the core group; `None`: not asked yet.
    in_core: Option<bool>,
    written: LruCache<Key, Written>,
}

impl EventWriter {
    /// Writes what `recorder` takes, with `node` as the reporting instance. `random` spreads the waits after failures.
    /// Nothing is written before [`run`](Self::run).
    #[must_use]
    pub fn new(client: ClusterClient, recorder: ApiRecorder, node: String, random: Random) -> Self {
        Self { client, recorder, node, random }
    }

    /// Writes until `stop`. What waits then is lost.
    pub async fn run(&self, stop: &CancellationToken) {
        let mut budget = Budget::new(Instant::now());
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        let mut server = Server { in_core: None, written: LruCache::new(REMEMBERED) };
        while !stop.is_cancelled() {
            if let Some(wait) = budget.wait(Instant::now()) {
                stop.run_until_cancelled(tokio::time::sleep(wait)).await;
                continue;
            }
            let Some(next) = self.next() else {
                stop.run_until_cancelled(self.recorder.shared.added.notified()).await;
                continue;
            };
            if !budget.take(&next.event.object, Instant::now()) {
                tracing::debug!(object = %next.event.object, reason = next.event.reason, "too many events about one object");
                continue;
            }
            let Some(written) = stop.run_until_cancelled(self.write(&mut server, &next)).await else {
                return;
            };
            match written {
                Ok(()) => backoff.reset(),
                Err(error) if is_lasting(&error) => {
                    tracing::debug!(error = %text(&error), object = %next.event.object, reason = next.event.reason, "event refused");
                }
                Err(error) => {
                    tracing::debug!(error = text(&error), "events wait for the API server");
                    self.recorder.shared.queue.lock().waiting.push_front(next);
                    stop.run_until_cancelled(tokio::time::sleep(backoff.next(&self.random))).await;
                }
            }
        }
    }

    /// Returns the event that waits longest.
    fn next(&self) -> Option<Pending> {
        let mut queue = self.recorder.shared.queue.lock();
        if queue.lost > 0 {
            tracing::warn!(lost = queue.lost, "events came faster than the API server took them");
            queue.lost = 0;
        }
        queue.waiting.pop_front()
    }

    async fn write(&self, server: &mut Server, next: &Pending) -> Result<(), kube::Error> {
        let in_core = match server.in_core {
            Some(in_core) => in_core,
            None => {
                let in_core = self.asks_for_core().await?;
                server.in_core = Some(in_core);
                in_core
            }
        };
        let key = key(&next.event);
        if let Some(known) = server.written.get(&key).cloned() {
            let count = known.count.saturating_add(next.count);
            match self.patch(&known.name, count, next, in_core).await {
                Ok(()) => {
                    server.written.insert(key, Written { count, ..known });
                    return Ok(());
                }
                // Events last an hour.
                Err(error) if failure(&error) == Failure::NotFound => {
                    server.written.remove(&key);
                }
                Err(error) => return Err(error),
            }
        }
        let name = name(next);
        match self.create(&name, next, in_core).await {
            // The role of nodes has events of the core group alone, whatever the server serves.
            Err(error) if failure(&error) == Failure::Forbidden && !in_core => {
                server.in_core = Some(true);
                self.create(&name, next, true).await?;
            }
            created => created?,
        }
        server.written.insert(key, Written { name, count: next.count });
        Ok(())
    }

    /// Asks the server whether it has no group of events.
    async fn asks_for_core(&self) -> Result<bool, kube::Error> {
        match within(self.client.current().list_api_group_resources(GROUP)).await {
            Ok(_) => Ok(false),
            Err(error) if failure(&error) == Failure::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn create(&self, name: &str, next: &Pending, in_core: bool) -> Result<(), kube::Error> {
        let (client, namespace) = (self.client.current(), namespace(&next.event.object));
        let parameters = PostParams::default();
        let created = if in_core {
            let api: Api<core::v1::Event> = Api::namespaced(client, namespace);
            within(api.create(&parameters, &core_event(next, name, &self.node))).await.map(drop)
        } else {
            let api: Api<events::v1::Event> = Api::namespaced(client, namespace);
            within(api.create(&parameters, &event(next, name, &self.node))).await.map(drop)
        };
        match created {
            // The answer to an earlier try was lost.
            Err(error) if failure(&error) == Failure::AlreadyExists => Ok(()),
            created => created,
        }
    }

    async fn patch(&self, name: &str, count: i32, next: &Pending, in_core: bool) -> Result<(), kube::Error> {
        let (client, namespace) = (self.client.current(), namespace(&next.event.object));
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(again(count, next, in_core)));
        if in_core {
            let api: Api<core::v1::Event> = Api::namespaced(client, namespace);
            within(api.patch(name, &parameters, &patch)).await.map(drop)
        } else {
            let api: Api<events::v1::Event> = Api::namespaced(client, namespace);
            within(api.patch(name, &parameters, &patch)).await.map(drop)
        }
    }
}

/// Returns true for a failure that would repeat with the same event.
fn is_lasting(error: &kube::Error) -> bool {
    matches!(failure(error), Failure::NotFound | Failure::Forbidden | Failure::Invalid | Failure::Conflict)
}
