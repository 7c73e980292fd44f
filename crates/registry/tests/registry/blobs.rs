//! Streams of blobs: resumed, counted, given up.

use std::time::Duration;

use oci::Descriptor;
use registry::ErrorKind;
use registry::testing::{Fault, TestRegistry};

use crate::support::{client_with, drain, fetch, noise, quick, repository, session};

const SIZE: usize = 300_000;

async fn with_blob() -> (TestRegistry, Descriptor) {
    let registry = TestRegistry::open().await;
    let descriptor = registry.push_blob("app", noise(SIZE));
    (registry, descriptor)
}

fn ranges(registry: &TestRegistry) -> Vec<String> {
    registry.requests().iter().map(|r| r.range().unwrap_or("-").to_owned()).collect()
}

#[tokio::test]
async fn whole_and_in_order() {
    let (registry, blob) = with_blob().await;
    let session = repository(&registry, "app");
    let stream = session.blob(&blob).await.expect("opens");
    assert_eq!((stream.size(), stream.host()), (SIZE as u64, registry.host().as_str()));
    assert_eq!(drain(stream).await.expect("comes"), noise(SIZE));
    assert_eq!(ranges(&registry), ["-"]);
    assert_eq!(registry.requests()[0].header("accept-encoding"), Some("identity"));
    assert_eq!(registry.bytes_sent(), SIZE as u64);
}

#[tokio::test]
async fn stream_stays_ended() {
    let (registry, blob) = with_blob().await;
    let mut stream = repository(&registry, "app").blob(&blob).await.expect("opens");
    while stream.next().await.expect("comes").is_some() {}
    assert_eq!(stream.next().await.expect("ended"), None);
    assert_eq!(registry.requests().len(), 1);
}

#[tokio::test]
async fn an_empty_blob() {
    let registry = TestRegistry::open().await;
    let blob = registry.push_blob("app", "");
    assert_eq!(fetch(&repository(&registry, "app"), &blob).await.expect("comes"), b"");
}

#[tokio::test]
async fn from_some_byte_on() {
    for (fault, asked) in [
        (None, vec!["bytes=100000-"]),
        (Some(Fault::IgnoreRange), vec!["bytes=100000-"]),
        (Some(Fault::RefuseRange), vec!["bytes=100000-", "-"]),
        (Some(Fault::Truncate { after: 50_000 }), vec!["bytes=100000-", "bytes=150000-"]),
    ] {
        let (registry, blob) = with_blob().await;
        if let Some(fault) = fault.clone() {
            registry.faults().once("/blobs/", fault);
        }
        let mut stream = repository(&registry, "app").blob_from(&blob, 100_000).await.expect("opens");
        let mut came = Vec::new();
        while let Some(piece) = stream.next().await.expect("comes") {
            came.extend_from_slice(&piece);
        }
        assert!(came == noise(SIZE)[100_000..], "{fault:?}");
        assert_eq!(ranges(&registry), asked, "{fault:?}");
    }
}

#[tokio::test]
async fn without_length() {
    let (registry, blob) = with_blob().await;
    registry.faults().once("/blobs/", Fault::Chunked);
    assert_eq!(fetch(&repository(&registry, "app"), &blob).await.expect("comes"), noise(SIZE));
}

#[tokio::test]
async fn broken_transfers_resume_at_their_offset() {
    let breaks = [Fault::Truncate { after: 100_000 }, Fault::Reset { after: 100_000 }];
    for fault in breaks {
        let (registry, blob) = with_blob().await;
        registry.faults().times("/blobs/", 2, fault.clone());
        assert_eq!(fetch(&repository(&registry, "app"), &blob).await.expect("comes"), noise(SIZE), "{fault:?}");
        let asked = ranges(&registry);
        assert_eq!(asked.len(), 3, "{fault:?}: {asked:?}");
        if matches!(fault, Fault::Truncate { .. }) {
            assert_eq!(asked, ["-", "bytes=100000-", "bytes=200000-"]);
            assert_eq!(registry.bytes_sent(), SIZE as u64, "nothing is sent twice");
        }
    }
}

#[tokio::test]
async fn a_server_that_ignores_the_range() {
    let (registry, blob) = with_blob().await;
    registry.faults().once("/blobs/", Fault::Truncate { after: 100_000 });
    registry.faults().once("/blobs/", Fault::IgnoreRange);
    assert_eq!(fetch(&repository(&registry, "app"), &blob).await.expect("comes"), noise(SIZE));
    assert_eq!(ranges(&registry), ["-", "bytes=100000-"]);
    assert_eq!(registry.bytes_sent(), 100_000 + SIZE as u64);
}

#[tokio::test]
async fn wrong_answers_to_a_range() {
    for fault in [Fault::WrongContentRange, Fault::RefuseRange] {
        let (registry, blob) = with_blob().await;
        registry.faults().once("/blobs/", Fault::Truncate { after: 100_000 });
        registry.faults().once("/blobs/", fault.clone());
        assert_eq!(fetch(&repository(&registry, "app"), &blob).await.expect("comes"), noise(SIZE), "{fault:?}");
        assert_eq!(ranges(&registry), ["-", "bytes=100000-", "-"], "{fault:?}: the whole is asked for instead");
    }
}

#[tokio::test]
async fn progress_renews_the_budget() {
    let (registry, blob) = with_blob().await;
    let mut retry = quick();
    retry.attempts = 2;
    // Three breaks in a row are more than two attempts, but each attempt delivered enough.
    registry.faults().times("/blobs/", 3, Fault::Truncate { after: 80_000 });
    let client = client_with(retry);
    assert_eq!(fetch(&session(&client, &registry, "app", None), &blob).await.expect("comes"), noise(SIZE));
    assert_eq!(registry.requests().len(), 4);
}

#[tokio::test]
async fn stalled_retries_end() {
    let (registry, blob) = with_blob().await;
    registry.faults().always("/blobs/", Fault::Truncate { after: 10 });
    let error = fetch(&repository(&registry, "app"), &blob).await.expect_err("ends");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().ends_with("(after 4 attempts)"), "{error}");
    assert_eq!(ranges(&registry), ["-", "bytes=10-", "bytes=20-", "bytes=30-"]);
}

#[tokio::test]
async fn statuses_are_retried_mid_transfer() {
    let (registry, blob) = with_blob().await;
    registry.faults().once("/blobs/", Fault::Truncate { after: 70_000 });
    registry.faults().once("/blobs/", Fault::status(503));
    registry.faults().once("/blobs/", Fault::rate_limited("0"));
    assert_eq!(fetch(&repository(&registry, "app"), &blob).await.expect("comes"), noise(SIZE));
    assert_eq!(ranges(&registry), ["-", "bytes=70000-", "bytes=70000-", "bytes=70000-"]);
}

#[tokio::test]
async fn more_than_the_descriptor_gives() {
    let (registry, blob) = with_blob().await;
    registry.faults().once("/blobs/", Fault::TooLong);
    let error = repository(&registry, "app").blob(&blob).await.expect_err("the length tells at once");
    assert_eq!(error.kind(), ErrorKind::InvalidContent);
    assert!(
        error
            .to_string()
            .contains("the response has 300001 bytes of application/octet-stream, the descriptor 300000 bytes"),
        "{error}"
    );
    assert_eq!(registry.requests().len(), 1);

    registry.faults().once("/blobs/", Fault::TooLongChunked);
    let error = fetch(&repository(&registry, "app"), &blob).await.expect_err("the last byte tells");
    assert_eq!(error.kind(), ErrorKind::InvalidContent);
    assert!(error.to_string().contains("more than the 300000 bytes of the descriptor"), "{error}");

    registry.faults().once("/blobs/", Fault::TooShort);
    let error = repository(&registry, "app").blob(&blob).await.expect_err("the length tells");
    assert_eq!(error.kind(), ErrorKind::InvalidContent);

    registry.faults().once("/blobs/", Fault::Html);
    let error = repository(&registry, "app").blob(&blob).await.expect_err("a login page");
    assert!(error.to_string().contains("bytes of text/html; charset=utf-8, the descriptor"), "{error}");
}

#[tokio::test]
async fn errors_after_the_last_byte_are_ignored() {
    let (registry, blob) = with_blob().await;
    registry.faults().once("/blobs/", Fault::Unended);
    assert_eq!(fetch(&repository(&registry, "app"), &blob).await.expect("comes"), noise(SIZE));
    assert_eq!(registry.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn stalled_transfer_is_resumed() {
    let (registry, blob) = with_blob().await;
    let mut retry = quick();
    retry.idle_timeout = Duration::from_millis(500);
    registry.faults().once("/blobs/", Fault::HangAfter { after: 100_000 });
    let client = client_with(retry);
    assert_eq!(fetch(&session(&client, &registry, "app", None), &blob).await.expect("comes"), noise(SIZE));
    assert_eq!(ranges(&registry), ["-", "bytes=100000-"]);
    registry.faults().release();
}

#[tokio::test(start_paused = true)]
async fn a_slow_transfer_is_left_alone() {
    let (registry, blob) = with_blob().await;
    let mut retry = quick();
    retry.idle_timeout = Duration::from_secs(5);
    registry.faults().once("/blobs/", Fault::Drip { piece: 60_000, pause: Duration::from_millis(30) });
    let client = client_with(retry);
    assert_eq!(fetch(&session(&client, &registry, "app", None), &blob).await.expect("comes"), noise(SIZE));
    assert_eq!(registry.requests().len(), 1);
}

#[tokio::test]
async fn corrupted_bytes_fail_at_the_hash() {
    let (registry, blob) = with_blob().await;
    registry.faults().always("/blobs/", Fault::Corrupt);
    let session = repository(&registry, "app");
    let bytes = fetch(&session, &blob).await.expect("the stream does not hash");
    assert_ne!(bytes, noise(SIZE));
    let error = session.blob_bytes(&blob, 1 << 20).await.expect_err("whole blobs are verified");
    assert_eq!(error.kind(), ErrorKind::InvalidContent);
    assert!(error.to_string().contains("digest mismatch: expected sha256:"), "{error}");
}

#[tokio::test]
async fn many_at_once() {
    let registry = TestRegistry::open().await;
    let session = repository(&registry, "app");
    let blobs: Vec<_> = (1..=12_usize)
        .map(|n| {
            let bytes = noise(n * 50_000 + n);
            (registry.push_blob("app", bytes.clone()), bytes)
        })
        .collect();
    registry.faults().times("/blobs/", 6, Fault::Truncate { after: 40_000 });
    let all = blobs.iter().map(|(descriptor, _)| fetch(&session, descriptor));
    for (got, (_, want)) in futures::future::join_all(all).await.into_iter().zip(&blobs) {
        assert_eq!(got.expect("comes"), *want);
    }
}
