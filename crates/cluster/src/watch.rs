//! [`follow`]: keeps all objects that a selector names up to date. Uses a streaming list where the server supports it, a list and
//! a watch otherwise; handles bookmarks, lists again when a watch is too old, and backs off after failures with jitter. Objects
//! are JSON without `managedFields`. Independent of the kind of object.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::request::{escaped, get};
use crate::client::{ClusterClient, Failure, failure, text};
use crate::retry::{Backoff, Random, jittered, system_random};

/// The annotation of the bookmark behind the last object of a streaming list.
const END_OF_LIST: &str = "k8s.io/initial-events-end";
/// How long a streaming list may take before it counts as not supported.
const LIST: Duration = Duration::from_secs(30);
/// How long a watch is asked for, give or take a third.
const WATCH: Duration = Duration::from_secs(450);

/// Objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selection {
    /// Path of the collection: `/api/v1/pods`.
    pub path: String,
    /// Field selector: `spec.nodeName=edge`.
    pub fields: String,
}

/// Objects by uid.
pub type Objects = BTreeMap<String, Arc<Value>>;

/// State of the objects of a [`Selection`].
#[derive(Clone, Debug, Default)]
pub struct Selected {
    /// True once the server has sent all of them.
    pub ready: bool,
    /// Objects by uid, without `managedFields`; while the server is away those that it had last.
    pub objects: Objects,
}

/// Keeps the objects behind `sender` up to date until `stop`.
pub async fn follow(
    client: &ClusterClient,
    selection: &Selection,
    sender: &watch::Sender<Selected>,
    stop: &CancellationToken,
) {
    let mut follower = Follower {
        client,
        selection,
        sender,
        streams: true,
        version: None,
        backoff: Backoff::new(Duration::from_millis(800), Duration::from_secs(30)),
        random: system_random(),
    };
    let work = async {
        loop {
            follower.once().await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}

struct Follower<'a> {
    client: &'a ClusterClient,
    selection: &'a Selection,
    sender: &'a watch::Sender<Selected>,
    /// True until the server has shown that it has no streaming lists.
    streams: bool,
    /// The version up to which objects are known; `None`: they are to be listed.
    version: Option<String>,
    backoff: Backoff,
    random: Random,
}

/// Why a watch is over.
enum WatchEnd {
    /// The watch ended after its time, or because the client was rebuilt.
    Over,
    /// The version is too old: everything is to be listed.
    Expired,
    /// The server does not know streaming lists.
    NoStreams,
    Failed(kube::Error),
}

impl Follower<'_> {
    /// A list, if one is due, and a watch until it ends; after a failure a wait.
    async fn once(&mut self) {
        let (client, mut renewals) = (self.client.current(), self.client.renewals());
        renewals.mark_unchanged();
        let begun = Instant::now();
        let work = async {
            if self.version.is_none() && !self.streams {
                self.list(&client).await?;
            }
            self.watch(&client).await
        };
        let end = tokio::select! {
            end = work => end.unwrap_or_else(WatchEnd::Failed),
            // A renewed client has other credentials, and other connections.
            Ok(()) = renewals.changed() => WatchEnd::Over,
        };
        let selection = self.selection;
        let wait = match end {
            WatchEnd::Over if begun.elapsed() < Duration::from_secs(1) => self.backoff.next(&self.random),
            WatchEnd::Over => {
                self.backoff.reset();
                return;
            }
            WatchEnd::Expired => {
                tracing::debug!(?selection, "watch is too old, listing");
                self.version = None;
                self.backoff.next(&self.random)
            }
            WatchEnd::NoStreams => {
                tracing::debug!(?selection, "server has no streaming lists");
                self.streams = false;
                return;
            }
            WatchEnd::Failed(error) => {
                let is_news = self.backoff.is_first();
                let wait = self.backoff.next(&self.random);
                let (path, fields, error) = (&selection.path, &selection.fields, text(&error));
                match is_news {
                    true => tracing::warn!(path, fields, error, "cannot watch, will retry"),
                    false => tracing::debug!(path, fields, error, ?wait, "cannot watch, will retry"),
                }
                wait
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            // Other credentials may do what those before could not.
            Ok(()) = renewals.changed() => self.backoff.reset(),
        }
    }

    async fn list(&mut self, client: &kube::Client) -> Result<(), kube::Error> {
        // The most recent list: one from a cache may be older than the objects that were already received.
        let uri = format!("{}?fieldSelector={}", self.selection.path, escaped(&self.selection.fields));
        let mut list: Value = client.request(get(&uri)).await?;
        let version = version_of(&list).ok_or_else(|| unreadable("a list without a version"))?;
        let items = match list["items"].take() {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            _ => return Err(unreadable("a list without items")),
        };
        let items: Vec<Value> = items.into_iter().map(checked).collect::<Result<_, _>>()?;
        self.replace(items);
        self.version = Some(version);
        self.backoff.reset();
        Ok(())
    }

    async fn watch(&mut self, client: &kube::Client) -> Result<WatchEnd, kube::Error> {
        let fields = escaped(&self.selection.fields);
        // So that the watches of many nodes do not end together.
        let seconds = jittered(WATCH, 1.0 / 3.0, &self.random).as_secs();
        let mut uri = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&fieldSelector={fields}",
            self.selection.path
        );
        let mut listed = None;
        match &self.version {
            Some(version) => uri.push_str(&format!("&resourceVersion={}", escaped(version))),
            None => {
                uri.push_str("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
                listed = Some(Vec::new());
            }
        }
        let deadline = Instant::now() + LIST;
        // Servers end watches themselves; one that does not is not waited for for ever.
        let longest = Instant::now() + Duration::from_secs(seconds + 30);
        let events = match client.request_events::<Value>(get(&uri)).await {
            Ok(events) => events,
            Err(error) => return self.refused(error),
        };
        let mut events = std::pin::pin!(events);
        loop {
            let until = if listed.is_some() { deadline } else { longest };
            let Ok(next) = tokio::time::timeout_at(until, events.next()).await else {
                return Ok(if listed.is_some() { WatchEnd::NoStreams } else { WatchEnd::Over });
            };
            let Some(event) = next else { return Ok(WatchEnd::Over) };
            let event = match event {
                Ok(event) => event,
                Err(error) => return self.refused(error),
            };
            let event = match event {
                WatchEvent::Added(object) => WatchEvent::Added(checked(object)?),
                WatchEvent::Modified(object) => WatchEvent::Modified(checked(object)?),
                WatchEvent::Deleted(object) => WatchEvent::Deleted(checked(object)?),
                other => other,
            };
            match (event, &mut listed) {
                (WatchEvent::Added(object) | WatchEvent::Modified(object), Some(list)) => list.push(object),
                (WatchEvent::Added(object) | WatchEvent::Modified(object), None) => {
                    // However short a watch is, this one brings something.
                    self.backoff.reset();
                    self.put(object);
                }
                (WatchEvent::Deleted(object), Some(list)) => {
                    list.retain(|other| other["metadata"]["uid"] != object["metadata"]["uid"]);
                }
                (WatchEvent::Deleted(object), None) => self.take(&object),
                (WatchEvent::Bookmark(bookmark), list) => {
                    let ends = bookmark.metadata.annotations.get(END_OF_LIST).is_some_and(|ends| ends == "true");
                    if let (true, Some(items)) = (ends, list.take_if(|_| ends)) {
                        self.replace(items);
                        self.backoff.reset();
                    }
                    if listed.is_none() {
                        self.version = Some(bookmark.metadata.resource_version);
                    }
                }
                (WatchEvent::Error(status), _) => return self.refused(kube::Error::Api(status)),
            }
        }
    }

    fn refused(&self, error: kube::Error) -> Result<WatchEnd, kube::Error> {
        match failure(&error) {
            Failure::Expired => Ok(WatchEnd::Expired),
            Failure::Invalid if self.version.is_none() && self.streams => Ok(WatchEnd::NoStreams),
            _ => Err(error),
        }
    }

    /// These are all.
    fn replace(&self, items: Vec<Value>) {
        self.sender.send_modify(|selected| {
            let mut objects = Objects::new();
            for object in items {
                let object = pruned(object);
                let uid = uid(&object);
                let same = selected.objects.get(&uid).filter(|old| ***old == object).map(Arc::clone);
                objects.insert(uid, same.unwrap_or_else(|| Arc::new(object)));
            }
            *selected = Selected { ready: true, objects };
        });
    }

    fn put(&mut self, object: Value) {
        let object = pruned(object);
        self.version = version_of(&object);
        self.sender.send_modify(|selected| {
            selected.objects.insert(uid(&object), Arc::new(object));
        });
    }

    fn take(&mut self, object: &Value) {
        self.version = version_of(object);
        self.sender.send_modify(|selected| {
            selected.objects.remove(&uid(object));
        });
    }
}

/// The version of an object or a list.
fn version_of(object: &Value) -> Option<String> {
    object["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty()).map(str::to_owned)
}

/// The object, if it is one: what is between the node and the server may answer in the server's place.
fn checked(object: Value) -> Result<Value, kube::Error> {
    let is_object =
        version_of(&object).is_some() && object["metadata"]["uid"].as_str().is_some_and(|uid| !uid.is_empty());
    if is_object { Ok(object) } else { Err(unreadable("an object without uid or version")) }
}

fn unreadable(what: &str) -> kube::Error {
    kube::Error::Service(format!("the API server answered with {what}").into())
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// Removes `managedFields`, which is half of an object's metadata and which no caller reads.
fn pruned(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// Returns true if the first object is the same version as the second or a newer one. Versions of one server are numbers that grow.
pub(crate) fn is_newer(one: &Value, other: &Value) -> bool {
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok();
    match (version(one), version(other)) {
        (Some(one), Some(other)) => one >= other,
        _ => false,
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
