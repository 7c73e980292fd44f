//! An API server for tests of this crate: objects by path in memory, resource versions, conflicts, UID preconditions, merge patches,
//! and faults on demand. Watches stay silent. No part of the product.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{Full, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::service_fn;

use crate::client::ClusterClient;

/// A failure that the server has for one request.
struct Fault {
    method: Method,
    path: String,
    code: u16,
    reason: String,
}

#[derive(Default)]
struct State {
    /// Objects by path, such as `/api/v1/nodes/a`.
    objects: BTreeMap<String, Value>,
    version: u64,
    faults: Vec<Fault>,
    /// Method and path of every request.
    requests: Vec<String>,
    /// Groups and versions that are served beside the core.
    groups: Vec<String>,
    /// Fields of patches that the server does not know.
    unknown: Vec<String>,
}

/// The server.
#[derive(Clone, Default)]
pub(crate) struct FakeApi {
    /// Guards everything.
    state: Arc<Mutex<State>>,
}

type Answer = (u16, Value);

impl FakeApi {
    pub(crate) fn client(&self) -> ClusterClient {
        let state = Arc::clone(&self.state);
        let service = service_fn(move |request: Request<Body>| {
            let state = Arc::clone(&state);
            async move { Ok::<_, Infallible>(serve(&state, request).await) }
        });
        ClusterClient::fixed(kube::Client::new(service, "default"))
    }

    /// The next request of this kind fails; a path ends with what it must contain.
    pub(crate) fn fail(&self, method: Method, path: &str, code: u16, reason: &str) {
        let fault = Fault { method, path: path.to_owned(), code, reason: reason.to_owned() };
        self.state.lock().faults.push(fault);
    }

    /// Serves a group, such as `events.k8s.io/v1`.
    pub(crate) fn serve_group(&self, group: &str) {
        self.state.lock().groups.push(group.to_owned());
    }

    /// Refuses patches that name this field, as a server that is older than the field.
    pub(crate) fn refuse_field(&self, field: &str) {
        self.state.lock().unknown.push(field.to_owned());
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.state.lock().objects.get(path).cloned()
    }

    /// Puts an object there, as somebody else would.
    pub(crate) fn put(&self, path: &str, object: Value) {
        let mut state = self.state.lock();
        let stamped = state.stamp(object);
        state.objects.insert(path.to_owned(), stamped);
    }

    /// The paths of all objects that begin so.
    pub(crate) fn paths(&self, prefix: &str) -> Vec<String> {
        self.state.lock().objects.keys().filter(|path| path.starts_with(prefix)).cloned().collect()
    }

    /// Requests so far of this method and with this in their path.
    pub(crate) fn count(&self, method: &Method, path: &str) -> usize {
        let begin = format!("{method} ");
        self.state.lock().requests.iter().filter(|asked| asked.starts_with(&begin) && asked.contains(path)).count()
    }
}

impl State {
    fn stamp(&mut self, mut object: Value) -> Value {
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.version.to_string());
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("uid-{}", self.version));
        }
        object
    }

    fn answer(&mut self, method: &Method, path: &str, query: &str, body: &Value) -> Answer {
        self.requests.push(format!("{method} {path}"));
        let fault = self.faults.iter().position(|fault| fault.method == *method && path.contains(&fault.path));
        if let Some(fault) = fault.map(|at| self.faults.remove(at)) {
            return refuse(fault.code, &fault.reason, &fault.reason);
        }
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let head = if segments.first() == Some(&"api") { 2 } else { 3 };
        let mut rest = segments.get(head..).unwrap_or_default();
        if rest.is_empty() {
            let group = segments[1..].join("/");
            let known = self.groups.contains(&group);
            let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": []});
            return if known { (200, list) } else { refuse(404, "NotFound", "no such group") };
        }
        if rest[0] == "namespaces" && rest.len() > 2 {
            rest = &rest[2..];
        }
        let key = match rest.len() {
            3.. => format!("/{}", segments[..segments.len() - 1].join("/")),
            _ => path.to_owned(),
        };
        match (method.as_str(), rest.len()) {
            ("GET", 1) => {
                let name = query.split("metadata.name%3D").nth(1).and_then(|rest| rest.split('&').next());
                let fits = |at: &str| at.starts_with(path) && name.is_none_or(|name| at.ends_with(&format!("/{name}")));
                let items: Vec<&Value> =
                    self.objects.iter().filter(|(at, _)| fits(at)).map(|(_, object)| object).collect();
                (200, json!({"metadata": {"resourceVersion": self.version.to_string()}, "items": items}))
            }
            ("POST", 1) => {
                self.create(&format!("{path}/{}", body["metadata"]["name"].as_str().unwrap_or_default()), body)
            }
            ("GET", _) => match self.objects.get(&key) {
                Some(object) => (200, object.clone()),
                None => refuse(404, "NotFound", "not found"),
            },
            ("PUT", _) => self.replace(&key, body),
            ("PATCH", _) => self.patch(&key, body),
            ("DELETE", _) => match self.objects.remove(&key) {
                Some(object) => (200, object),
                None => refuse(404, "NotFound", "not found"),
            },
            _ => refuse(405, "MethodNotAllowed", "no such method"),
        }
    }

    fn create(&mut self, key: &str, body: &Value) -> Answer {
        if self.objects.contains_key(key) {
            return refuse(409, "AlreadyExists", "it exists");
        }
        let object = self.stamp(body.clone());
        self.objects.insert(key.to_owned(), object.clone());
        (201, object)
    }

    fn replace(&mut self, key: &str, body: &Value) -> Answer {
        let Some(there) = self.objects.get(key) else {
            return refuse(404, "NotFound", "not found");
        };
        let asked = &body["metadata"]["resourceVersion"];
        if !asked.is_null() && *asked != there["metadata"]["resourceVersion"] {
            return refuse(409, "Conflict", "the object has been modified");
        }
        let object = self.stamp(body.clone());
        self.objects.insert(key.to_owned(), object.clone());
        (200, object)
    }

    fn patch(&mut self, key: &str, body: &Value) -> Answer {
        let Some(there) = self.objects.get(key) else {
            return refuse(404, "NotFound", "not found");
        };
        let asked = &body["metadata"]["uid"];
        if !asked.is_null() && *asked != there["metadata"]["uid"] {
            return refuse(409, "Conflict", "the UID in the precondition is another one");
        }
        if let Some(field) = self.unknown.iter().find(|field| body.to_string().contains(&format!("\"{field}\""))) {
            let message = format!("unable to find api field in struct NodeStatus for the json field {field:?}");
            return refuse(500, "InternalError", &message);
        }
        let mut object = there.clone();
        merge(&mut object, body);
        let object = self.stamp(object);
        self.objects.insert(key.to_owned(), object.clone());
        (200, object)
    }
}

/// Merges objects; conditions by their type, other lists as a whole.
fn merge(there: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *there = patch.clone();
        return;
    };
    if !there.is_object() {
        *there = json!({});
    }
    for (key, value) in fields {
        match (key.as_str(), value) {
            (key, _) if key.starts_with('$') => {}
            (key, Value::Null) => {
                if let Some(map) = there.as_object_mut() {
                    map.remove(key);
                }
            }
            ("conditions", Value::Array(items)) => {
                let mut list = there["conditions"].as_array().cloned().unwrap_or_default();
                for item in items {
                    match list.iter_mut().find(|known| known["type"] == item["type"]) {
                        Some(known) => merge(known, item),
                        None => list.push(item.clone()),
                    }
                }
                there["conditions"] = Value::Array(list);
            }
            (key, Value::Array(items)) => {
                there[key] = items.iter().filter(|item| item["$patch"].is_null()).cloned().collect();
            }
            (key, value) => merge(&mut there[key], value),
        }
    }
}

fn refuse(code: u16, reason: &str, message: &str) -> Answer {
    (code, json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}))
}

async fn serve(state: &Mutex<State>, request: Request<Body>) -> Response<BoxBody<Bytes, Infallible>> {
    let (parts, body) = request.into_parts();
    let bytes = body.collect_bytes().await.expect("a body of ours");
    let query = parts.uri.query().unwrap_or_default();
    if query.contains("watch=true") {
        let silent = futures::stream::pending::<Result<http_body::Frame<Bytes>, Infallible>>();
        return Response::new(BoxBody::new(StreamBody::new(silent)));
    }
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let (code, answer) = state.lock().answer(&parts.method, parts.uri.path(), query, &body);
    let body = BoxBody::new(Full::new(Bytes::from(answer.to_string())));
    Response::builder().status(code).body(body).expect("a response")
}
