//! TLS: own authorities, client certificates, no verification, and what an unknown certificate looks like.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use registry::testing::{
    Fault, ImageBuilder, Options, TestRegistry, TestTls, ca_pem, client_certificate_pem, client_key_pem,
    self_signed_pem,
};
use registry::{ErrorKind, HostConfig, Namespace};

use crate::support::{client_of, fetch, host, noise, quick, session};

async fn start(tls: TestTls) -> TestRegistry {
    let registry = TestRegistry::start(Options { tls, ..Options::default() }).await;
    registry.push("app", "1", &ImageBuilder::tiny("a"));
    registry
}

fn trusted(registry: &TestRegistry) -> HostConfig {
    let mut config = host(&registry.url(), true);
    config.tls.ca_pem.push(ca_pem());
    config
}

#[tokio::test]
async fn certificates() {
    let registry = start(TestTls::On).await;
    assert!(registry.url().starts_with("https://"));
    let unknown = host(&registry.url(), true);
    let mut skipped = unknown.clone();
    skipped.tls.skip_verify = true;
    let mut by_name = trusted(&registry);
    by_name.base.set_host(Some("localhost")).expect("a host");
    let cases = [
        ("its authority is given", trusted(&registry), None),
        ("by name", by_name, None),
        ("not verified", skipped, None),
        ("unknown", unknown, Some("TLS: invalid peer certificate: UnknownIssuer")),
    ];
    for (name, config, want) in cases {
        let connections = registry.connections();
        let got = session(&client_of(vec![config], quick()), &registry, "app:1", None).resolve().await;
        match (got, want) {
            (Ok(_), None) => {}
            (Err(error), Some(want)) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                assert!(error.to_string().contains(want), "{name}: {error}");
                assert_eq!(registry.connections(), connections + 1, "{name}: a certificate does not get better");
            }
            (got, want) => panic!("{name}: {got:?}, not {want:?}"),
        }
    }
}

#[tokio::test]
async fn self_signed_certificates_are_refused() {
    let registry = start(TestTls::SelfSigned).await;
    let (with, mut by_name, unknown) = (host(&registry.url(), true), host(&registry.url(), true), trusted(&registry));
    by_name.base.set_host(Some("localhost")).expect("a host");
    for mut config in [with, by_name] {
        config.tls.ca_pem.push(self_signed_pem());
        session(&client_of(vec![config], quick()), &registry, "app:1", None).resolve().await.expect("resolves");
    }
    let error = session(&client_of(vec![unknown], quick()), &registry, "app:1", None).resolve().await;
    let error = error.expect_err("another authority is given").to_string();
    assert!(error.contains("TLS: invalid peer certificate"), "{error}");
}

#[tokio::test]
async fn client_certificates() {
    let registry = start(TestTls::WithClientCertificate).await;
    let without = trusted(&registry);
    let mut with = without.clone();
    with.tls.client_identity_pem.push((client_certificate_pem(), client_key_pem()));
    session(&client_of(vec![with], quick()), &registry, "app:1", None).resolve().await.expect("resolves");
    let error = session(&client_of(vec![without], quick()), &registry, "app:1", None).resolve().await;
    assert!(error.is_err_and(|e| e.kind() == ErrorKind::Unavailable));
}

#[tokio::test]
async fn a_client_certificate_is_for_its_origin() {
    let registry = start(TestTls::WithClientCertificate).await;
    let other = start(TestTls::WithClientCertificate).await;
    let blob = registry.push_blob("app", noise(10));
    other.push_blob("app", noise(10));
    registry.faults().always("/blobs/", Fault::RedirectTo { base: other.url() });
    let mut config = trusted(&registry);
    config.tls.client_identity_pem.push((client_certificate_pem(), client_key_pem()));
    let session = session(&client_of(vec![config], quick()), &registry, "app", None);
    assert!(fetch(&session, &blob).await.is_err());
    assert_eq!(other.requests(), [], "without a certificate there is no request");
}

#[tokio::test]
async fn broken_tls_transfer_resumes() {
    let registry = start(TestTls::On).await;
    let blob = registry.push_blob("app", noise(300_000));
    let session = session(&client_of(vec![trusted(&registry)], quick()), &registry, "app", None);
    for fault in [Fault::Truncate { after: 100_000 }, Fault::Reset { after: 100_000 }, Fault::Drop] {
        registry.clear_requests();
        registry.faults().once("/blobs/", fault.clone());
        assert!(fetch(&session, &blob).await.expect("comes") == noise(300_000), "{fault:?}");
        assert_eq!(registry.requests().len(), 2, "{fault:?}");
    }
}

#[tokio::test]
async fn redirects_between_the_schemes() {
    let (secure, plain) = (start(TestTls::On).await, TestRegistry::open().await);
    let blob = secure.push_blob("app", noise(10));
    plain.push_blob("app", noise(10));
    secure.faults().once("/blobs/", Fault::RedirectTo { base: plain.url() });
    let down = session(&client_of(vec![trusted(&secure)], quick()), &secure, "app", None);
    let error = fetch(&down, &blob).await.expect_err("downgrade");
    assert!(error.to_string().contains("redirect refused: from HTTPS to plain HTTP"), "{error}");
    assert_eq!(plain.requests(), []);
    // Upwards it is fine, as far as the certificate is.
    plain.faults().once("/blobs/", Fault::RedirectTo { base: secure.url() });
    let mut config = host(&plain.url(), true);
    config.tls.ca_pem.push(ca_pem());
    let up = session(&client_of(vec![config], quick()), &plain, "app", None);
    assert_eq!(fetch(&up, &blob).await.expect("comes"), noise(10));
}

#[tokio::test]
async fn the_wrong_scheme() {
    let (secure, plain) = (start(TestTls::On).await, start(TestTls::Off).await);
    let to_plain = host(&format!("https://{}", plain.host()), true);
    let error = session(&client_of(vec![to_plain], quick()), &plain, "app:1", None).resolve().await;
    let error = error.expect_err("no TLS there").to_string();
    assert!(error.contains("TLS: ") && error.contains("it looks like a server that speaks plain HTTP"), "{error}");
    let to_secure = host(&format!("http://{}", secure.host()), true);
    let error = session(&client_of(vec![to_secure], quick()), &secure, "app:1", None).resolve().await;
    assert_eq!(error.expect_err("TLS there").kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn missing_handshake_times_out() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = silent.local_addr().expect("an address");
    let mut config = host(&format!("https://{addr}"), true);
    config.dial_timeout = std::time::Duration::from_millis(100);
    let client = client_of(vec![config], quick());
    let name = crate::support::reference(&format!("{addr}/app:1"));
    let error = client.repository(&name, None).expect("hosts").resolve().await.expect_err("silent");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("cannot connect: no connection within 0.1 s (after 2 attempts)"), "{error}");
}

#[tokio::test]
async fn settings_that_cannot_be_used() {
    let registry = start(TestTls::On).await;
    let mut config = trusted(&registry);
    config.tls.client_identity_pem.push((client_certificate_pem(), b"no key".to_vec()));
    let error = session(&client_of(vec![config], quick()), &registry, "app:1", None).resolve().await;
    let error = error.expect_err("no key");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("has no PEM private key"), "{error}");
}

#[tokio::test]
async fn loopback_without_configuration() {
    // Plain HTTP on a port of its own.
    let plain = start(TestTls::Off).await;
    session(&crate::support::client(), &plain, "app:1", None).resolve().await.expect("resolves");
    // A changed configuration counts at once, in the same client.
    let registry = start(TestTls::On).await;
    let trusted = trusted(&registry);
    let on = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = Arc::clone(&on);
    let loader = move |_: &str| {
        let mut config = trusted.clone();
        if !seen.load(std::sync::atomic::Ordering::SeqCst) {
            config.tls.ca_pem.clear();
        }
        Ok(registry::Namespace { hosts: vec![config] })
    };
    let options = registry::Options { retry: quick(), ..registry::Options::new(Arc::new(loader)) };
    let client = registry::Client::new(options);
    assert!(session(&client, &registry, "app:1", None).resolve().await.is_err());
    on.store(true, std::sync::atomic::Ordering::SeqCst);
    session(&client, &registry, "app:1", None).resolve().await.expect("resolves");
}

/// A node without a clock of its own starts in 1970, or before.
#[tokio::test]
async fn wrong_clock_is_reported_with_its_time() {
    let registry = start(TestTls::On).await;
    let year = |n: i64| n * 31_556_952;
    let cases = [
        (year(-30), "is not valid before", "shows Thu, 01 Jan 1970 00:00:00 GMT"),
        (12, "is not valid before", "shows Thu, 01 Jan 1970 00:00:12 GMT"),
        (year(292), "was valid until", "2261"),
        (year(9000), "was valid until", "9999"),
    ];
    for (seconds, what, shown) in cases {
        let (hosts, length) = (vec![trusted(&registry)], Duration::from_secs(seconds.unsigned_abs()));
        let now = if seconds < 0 { UNIX_EPOCH - length } else { UNIX_EPOCH + length };
        let loader = move |_: &str| Ok(Namespace { hosts: hosts.clone() });
        let options = registry::Options {
            retry: quick(),
            wall_clock: Arc::new(move || now),
            ..registry::Options::new(Arc::new(loader))
        };
        let error = session(&registry::Client::new(options), &registry, "app:1", None).resolve().await;
        let error = error.expect_err("it is not the certificate's time");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        for words in [what, "the clock of this machine, which may be wrong", shown] {
            assert!(text.contains(words), "{text} has no {words:?}");
        }
    }
}
