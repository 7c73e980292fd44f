//! Tokens under a clock that a test sets.

use std::sync::atomic::{AtomicI64, Ordering};

use super::*;
use crate::fake::FakeServer;

const BEGIN: i64 = 1_700_000_000;

struct Scene {
    server: FakeServer,
    tokens: TokenManager,
    now: Arc<AtomicI64>,
}

fn scene() -> Scene {
    let (server, now) = (FakeServer::new(true), Arc::new(AtomicI64::new(BEGIN)));
    let clock = Arc::clone(&now);
    let clock = Arc::new(move || Timestamp::from_second(clock.load(Ordering::Relaxed)).expect("a time"));
    let tokens = TokenManager::new(server.client(), clock, Arc::new(|| 0.0));
    Scene { server, tokens, now }
}

fn request(uid: &str, expiration: i64) -> TokenRequest {
    let word = str::to_owned;
    TokenRequest {
        namespace: word("shop"),
        account: word("default"),
        account_uid: String::new(),
        pod: word("web"),
        pod_uid: word(uid),
        audience: String::new(),
        expiration: Some(expiration),
    }
}

impl Scene {
    /// Requests the token at this many seconds after the beginning.
    async fn at(&self, second: i64, request: &TokenRequest) -> Result<String, String> {
        self.now.store(BEGIN + second, Ordering::Relaxed);
        self.tokens.token(request).await.map(|token| token.expose().to_owned()).map_err(|error| error.to_string())
    }
}

// upstream: token/TestKeyFunc/hit
// upstream: token/TestKeyFunc/not hit due to different ExpirationSeconds
// upstream: token/TestRequiresRefresh
// upstream: token/TestTokenCachingAndExpiration/rotate hour token expires in the last 12 minutes
// upstream: token/TestTokenCachingAndExpiration/rotate 24 hour token that expires in 40 hours
#[tokio::test]
async fn a_token_is_renewed_at_four_fifths_of_its_life_and_after_a_day() {
    let scene = scene();
    let hour = request("u", 3600);
    let path = "POST /api/v1/namespaces/shop/serviceaccounts/default/token";
    for (second, want) in [(0, "token-1"), (2879, "token-1"), (2880, "token-2"), (5759, "token-2")] {
        assert_eq!(scene.at(second, &hour).await.as_deref(), Ok(want), "{second}");
    }
    assert_eq!(scene.server.take_requests(), [path, path]);
    assert_eq!(scene.at(5759, &request("u", 7200)).await.as_deref(), Ok("token-3"), "another life");
    let scene = self::scene();
    let long = request("u", 7 * 24 * 3600);
    for (second, want) in [(0, "token-1"), (86_399, "token-1"), (86_400, "token-2")] {
        assert_eq!(scene.at(second, &long).await.as_deref(), Ok(want), "{second}");
    }
}

// upstream: token/TestDeleteServiceAccountToken/delete none with all success requests
// upstream: token/TestDeleteServiceAccountToken/delete one with all success requests
// upstream: token/TestDeleteServiceAccountToken/delete some pod not in the set
// upstream: token/TestKeyFunc/not hit due to different BoundObjectRef
#[tokio::test]
async fn a_token_is_for_one_pod() {
    let scene = scene();
    assert_eq!(scene.at(0, &request("u", 3600)).await.as_deref(), Ok("token-1"));
    assert_eq!(scene.at(0, &request("v", 3600)).await.as_deref(), Ok("token-2"));
    scene.tokens.keep(&["u".to_owned(), "v".to_owned(), "none".to_owned()].into());
    assert_eq!(scene.at(0, &request("u", 3600)).await.as_deref(), Ok("token-1"));
    scene.tokens.keep(&["v".to_owned()].into());
    assert_eq!(scene.at(0, &request("v", 3600)).await.as_deref(), Ok("token-2"));
    assert_eq!(scene.at(0, &request("u", 3600)).await.as_deref(), Ok("token-3"));
}

// upstream: token/TestTokenCachingAndExpiration/rotate hour token fails, old token is still valid, doesn't error
#[tokio::test]
async fn a_token_that_is_good_outlives_a_server_that_is_away() {
    let scene = scene();
    let hour = request("u", 3600);
    assert!(scene.at(0, &hour).await.is_ok());
    scene.server.set_away(true);
    assert_eq!(scene.at(3599, &hour).await.as_deref(), Ok("token-1"));
    assert_eq!(scene.at(3600, &hour).await, Err("the server is away".to_owned()));
    scene.server.set_away(false);
    assert_eq!(scene.at(3601, &hour).await.as_deref(), Ok("token-2"));
}

#[tokio::test]
async fn an_answer_without_a_token_is_an_error() {
    let scene = scene();
    scene.server.fail("POST", 404);
    assert_eq!(scene.at(0, &request("u", 3600)).await, Err("a fault of the test".to_owned()));
}

/// The API server's rules learn of a binding a moment after the node does.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_forbidden_is_made_again() {
    let scene = scene();
    let later = "node requested token bound to a pod scheduled on a different node";
    for _ in 0..3 {
        scene.server.refuse("POST", 403, later);
    }
    assert_eq!(scene.at(0, &request("u", 3600)).await.as_deref(), Ok("token-1"));
    assert_eq!(scene.server.take_requests().len(), 4);
    for _ in 0..4 {
        scene.server.refuse("POST", 403, later);
    }
    assert_eq!(scene.at(0, &request("v", 3600)).await, Err(later.to_owned()));
    assert_eq!(scene.server.take_requests().len(), 4);
}

// upstream: token/TestTokenCachingAndExpiration/service account recreated - cache miss due to different UID
// upstream: token/TestTokenCachingAndExpiration/service account UID consistent - cache hit
// upstream: token/TestServiceAccountRecreationCacheInvalidation
// upstream: token/TestKeyFunc/not hit due to different service account UID
// upstream: token/TestKeyFunc/hit with same service account UID
// upstream: token/TestKeyFunc/not hit when one has UID and other doesn't
#[tokio::test]
async fn a_providers_token_is_of_one_account_for_as_long_as_the_server_likes() {
    let scene = scene();
    let path = "/api/v1/namespaces/shop/serviceaccounts/default";
    let absent = scene.tokens.account("shop", "default").await.expect_err("none yet");
    assert!(absent.to_string().contains("not found"), "{absent}");
    scene.server.put(path, json!({"metadata": {"uid": "account-uid", "annotations": {"a/b": "c"}}}));
    let account = scene.tokens.account("shop", "default").await.expect("read");
    assert_eq!((account.uid.as_str(), account.annotations["a/b"].as_str()), ("account-uid", "c"));
    let wanted =
        TokenRequest { account_uid: account.uid, audience: "registry".to_owned(), expiration: None, ..request("u", 0) };
    assert_eq!(scene.at(0, &wanted).await.as_deref(), Ok("token-1"));
    let sent = scene.server.last_token_request();
    assert_eq!(sent["metadata"]["uid"], "account-uid");
    assert_eq!(
        sent["spec"],
        json!({"audiences": ["registry"],
               "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u"}})
    );
    // The token is kept for four fifths of an hour, and is not used for a later account of the same name.
    assert_eq!(scene.at(2879, &wanted).await.as_deref(), Ok("token-1"));
    let another = TokenRequest { account_uid: "another".to_owned(), ..wanted.clone() };
    assert_eq!(scene.at(2879, &another).await.as_deref(), Ok("token-2"));
    let any = TokenRequest { account_uid: String::new(), ..wanted.clone() };
    assert_eq!(scene.at(2879, &any).await.as_deref(), Ok("token-3"));
    assert_eq!(scene.at(2880, &wanted).await.as_deref(), Ok("token-4"));
}
