//! Connections that deliver next to nothing: replaced, and only where that is better. The time is virtual.

use std::time::Duration;

use oci::Descriptor;
use registry::testing::{Fault, Line, TestRegistry};
use registry::{Client, Options, RetryPolicy, StallPolicy};

use crate::support::{fetch, noise, quick, session};

const SIZE: usize = 300_000;

/// A client that loses its patience with a connection soon, and gives none up for a long time.
fn client(minimum: u64, idle_timeout: Duration) -> Client {
    let stall = StallPolicy { quiet: Duration::from_millis(300), window: Duration::from_millis(600), minimum };
    Client::new(Options { retry: RetryPolicy { idle_timeout, ..quick() }, stall, ..Options::default() })
}

async fn with_blob() -> (TestRegistry, Descriptor) {
    let registry = TestRegistry::open().await;
    let descriptor = registry.push_blob("app", noise(SIZE));
    (registry, descriptor)
}

async fn fetched(client: &Client, registry: &TestRegistry, blob: &Descriptor) -> Vec<String> {
    let session = session(client, registry, "app", None);
    let bytes =
        tokio::time::timeout(Duration::from_secs(15), fetch(&session, blob)).await.expect("in time").expect("comes");
    assert!(bytes == noise(SIZE), "the bytes are others");
    registry.requests().iter().map(|r| r.range().unwrap_or("-").to_owned()).collect()
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn stalled_connection_is_replaced_before_failing() {
    let (registry, blob) = with_blob().await;
    registry.faults().once("/blobs/", Fault::HangAfter { after: 100_000 });
    let asked = fetched(&client(0, LONG), &registry, &blob).await;
    assert_eq!(asked, ["-", "bytes=100000-"]);
    registry.faults().release();
}

#[tokio::test(start_paused = true)]
async fn dripping_connection_is_replaced() {
    let (registry, blob) = with_blob().await;
    // It would take five minutes, and something comes all the time.
    registry.faults().once("/blobs/", Fault::Drip { piece: 100, pause: Duration::from_millis(100) });
    let asked = fetched(&client(100_000, LONG), &registry, &blob).await;
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[1].starts_with("bytes=") && asked[1].ends_with('-'), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn slow_connection_is_left_alone() {
    let (registry, blob) = with_blob().await;
    registry.set_line(Line { rate: Some(100_000), ..Line::default() });
    // Every connection is as slow: the first one delivers it all, though others were tried.
    let asked = fetched(&client(1_000_000, LONG), &registry, &blob).await;
    assert!((2..=4).contains(&asked.len()), "ever more seldom: {asked:?}");
    let at_least_sent = SIZE as u64;
    assert!(registry.bytes_sent() < at_least_sent * 2, "{} bytes", registry.bytes_sent());
}

#[tokio::test(start_paused = true)]
async fn no_replacement_without_range_support() {
    let (registry, blob) = with_blob().await;
    registry.faults().once("/blobs/", Fault::NoAcceptRanges);
    registry.set_line(Line { rate: Some(100_000), ..Line::default() });
    let asked = fetched(&client(1_000_000, LONG), &registry, &blob).await;
    assert_eq!(asked, ["-"]);
}

#[tokio::test(start_paused = true)]
async fn second_connection_continues_when_the_first_breaks() {
    let (registry, blob) = with_blob().await;
    registry.faults().once("/blobs/", Fault::HangAfter { after: 100_000 });
    registry.faults().once("/blobs/", Fault::HangAfter { after: 0 });
    registry.faults().once("/blobs/", Fault::Truncate { after: 50_000 });
    // The first stands still, so does the second; the first is given up and then the second.
    let asked = fetched(&client(0, Duration::from_millis(800)), &registry, &blob).await;
    assert_eq!(asked[..2], ["-", "bytes=100000-"]);
    assert!(asked[2..].iter().all(|range| range.starts_with("bytes=1")), "nothing comes twice: {asked:?}");
    registry.faults().release();
}

#[tokio::test(start_paused = true)]
async fn slow_reader_is_not_a_stall() {
    let (registry, blob) = with_blob().await;
    let client = client(1_000_000, LONG);
    let mut stream = session(&client, &registry, "app", None).blob(&blob).await.expect("opens");
    let mut got = 0;
    while let Some(bytes) = stream.next().await.expect("comes") {
        got += bytes.len();
        // Longer than the patience with a connection, in all.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!((got, registry.requests().len()), (SIZE, 1));
}
