//! The library against a registry on loopback, as a program uses it: the example of the documentation, pulls, credentials, errors,
//! cancellation and the files of an image.

#[path = "../../examples/pull_and_read.rs"]
#[expect(dead_code, unreachable_pub, reason = "a program, of which the function is tested")]
mod example;

mod credentials;
mod errors;
mod images;
mod outside;
mod rootfs;
mod support;

use std::sync::Arc;

use base::lock::Mutex;
use imagelet_engine::{PullEvent, PullRequest};
use registry::testing::Fault;

use crate::support::{Node, app};

#[tokio::test]
async fn the_example_pulls_an_image_and_reads_a_file() {
    let node = Node::start().await;
    let image = node.push("app:v1", &app());
    let root = node.directory.path().join("example");
    let root = root.to_str().expect("a path in UTF-8");
    let content = example::pull_and_read(root, &image.to_string(), "etc/os-release").await.expect("works");
    assert_eq!(content, b"ID=app\n");
    let again = example::pull_and_read(root, &image.to_string(), "/etc/os-release").await;
    assert_eq!(again.expect("the store was released"), content);
}

#[tokio::test]
async fn pulls_report_what_was_resolved_and_fetched() {
    let node = Node::start().await;
    let built = app();
    let image = node.push("app:v1", &built);
    let pulled = node.engine.pull(image.clone()).await.expect("pulls");
    assert_eq!((&pulled.image_id, &pulled.digest, &pulled.reference), (built.id(), built.digest(), &image));
    let compressed: u64 = built.layers.iter().map(|layer| layer.blob.len() as u64).sum();
    assert_eq!(pulled.fetched_bytes, compressed);
    let size = node.engine.list_images().await.expect("lists")[0].size;
    assert_eq!(pulled.size, size);

    let again = node.engine.pull(image.clone()).await.expect("pulls again");
    assert_eq!((again.fetched_bytes, &again.digest), (0, built.digest()));
    let by_digest = format!("{}@{}", image.repository(), built.digest()).parse().expect("a reference");
    let by_digest = node.engine.pull(PullRequest::new(by_digest)).await.expect("pulls by digest");
    assert_eq!((&by_digest.image_id, &by_digest.digest), (built.id(), built.digest()));
}

#[tokio::test]
async fn progress_is_reported_to_the_callback() {
    let node = Node::start().await;
    let image = node.push("app:v1", &app());
    let events = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&events);
    let request = PullRequest::new(image).on_progress(move |event| into.lock().push(event.clone()));
    node.engine.pull(request).await.expect("pulls");
    let events = events.lock();
    assert_eq!(events.first(), Some(&PullEvent::Resolving));
    assert_eq!(events.last(), Some(&PullEvent::Committing));
    assert!(events.iter().any(|event| matches!(event, PullEvent::Bytes { .. })), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_future_cancels_the_pull() {
    let node = Node::start().await;
    let built = app();
    let image = node.push("app:v1", &built);
    let layer = &built.layers[1].descriptor.digest;
    node.registry.faults().once(&format!("/blobs/{layer}"), Fault::HangAfter { after: 100_000 });
    tokio::select! {
        result = node.engine.pull(image.clone()) => panic!("the registry hangs: {result:?}"),
        () = node.registry.until_transfers(1) => {}
    }
    node.registry.until_transfers(0).await;
    assert!(node.engine.list_images().await.expect("lists").is_empty());
    node.registry.faults().release();
    node.engine.pull(image).await.expect("the next pull succeeds");
}
