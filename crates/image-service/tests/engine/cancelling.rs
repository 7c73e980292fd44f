//! Pulls that are given up: by their caller, by shutdown. Nothing is left, and nothing goes on.

use cri_api::{ImageService as _, Kind, PullEvent, PullImageRequest};
use registry::testing::{BuiltImage, Fault};

use crate::support::{Node, blob, image, layer};

/// An image whose second layer stops half way.
fn hanging(node: &Node) -> BuiltImage {
    let image = image().layer(layer("a/x", 1, 4_000_000)).layer(layer("b/y", 2, 4_000_000)).build();
    node.registry.push("app", "v1", &image);
    node.registry.faults().once(&format!("/blobs/{}", blob(&image, 1)), Fault::HangAfter { after: 3_000_000 });
    image
}

fn is_coming(image: &BuiltImage) -> impl Fn(&PullEvent) -> bool {
    let digest = blob(image, 1);
    move |event| matches!(event, PullEvent::Bytes { digest: d, .. } if *d == digest)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_pull_leaves_nothing() {
    let node = Node::start().await;
    let image = hanging(&node);
    let (pull, watch) = node.start_pull("app:v1");
    watch.until(is_coming(&image)).await;
    while node.entries("ingest").is_empty() {
        // Unpacking begins when more has come than the buffers hold.
        tokio::task::yield_now().await;
    }
    pull.abort();
    assert!(pull.await.expect_err("aborted").is_cancelled());
    node.check_clean().await;
    assert!(node.entries("layers").is_empty());
    assert!(node.status("app:v1").await.is_none());
    node.registry.until_transfers(0).await;
    let (sent, asked) = (node.registry.bytes_sent(), node.registry.requests().len());
    node.registry.faults().release();
    node.engine.settled().await;
    assert_eq!(node.registry.bytes_sent(), sent, "nobody listens any more");
    assert_eq!(node.registry.requests().len(), asked, "nobody asks any more");
    node.pull("app:v1").await.expect("pulls afresh");
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_is_dropped_before_it_was_polled_does_nothing() {
    let node = Node::start().await;
    node.registry.push("app", "v1", &image().layer(layer("a/x", 1, 100)).build());
    drop(node.engine.pull_image(PullImageRequest::new(node.name("app:v1"))));
    node.check_clean().await;
    assert!(node.registry.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_layer_ends_the_others_at_once() {
    let node = Node::start().await;
    let image = hanging(&node);
    node.registry.faults().always(&format!("/blobs/{}", blob(&image, 0)), Fault::Corrupt);
    let (pull, _watch) = node.start_pull("app:v1");
    let error = pull.await.expect("no panic").expect_err("a damaged layer");
    assert_eq!(error.kind(), Kind::DataLoss, "{error}");
    assert_eq!(node.entries("ingest"), Vec::<String>::new(), "cleaned up when the error is told");
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_ends_everything_and_the_store_can_be_opened_again() {
    let node = Node::start().await;
    let image = hanging(&node);
    let (pull, watch) = node.start_pull("app:v1");
    watch.until(is_coming(&image)).await;
    node.engine.shutdown().await;
    let error = pull.await.expect("no panic").expect_err("given up");
    assert_eq!(error.kind(), Kind::Cancelled, "{error}");
    assert_eq!(node.entries("ingest"), Vec::<String>::new());
    assert_eq!(node.pull("app:v1").await.expect_err("closed").kind(), Kind::Unavailable);
    assert!(node.engine.list_images(None).await.expect("still answers").is_empty());
    let Node { engine, registry, directory } = node;
    drop(engine);
    registry.faults().clear();
    let engine =
        image_service::Engine::open(crate::support::options(directory.path())).await.expect("the lock is free");
    engine.pull_image(PullImageRequest::new(format!("{}/app:v1", registry.host()))).await.expect("pulls");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_cannot_even_resolve_can_be_given_up() {
    let node = Node::start().await;
    node.registry.push("app", "v1", &image().build());
    node.registry.faults().always("/manifests/", Fault::Hang);
    let (pull, _watch) = node.start_pull("app:v1");
    while node.registry.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    pull.abort();
    assert!(pull.await.expect_err("aborted").is_cancelled());
    node.check_clean().await;
}
