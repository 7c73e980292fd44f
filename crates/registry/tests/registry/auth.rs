//! Challenges, tokens, and where credentials go.

use oci::{RegistryAuth, Secret};
use registry::ErrorKind;
use registry::testing::{Auth, BasicOffer, Fault, ImageBuilder, Options, TestRegistry, TokenAuth};

use crate::support::{client, client_of, fetch, host, noise, quick, session};

async fn start(auth: Auth) -> TestRegistry {
    let registry = TestRegistry::start(Options { auth: Some(auth), ..Options::default() }).await;
    registry.push("app", "1", &ImageBuilder::tiny("a"));
    registry
}

fn ada() -> RegistryAuth {
    RegistryAuth::basic("ada", "swordfish")
}

fn statuses(registry: &TestRegistry) -> Vec<String> {
    registry.requests().iter().map(|r| format!("{} {} {}", r.method, r.path, r.status)).collect()
}

#[tokio::test]
async fn basic() {
    let registry = start(Auth::Basic { user: "ada".into(), password: "swordfish".into() }).await;
    let session = session(&client(), &registry, "app:1", Some(ada()));
    session.resolve().await.expect("resolves");
    session.resolve().await.expect("resolves");
    assert_eq!(
        statuses(&registry),
        ["GET /v2/app/manifests/1 401", "GET /v2/app/manifests/1 200", "GET /v2/app/manifests/1 200"],
        "no ping, and the challenge is answered once"
    );
    assert_eq!(registry.requests()[0].authorization(), None, "nothing is sent before it is asked for");
}

#[tokio::test]
async fn the_auth_field_serves_as_well() {
    let registry = start(Auth::Basic { user: "ada".into(), password: "swordfish".into() }).await;
    let auth = RegistryAuth { auth: Secret::new("YWRhOnN3b3JkZmlzaA=="), ..RegistryAuth::default() };
    session(&client(), &registry, "app:1", Some(auth)).resolve().await.expect("resolves");
}

#[tokio::test]
async fn refusals() {
    let basic = || Auth::Basic { user: "ada".into(), password: "swordfish".into() };
    let wrong = || Some(RegistryAuth::basic("ada", "wrong-password"));
    let token_only = Some(RegistryAuth { identity_token: Secret::new("stale-identity"), ..RegistryAuth::default() });
    let verbatim = Some(RegistryAuth { registry_token: Secret::new("stale-token"), ..RegistryAuth::default() });
    let useless = || Auth::Token(TokenAuth { accepts_tokens: false, ..TokenAuth::user("ada", "swordfish") });
    let useless_anonymous = Auth::Token(TokenAuth { accepts_tokens: false, ..TokenAuth::anonymous() });
    let cases: Vec<(&str, Auth, Option<RegistryAuth>, &str)> = vec![
        ("none for Basic", basic(), None, "the registry wants a user name and a password and there are none"),
        ("wrong for Basic", basic(), wrong(), "the credential was refused"),
        ("half for Basic", basic(), Some(RegistryAuth::basic("ada", "")), "one is empty"),
        (
            "none for tokens",
            Auth::Token(TokenAuth::user("ada", "swordfish")),
            None,
            "answered 401: incorrect username or password",
        ),
        (
            "wrong for tokens",
            Auth::Token(TokenAuth::user("ada", "swordfish")),
            wrong(),
            "answered 401: incorrect username or password",
        ),
        ("stale identity token", Auth::Token(TokenAuth::user("ada", "swordfish")), token_only, "answered 401"),
        (
            "stale registry token",
            Auth::Token(TokenAuth::user("ada", "swordfish")),
            verbatim,
            "the registry token was refused (invalid_token)",
        ),
        ("tokens that are no good", useless(), Some(ada()), "the token was refused (invalid_token)"),
        (
            "anonymous tokens that are no good",
            useless_anonymous,
            None,
            "the anonymous token was refused (invalid_token)",
        ),
    ];
    for (name, auth, credential, want) in cases {
        let registry = start(auth).await;
        let error = session(&client(), &registry, "app:1", credential).resolve().await.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{name}: {error}");
        assert!(error.to_string().contains(want), "{name}: {error}");
        assert!(registry.requests().len() <= 5, "{name}: {:?}", statuses(&registry));
    }
}

#[tokio::test]
async fn repeated_unauthorized_ends() {
    let registry = TestRegistry::open().await;
    for challenge in ["", "Negotiate", "Bearer realm=\"\"", "Bearer realm=\"not a url\"", "Basic realm=\"x\""] {
        let headers = vec![("www-authenticate".to_owned(), challenge.to_owned())];
        registry.faults().always("/manifests/", Fault::Status { code: 401, headers, body: String::new() });
        registry.clear_requests();
        let error = session(&client(), &registry, "app:1", Some(ada())).resolve().await.expect_err("401");
        assert!(matches!(error.kind(), ErrorKind::Unauthenticated | ErrorKind::Unavailable), "{challenge:?}: {error}");
        assert!(registry.requests().len() <= 2, "{challenge:?}: {:?}", statuses(&registry));
        registry.faults().clear();
    }
}

#[tokio::test]
async fn a_token_by_post() {
    let registry = start(Auth::Token(TokenAuth::user("ada", "swordfish"))).await;
    let session = session(&client(), &registry, "app:1", Some(ada()));
    session.resolve().await.expect("resolves");
    session.resolve().await.expect("resolves");
    assert_eq!(
        statuses(&registry),
        [
            "GET /v2/app/manifests/1 401",
            "POST /token 200",
            "GET /v2/app/manifests/1 200",
            "GET /v2/app/manifests/1 200"
        ]
    );
    let body = &registry.requests()[1].body;
    assert_eq!(
        body,
        "grant_type=password&username=ada&password=swordfish&client_id=imagelet&service=test&scope=repository%3Aapp%3Apull"
    );
    assert_eq!(registry.requests()[1].authorization(), None);
}

#[tokio::test]
async fn token_by_get_when_post_is_unsupported() {
    let registry = start(Auth::Token(TokenAuth { oauth: false, ..TokenAuth::user("ada", "swordfish") })).await;
    session(&client(), &registry, "app:1", Some(ada())).resolve().await.expect("resolves");
    assert_eq!(
        statuses(&registry),
        ["GET /v2/app/manifests/1 401", "POST /token 405", "GET /token 200", "GET /v2/app/manifests/1 200"]
    );
    let get = &registry.requests()[2];
    assert_eq!(get.query, "service=test&scope=repository%3Aapp%3Apull");
    assert!(get.authorization().is_some_and(|a| a.starts_with("Basic ")));
}

#[tokio::test]
async fn other_statuses_of_the_post_fall_back_too() {
    for code in [400, 401, 404, 405] {
        let registry = start(Auth::Token(TokenAuth::user("ada", "swordfish"))).await;
        registry.faults().once("/token", Fault::status(code));
        session(&client(), &registry, "app:1", Some(ada())).resolve().await.expect("resolves");
        assert_eq!(registry.requests_for("/token").len(), 2, "{code}");
    }
}

#[tokio::test]
async fn an_identity_token() {
    let auth = TokenAuth { identity_token: Some("refresh-me".into()), ..TokenAuth::default() };
    let by_field = RegistryAuth { identity_token: Secret::new("refresh-me"), ..RegistryAuth::default() };
    let by_password = RegistryAuth::basic("", "refresh-me");
    for credential in [by_field, by_password] {
        let registry = start(Auth::Token(auth.clone())).await;
        session(&client(), &registry, "app:1", Some(credential)).resolve().await.expect("resolves");
        let body = &registry.requests_for("/token")[0].body;
        assert!(body.starts_with("grant_type=refresh_token&refresh_token=refresh-me&"), "{body}");
    }
}

#[tokio::test]
async fn registry_token_is_sent_unchanged() {
    let auth = TokenAuth { registry_token: Some("as-it-is".into()), ..TokenAuth::default() };
    let registry = start(Auth::Token(auth)).await;
    let credential = RegistryAuth { registry_token: Secret::new("as-it-is"), ..RegistryAuth::default() };
    session(&client(), &registry, "app:1", Some(credential)).resolve().await.expect("resolves");
    // On loopback it is not sent before a request without it has shown that no server listens in TLS.
    assert_eq!(statuses(&registry), ["GET /v2/ 401", "GET /v2/app/manifests/1 200"]);
}

#[tokio::test]
async fn an_anonymous_token() {
    let registry = start(Auth::Token(TokenAuth::anonymous())).await;
    session(&client(), &registry, "app:1", None).resolve().await.expect("resolves");
    let token = &registry.requests_for("/token")[0];
    assert_eq!((token.method.as_str(), token.authorization()), ("GET", None));
}

#[tokio::test]
async fn bearer_is_preferred_to_basic() {
    let registry =
        start(Auth::Token(TokenAuth { basic: BasicOffer::WithBearer, ..TokenAuth::user("ada", "swordfish") })).await;
    session(&client(), &registry, "app:1", Some(ada())).resolve().await.expect("resolves");
    assert_eq!(registry.requests_for("/token").len(), 1);
}

#[tokio::test]
async fn the_scope_that_is_needed_is_always_asked_for() {
    let auth = TokenAuth { challenge_scope: Some("registry:catalog:*".into()), ..TokenAuth::anonymous() };
    let registry = start(Auth::Token(auth)).await;
    session(&client(), &registry, "app:1", None).resolve().await.expect("resolves");
    let query = &registry.requests_for("/token")[0].query;
    assert_eq!(query, "service=test&scope=registry%3Acatalog%3A*&scope=repository%3Aapp%3Apull");
}

#[tokio::test]
async fn one_token_serves_many_blobs() {
    let registry = start(Auth::Token(TokenAuth::anonymous())).await;
    let blobs: Vec<_> = (0..8_usize).map(|n| registry.push_blob("app", noise(1000 + n))).collect();
    let session = session(&client(), &registry, "app:1", None);
    let all = blobs.iter().map(|blob| fetch(&session, blob));
    for got in futures::future::join_all(all).await {
        got.expect("comes");
    }
    assert_eq!(registry.requests_for("/token").len(), 1, "{:?}", statuses(&registry));
}

#[tokio::test]
async fn expired_token_is_renewed() {
    let registry = start(Auth::Token(TokenAuth::anonymous())).await;
    let blob = registry.push_blob("app", noise(1000));
    let session = session(&client(), &registry, "app:1", None);
    session.resolve().await.expect("resolves");
    registry.revoke_tokens();
    let all = (0..4).map(|_| fetch(&session, &blob));
    for got in futures::future::join_all(all).await {
        got.expect("comes");
    }
    assert_eq!(registry.requests_for("/token").len(), 2, "{:?}", statuses(&registry));
}

#[tokio::test]
async fn token_is_renewed_before_expiry() {
    for (expires_in, tokens) in [(Some(300.0), 1), (None, 1), (Some(0.000_001), 3)] {
        let registry = start(Auth::Token(TokenAuth { expires_in, ..TokenAuth::anonymous() })).await;
        let session = session(&client(), &registry, "app:1", None);
        for _ in 0..2 {
            session.resolve().await.expect("resolves");
        }
        assert_eq!(registry.requests_for("/token").len(), tokens, "{expires_in:?}");
        let refused = registry.requests_for("/manifests/").iter().filter(|r| r.status == 401).count();
        assert_eq!(refused, 1, "{expires_in:?}: it is not tried with a token that has ended");
    }
}

#[tokio::test]
async fn insufficient_scope_is_answered_once() {
    let registry = TestRegistry::open().await;
    registry.push("app", "1", &ImageBuilder::tiny("a"));
    let tokens = start(Auth::Token(TokenAuth::anonymous())).await;
    let challenge = format!(
        "Bearer realm=\"{}/token\",service=\"test\",scope=\"repository:app:pull\",error=\"insufficient_scope\"",
        tokens.url()
    );
    let headers = vec![("www-authenticate".to_owned(), challenge)];
    let refusal = Fault::Status { code: 403, headers, body: String::new() };
    registry.faults().once("/manifests/", refusal.clone());
    session(&client(), &registry, "app:1", None).resolve().await.expect("resolves");
    registry.faults().always("/manifests/", refusal);
    let error = session(&client(), &registry, "app:1", None).resolve().await.expect_err("403 for ever");
    assert!(error.to_string().contains("insufficient_scope"), "{error}");
    assert_eq!(tokens.requests_for("/token").len(), 2);
}

#[tokio::test]
async fn token_service_troubles() {
    let cases = [
        (Fault::status(503), ErrorKind::Unavailable, "token service 127.0.0.1:"),
        (Fault::rate_limited("0"), ErrorKind::RateLimited, "token service 127.0.0.1:"),
        (Fault::status(404), ErrorKind::Unavailable, "answered 404"),
        (Fault::Html, ErrorKind::Unavailable, "its answer is not JSON (content type text/html; charset=utf-8)"),
        (
            Fault::Status { code: 200, headers: vec![], body: "{}".into() },
            ErrorKind::Unavailable,
            "its answer has no token (content type no type)",
        ),
        (
            Fault::Status { code: 200, headers: vec![], body: format!("{{\"token\":\"{}\"}}", "x".repeat(2 << 20)) },
            ErrorKind::InvalidContent,
            "larger than the 1048576 bytes",
        ),
        (
            Fault::Status { code: 200, headers: vec![], body: "{\"token\":\"a\\nb\"}".into() },
            ErrorKind::Unauthenticated,
            "the token has characters that no header can carry",
        ),
        (Fault::EndlessRedirect, ErrorKind::Unavailable, "more than 10 redirects in a row"),
    ];
    for (fault, kind, want) in cases {
        let registry = start(Auth::Token(TokenAuth::anonymous())).await;
        registry.faults().always("/token", fault.clone());
        let error = session(&client(), &registry, "app:1", None).resolve().await.expect_err("trouble");
        assert_eq!(error.kind(), kind, "{fault:?}: {error}");
        assert!(error.to_string().contains(want), "{fault:?}: {error}");
    }
    let registry = start(Auth::Token(TokenAuth::anonymous())).await;
    registry.faults().times("/token", 2, Fault::status(503));
    session(&client(), &registry, "app:1", None).resolve().await.expect("passing trouble passes");
}

#[tokio::test]
async fn untrusted_realms_get_no_secret() {
    let realms = [
        ("http://169.254.169.254/latest", "link-local"),
        ("http://10.0.0.1/token", "a private address"),
        ("ftp://127.0.0.1/token", "the scheme \"ftp\""),
    ];
    for (realm, want) in realms {
        let auth = TokenAuth { realm: Some(realm.into()), ..TokenAuth::user("ada", "swordfish") };
        let registry = start(Auth::Token(auth)).await;
        let error = session(&client(), &registry, "app:1", Some(ada())).resolve().await.expect_err("realm");
        assert!(error.to_string().contains(want), "{realm}: {error}");
    }
}

#[tokio::test]
async fn user_information_in_a_realm_is_no_credential() {
    let tokens = start(Auth::Token(TokenAuth::anonymous())).await;
    let realm = format!("http://of-the:registry@{}/token", tokens.host());
    let registry = start(Auth::Token(TokenAuth { realm: Some(realm), ..TokenAuth::anonymous() })).await;
    session(&client(), &registry, "app:1", None).resolve().await.expect_err("a token of another service");
    let asked = tokens.requests_for("/token");
    assert!(!asked.is_empty() && asked.iter().all(|asked| asked.authorization().is_none()), "{asked:?}");
}

#[tokio::test]
async fn deeply_nested_documents_are_refused() {
    let deep = |open: &str, close: &str| open.repeat(50_000) + &close.repeat(50_000);
    for body in [deep("[", "]"), deep("{\"errors\":", "}"), deep("{\"errors\":[", "]}"), "[".repeat(300_000)] {
        let answer = |code: u16| Fault::Status { code, headers: vec![], body: body.clone() };
        let registry = start(Auth::Token(TokenAuth::anonymous())).await;
        registry.faults().once("/token", answer(200));
        let error = session(&client(), &registry, "app:1", None).resolve().await.expect_err("no token");
        assert!(error.to_string().contains("its answer is not JSON"), "{error}");
        registry.faults().once("/token", answer(403));
        let error = session(&client(), &registry, "app:1", None).resolve().await.expect_err("no token");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().len() < 400, "{error}");
        registry.faults().once("/manifests/", answer(404));
        let error = session(&client(), &registry, "app:1", None).resolve().await.expect_err("no manifest");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().len() < 400, "{error}");
    }
}

#[tokio::test]
async fn secrets_are_not_redirected() {
    let thief = TestRegistry::open().await;
    let registry = start(Auth::Token(TokenAuth::user("ada", "swordfish"))).await;
    registry.faults().once("/token", Fault::RedirectTo { base: thief.url() });
    let error = session(&client(), &registry, "app:1", Some(ada())).resolve().await.expect_err("redirected");
    assert!(error.to_string().contains("the credential was not sent on to http://127.0.0.1:"), "{error}");
    assert_eq!(thief.requests(), []);
    // By GET the request itself may go there, without the secret.
    let registry = start(Auth::Token(TokenAuth { oauth: false, ..TokenAuth::user("ada", "swordfish") })).await;
    registry.faults().once("/token", Fault::status(405));
    registry.faults().once("/token", Fault::RedirectTo { base: thief.url() });
    session(&client(), &registry, "app:1", Some(ada())).resolve().await.expect_err("no token there");
    assert_eq!(thief.requests().len(), 1);
    assert_eq!(thief.requests()[0].authorization(), None);
}

#[tokio::test]
async fn credential_is_sent_to_its_host_only() {
    let basic = || Auth::Basic { user: "ada".into(), password: "swordfish".into() };
    let (mirror, upstream) = (start(basic()).await, start(basic()).await);
    let hosts = || vec![host(&mirror.url(), false), host(&upstream.url(), true)];
    let cases = [
        // For the registry itself.
        (String::new(), true),
        (upstream.host(), true),
        (format!("http://{}/v1/", upstream.host()), true),
        // For the mirror: the upstream is not needed.
        (mirror.host(), false),
    ];
    for (server_address, by_upstream) in cases {
        mirror.clear_requests();
        upstream.clear_requests();
        let auth = RegistryAuth { server_address: server_address.clone(), ..ada() };
        let client = client_of(hosts(), quick());
        session(&client, &upstream, "app:1", Some(auth)).resolve().await.expect("resolves");
        let asked = |r: &TestRegistry| r.requests().iter().any(|r| r.authorization().is_some());
        assert_eq!((asked(&mirror), asked(&upstream)), (!by_upstream, by_upstream), "{server_address:?}");
    }
    let auth = RegistryAuth { server_address: "other.example".into(), ..ada() };
    let client = client_of(hosts(), quick());
    let error = session(&client, &upstream, "app:1", Some(auth)).resolve().await.expect_err("for nobody here");
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.to_string().contains("the credential at hand is for other.example and was not sent"), "{error}");
}

#[tokio::test]
async fn registry_headers_are_sent_to_their_origin_only() {
    let cdn = TestRegistry::open().await;
    let registry = TestRegistry::open().await;
    let blob = registry.push_blob("app", noise(10));
    cdn.push_blob("app", noise(10));
    registry.faults().once("/blobs/", Fault::RedirectTo { base: cdn.url() });
    let mut config = host(&registry.url(), true);
    config.headers.push(("X-Key".into(), "header-secret".into()));
    let session = session(&client_of(vec![config], quick()), &registry, "app", None);
    fetch(&session, &blob).await.expect("comes");
    assert_eq!(registry.requests()[0].header("x-key"), Some("header-secret"));
    assert_eq!(cdn.requests()[0].header("x-key"), None);
}

fn redirect(code: u16, location: &str) -> Fault {
    Fault::Status { code, headers: vec![("location".to_owned(), location.to_owned())], body: String::new() }
}

#[tokio::test]
async fn token_by_get_when_post_is_redirected() {
    for code in [301, 302, 303] {
        let registry = start(Auth::Token(TokenAuth::user("ada", "swordfish"))).await;
        registry.faults().once("/token", redirect(code, "/token?moved=1"));
        session(&client(), &registry, "app:1", Some(ada())).resolve().await.expect("resolves");
        let asked = registry.requests_for("/token");
        let methods: Vec<&str> = asked.iter().map(|r| r.method.as_str()).collect();
        assert_eq!(methods, ["POST", "GET"], "{code}: the form is not sent on");
        assert_eq!(asked[1].query, "service=test&scope=repository%3Aapp%3Apull", "{code}: all of the request is");
        assert!(asked[1].authorization().is_some_and(|a| a.starts_with("Basic ")), "{code}");
    }
    // The GET is redirected as well.
    let registry = start(Auth::Token(TokenAuth::user("ada", "swordfish"))).await;
    registry.faults().once("/token", redirect(301, "/token"));
    registry.faults().once("/token", redirect(301, "/token?service=test&scope=repository%3Aapp%3Apull&moved=1"));
    session(&client(), &registry, "app:1", Some(ada())).resolve().await.expect("resolves");
    assert!(registry.requests_for("/token")[2].authorization().is_some(), "it is the same origin");
    // 307 and 308 keep the method, and so the form.
    for code in [307, 308] {
        let registry = start(Auth::Token(TokenAuth::user("ada", "swordfish"))).await;
        registry.faults().once("/token", redirect(code, "/token?moved=1"));
        session(&client(), &registry, "app:1", Some(ada())).resolve().await.expect("resolves");
        let asked = registry.requests_for("/token");
        assert_eq!((asked.len(), asked[1].method.as_str()), (2, "POST"), "{code}");
        assert_eq!((asked[0].body.as_str(), asked[1].authorization()), (asked[1].body.as_str(), None), "{code}");
    }
}

#[tokio::test]
async fn no_redirect_of_a_token_request_carries_a_secret_to_another_origin() {
    for code in [301, 302, 303, 307, 308] {
        let thief = TestRegistry::open().await;
        let elsewhere = format!("{}/token", thief.url());
        let registry = start(Auth::Token(TokenAuth::user("ada", "swordfish"))).await;
        registry.faults().once("/token", redirect(code, &elsewhere));
        let error = session(&client(), &registry, "app:1", Some(ada())).resolve().await.expect_err("redirected");
        assert!(error.to_string().contains("the credential was not sent on to"), "{code}: {error}");
        assert_eq!(thief.requests(), [], "{code}");
        // First within the origin, and then away from it.
        registry.faults().once("/token", redirect(307, "/token?moved=1"));
        registry.faults().once("/token", redirect(code, &elsewhere));
        session(&client(), &registry, "app:1", Some(ada())).resolve().await.expect_err("redirected");
        assert_eq!(thief.requests(), [], "{code}");
        // The GET that follows a redirected POST may be sent on, without the secret.
        registry.faults().once("/token", redirect(302, "/token"));
        registry.faults().once("/token", redirect(code, &elsewhere));
        session(&client(), &registry, "app:1", Some(ada())).resolve().await.expect_err("no token there");
        let seen = thief.requests();
        assert!(seen.len() == 1 && seen[0].authorization().is_none() && seen[0].body.is_empty(), "{code}: {seen:?}");
    }
}

#[tokio::test]
async fn a_secret_without_a_user_falls_back_to_get() {
    let identity = RegistryAuth { identity_token: Secret::new("refresh-me"), ..RegistryAuth::default() };
    for credential in [identity, RegistryAuth::basic("", "refresh-me")] {
        let registry = start(Auth::Token(TokenAuth { oauth: false, ..TokenAuth::user("", "refresh-me") })).await;
        session(&client(), &registry, "app:1", Some(credential)).resolve().await.expect("resolves");
        assert_eq!(
            statuses(&registry)[1..3],
            ["POST /token 405", "GET /token 200"],
            "as containerd does for 400, 401 and 404"
        );
    }
}
