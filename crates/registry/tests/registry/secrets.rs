//! No secret in any error or trace, whatever goes wrong. Everything that the process traces, at the finest level and
//! by every library, goes into a buffer that is searched.

use oci::{RegistryAuth, Secret};
use registry::testing::{Auth, Fault, ImageBuilder, Options, TestRegistry, TokenAuth};

use crate::support::{Traced, client_of, fetch, host, noise, quick, session};

const PASSWORD: &str = "pass-word-7f3a";
const IDENTITY: &str = "identity-token-91bd";
const REGISTRY_TOKEN: &str = "registry-token-55e0";
const HEADER: &str = "header-secret-20c4";
const SIGNATURE: &str = "X-Amz-Signature-deadbeef";

fn credentials() -> Vec<Option<RegistryAuth>> {
    let base64 = "YWRhOnBhc3Mtd29yZC03ZjNh";
    vec![
        None,
        Some(RegistryAuth::basic("ada", PASSWORD)),
        Some(RegistryAuth { auth: Secret::new(base64), ..RegistryAuth::default() }),
        Some(RegistryAuth { identity_token: Secret::new(IDENTITY), ..RegistryAuth::default() }),
        Some(RegistryAuth { registry_token: Secret::new(REGISTRY_TOKEN), ..RegistryAuth::default() }),
    ]
}

#[tokio::test]
async fn storage_that_echoes_headers_gets_no_secret() {
    let (registry, store) = (TestRegistry::open().await, TestRegistry::open().await);
    let blob = registry.push_blob("app", noise(100));
    store.push_blob("app", noise(100));
    let buffer = Traced::default();
    let _guard = buffer.start(tracing_subscriber::filter::LevelFilter::TRACE);
    // By way of a second place, as a rotation of stores has it.
    let first = format!("{}/hop?ticket=ticket-of-the-first-hop", store.url());
    let last = format!("{}/v2/app/blobs/{}?{SIGNATURE}=sum%2Fof+all+things&X-Amz-Expires=60", store.url(), blob.digest);
    registry.faults().always("/blobs/", Fault::Location { url: first });
    store.faults().always("/hop", Fault::Location { url: last });
    let body =
        "<Error>the sum/of all things (sum%2Fof+all+things) for ticket-of-the-first-hop has expired</Error>".to_owned();
    let times = 2;
    store.faults().times("/blobs/", times, Fault::Status { code: 403, headers: vec![], body });
    let session = session(&client_of(vec![host(&registry.url(), true)], quick()), &registry, "app", None);
    for _ in 0..times {
        let error = fetch(&session, &blob).await.expect_err("refused").to_string();
        assert!(error.contains("has expired"), "{error}");
        for told in [&error, &buffer.text()] {
            assert!(
                !["ticket-of", "sum/of", "sum%2Fof", SIGNATURE].iter().any(|secret| told.contains(secret)),
                "{told}"
            );
        }
    }
    assert_eq!(fetch(&session, &blob).await.expect("comes"), noise(100));
}

/// All that a registry that has seen a credential can say of it.
fn echoed(credential: Option<&RegistryAuth>) -> String {
    let Some(auth) = credential else { return "nothing".into() };
    if !auth.identity_token.is_empty() {
        return format!("token is {IDENTITY}.");
    }
    if !auth.registry_token.is_empty() {
        return format!("({REGISTRY_TOKEN})");
    }
    format!("Basic YWRhOnBhc3Mtd29yZC03ZjNh or YWRhOnBhc3Mtd29yZC03ZjNh, password={PASSWORD}")
}

fn faults(credential: Option<&RegistryAuth>) -> Vec<Option<Fault>> {
    let echoed = echoed(credential);
    let echo = format!(
        r#"{{"errors":[{{"code":"DENIED","message":"{echoed} and {HEADER} at https://u:{PASSWORD}@s3.example/x?{SIGNATURE}"}}]}}"#
    );
    let signed = format!("http://127.0.0.1:1/bucket?sig={SIGNATURE}");
    let header = |name: &str, value: String| vec![(name.to_owned(), value)];
    vec![
        None,
        Some(Fault::Status { code: 403, headers: vec![], body: echo.clone() }),
        Some(Fault::Status { code: 500, headers: vec![], body: echo.clone() }),
        Some(Fault::Status { code: 200, headers: vec![], body: echo.replace('{', "") }),
        Some(Fault::Status {
            code: 401,
            headers: header("www-authenticate", format!("Basic realm=\"x\", error=\"{echoed}\"")),
            body: echo.clone(),
        }),
        Some(Fault::Status {
            code: 401,
            headers: header("www-authenticate", format!("Bearer realm=\"http://10.0.0.1/t?{SIGNATURE}\"")),
            body: echo,
        }),
        Some(Fault::Location { url: signed }),
        Some(Fault::Location { url: format!("http://169.254.169.254/x?{SIGNATURE}") }),
        Some(Fault::Location { url: format!("http://127.0.0.1:1/{SIGNATURE}/x") }),
        Some(Fault::Location { url: format!("http://169.254.169.254/{SIGNATURE}") }),
        Some(Fault::Location { url: format!("ftp://ada:{PASSWORD}@h/x?{SIGNATURE}") }),
        Some(Fault::EndlessRedirect),
        Some(Fault::rate_limited("0")),
        Some(Fault::Html),
        Some(Fault::Drop),
        Some(Fault::Truncate { after: 3 }),
        Some(Fault::Reset { after: 3 }),
        Some(Fault::Corrupt),
        Some(Fault::TooLong),
        Some(Fault::ContentType { value: format!("text/{HEADER}") }),
    ]
}

#[tokio::test]
async fn nothing_leaks() {
    let buffer = Traced::default();
    let _guard = buffer.start(tracing_subscriber::filter::LevelFilter::TRACE);

    let token_auth = TokenAuth {
        identity_token: Some(IDENTITY.into()),
        registry_token: Some(REGISTRY_TOKEN.into()),
        ..TokenAuth::user("ada", PASSWORD)
    };
    let modes = [
        None,
        Some(Auth::Basic { user: "ada".into(), password: PASSWORD.into() }),
        Some(Auth::Token(token_auth.clone())),
        Some(Auth::Token(TokenAuth { oauth: false, accepts_tokens: false, ..token_auth })),
    ];
    let mut retry = quick();
    retry.attempts = 2;
    // Every token that the test registry gives out begins alike.
    let secrets = [PASSWORD, IDENTITY, REGISTRY_TOKEN, HEADER, SIGNATURE, "YWRhOnBhc3Mtd29yZC03ZjNh", "test-token-"];
    let (mut errors, mut successes, mut tokens) = (Vec::new(), 0, 0);
    for mode in modes {
        let places: &[&str] = if matches!(mode, Some(Auth::Token(_))) { &["/v2/", "/token"] } else { &["/v2/"] };
        let registry = TestRegistry::start(Options { auth: mode, ..Options::default() }).await;
        registry.push("app", "1", &ImageBuilder::tiny("a"));
        let blob = registry.push_blob("app", noise(100));
        let mut config = host(&registry.url(), true);
        config.headers.push(("x-key".into(), HEADER.into()));
        let client = client_of(vec![config], retry.clone());
        for credential in credentials() {
            for fault in faults(credential.as_ref()) {
                for place in places {
                    if let Some(fault) = &fault {
                        registry.faults().always(place, fault.clone());
                    }
                    let session = session(&client, &registry, "app:1", credential.clone());
                    errors.push(format!("{client:?} {session:?}"));
                    for result in [
                        session.resolve().await.map(|_| ()),
                        fetch(&session, &blob).await.map(|_| ()),
                        session.blob_bytes(&blob, 1000).await.map(|_| ()),
                    ] {
                        match result {
                            Ok(()) => successes += 1,
                            Err(error) => errors.push(format!("{error} {error:?}")),
                        }
                    }
                    registry.faults().clear();
                }
            }
        }
        tokens += registry.issued_tokens().len();
    }
    let traced = buffer.text();
    assert!(successes > 100 && errors.len() > 1000, "{successes} successes, {} errors", errors.len());
    assert!(tokens > 100, "{tokens} tokens were given out");
    assert!(traced.contains("request failed") && traced.contains(" TRACE "), "tracing was on");
    for secret in secrets {
        if let Some(error) = errors.iter().find(|e| e.contains(secret)) {
            panic!("{secret} in an error: {error}");
        }
        if let Some(at) = traced.find(secret) {
            let line = traced[..at].rfind('\n').map_or(0, |n| n + 1);
            panic!("{secret} in a trace: {}", &traced[line..at + secret.len()]);
        }
    }
}
