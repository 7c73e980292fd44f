//! [`follow`]: keeps all objects that a selector names up to date. The protocol (lists, watches, bookmarks, versions that are too
//! old) is that of kube's watcher; this file chooses a streaming list or a plain one, and waits after failures with jitter. The
//! bounds of its requests are in `watch::requests`. Independent of the kind of object.

mod fields;
mod object;
mod pace;
mod requests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::Api;
use kube::core::ApiResource;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::client::{ClusterClient, Failure, failure, text};
use crate::retry::system_random;
pub(crate) use object::Object;
use pace::Pace;

/// Objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selection {
    /// Group and version: `imagelet.dev/v1alpha1`; empty: the core API.
    pub group: &'static str,
    /// Collection of the group: `pods`.
    pub collection: &'static str,
    /// Namespace of the objects; `None`: every namespace, or objects that have none.
    pub namespace: Option<String>,
    /// Field selector: `spec.nodeName=edge`.
    pub fields: String,
    /// Paths of the fields that are kept of each object, as JSON pointers: `/metadata/name`; empty: all.
    pub keeps: &'static [&'static str],
}

impl Selection {
    /// Returns the pods of a node.
    #[must_use]
    pub fn pods_of(node: &str) -> Self {
        Self { group: "", collection: "pods", namespace: None, fields: format!("spec.nodeName={node}"), keeps: &[] }
    }

    /// Returns one Node.
    #[must_use]
    pub fn node(name: &str) -> Self {
        Self { group: "", collection: "nodes", namespace: None, fields: format!("metadata.name={name}"), keeps: &[] }
    }

    /// Returns all objects of a cluster-scoped kind.
    #[must_use]
    pub fn all_of(group: &'static str, collection: &'static str) -> Self {
        Self { group, collection, namespace: None, fields: String::new(), keeps: &[] }
    }

    /// Returns the selection that keeps only the fields at these paths, each a JSON pointer that leads into no other one.
    #[must_use]
    pub fn keeping(self, paths: &'static [&'static str]) -> Self {
        Self { keeps: paths, ..self }
    }

    /// Returns the kind of the objects as kube names it.
    pub(crate) fn resource(&self) -> ApiResource {
        let (group, version) = self.group.split_once('/').unwrap_or(("", "v1"));
        let api_version = if group.is_empty() { version } else { self.group };
        ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: String::new(),
            plural: self.collection.to_owned(),
        }
    }

    fn api(&self, client: kube::Client) -> Api<Object> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource()),
            None => Api::all_with(client, &self.resource()),
        }
    }
}

/// Objects by uid.
pub type Objects = BTreeMap<String, Arc<Value>>;

/// State of the objects of a [`Selection`].
#[derive(Clone, Debug, Default)]
pub struct Selected {
    /// True once the server has sent all of them.
    pub ready: bool,
    /// Objects by uid, with the fields that the selection keeps and never with `managedFields`; while the server is away those that it had last.
    pub objects: Objects,
}

/// Keeps the objects behind `sender` up to date until `stop`. The store of kube's reflector is not used for them: its readers
/// are not notified of changes, and it keeps no object that a new list has unchanged.
pub async fn follow(
    client: &ClusterClient,
    selection: &Selection,
    sender: &watch::Sender<Selected>,
    stop: &CancellationToken,
) {
    let mut listed = Vec::new();
    let work = observe(client, selection, |event| {
        apply(sender, &mut listed, keep_fields(event, selection.keeps));
        ControlFlow::<Infallible>::Continue(())
    });
    tokio::select! {
        () = stop.cancelled() => {}
        _ = work => {}
    }
}

fn keep_fields(event: Event<Object>, paths: &[&str]) -> Event<Object> {
    match event {
        Event::InitApply(object) => Event::InitApply(object.with_fields(paths)),
        Event::Apply(object) => Event::Apply(object.with_fields(paths)),
        other => other,
    }
}

fn apply(sender: &watch::Sender<Selected>, listed: &mut Vec<Object>, event: Event<Object>) {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => listed.push(object),
        Event::InitDone => sender.send_modify(|selected| {
            let kept = |uid: &String, value: &Arc<Value>| {
                selected.objects.get(uid).filter(|known| *known == value).map(Arc::clone)
            };
            let objects = listed.drain(..).map(|object| {
                let uid = object.uid().to_owned();
                let value = kept(&uid, &object.value).unwrap_or(object.value);
                (uid, value)
            });
            *selected = Selected { ready: true, objects: objects.collect() };
        }),
        Event::Apply(object) => sender.send_modify(|selected| {
            selected.objects.insert(object.uid().to_owned(), object.value);
        }),
        Event::Delete(object) => sender.send_modify(|selected| {
            selected.objects.remove(object.uid());
        }),
    }
}

/// Passes all events of a selection to `sink` until it breaks. Every object has a name, a uid and a version.
pub(crate) async fn observe<B>(
    client: &ClusterClient,
    selection: &Selection,
    mut sink: impl FnMut(Event<Object>) -> ControlFlow<B>,
) -> B {
    let pace = Arc::new(Pace::new(system_random()));
    let requests = requests::client(client, &pace);
    let mut renewals = client.renewals();
    let mut streams = true;
    loop {
        let mut events = pin!(watcher(selection.api(requests.clone()), configuration(selection, streams)));
        let mut is_initial = true;
        // The stream of a watcher has no end.
        while let Some(next) = events.next().await {
            let step = match next {
                Ok(event) if is_sound(&event) => {
                    renewals.mark_unchanged();
                    match event {
                        Event::Init | Event::InitApply(_) => {}
                        Event::InitDone => {
                            is_initial = false;
                            pace.progress();
                        }
                        // However short a watch is, this one delivers something.
                        Event::Apply(_) | Event::Delete(_) => pace.progress(),
                    }
                    match sink(event) {
                        ControlFlow::Continue(()) => continue,
                        ControlFlow::Break(value) => return value,
                    }
                }
                Ok(_) => Step::Restart(UNSOUND.to_owned()),
                Err(_) if pace.take_endless_list() => Step::PlainLists,
                Err(error) => step(&error, is_initial && streams),
            };
            if let Step::PlainLists = step {
                tracing::debug!(?selection, "server has no streaming lists");
                streams = false;
                pace.forget_watch();
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(report(selection, &pace, &step)) => {}
                // Other credentials may do what those before could not.
                Ok(()) = renewals.changed() => pace.progress(),
            }
            if !matches!(step, Step::Resume(_)) {
                break;
            }
        }
    }
}

/// Logs a failure, and returns how long to wait after it.
fn report(selection: &Selection, pace: &Pace, step: &Step) -> Duration {
    let (is_news, wait) = pace.failed();
    let (path, fields) = (selection.collection, &selection.fields);
    match step {
        Step::Restart(error) | Step::Resume(error) if is_news => {
            tracing::warn!(path, fields, error, "cannot watch, will retry");
        }
        Step::Restart(error) | Step::Resume(error) => {
            tracing::debug!(path, fields, error, ?wait, "cannot watch, will retry");
        }
        Step::Expired | Step::PlainLists => tracing::debug!(path, fields, "watch is too old, listing"),
    }
    wait
}

fn configuration(selection: &Selection, streams: bool) -> watcher::Config {
    let all = watcher::Config::default().timeout(requests::LONGEST_WATCH);
    let plain = if selection.fields.is_empty() { all } else { all.fields(&selection.fields) };
    if streams { plain.streaming_lists() } else { plain }
}

/// Error of an answer that is no object: a process between the node and the server may answer in the server's place.
const UNSOUND: &str = "the API server answered with an object without name, uid or version";

fn is_sound(event: &Event<Object>) -> bool {
    match event {
        Event::Apply(object) | Event::Delete(object) | Event::InitApply(object) => object.is_sound(),
        Event::Init | Event::InitDone => true,
    }
}

/// The step after a failure.
enum Step {
    /// The watcher resumes at this version.
    Resume(String),
    /// Another watcher lists everything: an event may have been lost with this answer.
    Restart(String),
    /// The same for a version that is too old, which is no fault.
    Expired,
    /// The server does not know streaming lists.
    PlainLists,
}

fn step(error: &watcher::Error, is_streaming_list: bool) -> Step {
    let of = |error: &kube::Error| match failure(error) {
        Failure::Expired => Some(Step::Expired),
        Failure::Invalid if is_streaming_list => Some(Step::PlainLists),
        _ => None,
    };
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            of(error).unwrap_or_else(|| Step::Resume(text(error)))
        }
        // The connection broke: everything before was delivered.
        watcher::Error::WatchFailed(error @ kube::Error::ReadEvents(_)) => Step::Resume(text(error)),
        watcher::Error::WatchFailed(error) => of(error).unwrap_or_else(|| Step::Restart(text(error))),
        watcher::Error::WatchError(status) => {
            let error = kube::Error::Api(status.clone());
            of(&error).unwrap_or_else(|| Step::Restart(text(&error)))
        }
        watcher::Error::NoResourceVersion => Step::Restart(UNSOUND.to_owned()),
    }
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
