//! [`FakeServer`]: an API server in memory, with what clients depend on: versions that grow, watches with bookmarks and streaming
//! lists, 410 for what is too old, uids and versions as preconditions, graceful deletion, strategic merges of `status`, server-side
//! apply by a single manager, custom resources of any group. For faults and speed; what a real server does is shown by the product's tests. Used by tests alone.

mod answers;
mod merge;
mod store;

use std::collections::VecDeque;
use std::sync::Arc;

use base::lock::Mutex;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::BoxError;

use crate::client::ClusterClient;
use store::Store;

type Body = UnsyncBoxBody<Bytes, BoxError>;

/// An API server in memory. Clones are the same server.
#[derive(Clone)]
pub struct FakeServer(Arc<State>);

struct State {
    /// Guards the objects.
    store: Mutex<Store>,
    /// Counts changes.
    changed: watch::Sender<u64>,
    /// Guards the requests that were received, as `PATCH /api/v1/…`.
    requests: Mutex<Vec<String>>,
    /// Guards statuses, with messages, that the next requests whose line contains all words of the text are answered with.
    faults: Mutex<VecDeque<(String, u16, String)>>,
    /// Guards the answer of every request, while the server is away.
    away: watch::Sender<bool>,
    /// True while watches send nothing.
    quiet: watch::Sender<bool>,
    /// Counts orders to close all watches.
    closes: watch::Sender<u64>,
    streams: bool,
    /// Fields that this server does not know and drops, as JSON pointers.
    unknown: Mutex<Vec<String>>,
    /// Fields that this server does not know, and for which it refuses patches.
    refused: Mutex<Vec<String>>,
    /// True while streaming lists have no end.
    endless_lists: Mutex<bool>,
    /// Path of an object that is deleted while the next streaming list is sent.
    delete_in_list: Mutex<Option<String>>,
    /// For how many seconds watches were asked for.
    watch_seconds: Mutex<Vec<u64>>,
    /// Groups and versions that are served in addition to the core.
    groups: Mutex<Vec<String>>,
}

impl FakeServer {
    /// Creates a server, with or without support for streaming lists.
    #[must_use]
    pub fn new(streams: bool) -> Self {
        Self(Arc::new(State {
            store: Mutex::default(),
            changed: watch::Sender::new(0),
            requests: Mutex::default(),
            faults: Mutex::default(),
            away: watch::Sender::new(false),
            quiet: watch::Sender::new(false),
            closes: watch::Sender::new(0),
            streams,
            unknown: Mutex::default(),
            refused: Mutex::default(),
            endless_lists: Mutex::default(),
            delete_in_list: Mutex::default(),
            watch_seconds: Mutex::default(),
            groups: Mutex::default(),
        }))
    }

    /// Creates a client of the server.
    #[must_use]
    pub fn client(&self) -> ClusterClient {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = server.clone();
            async move { Ok::<_, BoxError>(server.answer(request).await) }
        });
        ClusterClient::fixed(kube::Client::new(service, "default"))
    }

    /// Puts an object at a path, such as `/api/v1/namespaces/shop/pods/web`, as another client would.
    pub fn put(&self, path: &str, object: Value) -> Value {
        let object = self.0.store.lock().put(path, object);
        self.0.changed.send_modify(|count| *count += 1);
        object
    }

    /// Removes an object at once.
    pub fn remove(&self, path: &str) {
        self.0.store.lock().remove(path);
        self.0.changed.send_modify(|count| *count += 1);
    }

    /// Sends streaming lists without the bookmark at their end, like a server that ignores the parameter.
    pub fn set_endless_lists(&self, endless: bool) {
        *self.0.endless_lists.lock() = endless;
    }

    /// Deletes an object while the next streaming list is sent: behind the object, and before the end of the list.
    pub fn delete_in_list(&self, path: &str) {
        *self.0.delete_in_list.lock() = Some(path.to_owned());
    }

    /// Returns the object at a path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Value> {
        self.0.store.lock().get(path).cloned()
    }

    /// Requests since the last time, without watches' and lists' queries.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.0.requests.lock())
    }

    /// Returns the number of requests so far whose line contains all words of `text`: `PATCH /status`.
    #[must_use]
    pub fn count(&self, text: &str) -> usize {
        self.0.requests.lock().iter().filter(|line| has_words(line, text)).count()
    }

    /// Returns the paths of all objects with this prefix.
    #[must_use]
    pub fn paths(&self, prefix: &str) -> Vec<String> {
        self.0.store.lock().paths(prefix)
    }

    /// Returns the timeouts of all watches so far, in seconds.
    #[must_use]
    pub fn watch_seconds(&self) -> Vec<u64> {
        self.0.watch_seconds.lock().clone()
    }

    /// Returns the last request for a token.
    #[must_use]
    pub fn last_token_request(&self) -> Value {
        self.0.store.lock().last_token_request.clone()
    }

    /// Serves a group, such as `events.k8s.io/v1`.
    pub fn serve_group(&self, group: &str) {
        self.0.groups.lock().push(group.to_owned());
    }

    /// Refuses patches that name this field, like a server that is older than the field.
    pub fn refuse_field(&self, field: &str) {
        self.0.refused.lock().push(field.to_owned());
    }

    /// Answers the next request whose line contains all words of `text` with this status.
    pub fn fail(&self, text: &str, status: u16) {
        self.refuse(text, status, "a fault of the test");
    }

    /// Answers the next request whose line contains all words of `text` with this status and message.
    pub fn refuse(&self, text: &str, status: u16, message: &str) {
        self.0.faults.lock().push_back((text.to_owned(), status, message.to_owned()));
    }

    /// Drops this field, a JSON pointer, from writes, like an older server.
    pub fn forget_field(&self, pointer: &str) {
        self.0.unknown.lock().push(pointer.to_owned());
    }

    /// Sets whether watches are quiet and send nothing.
    pub fn set_quiet(&self, quiet: bool) {
        self.0.quiet.send_replace(quiet);
        if !quiet {
            self.0.changed.send_modify(|count| *count += 1);
        }
    }

    /// Makes the server stop answering, or answer again.
    pub fn set_away(&self, away: bool) {
        self.0.away.send_replace(away);
        if away {
            self.close_watches();
        }
    }

    /// Ends all watches.
    pub fn close_watches(&self) {
        self.0.closes.send_modify(|count| *count += 1);
    }

    /// Forgets old versions, as a compaction of etcd does: watches from before are too old.
    pub fn compact(&self) {
        self.0.store.lock().compact();
    }

    /// Returns a receiver that is notified of every change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let line = format!("{} {}", parts.method, parts.uri.path());
        let query: Vec<(String, String)> = answers::query(parts.uri.query().unwrap_or_default());
        let is = |key: &str, value: &str| query.iter().any(|(name, text)| name == key && text == value);
        let shown = if is("watch", "true") { format!("WATCH {}", parts.uri.path()) } else { line };
        self.0.requests.lock().push(shown.clone());
        if *self.0.away.borrow() {
            return answers::failure(503, "ServiceUnavailable", "the server is away");
        }
        let fault = {
            let mut faults = self.0.faults.lock();
            let index = faults.iter().position(|(text, ..)| has_words(&shown, text));
            index.and_then(|index| faults.remove(index))
        };
        if let Some((_, status, message)) = fault {
            return answers::failure(status, "Injected", &message);
        }
        if is("watch", "true") {
            let seconds: Option<u64> = answers::value(&query, "timeoutSeconds").and_then(|text| text.parse().ok());
            self.0.watch_seconds.lock().extend(seconds);
            return answers::watch(&self.0, parts.uri.path(), &query);
        }
        if let Some(group) = group(parts.uri.path()) {
            return match self.0.groups.lock().iter().any(|served| served == group) {
                true => answers::json(StatusCode::OK, &answers::no_resources(group)),
                false => answers::failure(404, "NotFound", "no such group"),
            };
        }
        let mut body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let kind = parts.headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let applies = kind.is_some_and(|kind| kind.starts_with("application/apply-patch"));
        let names = |field: &String| bytes.windows(field.len()).any(|part| part == field.as_bytes());
        if let Some(field) = self.0.refused.lock().iter().find(|field| parts.method == Method::PATCH && names(field)) {
            let message = format!("unable to find api field in struct NodeStatus for the json field {field:?}");
            return answers::failure(500, "InternalError", &message);
        }
        for pointer in self.0.unknown.lock().iter() {
            let (parent, field) = pointer.rsplit_once('/').unwrap_or(("", pointer));
            if let Some(parent) = body.pointer_mut(parent).and_then(Value::as_object_mut) {
                parent.remove(field);
            }
        }
        let result = {
            let mut store = self.0.store.lock();
            match parts.method {
                Method::GET => store.read(parts.uri.path(), &query),
                Method::PATCH if applies => store.apply(parts.uri.path(), &body),
                Method::PATCH => store.patch(parts.uri.path(), &body),
                Method::POST => store.create(parts.uri.path(), body),
                Method::PUT => store.replace(parts.uri.path(), body),
                Method::DELETE => store.delete(parts.uri.path(), &body),
                _ => Err((405, "MethodNotAllowed", json!({}))),
            }
        };
        self.0.changed.send_modify(|count| *count += 1);
        match result {
            Ok(value) => answers::json(StatusCode::OK, &value),
            Err((code, reason, details)) => answers::failure(code, reason, &details.to_string()),
        }
    }
}

fn has_words(line: &str, text: &str) -> bool {
    text.split(' ').all(|word| line.contains(word))
}

/// Returns the group and version whose kinds this path requests.
fn group(path: &str) -> Option<&str> {
    path.strip_prefix("/apis/").filter(|group| group.split('/').count() == 2)
}
