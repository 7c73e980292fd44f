//! Redirects: followed a few times, with nothing that belongs to the first origin.

use oci::RegistryAuth;
use registry::ErrorKind;
use registry::testing::{Auth, BasicOffer, Fault, ImageBuilder, Options, TestRegistry, TokenAuth};

use crate::support::{client, client_of, fetch, host, noise, quick, repository, session};

async fn pair() -> (TestRegistry, TestRegistry) {
    let auth = Auth::Basic { user: "ada".into(), password: "swordfish".into() };
    let registry = TestRegistry::start(Options { auth: Some(auth), ..Options::default() }).await;
    (registry, TestRegistry::open().await)
}

#[tokio::test]
async fn to_another_origin_without_the_credential() {
    let (registry, cdn) = pair().await;
    let blob = registry.push_blob("app", noise(100_000));
    cdn.push_blob("app", noise(100_000));
    registry.faults().times("/blobs/", 2, Fault::RedirectTo { base: cdn.url() });
    cdn.faults().once("/blobs/", Fault::Truncate { after: 70_000 });
    let session = session(&client(), &registry, "app", Some(RegistryAuth::basic("ada", "swordfish")));
    assert_eq!(fetch(&session, &blob).await.expect("comes"), noise(100_000));
    let there = cdn.requests();
    assert_eq!(there.len(), 2, "the resumed part is asked for by way of the registry again");
    assert!(there.iter().all(|r| r.authorization().is_none()), "{there:?}");
    assert_eq!(there[1].range(), Some("bytes=70000-"));
}

#[tokio::test]
async fn within_the_origin_with_the_credential() {
    let (registry, _) = pair().await;
    let blob = registry.push_blob("app", noise(10));
    let moved = format!("/v2/app/blobs/{}?moved=1", blob.digest);
    registry.faults().once("/blobs/", Fault::Location { url: moved });
    let session = session(&client(), &registry, "app", Some(RegistryAuth::basic("ada", "swordfish")));
    fetch(&session, &blob).await.expect("comes");
    assert!(registry.requests().last().is_some_and(|r| r.query == "moved=1" && r.authorization().is_some()));
}

#[tokio::test]
async fn redirect_back_carries_no_credential() {
    let (registry, other) = pair().await;
    let blob = registry.push_blob("app", noise(10));
    registry.faults().once("/blobs/", Fault::RedirectTo { base: other.url() });
    other.faults().once("/blobs/", Fault::RedirectTo { base: registry.url() });
    let session = session(&client(), &registry, "app", Some(RegistryAuth::basic("ada", "swordfish")));
    let error = fetch(&session, &blob).await.expect_err("the way back is anonymous");
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    let last = registry.requests().pop().expect("asked");
    assert_eq!((last.authorization(), last.status), (None, 401));
}

#[tokio::test]
async fn endless_redirects_are_refused() {
    let registry = TestRegistry::open().await;
    let blob = registry.push_blob("app", noise(10));
    registry.faults().always("/blobs/", Fault::EndlessRedirect);
    let error = repository(&registry, "app").blob(&blob).await.expect_err("endless");
    assert!(error.to_string().contains("redirect refused: more than 10 redirects in a row"), "{error}");
    assert_eq!(registry.requests().len(), 11);
}

#[tokio::test]
async fn forbidden_redirect_targets_are_refused() {
    let registry = TestRegistry::open().await;
    let blob = registry.push_blob("app", noise(10));
    let cases = [
        (
            "http://169.254.169.254/latest?key=topsecret",
            "to a link-local or special address (http://169.254.169.254/…)",
        ),
        ("http://[fe80::1]/x", "to a link-local or special address"),
        ("http://[::ffff:169.254.169.254]/x", "to a link-local or special address"),
        ("http://[::ffff:a9fe:a9fe]/x", "to a link-local or special address"),
        ("http://[64:ff9b::10.0.0.1]/x", "to a private address"),
        ("http://2852039166/x", "to a link-local or special address"),
        ("http://0.0.0.0/x", "to a link-local or special address"),
        ("//169.254.169.254/x", "to a link-local or special address"),
        ("\\\\169.254.169.254\\x", "to a link-local or special address"),
        ("http://user@169.254.169.254/x", "to a link-local or special address"),
        // A zone is no part of a URL's address.
        ("http://[fe80::1%25eth0]/x", "Location is no URL"),
        ("file:///etc/passwd", "to the scheme \"file\""),
        ("http://[", "Location is no URL"),
    ];
    for (url, want) in cases {
        registry.faults().once("/blobs/", Fault::Location { url: url.into() });
        let error = repository(&registry, "app").blob(&blob).await.expect_err("refused");
        assert!(error.to_string().contains(want), "{url}: {error}");
    }
    registry.faults().once("/blobs/", Fault::status(307));
    let error = repository(&registry, "app").blob(&blob).await.expect_err("no Location");
    assert!(error.to_string().contains("307 without a Location"), "{error}");
}

#[tokio::test]
async fn user_information_in_a_location_is_not_sent() {
    let (registry, cdn) = (TestRegistry::open().await, TestRegistry::open().await);
    let blob = registry.push_blob("app", noise(10));
    cdn.push_blob("app", noise(10));
    let url = format!("http://ada:swordfish@{}/v2/app/blobs/{}", cdn.host(), blob.digest);
    registry.faults().once("/blobs/", Fault::Location { url });
    fetch(&repository(&registry, "app"), &blob).await.expect("comes");
    assert_eq!(cdn.requests()[0].authorization(), None);
}

#[tokio::test]
async fn errors_of_the_other_origin_name_it() {
    let (registry, cdn) = (TestRegistry::open().await, TestRegistry::open().await);
    let blob = registry.push_blob("app", noise(10));
    registry.faults().once("/blobs/", Fault::RedirectTo { base: cdn.url() });
    let error = repository(&registry, "app").blob(&blob).await.expect_err("not there");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains(&format!("404 Not Found (from {}: BLOB_UNKNOWN", cdn.host())), "{error}");
}

#[tokio::test]
async fn another_origin_that_cannot_be_reached_is_named() {
    let registry = TestRegistry::open().await;
    let blob = registry.push_blob("app", noise(10));
    // Bound, so that no other process gets it, and not listening.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let gone = socket.local_addr().expect("an address");
    registry.faults().always("/blobs/", Fault::RedirectTo { base: format!("http://{gone}") });
    let error = repository(&registry, "app").blob(&blob).await.expect_err("nobody there").to_string();
    assert!(error.contains(&format!("cannot connect: redirected to {gone}: Connection refused")), "{error}");
}

/// A registry with a password, which redirects to one that gives tokens to everyone.
async fn in_front_of_another() -> (TestRegistry, TestRegistry) {
    let (registry, _) = pair().await;
    let auth = TokenAuth { user: Some(("ada".into(), "swordfish".into())), ..TokenAuth::anonymous() };
    let other = TestRegistry::start(Options { auth: Some(Auth::Token(auth)), ..Options::default() }).await;
    registry.faults().always("/v2/", Fault::RedirectTo { base: other.url() });
    (registry, other)
}

#[tokio::test]
async fn to_a_registry_that_wants_an_anonymous_token() {
    let (registry, other) = in_front_of_another().await;
    let image = ImageBuilder::tiny("a");
    other.push("app", "1", &image);
    let blobs: Vec<_> = (1..=6_usize).map(|n| other.push_blob("app", noise(n))).collect();
    let mut config = host(&registry.url(), true);
    config.headers.push(("x-key".into(), "header-secret".into()));
    let session =
        session(&client_of(vec![config], quick()), &registry, "app:1", Some(RegistryAuth::basic("ada", "swordfish")));
    assert_eq!(session.resolve().await.expect("resolves").bytes, image.manifest);
    for got in futures::future::join_all(blobs.iter().map(|blob| fetch(&session, blob))).await {
        got.expect("fetched");
    }
    assert!(session.has_blob(&blobs[0]).await);
    let there = other.requests();
    let tokens: Vec<_> = there.iter().filter(|r| r.path == "/token").collect();
    assert_eq!((tokens.len(), tokens[0].method.as_str()), (1, "GET"), "one token for all");
    assert_eq!(tokens[0].query, "service=test&scope=repository%3Aapp%3Apull");
    assert_eq!(there.iter().filter(|r| r.status == 401).count(), 1, "{there:?}");
    // Neither the credential nor a header of the host goes there, though the service would take the credential.
    let is_ours = |r: &&registry::testing::RequestLog| {
        r.header("x-key").is_some()
            || !r.authorization().unwrap_or("Bearer ").starts_with("Bearer ")
            || !r.body.is_empty()
    };
    assert_eq!(there.iter().find(is_ours), None);
    // The token goes to the registry that asked for it, and not to the one in front.
    let tokens = other.issued_tokens();
    let at_front = registry.requests();
    let is_theirs = |r: &&registry::testing::RequestLog| {
        r.authorization().is_some_and(|a| tokens.iter().any(|token| a.contains(token.as_str())))
    };
    assert_eq!(at_front.iter().find(is_theirs), None);
}

#[tokio::test]
async fn token_of_a_redirect_target_is_not_forwarded() {
    let (registry, other) = in_front_of_another().await;
    let storage = TestRegistry::open().await;
    other.push("app", "1", &ImageBuilder::tiny("a"));
    let blob = other.push_blob("app", noise(10));
    storage.push_blob("app", noise(10));
    let session = session(&client(), &registry, "app:1", Some(RegistryAuth::basic("ada", "swordfish")));
    session.resolve().await.expect("resolves");
    other.faults().always("/blobs/", Fault::RedirectTo { base: storage.url() });
    fetch(&session, &blob).await.expect("fetched");
    assert_eq!(storage.requests().len(), 1);
    assert_eq!(storage.requests()[0].authorization(), None);
    // A token that ended is replaced.
    other.faults().clear();
    other.revoke_tokens();
    session.resolve().await.expect("resolves again");
}

#[tokio::test]
async fn redirect_targets_with_challenges_get_no_secret() {
    let basic = Auth::Basic { user: "ada".into(), password: "swordfish".into() };
    let of_users = Auth::Token(TokenAuth::user("ada", "swordfish"));
    let both = Auth::Token(TokenAuth { basic: BasicOffer::WithBearer, ..TokenAuth::user("ada", "swordfish") });
    let useless = Auth::Token(TokenAuth { accepts_tokens: false, ..TokenAuth::anonymous() });
    let realm = |realm: &str| Auth::Token(TokenAuth { realm: Some(realm.into()), ..TokenAuth::anonymous() });
    for (name, auth, want) in [
        ("Basic", basic, "401 Unauthorized (from 127.0.0.1:"),
        ("tokens for users", of_users, "token service 127.0.0.1:"),
        ("both", both, "token service 127.0.0.1:"),
        ("tokens that are no good", useless, "401 Unauthorized (from 127.0.0.1:"),
        ("a realm at a metadata service", realm("http://169.254.169.254/token"), "a link-local or special address"),
        ("a realm in a private network", realm("http://10.0.0.1/token"), "a private address"),
        ("no realm", realm(""), "401 Unauthorized (from 127.0.0.1:"),
    ] {
        let (registry, _) = pair().await;
        let other = TestRegistry::start(Options { auth: Some(auth), ..Options::default() }).await;
        other.push("app", "1", &ImageBuilder::tiny("a"));
        registry.faults().always("/v2/", Fault::RedirectTo { base: other.url() });
        let auth = RegistryAuth::basic("ada", "swordfish");
        let error = session(&client(), &registry, "app:1", Some(auth)).resolve().await.expect_err(name);
        assert!(error.to_string().contains(want), "{name}: {error}");
        let seen = other.requests();
        assert!(seen.len() <= 3, "{name}: {seen:?}");
        let has_secret = |r: &registry::testing::RequestLog| {
            !r.body.is_empty() || r.authorization().is_some_and(|a| !a.starts_with("Bearer test-token-"))
        };
        assert!(!seen.iter().any(has_secret), "{name}: {seen:?}");
    }
}

#[tokio::test]
async fn a_token_service_named_by_a_redirect_target_gets_nothing_of_the_host() {
    // The target names a token service at the host's own origin.
    let registry =
        TestRegistry::start(Options { auth: Some(Auth::Token(TokenAuth::anonymous())), ..Options::default() }).await;
    let realm = format!("{}/token", registry.url());
    let auth = Auth::Token(TokenAuth { realm: Some(realm), ..TokenAuth::anonymous() });
    let other = TestRegistry::start(Options { auth: Some(auth), ..Options::default() }).await;
    let mut config = host(&registry.url(), true);
    config.headers.push(("x-key".into(), "header-secret".into()));
    registry.faults().always("/manifests/", Fault::RedirectTo { base: other.url() });
    let session = session(&client_of(vec![config], quick()), &registry, "app:1", None);
    session.resolve().await.expect_err("a token of another service");
    let asked = registry.requests_for("/token");
    assert_eq!(asked.iter().map(|r| r.header("x-key")).collect::<Vec<_>>(), [Some("header-secret"), None], "{asked:?}");
}
