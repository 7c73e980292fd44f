//! Several hosts for one domain: order, capabilities, the `ns` parameter, and what is kept of failures.

use oci::Descriptor;
use registry::testing::{Fault, ImageBuilder, TestRegistry};
use registry::{Client, ErrorKind, HostCapabilities, HostConfig, Namespace, Options, Repository};

use crate::support::{client_of, fetch, host, noise, quick, reference};

fn by(client: &Client) -> Repository {
    client.repository(&reference("r.example/app:1"), None).expect("hosts")
}

async fn two() -> (TestRegistry, TestRegistry, Vec<HostConfig>) {
    let (mirror, upstream) = (TestRegistry::open().await, TestRegistry::open().await);
    let hosts = vec![host(&mirror.url(), false), host(&upstream.url(), true)];
    (mirror, upstream, hosts)
}

#[tokio::test]
async fn mirror_is_first_and_gets_the_namespace() {
    let (mirror, upstream, hosts) = two().await;
    let image = ImageBuilder::tiny("a");
    mirror.push("app", "1", &image);
    upstream.push("app", "1", &image);
    by(&client_of(hosts, quick())).resolve().await.expect("resolves");
    assert_eq!(mirror.requests()[0].query, "ns=r.example");
    assert_eq!(upstream.requests(), []);
}

#[tokio::test]
async fn content_missing_from_a_mirror_is_fetched_upstream() {
    let troubles = [
        None,
        Some(Fault::status(404)),
        Some(Fault::status(401)),
        Some(Fault::status(403)),
        Some(Fault::status(500)),
        Some(Fault::rate_limited("3600")),
        Some(Fault::Html),
        Some(Fault::Corrupt),
        Some(Fault::EndlessRedirect),
        Some(Fault::Drop),
    ];
    for trouble in troubles {
        let (mirror, upstream, hosts) = two().await;
        let image = ImageBuilder::tiny("a");
        upstream.push("app", "1", &image);
        if let Some(trouble) = &trouble {
            mirror.push("app", "1", &image);
            mirror.faults().always("/v2/", trouble.clone());
        }
        let session = by(&client_of(hosts, quick()));
        let fetched = session.resolve().await;
        assert_eq!(fetched.map(|f| f.bytes).map_err(|e| e.to_string()), Ok(image.manifest.clone()), "{trouble:?}");
        assert_eq!(upstream.requests()[0].query, "", "{trouble:?}");
        // What failed once is asked last from now on. A mirror that lacks one part may have another.
        let asked = mirror.requests().len();
        session.blob_bytes(&image.config_descriptor, 4096).await.expect("config");
        let is_absent = trouble.is_none() || trouble == Some(Fault::status(404));
        assert_eq!(mirror.requests().len(), asked + usize::from(is_absent), "{trouble:?}");
    }
}

#[tokio::test]
async fn mirror_with_wrong_bytes_is_logged() {
    let traced = crate::support::Traced::default();
    let _guard = traced.start(tracing_subscriber::filter::LevelFilter::WARN);
    let (mirror, upstream, hosts) = two().await;
    let image = ImageBuilder::tiny("a");
    for registry in [&mirror, &upstream] {
        registry.push("app", "1", &image);
    }
    mirror.faults().always("/blobs/", Fault::Corrupt);
    let session = by(&client_of(hosts, quick()));
    assert_eq!(session.blob_bytes(&image.config_descriptor, 4096).await.expect("config"), image.config);
    let want = format!("host sent wrong content host=\"{}\" error=digest mismatch: expected", mirror.host());
    assert_eq!(traced.text().matches(&want).count(), 1, "{}", traced.text());
    // The failure of a mirror is not logged.
    mirror.faults().clear();
    mirror.faults().always("/v2/", Fault::status(404));
    session.resolve().await.expect("resolves");
    assert_eq!(traced.text().lines().count(), 1, "{}", traced.text());
}

#[tokio::test]
async fn every_host_is_in_the_error() {
    let (mirror, upstream, hosts) = two().await;
    mirror.faults().always("/v2/", Fault::status(503));
    let error = by(&client_of(hosts, quick())).resolve().await.expect_err("nowhere");
    assert_eq!(error.kind(), ErrorKind::NotFound, "the registry itself decides");
    let want = format!(
        "resolve r.example/app:1: {}: 503 Service Unavailable (after 2 attempts); {}: 404 Not Found (MANIFEST_UNKNOWN: MANIFEST_UNKNOWN for app/manifests/1)",
        mirror.host(),
        upstream.host()
    );
    assert_eq!(error.to_string(), want);
    assert_eq!(error.hosts().collect::<Vec<_>>(), [mirror.host(), upstream.host()]);
}

#[tokio::test]
async fn capabilities() {
    let (mirror, upstream, mut hosts) = two().await;
    let image = ImageBuilder::tiny("a");
    mirror.push("app", "1", &image);
    upstream.push("app", "1", &image);
    hosts[0].capabilities = HostCapabilities { pull: true, resolve: false, push: false };
    let session = by(&client_of(hosts.clone(), quick()));
    session.resolve().await.expect("resolves");
    assert_eq!(mirror.requests(), [], "tags are not asked of a host that does not resolve");
    session.blob_bytes(&image.config_descriptor, 4096).await.expect("config");
    assert_eq!((mirror.requests().len(), upstream.requests().len()), (1, 1), "digests are");

    hosts[0].capabilities.pull = false;
    hosts[1].capabilities = HostCapabilities { pull: true, resolve: false, push: false };
    let session = by(&client_of(hosts.clone(), quick()));
    let error = session.resolve().await.expect_err("nobody resolves");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().ends_with("no host of r.example has the capability pull and resolve"), "{error}");
    hosts[1].capabilities.pull = false;
    let error = by(&client_of(hosts, quick())).blob(&image.config_descriptor).await.expect_err("nobody pulls");
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn broken_transfer_resumes_at_the_next_host() {
    let (mirror, upstream, hosts) = two().await;
    let blob = mirror.push_blob("app", noise(200_000));
    upstream.push_blob("app", noise(200_000));
    mirror.faults().once("/blobs/", Fault::Truncate { after: 50_000 });
    mirror.faults().always("/blobs/", Fault::status(500));
    let session = by(&client_of(hosts, quick()));
    assert_eq!(fetch(&session, &blob).await.expect("comes"), noise(200_000));
    assert_eq!(upstream.requests()[0].range(), Some("bytes=50000-"));
}

#[tokio::test]
async fn host_with_wrong_bytes_can_be_skipped() {
    let (mirror, upstream, hosts) = two().await;
    let blob = mirror.push_blob("app", noise(100_000));
    upstream.push_blob("app", noise(100_000));
    mirror.faults().always("/blobs/", Fault::Corrupt);
    let session = by(&client_of(hosts.clone(), quick()));
    // The caller hashes, and says so.
    let mut stream = session.blob(&blob).await.expect("opens");
    while stream.next().await.expect("comes").is_some() {}
    stream.start_over("digest mismatch: wrong").expect("there is another host");
    let mut bytes = Vec::new();
    while let Some(piece) = stream.next().await.expect("comes") {
        bytes.extend_from_slice(&piece);
    }
    assert_eq!(bytes, noise(100_000));
    assert_eq!(stream.host(), upstream.host());
    let error = stream.start_over("still wrong").expect_err("nobody is left");
    assert_eq!(error.kind(), ErrorKind::InvalidContent);
    assert!(error.to_string().contains("digest mismatch: wrong; "), "{error}");
    // Small blobs do it on their own.
    let session = by(&client_of(hosts, quick()));
    assert_eq!(session.blob_bytes(&blob, 1 << 20).await.expect("comes"), noise(100_000));
}

#[tokio::test]
async fn a_dead_mirror_is_remembered_across_pulls() {
    let upstream = TestRegistry::open().await;
    upstream.push("app", "1", &ImageBuilder::tiny("a"));
    // A port without a listener: bound, so that no other process gets it, and not listening.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let dead = format!("http://{}", socket.local_addr().expect("an address"));
    let client = client_of(vec![host(&dead, false), host(&upstream.url(), true)], quick());
    by(&client).resolve().await.expect("resolves");
    upstream.faults().always("/v2/", Fault::status(404));
    // Upstream is asked first now, so that its failure comes first in the error.
    let error = by(&client).resolve().await.expect_err("nowhere");
    assert_eq!(error.hosts().next(), Some(upstream.host().as_str()), "{error}");
    assert_eq!(error.kind(), ErrorKind::NotFound, "the registry itself decides, in whatever order: {error}");
}

/// An address at which connections are neither made nor refused: a queue for connections that is full.
async fn black_hole() -> (std::net::SocketAddr, impl Sized) {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let listener = socket.listen(0).expect("it listens");
    let address = listener.local_addr().expect("an address");
    let mut queue = Vec::new();
    let patience = std::time::Duration::from_millis(200);
    while let Ok(connected) = tokio::time::timeout(patience, tokio::net::TcpStream::connect(address)).await {
        queue.push(connected.expect("connects"));
    }
    (address, (listener, queue))
}

#[tokio::test(start_paused = true)]
async fn dead_mirror_costs_one_dial_timeout() {
    let upstream = TestRegistry::open().await;
    upstream.push("app", "1", &ImageBuilder::tiny("a"));
    let blobs: Vec<Descriptor> = (1..=8_usize).map(|n| upstream.push_blob("app", noise(n))).collect();
    let (dead, _queue) = black_hole().await;
    let mut mirror = host(&format!("http://{dead}"), false);
    mirror.dial_timeout = std::time::Duration::from_millis(300);
    let client = client_of(vec![mirror, host(&upstream.url(), true)], quick());
    let traced = crate::support::Traced::default();
    let _guard = traced.start(tracing_subscriber::filter::LevelFilter::DEBUG);
    for _ in 0..3 {
        let session = by(&client);
        session.resolve().await.expect("resolves");
        for got in futures::future::join_all(blobs.iter().map(|blob| fetch(&session, blob))).await {
            got.expect("comes");
        }
    }
    let text = traced.text();
    assert_eq!(text.matches("no connection within 0.3 s").count(), 1, "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_mirror_is_waited_for_once() {
    let (mirror, upstream, mut hosts) = two().await;
    upstream.push("app", "1", &ImageBuilder::tiny("a"));
    mirror.faults().always("/v2/", Fault::Hang);
    hosts[0].dial_timeout = std::time::Duration::from_millis(300);
    let retry = registry::RetryPolicy { idle_timeout: std::time::Duration::from_millis(300), ..quick() };
    let client = client_of(hosts, retry);
    for _ in 0..3 {
        by(&client).resolve().await.expect("resolves");
    }
    assert_eq!((mirror.requests().len(), upstream.requests().len()), (1, 3));
    mirror.faults().clear();
}

#[tokio::test]
async fn prefixes() {
    let registry = TestRegistry::open().await;
    let image = ImageBuilder::tiny("a");
    registry.push("app", "1", &image);
    let cases = [("/proxy", false, "/proxy/v2/app/manifests/1"), ("/proxy/v2/", true, "/proxy/v2/app/manifests/1")];
    for (prefix, override_path, want) in cases {
        registry.clear_requests();
        let mut config = host(&format!("{}{prefix}", registry.url()), true);
        config.override_path = override_path;
        by(&client_of(vec![config], quick())).resolve().await.expect("resolves");
        assert_eq!(registry.requests()[0].path, want);
    }
}

#[tokio::test]
async fn the_loader_is_asked_for_every_pull_and_its_errors_are_shown() {
    let loader = std::sync::Arc::new(|domain: &str| -> Result<Namespace, registry::HostsError> {
        let broken = registry::hosts::parse("\nserver = 1").map(|_| ()).expect_err("broken");
        assert_eq!(domain, "r.example");
        Err(broken.in_file("/etc/certs.d/r.example/hosts.toml"))
    });
    let client = Client::new(Options::new(loader));
    let error = client.repository(&reference("r.example/app:1"), None).expect_err("broken");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        error.to_string(),
        "find the hosts of r.example: /etc/certs.d/r.example/hosts.toml: line 2: server: want a string, not integer"
    );
    let client = client_of(vec![], quick());
    let error = client.repository(&reference("r.example/app:1"), None).expect_err("none");
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn foreign_urls_of_a_descriptor_are_not_followed() {
    let (registry, foreign) = (TestRegistry::open().await, TestRegistry::open().await);
    let blob = foreign.push_blob("app", noise(10));
    let foreign_url = format!("{}/v2/app/blobs/{}", foreign.url(), blob.digest);
    let descriptor = Descriptor { urls: vec![foreign_url], ..blob };
    let session = by(&client_of(vec![host(&registry.url(), true)], quick()));
    let error = session.blob(&descriptor).await.expect_err("not in the registry");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(foreign.requests(), []);
}

#[tokio::test]
async fn an_endpoint_that_is_listed_twice_is_asked_once() {
    let (mirror, upstream, hosts) = two().await;
    let error = by(&client_of([hosts.clone(), hosts.clone()].concat(), quick())).resolve().await.expect_err("nowhere");
    assert_eq!(error.hosts().collect::<Vec<_>>(), [mirror.host(), upstream.host()], "{error}");
    assert_eq!((mirror.requests().len(), upstream.requests().len()), (1, 1));
    // What one of the entries may not be asked is asked of the other.
    let image = ImageBuilder::tiny("a");
    upstream.push("app", "1", &image);
    let mut list = vec![hosts[1].clone(), hosts[1].clone()];
    list[0].capabilities = HostCapabilities { pull: true, resolve: false, push: false };
    let session = by(&client_of(list, quick()));
    session.resolve().await.expect("the second entry resolves");
    session.blob_bytes(&image.config_descriptor, 4096).await.expect("config");
}

#[tokio::test]
async fn server_and_host_of_one_file_are_one_endpoint() {
    let registry = TestRegistry::open().await;
    let url = registry.url();
    for text in [
        format!("server = \"{url}\"\n[host.\"{url}\"]\ncapabilities = [\"pull\", \"resolve\"]\n"),
        format!("server = \"{url}/v2\"\n[host.\"{url}/\"]\nskip_verify = true\n"),
        // The server is the registry itself where none is named.
        format!("[host.\"{url}\"]\ncapabilities = [\"pull\", \"resolve\"]\n"),
    ] {
        registry.clear_requests();
        let namespace = {
            let (text, domain) = (text.clone(), registry.host());
            move |_: &str| {
                registry::hosts::parse(&text)?
                    .into_namespace(&domain, &mut |_| Err(std::io::ErrorKind::NotFound.into()))
            }
        };
        let client = Client::new(Options { retry: quick(), ..Options::new(std::sync::Arc::new(namespace)) });
        let session = client.repository(&reference(&format!("{}/app:1", registry.host())), None).expect("hosts");
        let error = session.resolve().await.expect_err("no such image");
        assert_eq!(error.to_string().matches("404 Not Found").count(), 1, "{text}: {error}");
        assert_eq!(registry.requests().len(), 1, "{text}: {error}");
        // The capability to push is the server's.
        let error = session.put_manifest("1", "a/b", bytes::Bytes::from_static(b"{}")).await.expect_err("no uploads");
        assert!(error.to_string().contains("404 Not Found"), "{text}: {error}");
    }
}
