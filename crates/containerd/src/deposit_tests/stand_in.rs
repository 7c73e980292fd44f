//! A stand-in for containerd on a socket: introspection, leases, and snapshots in a directory, as the snapshotter overlayfs answers
//! them. Records the calls that change snapshots.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::lock::Mutex;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;
use tonic::Status;

use crate::{CRI_NAMESPACE, Client, pb};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// A property of a containerd's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Before 2.2: Commit ignores the parent.
    Old,
    /// From 2.2 on: the snapshotter has the capability `rebase`, and Commit takes the parent.
    Rebases,
    /// A faulty one, which has the capability and loses the parent.
    LosesParents,
}

#[derive(Clone, Debug, Default)]
struct Snapshot {
    parent: String,
    is_committed: bool,
    number: usize,
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct State {
    snapshots: BTreeMap<String, Snapshot>,
    calls: Vec<String>,
    /// Number of Prepare calls that still fail.
    failures: usize,
    next: usize,
}

/// The stand-in. Lives as long as the runtime that it was started on.
pub(super) struct Containerd {
    version: Version,
    directory: PathBuf,
    state: Mutex<State>,
}

type Answer = Result<Vec<u8>, Status>;

impl Containerd {
    #[expect(clippy::disallowed_methods, reason = "the tasks end with the runtime of the test")]
    pub(super) fn start(directory: &Path, version: Version) -> Arc<Self> {
        let listener = UnixListener::bind(directory.join("c.sock")).expect("listen on a socket");
        let started = Arc::new(Self { version, directory: directory.to_owned(), state: Mutex::default() });
        let shared = Arc::clone(&started);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                let service = hyper::service::service_fn(move |request| answer(Arc::clone(&shared), request));
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(http.serve_connection(TokioIo::new(client), service));
            }
        });
        started
    }

    pub(super) fn client(&self) -> Client {
        Client::new(&self.directory.join("c.sock"), CRI_NAMESPACE).expect("a client")
    }

    /// Takes the calls so far, in order.
    pub(super) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().calls)
    }

    /// Makes the next calls of Prepare fail.
    pub(super) fn fail(&self, count: usize) {
        self.state.lock().failures = count;
    }

    /// Commits a snapshot as another client would.
    pub(super) fn commit(&self, name: &str, parent: &str) {
        let mut state = self.state.lock();
        let (number, parent) = (state.next, parent.to_owned());
        state.next += 1;
        let committed = Snapshot { parent, is_committed: true, number, ..Snapshot::default() };
        state.snapshots.insert(name.to_owned(), committed);
    }

    /// Returns the parent of a committed snapshot.
    pub(super) fn parent(&self, name: &str) -> Option<String> {
        let state = self.state.lock();
        state.snapshots.get(name).filter(|found| found.is_committed).map(|found| found.parent.clone())
    }

    /// Returns the keys of snapshots that are not committed.
    pub(super) fn active(&self) -> Vec<String> {
        let state = self.state.lock();
        state.snapshots.iter().filter(|(_, found)| !found.is_committed).map(|(key, _)| key.clone()).collect()
    }

    fn tree(&self, number: usize) -> String {
        self.directory.join("snapshots").join(number.to_string()).join("fs").display().to_string()
    }

    fn mounts(&self, state: &State, snapshot: &Snapshot) -> Vec<pb::types::Mount> {
        let tree = self.tree(snapshot.number);
        let mount = |kind: &str, source: String, options| pb::types::Mount {
            r#type: kind.to_owned(),
            source,
            options,
            ..Default::default()
        };
        match state.snapshots.get(&snapshot.parent) {
            None => vec![mount("bind", tree, vec!["rw".to_owned(), "rbind".to_owned()])],
            Some(parent) => {
                let options = vec![format!("upperdir={tree}"), format!("lowerdir={}", self.tree(parent.number))];
                vec![mount("overlay", "overlay".to_owned(), options)]
            }
        }
    }

    fn prepare(&self, request: &pb::snapshots::PrepareSnapshotRequest) -> Result<Vec<pb::types::Mount>, Status> {
        let pb::snapshots::PrepareSnapshotRequest { key, parent, labels, .. } = request;
        let mut state = self.state.lock();
        let target = labels.get("containerd.io/snapshot.ref").cloned().unwrap_or_default();
        state.calls.push(format!("prepare {target} on {parent:?}"));
        if state.failures > 0 {
            state.failures -= 1;
            return Err(Status::internal("no"));
        }
        if state.snapshots.contains_key(key) || state.snapshots.get(&target).is_some_and(|found| found.is_committed) {
            return Err(Status::already_exists(format!("{key}: there already")));
        }
        if !parent.is_empty() && !state.snapshots.get(parent).is_some_and(|found| found.is_committed) {
            return Err(Status::not_found(format!("parent snapshot {parent} does not exist")));
        }
        let number = state.next;
        state.next += 1;
        std::fs::create_dir_all(self.tree(number)).expect("create a directory");
        let snapshot = Snapshot { parent: parent.clone(), number, labels: labels.clone(), ..Snapshot::default() };
        let mounts = self.mounts(&state, &snapshot);
        state.snapshots.insert(key.clone(), snapshot);
        Ok(mounts)
    }

    fn commit_key(&self, request: pb::snapshots::CommitSnapshotRequest) -> Result<(), Status> {
        let pb::snapshots::CommitSnapshotRequest { name, key, labels, parent, .. } = request;
        let mut state = self.state.lock();
        state.calls.push(format!("commit {name} on {parent:?}"));
        if state.snapshots.contains_key(&name) {
            return Err(Status::already_exists(name));
        }
        if self.version == Version::Rebases && !parent.is_empty() && !state.snapshots.contains_key(&parent) {
            return Err(Status::not_found(format!("parent snapshot {parent} does not exist")));
        }
        let mut snapshot = state.snapshots.remove(&key).ok_or_else(|| Status::not_found(key))?;
        if self.version == Version::Rebases && snapshot.parent.is_empty() {
            snapshot.parent = parent;
        }
        (snapshot.is_committed, snapshot.labels) = (true, labels);
        state.snapshots.insert(name, snapshot);
        Ok(())
    }

    fn plugins(&self) -> pb::introspection::PluginsResponse {
        let capabilities = match self.version {
            Version::Old => Vec::new(),
            Version::Rebases | Version::LosesParents => vec!["rebase".to_owned()],
        };
        let overlayfs = pb::introspection::Plugin {
            r#type: "io.containerd.snapshotter.v1".to_owned(),
            id: "overlayfs".to_owned(),
            exports: [("root".to_owned(), self.directory.display().to_string())].into(),
            capabilities,
            init_err: None,
        };
        pb::introspection::PluginsResponse { plugins: vec![overlayfs] }
    }

    fn call(&self, method: &str, message: &[u8]) -> Answer {
        match method {
            "Plugins" => encoded(&self.plugins()),
            "Prepare" => {
                let mounts = self.prepare(&decoded(message))?;
                encoded(&pb::snapshots::PrepareSnapshotResponse { mounts })
            }
            "Mounts" => {
                let request: pb::snapshots::MountsRequest = decoded(message);
                let state = self.state.lock();
                let found = state.snapshots.get(&request.key).ok_or_else(|| Status::not_found(request.key))?;
                encoded(&pb::snapshots::MountsResponse { mounts: self.mounts(&state, found) })
            }
            "Commit" => self.commit_key(decoded(message)).map(|()| Vec::new()),
            "Remove" => {
                let request: pb::snapshots::RemoveSnapshotRequest = decoded(message);
                let mut state = self.state.lock();
                state.calls.push(format!("remove {}", request.key));
                let removed = state.snapshots.remove(&request.key);
                removed.map(|_| Vec::new()).ok_or_else(|| Status::not_found(request.key))
            }
            "Stat" => {
                let request: pb::snapshots::StatSnapshotRequest = decoded(message);
                let state = self.state.lock();
                let found = state.snapshots.get(&request.key).ok_or_else(|| Status::not_found(request.key.clone()))?;
                encoded(&pb::snapshots::StatSnapshotResponse { info: Some(info(&request.key, found)) })
            }
            "List" => {
                let state = self.state.lock();
                let committed = state.snapshots.iter().filter(|(_, found)| found.is_committed);
                let info = committed.map(|(name, found)| info(name, found)).collect();
                encoded(&pb::snapshots::ListSnapshotsResponse { info })
            }
            "Create" | "AddResource" | "Delete" => Ok(Vec::new()),
            method => Err(Status::unimplemented(method)),
        }
    }
}

fn info(name: &str, found: &Snapshot) -> pb::snapshots::Info {
    let kind = if found.is_committed { pb::snapshots::Kind::Committed } else { pb::snapshots::Kind::Active };
    let (parent, labels) = (found.parent.clone(), found.labels.clone());
    pb::snapshots::Info { name: name.to_owned(), parent, kind: kind.into(), labels }
}

fn decoded<T: Message + Default>(message: &[u8]) -> T {
    T::decode(message).expect("a message")
}

fn encoded(message: &impl Message) -> Answer {
    Ok(message.encode_to_vec())
}

type Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;

/// Answers one call: with a message and the status in the trailers, or with the status of an error in the headers.
async fn answer(containerd: Arc<Containerd>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let message = request.into_body().collect().await.expect("a request").to_bytes();
    let answered = containerd.call(&method, &message[5..]);
    let response = Response::builder().header("content-type", "application/grpc");
    let built = match answered {
        Ok(message) => {
            let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
            let body = Full::<Bytes>::from([&[0][..], &length, &message].concat());
            let trailers = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
            response.body(body.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed())
        }
        Err(status) => {
            let response = response.header(GRPC_STATUS, i32::from(status.code()));
            response.header("grpc-message", status.message()).body(Full::default().boxed())
        }
    };
    Ok(built.expect("a response"))
}
