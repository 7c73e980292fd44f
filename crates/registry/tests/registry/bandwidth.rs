//! The limit of bandwidth, on real connections; the time is not real, so that nothing is waited for.

use std::time::Duration;

use oci::Descriptor;
use registry::testing::{ImageBuilder, TestRegistry};
use registry::{Bandwidth, Client, Options, RangePolicy};
use tokio::time::Instant;

use crate::support::{fetch, noise, quick, session};

const RATE: u64 = 1 << 20;
const SIZE: usize = 2 << 20;

fn client(ranges: RangePolicy) -> Client {
    Client::new(Options { bandwidth: Bandwidth::new(RATE), retry: quick(), ranges, ..Options::default() })
}

async fn with_blobs(count: usize) -> (TestRegistry, Vec<Descriptor>) {
    let registry = TestRegistry::open().await;
    let blobs = (0..count).map(|n| registry.push_blob("app", noise(SIZE + n))).collect();
    (registry, blobs)
}

#[tokio::test(start_paused = true)]
async fn limit_is_shared_by_all_pulls() {
    let (registry, blobs) = with_blobs(4).await;
    let client = client(RangePolicy { per_blob: 1, ..RangePolicy::default() });
    let start = Instant::now();
    // One pull of one layer, and one of three.
    let one = session(&client, &registry, "app", None);
    let three = session(&client, &registry, "app", None);
    let first = async {
        fetch(&one, &blobs[0]).await.expect("comes");
        start.elapsed().as_secs_f64()
    };
    let rest = async {
        let all = futures::future::join_all(blobs[1..].iter().map(|blob| fetch(&three, blob)));
        assert!(all.await.into_iter().all(|got| got.is_ok_and(|bytes| bytes.len() >= SIZE)));
        start.elapsed().as_secs_f64()
    };
    let (first, rest) = futures::future::join(first, rest).await;
    // Half of it for each as long as both want it: 2 MiB at half a MiB a second.
    assert!((3.0..4.6).contains(&first), "{first} s");
    assert!((7.0..8.6).contains(&rest), "{rest} s");
}

#[tokio::test(start_paused = true)]
async fn bandwidth_limit_is_not_a_slow_connection() {
    let (registry, blobs) = with_blobs(1).await;
    // A line that is looked at soon.
    let client = client(RangePolicy { min_left: 1 << 18, window: Duration::from_millis(40), ..RangePolicy::default() });
    let start = Instant::now();
    fetch(&session(&client, &registry, "app", None), &blobs[0]).await.expect("comes");
    assert!(start.elapsed() >= Duration::from_millis(1500), "{:?}", start.elapsed());
    assert_eq!(registry.requests().len(), 1, "neither further connections nor another one in its place");
}

#[tokio::test(start_paused = true)]
async fn documents_count() {
    let registry = TestRegistry::open().await;
    registry.push("app", "1", &ImageBuilder::tiny("a"));
    let client = Client::new(Options { bandwidth: Bandwidth::new(100), retry: quick(), ..Options::default() });
    let session = session(&client, &registry, "app:1", None);
    let start = Instant::now();
    let length = session.resolve().await.expect("resolves").bytes.len() as u64;
    // The second one waits until the first is paid for, and for as long as it takes itself.
    session.resolve().await.expect("resolves");
    session.resolve().await.expect("resolves");
    assert!(start.elapsed() >= Duration::from_secs(length * 2 / 100 - 1), "{:?} for {length} bytes", start.elapsed());
}
