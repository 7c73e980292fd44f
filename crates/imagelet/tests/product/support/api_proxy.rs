//! A proxy between a node and its API server which fails on demand, as servers and load balancers do: it refuses, answers nonsense,
//! and cuts watches. Notes every request. Speaks plain HTTP with the node and has the node's identity towards the server.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::Version;
use axum::response::Response;
use base::lock::Mutex;
use cluster::ClusterClient;
use futures::StreamExt as _;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::control_plane::ControlPlane;
use super::node::NODE;

/// Behaviour of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Everything is passed on.
    Fine,
    /// Every request is refused with this status and, maybe, seconds to wait.
    Refuses(u16, Option<u32>),
    /// Every request is answered with this text, as if it were good.
    Says(&'static str),
    /// Every watch ends so soon after it began.
    Cuts(Duration),
}

/// The proxy. Ends with the test.
pub(crate) struct ApiProxy {
    url: String,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

struct Shared {
    mood: watch::Sender<Mood>,
    /// Guards the requests so far: `WATCH /api/v1/pods?…`.
    asked: Mutex<Vec<String>>,
    server: ClusterClient,
}

impl ApiProxy {
    /// Starts one before this control plane.
    #[track_caller]
    pub(crate) fn start(plane: &ControlPlane) -> Self {
        let runtime = super::runtime();
        let server = runtime.block_on(ClusterClient::open(&plane.node(NODE))).expect("a client");
        let shared = Shared { mood: watch::Sender::new(Mood::Fine), asked: Mutex::default(), server };
        let shared = Arc::new(shared);
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("listen on loopback");
        let url = format!("http://{}", listener.local_addr().expect("it listens"));
        let router = Router::new().fallback(pass).with_state(Arc::clone(&shared));
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { url, shared, runtime: Some(runtime) }
    }

    /// `http://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Behaves like this from now on; every watch ends. Returns the number of requests so far.
    pub(crate) fn be(&self, mood: Mood) -> usize {
        let asked = self.shared.asked.lock();
        self.shared.mood.send_replace(mood);
        asked.len()
    }

    /// The requests behind the first `count`.
    pub(crate) fn asked_after(&self, count: usize) -> Vec<String> {
        self.shared.asked.lock()[count..].to_vec()
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let method = if is_watch { "WATCH" } else { request.method().as_str() };
    let line = format!("{method} {}", request.uri());
    let mut changes = shared.mood.subscribe();
    let mood = {
        let mut asked = shared.asked.lock();
        asked.push(line);
        *changes.borrow_and_update()
    };
    let refused = |status: u16, text: &'static str| {
        let answer = Response::builder().status(status).header("content-type", "application/json");
        (answer, Body::from(text))
    };
    match mood {
        Mood::Refuses(status, after) => {
            let (answer, body) = refused(status, "refused by a proxy\n");
            let answer = match after {
                Some(seconds) => answer.header("retry-after", seconds),
                None => answer,
            };
            return answer.body(body).expect("an answer");
        }
        Mood::Says(text) => {
            let (answer, body) = refused(200, text);
            return answer.body(body).expect("an answer");
        }
        Mood::Fine | Mood::Cuts(_) => {}
    }
    let (mut parts, body) = request.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    parts.headers.remove("host");
    parts.version = Version::HTTP_11;
    let passed = axum::http::Request::from_parts(parts, bytes.to_vec().into());
    let Ok(answer) = shared.server.current().send(passed).await else {
        let (answer, body) = refused(502, "no answer from the server\n");
        return answer.body(body).expect("an answer");
    };
    let (mut parts, body) = answer.into_parts();
    parts.version = Version::HTTP_11;
    let body = Body::new(body);
    if !is_watch {
        return Response::from_parts(parts, body);
    }
    let end = async move {
        let cut = async {
            match mood {
                Mood::Cuts(after) => tokio::time::sleep(after).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! { () = cut => {}, _ = changes.changed() => {} }
    };
    Response::from_parts(parts, Body::from_stream(body.into_data_stream().take_until(Box::pin(end))))
}
