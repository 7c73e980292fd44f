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
        pod: word("web"),
        pod_uid: word(uid),
        audience: String::new(),
        expiration,
    }
}

impl Scene {
    /// The token so many seconds after the beginning.
    async fn at(&self, second: i64, request: &TokenRequest) -> Result<String, String> {
        self.now.store(BEGIN + second, Ordering::Relaxed);
        self.tokens.token(request).await.map(|token| token.expose().to_owned()).map_err(|error| error.to_string())
    }
}

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
    let scene = self::scene();
    let long = request("u", 7 * 24 * 3600);
    for (second, want) in [(0, "token-1"), (86_399, "token-1"), (86_400, "token-2")] {
        assert_eq!(scene.at(second, &long).await.as_deref(), Ok(want), "{second}");
    }
}

#[tokio::test]
async fn a_token_is_for_one_pod() {
    let scene = scene();
    assert_eq!(scene.at(0, &request("u", 3600)).await.as_deref(), Ok("token-1"));
    assert_eq!(scene.at(0, &request("v", 3600)).await.as_deref(), Ok("token-2"));
    scene.tokens.keep(&["v".to_owned()].into());
    assert_eq!(scene.at(0, &request("v", 3600)).await.as_deref(), Ok("token-2"));
    assert_eq!(scene.at(0, &request("u", 3600)).await.as_deref(), Ok("token-3"));
}

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
