//! A blob over several connections: completion, gains, costs, and every failure.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oci::{Descriptor, RegistryAuth};
use registry::testing::{Auth, Fault, Line, Options, TestRegistry};
use registry::{Allowance, BlobStream, Client, ErrorKind, RangePolicy, Repository};
use tokio::time::Instant;

use crate::support::{drain, fetch, noise, quick, session};

/// Bytes a second of one connection, by a clock that goes on only while nothing else is to be done.
const RATE: u64 = 2 << 20;
const SIZE: usize = 3 << 20;

/// A policy that decides soon and in small pieces.
fn soon() -> RangePolicy {
    RangePolicy {
        per_blob: 4,
        per_host: 12,
        min_left: 256 << 10,
        chunk: (64 << 10, 256 << 10),
        window: Duration::from_millis(60),
        enough: u64::MAX,
    }
}

struct Setup {
    registry: TestRegistry,
    client: Client,
    memory: Arc<Allowance>,
    blob: Descriptor,
    bytes: Bytes,
}

impl Setup {
    async fn new() -> Self {
        Self::with(soon(), 64 << 20, Options::default()).await
    }

    async fn with(ranges: RangePolicy, memory: usize, options: Options) -> Self {
        Self::sized(SIZE, ranges, memory, options).await
    }

    async fn sized(size: usize, ranges: RangePolicy, memory: usize, options: Options) -> Self {
        let registry = TestRegistry::start(options).await;
        registry.set_line(Line { rate: Some(RATE), ..Line::default() });
        let bytes = noise(size);
        let blob = registry.push_blob("app", bytes.clone());
        let memory = Arc::new(Allowance::new(memory));
        let shared: Arc<Allowance> = Arc::clone(&memory);
        let client = Client::new(registry::Options { ranges, memory: shared, retry: quick(), ..Default::default() });
        Self { registry, client, memory, blob, bytes }
    }

    fn session(&self) -> Repository {
        session(&self.client, &self.registry, "app", None)
    }

    /// Fetches all of it, and checks that it is right and that nothing is held afterwards.
    async fn fetch(&self) -> Duration {
        let start = Instant::now();
        let got = fetch(&self.session(), &self.blob).await.expect("comes");
        let took = start.elapsed();
        assert!(got == self.bytes, "the bytes are others");
        self.quiet().await;
        took
    }

    /// All connections are closed or idle, and all memory is given back.
    async fn quiet(&self) {
        self.registry.until_transfers(0).await;
    }

    fn ranges(&self) -> Vec<String> {
        ranges(&self.registry)
    }
}

fn ranges(registry: &TestRegistry) -> Vec<String> {
    registry.requests_for("/blobs/").iter().map(|r| r.range().unwrap_or("-").to_owned()).collect()
}

/// The first pieces, until further connections deliver bytes.
async fn until_ranged(stream: &mut BlobStream) -> Vec<u8> {
    let mut out = Vec::new();
    while !format!("{stream:?}").contains("ranged: true") {
        out.extend_from_slice(&stream.next().await.expect("comes").expect("not all"));
    }
    out
}

#[tokio::test(start_paused = true)]
async fn slow_connection_is_split() {
    let setup = Setup::new().await;
    setup.registry.set_line(Line { rate: Some(RATE / 2), latency: Duration::from_millis(2), ..Line::default() });
    let took = setup.fetch().await;
    let alone = Duration::from_secs_f64(SIZE as f64 * 2.0 / RATE as f64);
    assert!(took < alone * 2 / 3, "{took:?}, one connection takes {alone:?}");
    assert_eq!(setup.registry.peak_transfers(), 4);
    let asked = setup.ranges();
    assert_eq!(asked[0], "-", "it begins as one plain request");
    assert!(asked[1..].iter().all(|range| !range.ends_with('-')), "closed ranges only: {asked:?}");
    // What was sent and not used is what the first connection had on its way when the others took over.
    let wasted = setup.registry.bytes_sent() - SIZE as u64;
    assert!(wasted < 128 << 10, "{wasted} bytes for nothing");
    assert_eq!(setup.memory.left(), 64 << 20);
    let connections = setup.registry.connections();
    assert!(connections <= 4 + 1, "four at once, and the first one is ended: {connections} for {asked:?}");
    // What was of use is remembered: the next blob has four connections as soon as it is slow.
    setup.registry.clear_requests();
    let again = setup.fetch().await;
    assert!(again < alone * 2 / 3, "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn fast_connection_is_not_split() {
    const SIZE: usize = 12 << 20;
    let policy = RangePolicy { enough: 250_000_000, ..soon() };
    let setup = Setup::sized(SIZE, policy, 64 << 20, Options::default()).await;
    setup.registry.set_line(Line::default());
    // A reader that takes its time, as one that inflates does.
    let mut stream = setup.session().blob(&setup.blob).await.expect("opens");
    let mut got = 0;
    while let Some(bytes) = stream.next().await.expect("comes") {
        got += bytes.len();
        tokio::time::sleep(Duration::from_secs_f64(bytes.len() as f64 / 50e6)).await;
    }
    assert_eq!((got, setup.ranges()), (SIZE, vec!["-".to_owned()]));
    assert_eq!(setup.registry.bytes_sent(), SIZE as u64);
}

#[tokio::test(start_paused = true)]
async fn off_is_off() {
    let setup = Setup::with(RangePolicy { per_blob: 1, ..soon() }, 64 << 20, Options::default()).await;
    setup.registry.set_line(Line { rate: Some(10 << 20), ..Line::default() });
    setup.fetch().await;
    assert_eq!(setup.ranges(), ["-"]);
}

#[tokio::test(start_paused = true)]
async fn connections_respect_memory_and_host_limits() {
    // Memory for one piece in addition to the head.
    let setup = Setup::with(soon(), 150 << 10, Options::default()).await;
    setup.fetch().await;
    assert!((2..=3).contains(&setup.registry.peak_transfers()), "{}", setup.registry.peak_transfers());
    assert_eq!(setup.memory.left(), 150 << 10);
    // None at all.
    let setup = Setup::with(soon(), 0, Options::default()).await;
    setup.registry.set_line(Line { rate: Some(4 * RATE), ..Line::default() });
    setup.fetch().await;
    assert_eq!(setup.ranges(), ["-"]);
    // Three blobs share what the host may have.
    let setup = Setup::with(RangePolicy { per_host: 2, ..soon() }, 64 << 20, Options::default()).await;
    let session = setup.session();
    let all = (0..3).map(|_| fetch(&session, &setup.blob));
    for got in futures::future::join_all(all).await {
        assert!(got.expect("comes") == setup.bytes);
    }
    assert!((4..=5).contains(&setup.registry.peak_transfers()), "{}", setup.registry.peak_transfers());
}

#[tokio::test(start_paused = true)]
async fn servers_without_range_support() {
    for fault in [Fault::IgnoreRange, Fault::WrongContentRange, Fault::RefuseRange, Fault::NoAcceptRanges] {
        let setup = Setup::new().await;
        setup.registry.set_line(Line { rate: Some(2 * RATE), ..Line::default() });
        setup.registry.faults().always("/blobs/", fault.clone());
        setup.fetch().await;
        let asked = setup.ranges();
        assert!(asked.len() <= 8, "{fault:?}: {asked:?}");
        assert_eq!(asked.iter().filter(|range| *range == "-").count(), 1, "{fault:?}: nothing comes twice: {asked:?}");
        // And it is not tried again.
        setup.registry.clear_requests();
        setup.fetch().await;
        assert_eq!(setup.ranges(), ["-"], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn servers_that_want_fewer_connections() {
    for refusal in [429, 503, 0] {
        let mut setup = Setup::new().await;
        setup.client = Client::new(registry::Options { ranges: soon(), retry: quick(), ..Default::default() });
        setup.registry.set_line(Line { rate: Some(2 * RATE), most: Some(2), refusal, ..Line::default() });
        setup.fetch().await;
        let refused =
            setup.registry.requests_for("/blobs/").iter().filter(|r| r.status != 200 && r.status != 206).count();
        assert!(refused <= 8, "{refusal}: {refused} refused");
        assert!(setup.registry.peak_transfers() <= 2);
        // Only one: it stays one.
        let mut setup = Setup::new().await;
        setup.client = Client::new(registry::Options { ranges: soon(), retry: quick(), ..Default::default() });
        setup.registry.set_line(Line { rate: Some(2 * RATE), most: Some(1), refusal, ..Line::default() });
        setup.fetch().await;
        assert_eq!(setup.ranges().iter().filter(|range| *range == "-").count(), 1, "{refusal}");
        assert!(setup.registry.bytes_sent() <= SIZE as u64 + (256 << 10), "{refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn broken_ranges_are_asked_for_again() {
    for fault in [
        Fault::Truncate { after: 25_000 },
        Fault::Reset { after: 25_000 },
        Fault::Drop,
        Fault::status(500),
        Fault::TooLongChunked,
    ] {
        let setup = Setup::new().await;
        let stream = setup.session().blob(&setup.blob).await.expect("opens");
        // The first request is good, the next two are not.
        setup.registry.faults().times("/blobs/", 2, fault.clone());
        assert!(setup.bytes == drain(stream).await.expect("comes"), "{fault:?}");
        let asked = setup.ranges();
        assert!(setup.registry.faults().left() < 2 && asked.len() < 60, "{fault:?}: {asked:?}");
        assert_eq!(asked.iter().filter(|range| *range == "-").count(), 1, "{fault:?}: what came is kept: {asked:?}");
        setup.quiet().await;
        assert_eq!(setup.memory.left(), 64 << 20, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn stalled_range_is_replaced_without_blocking_others() {
    let mut setup = Setup::new().await;
    let retry = registry::RetryPolicy { idle_timeout: Duration::from_millis(400), ..quick() };
    setup.client = Client::new(registry::Options { ranges: soon(), retry, ..Default::default() });
    let mut stream = setup.session().blob(&setup.blob).await.expect("opens");
    setup.registry.faults().once("/blobs/", Fault::HangAfter { after: 25_000 });
    let start = Instant::now();
    let mut got = until_ranged(&mut stream).await;
    got.extend(drain(stream).await.expect("comes"));
    assert!(setup.bytes == got);
    let alone = Duration::from_secs_f64(SIZE as f64 / RATE as f64);
    assert!(start.elapsed() < alone + Duration::from_millis(400), "{:?}", start.elapsed());
    setup.registry.faults().release();
}

#[tokio::test(start_paused = true)]
async fn dropped_stream_closes_every_connection() {
    let setup = Setup::new().await;
    let mut stream = setup.session().blob(&setup.blob).await.expect("opens");
    until_ranged(&mut stream).await;
    assert!(setup.memory.left() < 64 << 20);
    drop(stream);
    assert_eq!(setup.memory.left(), 64 << 20);
    tokio::time::timeout(Duration::from_secs(5), setup.quiet()).await.expect("all connections are closed");
    assert!(setup.registry.bytes_sent() < SIZE as u64 / 2);
}

#[tokio::test(start_paused = true)]
async fn starting_over_begins_at_the_first_byte_and_alone() {
    let setup = Setup::new().await;
    let mut stream = setup.session().blob(&setup.blob).await.expect("opens");
    until_ranged(&mut stream).await;
    setup.registry.clear_requests();
    stream.start_over("digest mismatch").expect("ranges may be to blame: the same host once more");
    assert_eq!(setup.memory.left(), 64 << 20);
    let mut got = Vec::new();
    while let Some(bytes) = stream.next().await.expect("comes") {
        got.extend_from_slice(&bytes);
    }
    assert!(setup.bytes == got);
    assert_eq!(setup.ranges(), ["-"]);
    let error = stream.start_over("digest mismatch").expect_err("there is no other host");
    assert_eq!(error.kind(), ErrorKind::InvalidContent);
}

#[tokio::test(start_paused = true)]
async fn range_requests_use_the_redirect_target() {
    let auth = Auth::Basic { user: "ada".into(), password: "swordfish".into() };
    let setup = Setup::with(soon(), 64 << 20, Options { auth: Some(auth), ..Options::default() }).await;
    let cdn = TestRegistry::open().await;
    cdn.set_line(Line { rate: Some(RATE), ..Line::default() });
    cdn.push_blob("app", setup.bytes.clone());
    let signed = format!("{}/v2/app/blobs/{}?signature=topsecret", cdn.url(), setup.blob.digest);
    setup.registry.faults().always("/blobs/", Fault::Location { url: signed });
    let auth = Some(RegistryAuth::basic("ada", "swordfish"));
    // What it takes once, such as to read the system's certificates, is no sign of a line that answers late.
    let first = session(&setup.client, &setup.registry, "app", auth.clone());
    first.blob(&setup.blob).await.expect("opens");
    setup.registry.clear_requests();
    cdn.clear_requests();
    let session = session(&setup.client, &setup.registry, "app", auth);
    let mut stream = session.blob(&setup.blob).await.expect("opens");
    let mut got = until_ranged(&mut stream).await;
    let asked = setup.registry.requests_for("/blobs/").len();
    assert_eq!(asked, 2, "once for the challenge and once with the credential");
    // The signature is over: the registry is asked for another one.
    cdn.faults().once("/blobs/", Fault::status(403));
    got.extend(drain(stream).await.expect("comes"));
    assert!(setup.bytes == got);
    assert_eq!(setup.registry.requests_for("/blobs/").len(), asked + 1);
    assert_eq!(cdn.faults().left(), 0);
    assert!(cdn.requests().len() > 4);
    assert!(cdn.requests().iter().all(|r| r.authorization().is_none() && r.query == "signature=topsecret"));
}
