//! Checks through the image service: what is damaged is absent, comes back with one layer, and an unclean stop is seen.

use base::lock::Mutex;
use std::sync::Arc;

use cri_api::Kind;
use cri_api::engine::{CheckReport, CheckRequest, CheckSink, ImageEngine as _, ProblemKind};
use image_service::Engine;

use crate::support::{Node, blob, image, layer, noise, options};

async fn check(engine: &Engine, request: CheckRequest) -> CheckReport {
    engine.check_images(&request, &CheckSink::default()).await.expect("ends")
}

const REPAIR: CheckRequest = CheckRequest { repair: true, deep: false, since_unclean_only: false };
const DEEP: CheckRequest = CheckRequest { repair: false, deep: true, since_unclean_only: false };

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_image_is_absent_and_the_next_pull_brings_its_layer() {
    let node = Node::start().await;
    let base = layer("a/x", 1, 20_000).build();
    let first = image().layer(base.clone()).layer(layer("b/y", 2, 20_000)).build();
    let second = image().layer(base).layer(layer("c/z", 3, 20_000)).build();
    node.registry.push("one", "v1", &first);
    node.registry.push("two", "v1", &second);
    let id = node.pull("one:v1").await.expect("pulls");
    node.pull("two:v1").await.expect("pulls");
    assert_eq!(check(&node.engine, DEEP).await.problems, []);
    node.damage(&id, 1, "b/y");

    let found = check(&node.engine, CheckRequest::default()).await;
    assert_eq!((found.layers_checked, found.images_checked, found.is_sound()), (3, 2, false), "{found:?}");
    assert!(node.status("one:v1").await.is_some(), "a look alone changes nothing");
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let told = Arc::clone(&told);
        CheckSink::new(move |now| told.lock().push(now))
    };
    let repaired = node.engine.check_images(&REPAIR, &sink).await.expect("ends");
    let [problem] = repaired.problems.as_slice() else { panic!("{repaired:?}") };
    assert_eq!((problem.kind, problem.repaired), (ProblemKind::DamagedLayer, true));
    assert_eq!((&problem.images, &repaired.incomplete_images), (&vec![id.clone()], &vec![id.clone()]));
    assert!(repaired.is_sound());
    let told = told.lock().clone();
    assert!(told.iter().any(|now| (now.layers, now.bytes) == (3, repaired.bytes_checked)), "{told:?}");

    assert!(node.status("one:v1").await.is_none() && node.status("two:v1").await.is_some());
    node.registry.clear_requests();
    node.pull("one:v1").await.expect("heals");
    assert!(node.registry.requests_for(&blob(&first, 0).to_string()).is_empty(), "what is whole was kept");
    assert_eq!(node.file(&id, "b/y"), Some(noise(2, 20_000)));
    let after = check(&node.engine, DEEP).await;
    assert_eq!((after.problems, after.incomplete_images), (vec![], vec![]));
    node.check_clean().await;
}

/// Ends the engine and opens it again: as after a clean stop, or as after a kill, which leaves the lock's words.
async fn reopen(node: &mut Node, unclean: bool) {
    let lock = node.directory.path().join("store/lock");
    let words = std::fs::read(&lock).expect("readable");
    node.engine.shutdown().await;
    // The old handle goes when something else takes its place.
    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    node.engine = Engine::open(options(elsewhere.path())).await.expect("opens");
    if unclean {
        std::fs::write(&lock, words).expect("writes");
    }
    node.engine = Engine::open(options(node.directory.path())).await.expect("opens");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_unclean_stop_what_was_written_last_is_checked_by_itself() {
    let mut node = Node::start().await;
    let (old, new) = (image().layer(layer("a/x", 1, 9000)).build(), image().layer(layer("b/y", 2, 9000)).build());
    node.registry.push("old", "v1", &old);
    node.registry.push("new", "v1", &new);
    let old_id = node.pull("old:v1").await.expect("pulls");
    reopen(&mut node, false).await;
    let recent = CheckRequest { since_unclean_only: true, ..REPAIR };
    let clean = check(&node.engine, recent).await;
    assert_eq!(CheckReport { layer_shapes: None, unfinished_pulls: None, ..clean }, CheckReport::default());
    let new_id = node.pull("new:v1").await.expect("pulls");
    node.damage(&old_id, 0, "a/x");
    node.damage(&new_id, 0, "b/y");
    reopen(&mut node, true).await;
    node.engine.settled().await;
    assert!(node.status("new:v1").await.is_none(), "nobody had to ask for it");
    let report = check(&node.engine, recent).await;
    assert_eq!((report.layers_checked, report.incomplete_images), (1, vec![new_id]), "{:?}", report.problems);
    assert!(node.status("old:v1").await.is_some(), "it was there before, and is not looked at");
    reopen(&mut node, false).await;
    assert!(!node.engine.store().was_unclean());
    assert_eq!(check(&node.engine, REPAIR).await.incomplete_images.len(), 2, "an ordinary check sees all");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_ends_with_who_waits_for_it() {
    let node = Node::start().await;
    let one = image().layer(layer("a/x", 1, 9 << 20)).build();
    node.registry.push("one", "v1", &one);
    node.pull("one:v1").await.expect("pulls");
    let begun = Arc::new(tokio::sync::Notify::new());
    let sink = {
        let begun = Arc::clone(&begun);
        CheckSink::new(move |_| begun.notify_one())
    };
    tokio::select! {
        biased;
        ended = node.engine.check_images(&DEEP, &sink) => panic!("it ended before it was given up: {ended:?}"),
        () = begun.notified() => {}
    }
    node.check_clean().await;
    node.engine.shutdown().await;
    let refused = node.engine.check_images(&REPAIR, &CheckSink::default()).await.expect_err("shut down");
    assert_eq!(refused.kind(), Kind::Unavailable);
}
