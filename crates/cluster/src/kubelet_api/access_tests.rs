//! The gate with an API server that counts its questions, and a clock that the tests move.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use http::HeaderValue;

use super::*;

/// Knows the token `good`; every user except `mallory` may get statistics.
#[derive(Default)]
struct Counting {
    tokens: AtomicUsize,
    accesses: AtomicUsize,
    away: bool,
}

#[async_trait]
impl Authority for Counting {
    async fn review_token(&self, token: &Secret) -> Result<Option<Identity>, AuthorityError> {
        self.tokens.fetch_add(1, Ordering::Relaxed);
        if self.away {
            return Err("the server is away".into());
        }
        Ok((token.expose() == "good").then(|| user("ada")))
    }

    async fn review_access(&self, identity: &Identity, access: Access) -> Result<bool, AuthorityError> {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        assert!(identity.groups.iter().any(|group| group == AUTHENTICATED), "{identity:?}");
        if self.away {
            return Err("the server is away".into());
        }
        Ok(access.subresource == "stats" && identity.name != "mallory")
    }
}

fn user(name: &str) -> Identity {
    Identity { name: name.to_owned(), groups: vec!["staff".to_owned()], ..Identity::default() }
}

fn token(token: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_str(token).expect("a header"));
    headers
}

const STATS: [Access; 1] = [Access { verb: "get", subresource: "stats" }];
const PROXY: [Access; 1] = [Access { verb: "create", subresource: "proxy" }];

fn gate(away: bool) -> (Gate, Arc<Counting>) {
    let authority = Arc::new(Counting { away, ..Counting::default() });
    (Gate::new(Arc::clone(&authority) as _), authority)
}

/// Authenticates and authorises a client.
async fn enter(
    gate: &Gate,
    certified: Option<&Identity>,
    headers: &HeaderMap,
    needed: &[Access],
) -> Result<Identity, Refusal> {
    let identity = gate.authenticate(certified, headers).await?;
    gate.authorize(&identity, needed).await?;
    Ok(identity)
}

fn status(entered: Result<Identity, Refusal>) -> u16 {
    entered.map_or_else(|refusal| refusal.0.as_u16(), |_| 200)
}

#[tokio::test(start_paused = true)]
async fn unauthenticated_clients_get_401_and_unauthorized_ones_403() {
    let (gate, _) = gate(false);
    let none = HeaderMap::new();
    for (certified, headers, needed, want) in [
        (None, &none, STATS, 401),
        (None, &token("Bearer bad"), STATS, 401),
        (None, &token("Basic good"), STATS, 401),
        (None, &token("Bearer "), STATS, 401),
        (None, &token("bearer good"), STATS, 200),
        (None, &token("Bearer good"), PROXY, 403),
        (Some(user("eve")), &none, STATS, 200),
        (Some(user("mallory")), &none, STATS, 403),
        // A certificate counts before a token.
        (Some(user("mallory")), &token("Bearer good"), STATS, 403),
    ] {
        let entered = enter(&gate, certified.as_ref(), headers, &needed).await;
        assert_eq!(status(entered), want, "{certified:?} {headers:?} {needed:?}");
    }
    let refusal = enter(&gate, Some(&user("eve")), &none, &PROXY).await.expect_err("eve may not");
    assert_eq!(refusal.1, "Forbidden (user=eve, verb=create, resource=nodes, subresource(s)=[proxy])\n");
    let either = [PROXY[0], STATS[0]];
    assert_eq!(status(enter(&gate, Some(&user("eve")), &none, &either).await), 200, "one of them suffices");
}

#[tokio::test(start_paused = true)]
async fn answers_are_kept_as_long_as_the_kubelet_keeps_them() {
    let (gate, authority) = gate(false);
    let asked = || (authority.tokens.load(Ordering::Relaxed), authority.accesses.load(Ordering::Relaxed));
    let good = token("Bearer good");
    for _ in 0..3 {
        assert_eq!(status(enter(&gate, None, &good, &STATS).await), 200);
        assert_eq!(status(enter(&gate, None, &good, &PROXY).await), 403);
    }
    assert_eq!(asked(), (1, 2));
    tokio::time::advance(DENIED).await;
    assert_eq!(status(enter(&gate, None, &good, &STATS).await), 200);
    assert_eq!(status(enter(&gate, None, &good, &PROXY).await), 403);
    assert_eq!(asked(), (1, 3), "what was denied is asked again");
    tokio::time::advance(KNOWN - DENIED).await;
    assert_eq!(status(enter(&gate, None, &good, &STATS).await), 200);
    assert_eq!(asked(), (2, 3), "whose token it is, too");
    tokio::time::advance(ALLOWED - KNOWN).await;
    assert_eq!(status(enter(&gate, None, &good, &STATS).await), 200);
    assert_eq!(asked(), (3, 4));
}

#[tokio::test(start_paused = true)]
async fn no_client_is_admitted_while_the_api_server_is_away() {
    let (gate, authority) = gate(true);
    let none = HeaderMap::new();
    assert_eq!(status(enter(&gate, None, &token("Bearer good"), &STATS).await), 401);
    let refusal = enter(&gate, Some(&user("ada")), &none, &STATS).await.expect_err("nobody could be asked");
    assert_eq!(refusal.0, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(refusal.1, "Authorization error (user=ada, verb=get, resource=nodes, subresource=stats)");
    // No failure is kept as an answer.
    assert_eq!(status(enter(&gate, None, &token("Bearer good"), &STATS).await), 401);
    assert_eq!(authority.tokens.load(Ordering::Relaxed), 2);
}

#[test]
fn the_refusal_has_the_kubelets_words() {
    let access = |subresource| Access { verb: "get", subresource };
    let text = forbidden("ada", &[access("pods"), access("proxy")]);
    assert_eq!(text, "Forbidden (user=ada, verb=get, resource=nodes, subresource(s)=[pods proxy])\n");
}
