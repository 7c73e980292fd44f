//! The store of another process, over its admin socket, does what a store of this process does: the conformance suite.

use std::path::Path;
use std::time::Duration;

use cri_api::Reason;
use engine_api::testing::{Bench, run_all};
use image_service::{Engine, EngineOptions};
use registry::testing::{ImageBuilder, LayerBuilder, TestRegistry};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::admin::engine_client::AgentEngine;
use crate::admin::{Admin, AdminAddress, AdminServer};

async fn open(root: &Path) -> Engine {
    let platform = "linux/amd64".parse().expect("a platform");
    let options = EngineOptions { root: root.to_owned(), platform, ..EngineOptions::default() };
    Engine::open(options).await.expect("it opens")
}

async fn answer_for(engine: &Engine, root: &Path, own: bool) -> (AdminServer, AgentEngine) {
    let engine = Arc::new(engine.clone());
    let admin = Admin { engine: own.then_some(Arc::clone(&engine) as _), ..Admin::new(|_| {}, engine as _) };
    let socket = root.join(format!("admin-{own}.sock"));
    let places = AdminAddress { socket: socket.clone(), required: true, metrics: None };
    let running = admin.start(&places, &CancellationToken::new()).await.expect("it starts");
    (running, AgentEngine::new(socket, root.to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_of_an_agent_conforms() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = open(&directory.path().join("store")).await;
    let registry = TestRegistry::open().await;
    let layer = |name: &str, size: usize| LayerBuilder::new().file(name, vec![b'x'; size]);
    let base = layer("base", 100_000).build();
    for name in ["one", "two"] {
        let image = ImageBuilder::new().platform("linux/amd64".parse().expect("a platform"));
        registry.push(name, "v1", &image.layer(base.clone()).layer(layer(name, 30_000)).build());
    }
    let (running, agent) = answer_for(&engine, directory.path(), true).await;
    let scratch = directory.path().join("scratch");
    std::fs::create_dir(&scratch).expect("makes");
    let names = ["one", "two"].map(|name| format!("{}/{name}:v1", registry.host()));
    run_all(&Bench { service: Arc::new(engine.clone()), engine: Arc::new(agent), names, scratch }).await;
    running.stop().await;
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_store_says_so_and_errors_keep_what_they_say() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = open(&directory.path().join("store")).await;
    let (running, agent) = answer_for(&engine, directory.path(), false).await;
    let error = agent.unfinished_pulls().await.expect_err("it has none");
    assert_eq!(error.kind(), Kind::Unimplemented);
    assert_eq!(error.message(), "the images of this process are not in a store of its own");
    running.stop().await;
    let error = agent.unfinished_pulls().await.expect_err("nobody is there");
    assert_eq!(error.kind(), Kind::Unavailable);
    engine.shutdown().await;
    for kind in Kind::ALL {
        let error = Error::new(kind, "x")
            .with_reason(Reason::DiskFull)
            .with_retry_after(Duration::from_millis(7))
            .with_needed_bytes(9);
        let text = serde_json::to_string(&WireError::from(&error)).expect("JSON");
        assert_eq!(Error::from(serde_json::from_str::<WireError>(&text).expect("an error")), error);
    }
}
