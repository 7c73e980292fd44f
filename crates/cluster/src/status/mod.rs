//! [`StatusManager`]: reports the status of pods to the API server. Writes changes at once and one after the other, compares
//! everything every ten seconds, and releases a deleted pod once all of it has ended. After an outage it waits, and then writes
//! only the last state of each pod. Decides nothing about pods: `merge` and `patch` do.

mod budget;
mod merge;
mod patch;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{ClusterClient, Failure, failure, request, text};
use crate::retry::{Backoff, Random, system_random};
use crate::watch::{Objects, Selected, is_newer};
use budget::WriteBudget;
pub use merge::NodeView;
pub(crate) use merge::is_over;

/// Interval at which all statuses are compared with those of the server.
const CHECK: Duration = Duration::from_secs(10);
/// For so long a status that was refused is not written again: until the next comparison, or the one after it.
const REFUSED: Duration = Duration::from_secs(5);

/// A pod as the node sees it, by the uid of its object.
pub type NodeViews = BTreeMap<String, NodeView>;

/// Writes the statuses of pods.
pub struct StatusManager {
    client: ClusterClient,
    pods: watch::Receiver<Selected>,
    /// Last written statuses, by uid.
    written: HashMap<String, WrittenStatus>,
    budget: WriteBudget,
    backoff: Backoff,
    random: Random,
    /// Statuses that the server refused, by uid, and when they are tried again.
    refused: HashMap<String, Instant>,
    /// Earliest time of the next write after a failure.
    retry_at: Option<Instant>,
}

/// A status that was written.
struct WrittenStatus {
    /// The status that was asked for.
    wanted: Value,
    /// The object as the server returned it; older versions from a watch do not count.
    object: Arc<Value>,
}

/// Result of writing the status of one pod.
enum Written {
    Yes,
    /// No change was necessary.
    Same,
    /// The object was deleted, or another one has its name.
    Gone,
}

impl StatusManager {
    /// Creates a manager for the pods of the server.
    #[must_use]
    pub fn new(client: ClusterClient, pods: watch::Receiver<Selected>) -> Self {
        Self {
            client,
            pods,
            written: HashMap::new(),
            refused: HashMap::new(),
            budget: WriteBudget::new(Instant::now()),
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(30)),
            random: system_random(),
            retry_at: None,
        }
    }

    /// Writes until `stop`. `views` are the current pods, `changes` is notified when they change.
    pub async fn run(
        mut self,
        views: impl Fn(&Objects) -> NodeViews,
        mut changes: watch::Receiver<u64>,
        stop: &CancellationToken,
    ) {
        let (mut pods, mut renewals) = (self.pods.clone(), self.client.renewals());
        let mut check = Instant::now();
        loop {
            let due = self.retry_at.unwrap_or(check);
            let quiet = self.retry_at.is_some();
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep_until(due) => {}
                Ok(()) = changes.changed(), if !quiet => {}
                Ok(()) = pods.changed(), if !quiet => {}
                // Other credentials may do what those before could not.
                Ok(()) = renewals.changed() => self.backoff.reset(),
            }
            if Instant::now() >= check {
                check = Instant::now() + CHECK;
            }
            self.retry_at = None;
            changes.mark_unchanged();
            let objects = pods.borrow_and_update().objects.clone();
            if stop.run_until_cancelled(self.round(&objects, &views)).await.is_none() {
                return;
            }
        }
    }

    /// Writes what is not as it should be. A server that fails is left alone for a while.
    async fn round(&mut self, objects: &Objects, views: &impl Fn(&Objects) -> NodeViews) {
        self.written.retain(|uid, _| objects.contains_key(uid));
        let now = Instant::now();
        self.refused.retain(|_, until| *until > now);
        let mut current = views(objects);
        let uids: Vec<String> = current.keys().cloned().collect();
        for uid in uids {
            let Some(object) = objects.get(&uid).filter(|_| !self.refused.contains_key(&uid)) else { continue };
            let Some(view) = current.get(&uid) else { continue };
            let view = view.clone();
            let result = self.sync(&uid, object, &view).await;
            match result {
                Ok(Written::Yes) => {
                    self.backoff.reset();
                    // The write took time: other pods may have changed since.
                    current = views(objects);
                }
                Ok(Written::Same | Written::Gone) => {}
                Err(error) if is_of_pod(&error) => {
                    // The other pods are still written.
                    tracing::warn!(uid, error = text(&error), "API server refused the status of a pod, will retry");
                    self.refused.insert(uid.clone(), Instant::now() + REFUSED);
                    self.written.remove(&uid);
                }
                Err(error) => {
                    let wait = self.backoff.next(&self.random);
                    let error = text(&error);
                    tracing::warn!(uid, error, ?wait, "cannot write the status of a pod, will retry");
                    self.retry_at = Some(Instant::now() + wait);
                    self.written.remove(&uid);
                    return;
                }
            }
        }
    }

    async fn sync(&mut self, uid: &str, object: &Arc<Value>, view: &NodeView) -> Result<Written, kube::Error> {
        let base = match self.written.get(uid) {
            Some(written) if is_newer(&written.object, object) => Arc::clone(&written.object),
            _ => Arc::clone(object),
        };
        let wanted = match merge::merged(&base["status"], view) {
            Ok(wanted) => wanted,
            Err(error) => {
                tracing::debug!(uid, %error, "status update aborted");
                let over = is_over(&base["status"]);
                return if over { self.let_go(uid, &base, view).await } else { Ok(Written::Same) };
            }
        };
        // A server that does not know a field of it drops it: asking once more changes nothing.
        let same = |written: &WrittenStatus| written.wanted == wanted && written.object["status"] == base["status"];
        let is_known = self.written.get(uid).is_some_and(same);
        let mut outcome = Written::Same;
        if let Some(patch) = patch::patch(uid, &base["status"], &wanted).filter(|_| !is_known) {
            self.budget.take().await;
            match self.write(&base, &patch).await {
                Ok(answer) if answer["metadata"]["uid"] == uid => {
                    let object = Arc::new(answer);
                    self.written.insert(uid.to_owned(), WrittenStatus { wanted, object });
                    outcome = Written::Yes;
                }
                Ok(_) => return Ok(Written::Gone),
                Err(error) => return self.refused(uid, &base, error).await,
            }
        }
        match self.let_go(uid, &base, view).await? {
            Written::Same => Ok(outcome),
            other => Ok(other),
        }
    }

    /// Handles a refusal by the server: the object may be deleted, or another one may have its name.
    async fn refused(&mut self, uid: &str, object: &Value, error: kube::Error) -> Result<Written, kube::Error> {
        match failure(&error) {
            Failure::NotFound => Ok(Written::Gone),
            Failure::Conflict | Failure::Invalid => {
                let client = self.client.current();
                match client.request::<Value>(request::get(&path(object))).await {
                    Ok(now) if now["metadata"]["uid"] == uid => Err(error),
                    Ok(_) => Ok(Written::Gone),
                    Err(other) if failure(&other) == Failure::NotFound => Ok(Written::Gone),
                    Err(other) => Err(other),
                }
            }
            _ => Err(error),
        }
    }

    async fn write(&self, object: &Value, patch: &Value) -> Result<Value, kube::Error> {
        let uri = format!("{}/status?fieldManager=imagelet", path(object));
        self.client.current().request(request::strategic_merge(&uri, patch)).await
    }

    /// Removes the object of a pod that was deleted, once all of it has ended.
    async fn let_go(&mut self, uid: &str, object: &Value, view: &NodeView) -> Result<Written, kube::Error> {
        if object["metadata"].get("deletionTimestamp").is_none_or(Value::is_null) || view.may_run || !view.has_ended {
            return Ok(Written::Same);
        }
        self.budget.take().await;
        match delete(&self.client, object, uid).await {
            Ok(()) => Ok(Written::Gone),
            Err(error) => match failure(&error) {
                // It was deleted, or another one has its name.
                Failure::NotFound | Failure::Conflict => Ok(Written::Gone),
                _ => Err(error),
            },
        }
    }
}

/// Returns true for a refusal that is about one pod, and not about the server.
fn is_of_pod(error: &kube::Error) -> bool {
    matches!(failure(error), Failure::Conflict | Failure::Invalid | Failure::Forbidden | Failure::NotFound)
}

/// Removes an object at once, if it is this one.
pub(crate) async fn delete(client: &ClusterClient, object: &Value, uid: &str) -> Result<(), kube::Error> {
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": uid},
    });
    client.current().request::<Value>(request::delete(&path(object), &options)).await.map(drop)
}

/// Returns the path of a pod.
pub(crate) fn path(object: &Value) -> String {
    let word = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("/api/v1/namespaces/{}/pods/{}", word("namespace"), word("name"))
}

#[cfg(test)]
#[path = "manager_tests.rs"]
mod tests;
