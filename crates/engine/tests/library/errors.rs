//! Each kind of error by a pull or an opening that fails with it.

use imagelet_engine::{Engine, Error, ErrorKind, Platform, PullRequest, Reference};
use registry::testing::{Fault, ImageBuilder};

use crate::support::{Node, app};

#[tokio::test]
async fn failed_pulls_have_kinds() {
    let node = Node::start().await;
    let image = node.push("app:v1", &app());
    let other = Platform::new("plan9", "mips", "");
    node.push("other:v1", &ImageBuilder::new().platform(other).build());
    let cases = [
        ("none:v1", None, ErrorKind::NotFound),
        ("other:v1", None, ErrorKind::NoPlatform),
        ("app:v1", Some(("/manifests/", Fault::status(403))), ErrorKind::PermissionDenied),
        ("app:v1", Some(("/manifests/", Fault::rate_limited("3600"))), ErrorKind::RateLimited),
        ("app:v1", Some(("/blobs/", Fault::Corrupt)), ErrorKind::InvalidContent),
    ];
    for (name, fault, kind) in cases {
        if let Some((path, fault)) = fault {
            node.registry.faults().always(path, fault);
        }
        let error = node.engine.pull(node.reference(name)).await.expect_err(name);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(node.reference(name).path()), "{error}");
        assert_eq!(error.retry_after().is_some(), kind == ErrorKind::RateLimited, "{error}");
        node.registry.faults().clear();
    }
    assert!(node.engine.list_images().await.expect("lists").is_empty());
    node.engine.shutdown().await;
    let error = node.engine.pull(PullRequest::new(image)).await.expect_err("shut down");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_policy_refuses_an_image() {
    let node = Node::start().await;
    let image = node.push("app:v1", &app());
    let policy = node.directory.path().join("policy.json");
    std::fs::write(&policy, r#"{"default":[{"type":"reject"}]}"#).expect("writes");
    let root = node.directory.path().join("strict");
    let engine = Engine::builder(&root).signature_policy(&policy).open().await.expect("opens");
    let error = engine.pull(image).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::PolicyRejected, "{error}");
}

#[tokio::test]
async fn a_store_has_one_owner() {
    let node = Node::start().await;
    let root = node.directory.path().join("store");
    let error = Engine::open(&root).await.expect_err("held");
    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    let foreign = node.directory.path();
    let error = Engine::open(foreign).await.expect_err("a directory with other files");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let node_engine = node.engine.clone();
    node_engine.shutdown().await;
    drop((node_engine, node.engine));
    Engine::open(&root).await.expect("the owner ended");
}

#[test]
fn texts_that_are_no_references_are_errors() {
    let error: Error = "Not a name".parse::<Reference>().expect_err("not a reference").into();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().starts_with("parse an image reference: "), "{error}");
}
