//! Proxies: used for what is elsewhere, never for this machine.

use base::lock::Mutex;
use std::sync::Arc;

use oci::RegistryAuth;
use registry::testing::{Auth, Fault, ImageBuilder, TestRegistry, TestTls, self_signed_pem};
use registry::{Client, ErrorKind, Namespace, Options, ProxySettings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::support::{fetch, host, noise, quick, reference};

fn client(proxy: ProxySettings) -> Client {
    let loader = |domain: &str| Ok(Namespace { hosts: vec![host(&format!("http://{domain}"), true)] });
    Client::new(Options { retry: quick(), proxy, ..Options::new(Arc::new(loader)) })
}

#[tokio::test]
async fn requests_through_the_proxy() {
    // The registry plays the proxy: it answers for whatever host it is asked.
    let proxy = TestRegistry::open().await;
    proxy.push("app", "1", &ImageBuilder::tiny("a"));
    let settings = ProxySettings {
        http: Some(format!("http://ada:swordfish@{}", proxy.host())),
        https: None,
        no_proxy: Some("direct.invalid,10.0.0.0/8".into()),
    };
    let client = client(settings);
    let resolve = async |domain: &str| {
        client.repository(&reference(&format!("{domain}/app:1")), None).expect("hosts").resolve().await
    };
    resolve("elsewhere.invalid").await.expect("by the proxy");
    assert_eq!(proxy.requests().len(), 1);
    assert!(proxy.requests()[0].header("proxy-authorization").is_some_and(|a| a.starts_with("Basic ")));
    assert!(resolve("direct.invalid").await.is_err(), "a name that nobody has");
    assert_eq!(proxy.requests().len(), 1);

    let here = TestRegistry::open().await;
    here.push("app", "1", &ImageBuilder::tiny("a"));
    resolve(&here.host()).await.expect("directly");
    assert_eq!((proxy.requests().len(), here.requests().len()), (1, 1));
}

#[tokio::test]
async fn plain_http_does_not_use_the_https_proxy() {
    let proxy = TestRegistry::open().await;
    proxy.push("app", "1", &ImageBuilder::tiny("a"));
    let client = client(ProxySettings { https: Some(proxy.url()), ..ProxySettings::default() });
    let plain = client.repository(&reference("elsewhere.invalid/app:1"), None).expect("hosts").resolve().await;
    assert!(plain.is_err(), "a name that nobody has");
    assert!(proxy.requests().is_empty(), "{:?}", proxy.requests());
}

#[test]
fn settings() {
    let bad = ProxySettings { http: Some("http://ada:swordfish@[".into()), ..ProxySettings::default() };
    assert!(!format!("{bad:?}").contains("swordfish"));
    let error = client(bad).repository(&reference("r.invalid/app:1"), None).expect_err("no URL").to_string();
    assert!(error.contains("the address of the HTTP proxy is not a URL") && !error.contains("swordfish"), "{error}");

    let lookup = |name: &str| match name {
        "http_proxy" => Some("http://a".to_owned()),
        "HTTPS_PROXY" => Some("http://b".to_owned()),
        "https_proxy" => Some("http://c".to_owned()),
        "NO_PROXY" => Some(String::new()),
        "no_proxy" => Some("d".to_owned()),
        _ => None,
    };
    let got = ProxySettings::from_lookup(lookup);
    let texts = (got.http.as_deref(), got.https.as_deref(), got.no_proxy.as_deref());
    assert_eq!(texts, (Some("http://a"), Some("http://b"), Some("d")));
    assert!(ProxySettings::from_lookup(|_| None).http.is_none());
}

#[tokio::test]
async fn hosts_may_have_their_own_proxy() {
    let (own, other) = (TestRegistry::open().await, TestRegistry::open().await);
    for proxy in [&own, &other] {
        proxy.push("app", "1", &ImageBuilder::tiny("a"));
    }
    let text = format!("proxy = \"http://ada:sword%2Bfish@{}\"", own.host());
    let loader = move |domain: &str| {
        let mut namespace = registry::hosts::parse(&text)?.into_namespace(domain, &mut |_| Ok(vec![]))?;
        namespace.hosts.iter_mut().for_each(|host| host.base.set_scheme("http").expect("a scheme"));
        Ok(namespace)
    };
    // Whatever the environment says, of this host and of this machine.
    let proxy = ProxySettings { http: Some(other.url()), https: None, no_proxy: Some("*".into()) };
    let client = Client::new(Options { retry: quick(), proxy, ..Options::new(Arc::new(loader)) });
    for domain in ["elsewhere.invalid", "127.0.0.1:9"] {
        let name = reference(&format!("{domain}/app:1"));
        let session = client.repository(&name, None).expect("hosts");
        session.resolve().await.expect("by its proxy");
        // A proxy that returns the credentials that it received.
        let echo = "sword+fish sword%2Bfish Basic YWRhOnN3b3JkK2Zpc2g=".to_owned();
        own.faults().once("/v2/", Fault::Status { code: 403, headers: vec![], body: echo });
        let error = session.resolve().await.expect_err("refused").to_string();
        assert!(error.ends_with("403 Forbidden (… … Basic …)"), "{error}");
    }
    assert_eq!((own.requests().len(), other.requests().len()), (4, 0));
    assert!(own.requests().iter().all(|r| r.header("proxy-authorization") == Some("Basic YWRhOnN3b3JkK2Zpc2g=")));
}

/// A client of one host by name, with these addresses for it; none where there is no such name.
fn by_name(port: u16, addresses: Option<Vec<std::net::IpAddr>>) -> Client {
    let mut config = host(&format!("http://registry.example:{port}"), true);
    config.dial_timeout = std::time::Duration::from_millis(300);
    let loader = move |_: &str| Ok(Namespace { hosts: vec![config.clone()] });
    let lookup: registry::Lookup = Arc::new(move |_| {
        let addresses = addresses.clone();
        Box::pin(async move { addresses.ok_or_else(|| std::io::ErrorKind::NotFound.into()) })
    });
    Client::new(Options { retry: quick(), lookup, ..Options::new(Arc::new(loader)) })
}

#[tokio::test]
async fn names_with_unreachable_addresses() {
    let registry = TestRegistry::open().await;
    registry.push("app", "1", &ImageBuilder::tiny("a"));
    let port = registry.addr().port();
    let resolve = async |client: Client| {
        client.repository(&reference("registry.example/app:1"), None).expect("hosts").resolve().await
    };
    let here = std::net::IpAddr::from([127, 0, 0, 1]);
    // No server listens at the first address.
    let gone = std::net::IpAddr::from([127, 0, 0, 2]);
    resolve(by_name(port, Some(vec![gone, here]))).await.expect("by the second address");
    let silent: registry::Lookup = Arc::new(|_| Box::pin(std::future::pending()));
    let mut config = host("http://registry.example", true);
    config.dial_timeout = std::time::Duration::from_millis(300);
    let loader = move |_: &str| Ok(Namespace { hosts: vec![config.clone()] });
    let never = Client::new(Options { retry: quick(), lookup: silent, ..Options::new(Arc::new(loader)) });
    let cases = [
        ("no such name", by_name(port, None), "cannot connect: "),
        ("a name without addresses", by_name(port, Some(vec![])), "cannot connect: "),
        ("nobody at any address", by_name(port, Some(vec![gone, gone])), "Connection refused"),
        ("no answer", never, "no connection within 0.3 s"),
    ];
    for (name, client, want) in cases {
        let error = resolve(client).await.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{name}: {error}");
        assert!(error.to_string().contains(want), "{name}: {error}");
    }
}

/// A proxy that leads to one place by whatever name.
struct Tunnel {
    address: String,
    /// Heads of the requests, or where it was asked to go.
    asked: Asked,
    _stop: DropGuard,
}

type Asked = Arc<Mutex<Vec<String>>>;

impl Tunnel {
    /// `serve` does a connection.
    async fn serving<F>(serve: impl Fn(TcpStream, Asked) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Option<(u64, u64)>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let asked = Asked::default();
        let log = Arc::clone(&asked);
        let stop = CancellationToken::new();
        TaskTracker::new().spawn(stop.clone().run_until_cancelled_owned(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&log)));
            }
        }));
        Self { address, asked, _stop: stop.drop_guard() }
    }

    /// A proxy that does CONNECT. `Proxy-Authorization` must be `credential`, or 407 is the answer.
    async fn start(to: String, credential: &'static str) -> Self {
        Self::serving(move |stream, log| connect(stream, to.clone(), credential, log)).await
    }

    /// A proxy that speaks SOCKS 5, and wants this user and password.
    async fn socks(to: String, user: &'static str, password: &'static str) -> Self {
        Self::serving(move |stream, log| socks(stream, to.clone(), user, password, log)).await
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

async fn connect(mut stream: TcpStream, to: String, credential: &str, log: Asked) -> Option<(u64, u64)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    log.lock().push(head.clone());
    if !head.contains(credential) {
        let refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(refusal).await.ok()?;
        return None;
    }
    let mut there = TcpStream::connect(to).await.ok()?;
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.ok()?;
    tokio::io::copy_bidirectional(&mut stream, &mut there).await.ok()
}

#[tokio::test]
async fn https_is_tunnelled_through_the_proxy() {
    let auth = Auth::Basic { user: "grace".into(), password: "registry-password".into() };
    let options = registry::testing::Options { tls: TestTls::SelfSigned, auth: Some(auth) };
    let registry = TestRegistry::start(options).await;
    registry.push("app", "1", &ImageBuilder::tiny("a"));
    let blob = registry.push_blob("app", noise(500_000));
    // `ada:swordfish`
    let tunnel = Tunnel::start(registry.host(), "Basic YWRhOnN3b3JkZmlzaA==").await;
    let client = |proxy: String, no_proxy: &str| {
        let mut config = host("https://registry.example", true);
        config.tls.ca_pem.push(self_signed_pem());
        let loader = move |_: &str| Ok(Namespace { hosts: vec![config.clone()] });
        // Only the proxy can resolve these names.
        let lookup: registry::Lookup = Arc::new(|_| Box::pin(async { Err(std::io::ErrorKind::NotFound.into()) }));
        let proxy = ProxySettings { http: None, https: Some(proxy), no_proxy: Some(no_proxy.to_owned()) };
        Client::new(Options { retry: quick(), proxy, lookup, ..Options::new(Arc::new(loader)) })
    };
    let session = |client: &Client| {
        let auth = RegistryAuth::basic("grace", "registry-password");
        client.repository(&reference("registry.example/app:1"), Some(auth)).expect("hosts")
    };
    let good = format!("http://ada:swordfish@{}", tunnel.address);
    let through = session(&client(good.clone(), ""));
    through.resolve().await.expect("resolves");
    assert!(fetch(&through, &blob).await.expect("comes") == noise(500_000));
    let asked = tunnel.asked();
    assert!(asked.iter().all(|head| head.starts_with("CONNECT registry.example:443 HTTP/1.1\r\n")), "{asked:?}");
    assert!(!asked.concat().contains("registry-password") && !asked.concat().contains("/v2/"), "{asked:?}");
    assert!(registry.requests().iter().all(|r| r.header("proxy-authorization").is_none()), "it is for the proxy alone");

    // Where a blob is redirected to goes through it as well.
    registry.faults().once("/blobs/", Fault::RedirectTo { base: "https://registry.example:8443".into() });
    let before = tunnel.asked().len();
    let error = fetch(&through, &blob).await.map(|_| ()).expect_err("it is asked there without a credential");
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    assert!(tunnel.asked()[before..].concat().contains("CONNECT registry.example:8443 "));

    let refused = client(format!("http://ada:wrong-word@{}", tunnel.address), "");
    let error = session(&refused).resolve().await.expect_err("407").to_string();
    assert!(error.contains(&format!("(by the proxy {})", tunnel.address)), "{error}");
    assert!(!error.contains("wrong-word"), "{error}");

    let before = tunnel.asked().len();
    session(&client(good, ".example")).resolve().await.expect_err("it is asked directly, and nobody has the name");
    assert_eq!(tunnel.asked().len(), before);
}

#[tokio::test]
async fn resolved_addresses_are_checked_without_a_proxy() {
    // The proxy plays a registry that is somewhere else.
    let proxy = TestRegistry::open().await;
    let inside = TestRegistry::open().await;
    let blob = proxy.push_blob("app", noise(1000));
    inside.push_blob("app", noise(1000));
    let port = inside.addr().port();
    let settings = ProxySettings { http: Some(proxy.url()), https: None, no_proxy: Some("inside.example".into()) };
    let client = |allowed: &str| {
        let lookup: registry::Lookup = Arc::new(|name| {
            Box::pin(async move {
                assert_eq!(name, "inside.example");
                Ok(vec![std::net::IpAddr::from([127, 0, 0, 1])])
            })
        });
        let hosts = vec![host("http://registry.example", true)];
        let loader = move |_: &str| Ok(Namespace { hosts: hosts.clone() });
        let allowed_targets = allowed.split_whitespace().map(|text| text.parse().expect("a target")).collect();
        let proxy = settings.clone();
        Client::new(Options { retry: quick(), proxy, lookup, allowed_targets, ..Options::new(Arc::new(loader)) })
    };
    let session = |allowed: &str| {
        let auth = RegistryAuth::basic("ada", "swordfish");
        client(allowed).repository(&reference("registry.example/app:1"), Some(auth)).expect("hosts")
    };
    let base = format!("http://inside.example:{port}");
    proxy.faults().always("/blobs/", Fault::RedirectTo { base: base.clone() });
    let error = fetch(&session(""), &blob).await.expect_err("refused").to_string();
    assert!(error.contains(&format!("redirect refused: the name leads to this machine ({base}/…)")), "{error}");
    assert_eq!(proxy.requests().len(), 1, "it is not tried again");
    let challenge = format!("Bearer realm=\"{base}/token\",service=\"s\"");
    let headers = vec![("www-authenticate".to_owned(), challenge)];
    proxy.faults().always("/manifests/", Fault::Status { code: 401, headers, body: String::new() });
    let error = session("").resolve().await.expect_err("refused").to_string();
    assert!(error.contains("the token service is not contacted: the name leads to this machine"), "{error}");
    assert_eq!(inside.connections(), 0, "nothing was sent, and nobody connected to");

    for allowed in ["127.0.0.0/8", base.as_str()] {
        assert!(fetch(&session(allowed), &blob).await.expect("comes") == noise(1000), "{allowed}");
    }
    // The proxy's own name is no way around.
    let at_proxy = format!("http://{}/x", proxy.host());
    proxy.faults().clear();
    proxy.faults().once("/blobs/", Fault::Location { url: at_proxy });
    let error = fetch(&session(""), &blob).await.expect_err("refused").to_string();
    assert!(error.contains("redirect refused: to this machine"), "{error}");
}

#[tokio::test]
async fn local_registry_may_redirect_to_local_names() {
    let (registry, storage) = (TestRegistry::open().await, TestRegistry::open().await);
    let blob = registry.push_blob("app", noise(1000));
    storage.push_blob("app", noise(1000));
    let base = format!("http://storage.example:{}", storage.addr().port());
    registry.faults().always("/blobs/", Fault::RedirectTo { base });
    let by_name = host(&format!("http://registry.example:{}", registry.addr().port()), true);
    let lookup: registry::Lookup = Arc::new(|_| Box::pin(async { Ok(vec![std::net::IpAddr::from([127, 0, 0, 1])]) }));
    for config in [by_name, host(&registry.url(), true)] {
        let hosts = vec![config];
        let loader = move |_: &str| Ok(Namespace { hosts: hosts.clone() });
        let lookup = Arc::clone(&lookup);
        let client = Client::new(Options { retry: quick(), lookup, ..Options::new(Arc::new(loader)) });
        let session = client.repository(&reference("registry.example/app:1"), None).expect("hosts");
        assert!(fetch(&session, &blob).await.expect("comes") == noise(1000));
    }
}

/// RFC 1928 and 1929.
async fn socks(mut stream: TcpStream, to: String, user: &str, password: &str, log: Asked) -> Option<(u64, u64)> {
    async fn text(stream: &mut TcpStream) -> Option<String> {
        let mut bytes = vec![0; stream.read_u8().await.ok()?.into()];
        stream.read_exact(&mut bytes).await.ok()?;
        String::from_utf8(bytes).ok()
    }
    assert_eq!(stream.read_u8().await.ok()?, 5);
    let methods = text(&mut stream).await?;
    // Nothing that it takes but user and password.
    let known = methods.contains('\u{2}');
    stream.write_all(&[5, if known { 2 } else { 0xff }]).await.ok()?;
    assert_eq!(stream.read_u8().await.ok()?, 1);
    let (name, word) = (text(&mut stream).await?, text(&mut stream).await?);
    let good = (name.as_str(), word.as_str()) == (user, password);
    stream.write_all(&[1, u8::from(!good)]).await.ok()?;
    if !good {
        return None;
    }
    let mut head = [0; 4];
    stream.read_exact(&mut head).await.ok()?;
    let host = match head {
        [5, 1, 0, 3] => text(&mut stream).await?,
        [5, 1, 0, 1] => std::net::Ipv4Addr::from(stream.read_u32().await.ok()?).to_string(),
        other => panic!("{other:?}"),
    };
    let port = stream.read_u16().await.ok()?;
    log.lock().push(format!("{host}:{port}"));
    let mut there = TcpStream::connect(to).await.ok()?;
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.ok()?;
    tokio::io::copy_bidirectional(&mut stream, &mut there).await.ok()
}

#[tokio::test]
async fn socks_proxy_resolves_names_and_cannot_read_https() {
    for tls in [TestTls::SelfSigned, TestTls::Off] {
        let is_secure = tls == TestTls::SelfSigned;
        let (scheme, port) = if is_secure { ("https", 443) } else { ("http", 80) };
        let registry = TestRegistry::start(registry::testing::Options { tls, auth: None }).await;
        registry.push("app", "1", &ImageBuilder::tiny("a"));
        let blob = registry.push_blob("app", noise(500_000));
        let socks = Tunnel::socks(registry.host(), "ada", "sword+fish").await;
        let client = |proxy: &str, own: bool| {
            let mut config = host(&format!("{scheme}://registry.example"), true);
            config.tls.ca_pem.push(self_signed_pem());
            config.dial_timeout = std::time::Duration::from_secs(2);
            let all = if own {
                let text = format!("proxy = \"{proxy}\"");
                let parsed = registry::hosts::parse(&text).expect("a proxy");
                let parsed = parsed.into_namespace("registry.example", &mut |_| Ok(vec![])).expect("hosts");
                config.proxy.clone_from(&parsed.hosts[0].proxy);
                ProxySettings::default()
            } else {
                ProxySettings { http: Some(proxy.to_owned()), https: Some(proxy.to_owned()), no_proxy: None }
            };
            let loader = move |_: &str| Ok(Namespace { hosts: vec![config.clone()] });
            // Only the proxy can resolve these names.
            let lookup: registry::Lookup = Arc::new(|_| Box::pin(async { Err(std::io::ErrorKind::NotFound.into()) }));
            Client::new(Options { retry: quick(), proxy: all, lookup, ..Options::new(Arc::new(loader)) })
        };
        let session = |client: &Client| client.repository(&reference("registry.example/app:1"), None).expect("hosts");
        let mut before = 0;
        for (scheme, own) in [("socks5", false), ("socks5h", false), ("socks5", true)] {
            let good = format!("{scheme}://ada:sword%2Bfish@{}", socks.address);
            let through = session(&client(&good, own));
            through.resolve().await.expect("resolves");
            assert!(fetch(&through, &blob).await.expect("comes") == noise(500_000));
            let asked = socks.asked();
            let wanted = format!("registry.example:{port}");
            assert!(asked.len() > before && asked.iter().all(|name| *name == wanted), "{asked:?}");
            before = asked.len();
        }
        let refused = client(&format!("socks5://ada:wrong-word@{}", socks.address), false);
        let error = session(&refused).resolve().await.expect_err("refused").to_string();
        assert!(error.contains(&format!("(by the proxy {})", socks.address)), "{error}");
        assert!(!error.contains("wrong-word"), "{error}");
        // A server of another protocol is no SOCKS proxy, nor is an address without a listener.
        for nobody in [registry.host(), "127.0.0.2:1".to_owned()] {
            let error = session(&client(&format!("socks5://{nobody}"), false)).resolve().await.expect_err("no proxy");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        assert_eq!(socks.asked().len(), before);
    }
}
