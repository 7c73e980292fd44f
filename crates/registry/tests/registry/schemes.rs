//! Registries that ask for `Basic` at one part of their API and for `Bearer` at another, or change their mind: each scheme is
//! answered once in a request, and remembered for the part.

use oci::RegistryAuth;
use registry::ErrorKind;
use registry::testing::{Auth, BasicOffer, Fault, ImageBuilder, Options, TestRegistry, TokenAuth};

use crate::support::{client, fetch, noise, session};

async fn start(auth: TokenAuth) -> TestRegistry {
    let registry = TestRegistry::start(Options { auth: Some(Auth::Token(auth)), ..Options::default() }).await;
    registry.push("app", "1", &ImageBuilder::tiny("a"));
    registry
}

fn user(basic: BasicOffer) -> TokenAuth {
    TokenAuth { basic, ..TokenAuth::user("ada", "swordfish") }
}

fn ada() -> RegistryAuth {
    RegistryAuth::basic("ada", "swordfish")
}

/// Method, first segments of the path, scheme of the credential, and status of each request.
fn exchanges(registry: &TestRegistry) -> Vec<String> {
    let line = |r: registry::testing::RequestLog| {
        let scheme = r.authorization().and_then(|header| header.split(' ').next()).unwrap_or("-").to_owned();
        let part = r.path.split('/').nth(3).unwrap_or("token").to_owned();
        format!("{} {part} {scheme} {}", r.method, r.status)
    };
    registry.requests().into_iter().map(line).collect()
}

#[tokio::test]
async fn basic_after_a_token() {
    let registry = start(user(BasicOffer::AfterToken)).await;
    let blob = registry.push_blob("app", noise(10));
    let session = session(&client(), &registry, "app:1", Some(ada()));
    session.resolve().await.expect("resolves");
    fetch(&session, &blob).await.expect("fetched");
    assert_eq!(
        exchanges(&registry),
        [
            "GET manifests - 401",
            "POST token - 200",
            "GET manifests Bearer 401",
            "GET manifests Basic 200",
            "GET blobs Basic 200",
        ]
    );
}

#[tokio::test]
async fn one_scheme_for_blobs_and_another_for_manifests() {
    for part in ["/blobs/", "/manifests/"] {
        let registry = start(user(BasicOffer::For(part))).await;
        let blobs: Vec<_> = (1..=6_usize).map(|n| registry.push_blob("app", noise(n))).collect();
        let session = session(&client(), &registry, "app:1", Some(ada()));
        for blob in &blobs {
            session.resolve().await.expect("resolves");
            fetch(&session, blob).await.expect("fetched");
        }
        let all = exchanges(&registry);
        let refused: Vec<&String> = all.iter().filter(|line| line.ends_with("401")).collect();
        assert_eq!(refused.len(), 2, "each part is challenged once: {all:?}");
        assert_eq!(all.len(), 2 * blobs.len() + refused.len() + 1, "{all:?}");
        let by_basic = registry.requests_for(part);
        assert!(by_basic.iter().skip(1).all(|r| r.authorization().is_some_and(|a| a.starts_with("Basic "))), "{all:?}");
    }
}

#[tokio::test]
async fn blobs_fetched_together_are_challenged_and_answered() {
    let registry = start(user(BasicOffer::For("/blobs/"))).await;
    let blobs: Vec<_> = (1..=6_usize).map(|n| registry.push_blob("app", noise(n))).collect();
    let session = session(&client(), &registry, "app:1", Some(ada()));
    session.resolve().await.expect("resolves");
    for got in futures::future::join_all(blobs.iter().map(|blob| fetch(&session, blob))).await {
        got.expect("fetched");
    }
    assert_eq!(registry.requests_for("/token").len(), 1, "{:?}", exchanges(&registry));
}

#[tokio::test]
async fn each_scheme_is_answered_once() {
    let registry = start(TokenAuth { accepts_tokens: false, ..user(BasicOffer::WithBearer) }).await;
    // The token is no good, and the other challenge of the same 401 is.
    session(&client(), &registry, "app:1", Some(ada())).resolve().await.expect("resolves");
    assert_eq!(
        exchanges(&registry),
        ["GET manifests - 401", "POST token - 200", "GET manifests Bearer 401", "GET manifests Basic 200"]
    );
    for wrong in [RegistryAuth::basic("ada", "wrong-password"), RegistryAuth::basic("eve", "swordfish")] {
        for offer in [BasicOffer::WithBearer, BasicOffer::AfterToken, BasicOffer::For("/manifests/")] {
            let registry = start(user(offer)).await;
            let error = session(&client(), &registry, "app:1", Some(wrong.clone())).resolve().await.expect_err("wrong");
            assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{offer:?}: {error}");
            assert!(registry.requests().len() <= 5, "{offer:?}: {:?}", exchanges(&registry));
        }
    }
    // A registry that refuses both for ever.
    let registry = TestRegistry::open().await;
    let tokens = start(TokenAuth::user("ada", "swordfish")).await;
    let challenge = format!("Bearer realm=\"{}/token\",scope=\"repository:app:pull\", Basic realm=\"x\"", tokens.url());
    let headers = vec![("www-authenticate".to_owned(), challenge)];
    registry.faults().always("/manifests/", Fault::Status { code: 401, headers, body: String::new() });
    let error = session(&client(), &registry, "app:1", Some(ada())).resolve().await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    assert_eq!(
        exchanges(&registry),
        ["GET manifests - 401", "GET manifests Bearer 401", "GET manifests Basic 401"],
        "{error}"
    );
    assert_eq!(tokens.requests_for("/token").len(), 1);
}

#[tokio::test]
async fn without_a_token_the_other_challenge_is_answered() {
    let unusable = ["", "not a url", "http://169.254.169.254/token", "http://127.0.0.1:1/token/refused"];
    for realm in unusable {
        let registry = start(TokenAuth { realm: Some(realm.into()), ..user(BasicOffer::WithBearer) }).await;
        let resolved = session(&client(), &registry, "app:1", Some(ada())).resolve().await;
        if realm.contains("refused") {
            // A service that cannot be reached may be there the next time.
            assert_eq!(resolved.expect_err("unreachable").kind(), ErrorKind::Unavailable, "{realm}");
            continue;
        }
        resolved.unwrap_or_else(|error| panic!("{realm:?}: {error}"));
        assert_eq!(exchanges(&registry), ["GET manifests - 401", "GET manifests Basic 200"], "{realm:?}");
    }
}

#[tokio::test]
async fn scheme_known_only_from_the_api_root() {
    let registry = start(TokenAuth::user("ada", "swordfish")).await;
    registry.faults().once("/manifests/", Fault::status(404));
    let open = TestRegistry::open().await;
    open.push("app", "1", &ImageBuilder::tiny("a"));
    let challenge = format!("Bearer realm=\"{}/token\",service=\"test\"", registry.url());
    let headers = vec![("www-authenticate".to_owned(), challenge)];
    open.faults().once("/v2/?", Fault::Status { code: 401, headers, body: String::new() });
    open.faults().once("/manifests/", Fault::status(401));
    session(&client(), &open, "app:1", Some(ada())).resolve().await.expect("resolves");
    assert_eq!(open.requests().last().and_then(|r| r.authorization().map(|a| a.starts_with("Bearer "))), Some(true));
    assert_eq!(open.requests().len(), 3, "{:?}", exchanges(&open));
    let asked = registry.requests_for("/token").pop().expect("asked").body;
    assert!(asked.ends_with("scope=repository%3Aapp%3Apull"), "{asked}");
}
