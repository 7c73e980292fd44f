//! Mirrors that share layers between nodes, by stand-ins with the HTTP behaviour of spegel (404 for content that no peer has, 500 when
//! peers are lost, transfers that stall or break off) and Dragonfly (a proxy that asks the registry, and passes its 401 on): the wait
//! for one is bounded, the registry continues, and no credential reaches it. The time is virtual.

use std::time::Duration;

use oci::{Descriptor, RegistryAuth, Secret};
use registry::testing::{Auth, Fault, ImageBuilder, Options as Setup, TestRegistry, TokenAuth};
use registry::{Client, HostBytes, HostCapabilities, HostConfig, Repository};
use tokio::time::Instant;

use crate::support::{client_of, fetch, host, noise, quick, reference};

const SIZE: usize = 300_000;
/// The wait for a mirror, and what the requests themselves may take.
const BOUND: Duration = Duration::from_millis(2_500);

fn spegel(mirror: &TestRegistry) -> HostConfig {
    HostConfig { dial_timeout: Duration::from_millis(200), ..host(&mirror.url(), false) }
}

fn dragonfly(mirror: &TestRegistry) -> HostConfig {
    let header = ("X-Dragonfly-Registry".to_owned(), "https://r.example".to_owned());
    HostConfig { headers: vec![header], ..host(&mirror.url(), false) }
}

fn open(client: &Client, auth: Option<RegistryAuth>) -> Repository {
    client.repository(&reference("r.example/app:1"), auth).expect("hosts")
}

async fn pair() -> (TestRegistry, TestRegistry, Client, Descriptor) {
    let (mirror, upstream) = (TestRegistry::open().await, TestRegistry::open().await);
    let blob = mirror.push_blob("app", noise(SIZE));
    upstream.push_blob("app", noise(SIZE));
    let client = client_of(vec![spegel(&mirror), host(&upstream.url(), true)], quick());
    (mirror, upstream, client, blob)
}

fn of_host(host: &TestRegistry, mirror: bool, bytes: usize) -> HostBytes {
    HostBytes { host: host.host(), mirror, bytes: bytes as u64 }
}

#[tokio::test(start_paused = true)]
async fn stalled_mirror_is_left_at_the_same_byte() {
    let (mirror, upstream, client, blob) = pair().await;
    mirror.faults().always("/blobs/", Fault::HangAfter { after: 100_000 });
    let (session, begun) = (open(&client, None), Instant::now());
    assert!(fetch(&session, &blob).await.expect("comes") == noise(SIZE));
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    assert_eq!(mirror.requests().len(), 1);
    assert_eq!(upstream.requests()[0].range(), Some("bytes=100000-"));
    let want = [of_host(&mirror, true, 100_000), of_host(&upstream, false, SIZE - 100_000)];
    assert_eq!(session.received(), want);
    // Other blobs of the pull do not wait for it.
    fetch(&session, &blob).await.expect("comes");
    assert_eq!(mirror.requests().len(), 1);
    mirror.faults().clear();
}

#[tokio::test(start_paused = true)]
async fn mirror_that_sends_nothing_costs_one_bounded_wait() {
    let (mirror, upstream, client, blob) = pair().await;
    mirror.faults().always("/v2/", Fault::Hang);
    let begun = Instant::now();
    for _ in 0..3 {
        let session = open(&client, None);
        let blobs = futures::future::join_all((0..4).map(|_| fetch(&session, &blob))).await;
        assert!(blobs.into_iter().all(|bytes| bytes.expect("comes") == noise(SIZE)));
    }
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    assert_eq!(upstream.requests().len(), 12);
    mirror.faults().clear();
}

#[tokio::test(start_paused = true)]
async fn slow_mirror_is_asked_again_when_the_registry_cannot_help() {
    let (mirror, upstream, client, blob) = pair().await;
    upstream.remove("app", &blob.digest);
    // The first byte takes longer than a mirror is waited for: a cache that has to fetch the blob itself.
    mirror.faults().once("/blobs/", Fault::Hang);
    let session = open(&client, None);
    assert!(fetch(&session, &blob).await.expect("the mirror has it") == noise(SIZE));
    assert_eq!((mirror.requests().len(), upstream.requests().len()), (2, 1));
    mirror.faults().clear();
}

#[tokio::test(start_paused = true)]
async fn dripping_mirror_is_left() {
    let (mirror, upstream, client, blob) = pair().await;
    mirror.faults().always("/blobs/", Fault::Drip { piece: 100, pause: Duration::from_millis(100) });
    let begun = Instant::now();
    assert!(fetch(&open(&client, None), &blob).await.expect("comes") == noise(SIZE));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!((mirror.requests().len(), upstream.requests().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn mirror_whose_transfers_break_off_is_tried_twice() {
    let (mirror, upstream, client, blob) = pair().await;
    // More than counts as progress, every time.
    mirror.faults().always("/blobs/", Fault::Truncate { after: 80_000 });
    assert!(fetch(&open(&client, None), &blob).await.expect("comes") == noise(SIZE));
    assert_eq!(mirror.requests().iter().map(|r| r.range()).collect::<Vec<_>>(), [None, Some("bytes=80000-")]);
    assert_eq!(upstream.requests()[0].range(), Some("bytes=160000-"));
}

#[tokio::test(start_paused = true)]
async fn lost_peers_and_limits_lead_to_the_registry() {
    for fault in [Fault::status(404), Fault::status(500), Fault::status(502), Fault::rate_limited("60"), Fault::Drop] {
        let (mirror, upstream, client, blob) = pair().await;
        mirror.faults().always("/blobs/", fault.clone());
        let (session, begun) = (open(&client, None), Instant::now());
        assert!(fetch(&session, &blob).await.expect("comes") == noise(SIZE), "{fault:?}");
        assert!(begun.elapsed() < BOUND, "{fault:?}: {:?}", begun.elapsed());
        assert_eq!(session.received(), [of_host(&upstream, false, SIZE)], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn mirror_without_one_layer_is_asked_for_the_next() {
    let (mirror, upstream, client, blob) = pair().await;
    let missing = upstream.push_blob("app", noise(1_000));
    let session = open(&client, None);
    fetch(&session, &missing).await.expect("comes");
    assert!(fetch(&session, &blob).await.expect("comes") == noise(SIZE));
    assert_eq!(session.received(), [of_host(&mirror, true, SIZE), of_host(&upstream, false, 1_000)]);
}

#[tokio::test]
async fn tags_go_to_mirrors_that_resolve_and_digests_to_all() {
    let (mirror, upstream) = (TestRegistry::open().await, TestRegistry::open().await);
    let image = ImageBuilder::tiny("a");
    let digest = mirror.push("app", "1", &image);
    upstream.push("app", "1", &image);
    for resolve in [true, false] {
        mirror.clear_requests();
        let capabilities = HostCapabilities { pull: true, resolve, push: false };
        let hosts = vec![HostConfig { capabilities, ..spegel(&mirror) }, host(&upstream.url(), true)];
        let session = open(&client_of(hosts, quick()), None);
        assert_eq!(session.probe().await, Some(digest.clone()));
        session.resolve().await.expect("resolves");
        session.manifest(&image.descriptor).await.expect("comes");
        let requests = mirror.requests();
        assert_eq!(requests.len(), if resolve { 3 } else { 1 }, "{requests:?}");
        for request in &requests {
            assert_eq!(request.query, "ns=r.example");
            // This header is for peers: a mirror that gets it asks no other node.
            assert!(request.header("x-spegel-mirrored").is_none(), "{request:?}");
        }
    }
}

fn credentials() -> Vec<RegistryAuth> {
    vec![
        RegistryAuth::basic("ada", "pass-word-7f3a"),
        RegistryAuth { identity_token: Secret::new("identity-91bd"), ..RegistryAuth::default() },
        RegistryAuth { registry_token: Secret::new("registry-55e0"), ..RegistryAuth::default() },
    ]
}

/// A mirror that wants a credential: Basic, a token of its own service, or one of the registry's.
fn challenges(upstream: &TestRegistry, mirror: &TestRegistry) -> Vec<String> {
    let bearer =
        |at: &TestRegistry| format!("Bearer realm=\"{}/token\",service=\"s\",scope=\"repository:app:pull\"", at.url());
    vec!["Basic realm=\"r\"".to_owned(), bearer(mirror), bearer(upstream)]
}

#[tokio::test]
async fn no_credential_reaches_a_mirror() {
    for auth in credentials() {
        for n in 0..3 {
            let (mirror, upstream) = (TestRegistry::open().await, TestRegistry::open().await);
            let blob = upstream.push_blob("app", noise(1_000));
            let challenge = challenges(&upstream, &mirror).swap_remove(n);
            let headers = vec![("www-authenticate".to_owned(), challenge)];
            mirror.faults().always("/v2/", Fault::Status { code: 401, headers, body: String::new() });
            let hosts = vec![dragonfly(&mirror), host(&upstream.url(), true)];
            let session = open(&client_of(hosts, quick()), Some(auth.clone()));
            assert!(fetch(&session, &blob).await.expect("the registry has it") == noise(1_000));
            let requests = mirror.requests();
            assert!(!requests.is_empty());
            for request in &requests {
                let text = format!("{request:?}").to_lowercase();
                assert!(
                    !["authorization", "pass-word", "identity-", "registry-55e0"].iter().any(|s| text.contains(s)),
                    "{text}"
                );
            }
            // A mirror's challenge does not make the credential go to a token service either.
            let tokens = upstream.requests_for("/token");
            assert!(tokens.iter().all(|request| request.header("authorization").is_none()), "{tokens:?}");
            assert!(tokens.iter().all(|request| !request.body.contains("identity-")), "{tokens:?}");
            let api: Vec<_> = requests.iter().filter(|request| request.path.starts_with("/v2/")).collect();
            assert!(api.iter().all(|r| r.header("x-dragonfly-registry") == Some("https://r.example")), "{api:?}");
        }
    }
}

#[tokio::test]
async fn registry_that_redirects_to_a_mirror_sends_no_credential_there() {
    let (mirror, upstream) = (
        TestRegistry::open().await,
        TestRegistry::start(Setup {
            auth: Some(Auth::Basic { user: "ada".into(), password: "pass-word-7f3a".into() }),
            ..Setup::default()
        })
        .await,
    );
    let blob = mirror.push_blob("app", noise(1_000));
    upstream.faults().always("/blobs/", Fault::RedirectTo { base: mirror.url() });
    let mut without_tags = dragonfly(&mirror);
    without_tags.capabilities = HostCapabilities { pull: false, resolve: false, push: false };
    let client = client_of(vec![without_tags, host(&upstream.url(), true)], quick());
    let session = open(&client, Some(RegistryAuth::basic("ada", "pass-word-7f3a")));
    assert!(fetch(&session, &blob).await.expect("comes") == noise(1_000));
    let requests = mirror.requests();
    assert!(requests.iter().all(|request| request.header("authorization").is_none()), "{requests:?}");
    assert!(requests.iter().all(|request| request.header("x-dragonfly-registry").is_none()), "{requests:?}");
}

#[tokio::test]
async fn mirror_that_the_credential_names_gets_it_and_its_tokens_stay_there() {
    let user = Some(("ada".to_owned(), "pass-word-7f3a".to_owned()));
    let tokens = TokenAuth { user, ..TokenAuth::default() };
    let mirror = TestRegistry::start(Setup { auth: Some(Auth::Token(tokens)), ..Setup::default() }).await;
    let upstream = TestRegistry::open().await;
    let blob = mirror.push_blob("app", noise(1_000));
    let auth = RegistryAuth { server_address: mirror.url(), ..RegistryAuth::basic("ada", "pass-word-7f3a") };
    let session = open(&client_of(vec![spegel(&mirror), host(&upstream.url(), true)], quick()), Some(auth));
    assert!(fetch(&session, &blob).await.expect("comes") == noise(1_000));
    assert_eq!(upstream.requests(), []);
    mirror.faults().always("/blobs/", Fault::status(500));
    upstream.push_blob("app", noise(1_000));
    fetch(&session, &blob).await.expect("comes");
    let requests = upstream.requests();
    assert!(!requests.is_empty() && requests.iter().all(|r| r.header("authorization").is_none()), "{requests:?}");
}

#[tokio::test]
async fn wrong_content_of_a_mirror_is_fetched_from_the_registry() {
    let (mirror, upstream) = (TestRegistry::open().await, TestRegistry::open().await);
    let image = ImageBuilder::tiny("a");
    for registry in [&mirror, &upstream] {
        registry.push("app", "1", &image);
    }
    for fault in [Fault::Corrupt, Fault::TooShort, Fault::TooLong, Fault::Html] {
        mirror.faults().clear();
        mirror.faults().always("/v2/", fault.clone());
        let hosts = vec![dragonfly(&mirror), host(&upstream.url(), true)];
        let session = open(&client_of(hosts, quick()), None);
        assert_eq!(session.manifest(&image.descriptor).await.expect("comes").bytes, image.manifest, "{fault:?}");
        let session = open(&client_of(vec![dragonfly(&mirror), host(&upstream.url(), true)], quick()), None);
        let config = session.blob_bytes(&image.config_descriptor, 4096).await.expect("comes");
        assert_eq!(config, image.config, "{fault:?}");
    }
}
