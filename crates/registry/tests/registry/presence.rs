//! Presence of a blob at a registry: which answers count as a yes.

use oci::{Descriptor, Digest};
use registry::testing::{Fault, TestRegistry};

use crate::support::{client_of, host, noise, quick, reference, repository};

fn methods(registry: &TestRegistry) -> Vec<String> {
    registry.requests_for("/blobs/").into_iter().map(|r| r.method).collect()
}

#[tokio::test]
async fn one_probe_is_enough() {
    let registry = TestRegistry::open().await;
    let blob = registry.push_blob("app", noise(100_000));
    assert!(repository(&registry, "app").has_blob(&blob).await);
    assert_eq!(methods(&registry), ["HEAD"]);
    registry.clear_requests();
    assert!(!repository(&registry, "other").has_blob(&blob).await, "another repository");
    let shorter = Descriptor { size: blob.size - 1, ..blob.clone() };
    assert!(!repository(&registry, "app").has_blob(&shorter).await, "of another length");
    let unknown = Descriptor { digest: Digest::sha256(b"unknown"), ..blob };
    assert!(!repository(&registry, "app").has_blob(&unknown).await);
    assert_eq!(methods(&registry), ["HEAD"; 3]);
    assert_eq!(registry.bytes_sent(), 0);
}

#[tokio::test]
async fn failed_probe_is_not_a_success() {
    let registry = TestRegistry::open().await;
    let blob = registry.push_blob("app", noise(1000));
    for fault in [Fault::status(401), Fault::status(403), Fault::status(500), Fault::rate_limited("1"), Fault::Drop] {
        // A connection that ends without an answer is asked once more.
        let times = if fault == Fault::Drop { 2 } else { 1 };
        registry.faults().times("/blobs/", times, fault.clone());
        assert!(!repository(&registry, "app").has_blob(&blob).await, "{fault:?}");
    }
    assert_eq!(registry.faults().left(), 0);
    let gone = host("http://127.0.0.1:1", true);
    let repository = client_of(vec![gone], quick()).repository(&reference("r.example/app"), None).expect("a session");
    assert!(!repository.has_blob(&blob).await, "nobody is there");
}

/// A registry that knows no HEAD, or redirects to a storage that knows none: a byte is asked for.
#[tokio::test]
async fn host_without_head_support_gets_a_range_request() {
    let registry = TestRegistry::open().await;
    let blob = registry.push_blob("app", noise(100_000));
    for code in [405, 501] {
        registry.clear_requests();
        registry.faults().once("/blobs/", Fault::status(code));
        assert!(repository(&registry, "app").has_blob(&blob).await);
        assert_eq!(methods(&registry), ["HEAD", "GET"]);
        assert_eq!(registry.requests()[1].range(), Some("bytes=0-0"));
    }
    assert_eq!(registry.bytes_sent(), 2, "a byte each");
    registry.faults().once("/blobs/", Fault::status(405));
    registry.faults().once("/blobs/", Fault::status(404));
    assert!(!repository(&registry, "app").has_blob(&blob).await, "nor for a byte");

    let storage = TestRegistry::open().await;
    storage.push_blob("app", noise(100_000));
    registry.faults().always("/blobs/", Fault::RedirectTo { base: storage.url() });
    assert!(repository(&registry, "app").has_blob(&blob).await);
    assert_eq!(methods(&storage), ["HEAD"]);
    storage.clear_requests();
    storage.faults().once("/blobs/", Fault::status(403));
    assert!(repository(&registry, "app").has_blob(&blob).await, "a signature for GET alone");
    assert_eq!(methods(&storage), ["HEAD", "GET"]);
    storage.faults().always("/blobs/", Fault::status(403));
    assert!(!repository(&registry, "app").has_blob(&blob).await);
}

#[tokio::test]
async fn mirrors_are_asked_first() {
    let (mirror, registry) = (TestRegistry::open().await, TestRegistry::open().await);
    let blob = registry.push_blob("app", noise(1000));
    let hosts = vec![host(&mirror.url(), false), host(&registry.url(), true)];
    let session = client_of(hosts, quick()).repository(&reference("r.example/app"), None).expect("a session");
    assert!(session.has_blob(&blob).await);
    assert_eq!((methods(&mirror).len(), methods(&registry).len()), (1, 1));
    mirror.push_blob("app", noise(1000));
    assert!(session.has_blob(&blob).await);
    assert_eq!((methods(&mirror).len(), methods(&registry).len()), (2, 1));
}
