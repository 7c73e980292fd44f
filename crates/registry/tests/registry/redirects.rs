//! Redirects: followed a few times, with nothing that belongs to the first origin.

use oci::RegistryAuth;
use registry::ErrorKind;
use registry::testing::{Auth, Fault, Options, TestRegistry};

use crate::support::{client, fetch, noise, repository, session};

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
async fn there_and_back_without_the_credential() {
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
async fn without_end() {
    let registry = TestRegistry::open().await;
    let blob = registry.push_blob("app", noise(10));
    registry.faults().always("/blobs/", Fault::EndlessRedirect);
    let error = repository(&registry, "app").blob(&blob).await.expect_err("endless");
    assert!(error.to_string().contains("redirect refused: more than 10 redirects in a row"), "{error}");
    assert_eq!(registry.requests().len(), 11);
}

#[tokio::test]
async fn to_places_that_are_not_gone_to() {
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
    // Bound, so that nobody else gets it, and not listening.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let gone = socket.local_addr().expect("an address");
    registry.faults().always("/blobs/", Fault::RedirectTo { base: format!("http://{gone}") });
    let error = repository(&registry, "app").blob(&blob).await.expect_err("nobody there").to_string();
    assert!(error.contains(&format!("cannot connect: redirected to {gone}: Connection refused")), "{error}");
}
