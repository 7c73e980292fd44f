//! Proxies: used for what is elsewhere, never for this machine.

use std::sync::Arc;

use registry::testing::{ImageBuilder, TestRegistry};
use registry::{Client, Namespace, Options, ProxySettings};

use crate::support::{host, quick, reference};

fn client(proxy: ProxySettings) -> Client {
    let loader = |domain: &str| Ok(Namespace { hosts: vec![host(&format!("http://{domain}"), true)] });
    Client::new(Options { retry: quick(), proxy, ..Options::new(Arc::new(loader)) })
}

#[tokio::test]
async fn what_goes_through_it() {
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
async fn settings() {
    let bad = ProxySettings { http: Some("http://ada:swordfish@[".into()), ..ProxySettings::default() };
    assert!(!format!("{bad:?}").contains("swordfish"));
    let session = client(bad).repository(&reference("r.invalid/app:1"), None).expect("hosts");
    let error = session.resolve().await.expect_err("no URL").to_string();
    assert!(error.contains("the address of the HTTP proxy is no URL") && !error.contains("swordfish"), "{error}");

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
