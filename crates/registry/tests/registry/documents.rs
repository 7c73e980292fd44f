//! Resolving names and fetching manifests.

use oci::{Descriptor, Digest, media_type};
use registry::ErrorKind;
use registry::testing::{BuiltIndex, Fault, ImageBuilder, TestRegistry, schema1_manifest};

use crate::support::{reference, repository, session};

#[tokio::test]
async fn by_tag_and_by_digest() {
    let registry = TestRegistry::open().await;
    let image = ImageBuilder::tiny("a");
    let digest = registry.push("app/web", "1.0", &image);
    let by_tag = repository(&registry, "app/web:1.0").resolve().await.expect("resolves");
    assert_eq!((&by_tag.digest, by_tag.media_type.as_str()), (&digest, media_type::OCI_MANIFEST));
    assert_eq!(by_tag.bytes, image.manifest);
    let by_digest = repository(&registry, &format!("app/web@{digest}")).resolve().await.expect("resolves");
    assert_eq!(by_digest, by_tag);
    // The digest wins over the tag, which need not exist.
    let both = repository(&registry, &format!("app/web:nonsense@{digest}")).resolve().await.expect("resolves");
    assert_eq!(both, by_tag);

    let requests = registry.requests();
    assert!(requests.iter().all(|r| r.method == "GET"), "no HEAD, no ping: {requests:?}");
    assert_eq!(requests[0].path, "/v2/app/web/manifests/1.0");
    assert_eq!(requests[0].query, "", "no ns for the registry itself");
    let accept = requests[0].header("accept").expect("Accept");
    for media_type in media_type::MANIFEST_ACCEPT {
        assert!(accept.contains(media_type), "{accept}");
    }
    assert!(requests[0].header("user-agent").is_some_and(|a| a.starts_with("imagelet/")));
}

#[tokio::test]
async fn missing_tag_is_latest() {
    let registry = TestRegistry::open().await;
    let digest = registry.push("app", "latest", &ImageBuilder::tiny("a"));
    let session = repository(&registry, "app");
    assert_eq!(session.reference().tag(), Some("latest"));
    assert_eq!(session.resolve().await.expect("resolves").digest, digest);
}

#[tokio::test]
async fn an_index_its_manifest_and_its_config() {
    let registry = TestRegistry::open().await;
    let index = BuiltIndex::docker(vec![ImageBuilder::tiny("a"), ImageBuilder::tiny("b")]);
    registry.push_index("app", "1", &index);
    let session = repository(&registry, "app:1");
    let fetched = session.resolve().await.expect("resolves");
    assert_eq!((&fetched.digest, fetched.media_type.as_str()), (index.digest(), media_type::DOCKER_INDEX));
    let image = &index.images[1];
    let manifest = session.manifest(&image.descriptor).await.expect("manifest");
    assert_eq!(manifest.bytes, image.manifest);
    let config = session.blob_bytes(&image.config_descriptor, 4 << 20).await.expect("config");
    assert_eq!(config, image.config);
    assert_eq!(registry.connections(), 1, "one connection serves them one after the other");
}

#[tokio::test]
async fn a_probe_costs_a_head() {
    let registry = TestRegistry::open().await;
    let digest = registry.push("app", "1", &ImageBuilder::tiny("a"));
    assert_eq!(repository(&registry, "app:1").probe().await, Some(digest.clone()));
    let requests = registry.requests();
    assert_eq!((requests.len(), requests[0].method.as_str()), (1, "HEAD"));
    assert_eq!(repository(&registry, "app:2").probe().await, None);
    for fault in [Fault::status(405), Fault::status(500), Fault::Drop, Fault::EndlessRedirect] {
        registry.faults().always("/manifests/", fault.clone());
        assert_eq!(repository(&registry, "app:1").probe().await, None, "{fault:?}");
        registry.faults().clear();
    }
    registry.clear_requests();
    assert_eq!(repository(&registry, &format!("app@{digest}")).probe().await, Some(digest));
    assert_eq!(registry.requests(), [], "a digest stands for itself");
}

#[tokio::test]
async fn warnings_are_shown_once() {
    let registry = TestRegistry::open().await;
    let warning = vec![("warning".to_owned(), r#"299 - "this tag is deprecated""#.to_owned())];
    let traced = crate::support::Traced::default();
    let _guard = traced.start(tracing_subscriber::filter::LevelFilter::WARN);
    let session = repository(&registry, "app:1");
    for _ in 0..3 {
        registry.faults().once("/", Fault::Status { code: 404, headers: warning.clone(), body: String::new() });
        session.resolve().await.expect_err("not there");
    }
    assert_eq!(traced.text().matches("this tag is deprecated").count(), 1, "{}", traced.text());
}

#[tokio::test]
async fn absent_content_is_not_found() {
    let registry = TestRegistry::open().await;
    registry.push("app", "1", &ImageBuilder::tiny("a"));
    let error = repository(&registry, "app:2").resolve().await.expect_err("no such tag");
    assert_eq!((error.kind(), error.status()), (ErrorKind::NotFound, Some(404)));
    let host = registry.host();
    assert_eq!(
        error.to_string(),
        format!("resolve {host}/app:2: {host}: 404 Not Found (MANIFEST_UNKNOWN: MANIFEST_UNKNOWN for app/manifests/2)")
    );
    assert_eq!(registry.requests().len(), 1, "404 is not tried again");
    let missing = Descriptor::new("", Digest::sha256(b"x"), 1);
    let error = repository(&registry, "app:1").blob(&missing).await.expect_err("no such blob");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().starts_with(&format!("fetch blob {} of {host}/app: ", missing.digest)), "{error}");
}

#[tokio::test]
async fn wrong_bytes() {
    let registry = TestRegistry::open().await;
    let image = ImageBuilder::tiny("a");
    let digest = registry.push("app", "1", &image);
    let cases = [
        ("app:1", Fault::Corrupt, "the registry names the manifest sha256:"),
        ("app:1", Fault::WrongDigestHeader, "the registry names the manifest sha256:"),
        ("by digest", Fault::Corrupt, "digest mismatch: expected sha256:"),
        ("by digest", Fault::TooLong, "digest mismatch: expected sha256:"),
        (
            "app:1",
            Fault::Html,
            "text/html; charset=utf-8 instead of a manifest, it starts with \"<!DOCTYPE html> <html>",
        ),
        ("by digest", Fault::Html, "text/html; charset=utf-8 instead of a manifest"),
        (
            "app:1",
            Fault::Status { code: 200, headers: vec![], body: String::new() },
            "an empty answer (no type) instead of a manifest",
        ),
    ];
    for (name, fault, want) in cases {
        let name = if name == "by digest" { format!("app@{digest}") } else { name.to_owned() };
        registry.faults().once("/manifests/", fault.clone());
        let error = repository(&registry, &name).resolve().await.expect_err("wrong");
        assert_eq!(error.kind(), ErrorKind::InvalidContent, "{fault:?}: {error}");
        assert!(error.to_string().contains(want), "{fault:?}: {error}");
    }
    let mut wrong_size = image.descriptor.clone();
    wrong_size.size -= 1;
    let error = repository(&registry, "app:1").manifest(&wrong_size).await.expect_err("wrong size");
    assert_eq!(error.kind(), ErrorKind::InvalidContent);
}

#[tokio::test]
async fn malformed_digest_headers_are_ignored() {
    let registry = TestRegistry::open().await;
    let image = ImageBuilder::tiny("a");
    let body = String::from_utf8(image.manifest.to_vec()).expect("JSON");
    let answer = |header: &[(&str, String)]| Fault::Status {
        code: 200,
        headers: header.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect(),
        body: body.clone(),
    };
    registry.faults().once("/manifests/", answer(&[]));
    let fetched = repository(&registry, "app:1").resolve().await.expect("resolves without the header");
    assert_eq!((&fetched.digest, fetched.media_type.as_str()), (image.digest(), ""));
    let sha512 = oci::Algorithm::Sha512.digest(&image.manifest);
    registry.faults().once("/manifests/", answer(&[("docker-content-digest", sha512.to_string())]));
    let fetched = repository(&registry, "app:1").resolve().await.expect("resolves by sha512");
    assert_eq!(fetched.digest, sha512);
    registry.faults().once("/manifests/", answer(&[("docker-content-digest", "../../etc".to_owned())]));
    let error = repository(&registry, "app:1").resolve().await.expect_err("no digest");
    assert!(
        error.to_string().contains("Docker-Content-Digest \"../../etc\": invalid checksum digest format"),
        "{error}"
    );
}

#[tokio::test]
async fn too_large() {
    let registry = TestRegistry::open().await;
    let huge = format!("{{\"x\":\"{}\"}}", "y".repeat(5 << 20));
    let digest = registry.push_manifest("app", media_type::OCI_MANIFEST, huge.clone());
    registry.tag("app", "1", &digest);
    for fault in [None, Some(Fault::Chunked)] {
        if let Some(fault) = fault {
            registry.faults().once("/manifests/", fault);
        }
        let error = repository(&registry, "app:1").resolve().await.expect_err("too large");
        assert_eq!(error.kind(), ErrorKind::InvalidContent);
        assert!(error.to_string().contains("larger than the 4194304 bytes that are allowed"), "{error}");
    }
    let before = registry.requests().len();
    let descriptor = Descriptor::new(media_type::OCI_MANIFEST, digest, huge.len() as u64);
    let session = repository(&registry, "app:1");
    let error = session.manifest(&descriptor).await.expect_err("too large");
    assert_eq!(error.kind(), ErrorKind::InvalidContent);
    let error = session.blob_bytes(&Descriptor::new("", Digest::sha256(b""), 11), 10).await.expect_err("too large");
    assert!(error.to_string().ends_with("its descriptor has 11 bytes, the limit is 10"), "{error}");
    assert_eq!(registry.requests().len(), before, "nothing is asked for what would be refused");
}

#[tokio::test]
async fn schema_1_is_handed_on_for_the_parser_to_name() {
    let registry = TestRegistry::open().await;
    let name = reference(&format!("{}/old:1", registry.host()));
    let digest = registry.push_manifest("old", media_type::DOCKER_SCHEMA1_SIGNED, schema1_manifest(&name));
    registry.tag("old", "1", &digest);
    let fetched = repository(&registry, "old:1").resolve().await.expect("resolves");
    let error = oci::Document::parse(&fetched.bytes, Some(&fetched.media_type)).expect_err("schema 1");
    assert!(error.to_string().contains("schema 1"), "{error}");
}

#[tokio::test]
async fn transient_errors_are_retried() {
    let registry = TestRegistry::open().await;
    let image = ImageBuilder::tiny("a");
    registry.push("app", "1", &image);
    let faults = [
        Fault::status(500),
        Fault::status(503),
        Fault::status(408),
        Fault::rate_limited("0"),
        Fault::Drop,
        Fault::Reset { after: 10 },
        Fault::Truncate { after: 10 },
    ];
    for fault in faults {
        registry.clear_requests();
        registry.faults().times("/manifests/", 2, fault.clone());
        let fetched = repository(&registry, "app:1").resolve().await;
        assert_eq!(fetched.map(|f| f.bytes).map_err(|e| e.to_string()), Ok(image.manifest.clone()), "{fault:?}");
        assert!(registry.requests().len() >= 3, "{fault:?}");
    }
}

#[tokio::test]
async fn permanent_errors_end_the_retries() {
    let registry = TestRegistry::open().await;
    registry.push("app", "1", &ImageBuilder::tiny("a"));
    let cases = [
        (Fault::status(500), ErrorKind::Unavailable, 4, "500 Internal Server Error (after 4 attempts)"),
        (Fault::rate_limited("0"), ErrorKind::RateLimited, 4, "429 Too Many Requests (TOOMANYREQUESTS: slow down)"),
        (Fault::rate_limited("3600"), ErrorKind::RateLimited, 1, "retry after 3600 s"),
        (Fault::status(403), ErrorKind::PermissionDenied, 1, "403 Forbidden"),
        (Fault::status(400), ErrorKind::Unavailable, 1, "400 Bad Request"),
        (Fault::status(418), ErrorKind::Unavailable, 1, "418 I'm a teapot"),
        (Fault::Truncate { after: 10 }, ErrorKind::Unavailable, 4, "transfer interrupted"),
    ];
    for (fault, kind, attempts, want) in cases {
        registry.clear_requests();
        registry.faults().always("/manifests/", fault.clone());
        let error = repository(&registry, "app:1").resolve().await.expect_err("lasts");
        assert_eq!(error.kind(), kind, "{fault:?}: {error}");
        assert!(error.to_string().contains(want), "{fault:?}: {error}");
        assert_eq!(registry.requests().len(), attempts, "{fault:?}");
        registry.faults().clear();
    }
}

#[tokio::test]
async fn name_invalid_error_is_reported() {
    let registry = TestRegistry::open().await;
    let body = r#"{"errors":[{"code":"NAME_INVALID","message":"invalid repository name"}]}"#.to_owned();
    registry.faults().once("/manifests/", Fault::Status { code: 400, headers: vec![], body });
    let error = repository(&registry, "app:1").resolve().await.expect_err("invalid");
    assert_eq!(error.kind(), ErrorKind::InvalidReference);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_waited_for() {
    let registry = TestRegistry::open().await;
    registry.push("app", "1", &ImageBuilder::tiny("a"));
    registry.faults().once("/manifests/", Fault::rate_limited("1"));
    let started = tokio::time::Instant::now();
    repository(&registry, "app:1").resolve().await.expect("resolves");
    assert!(started.elapsed() >= std::time::Duration::from_secs(1), "{:?}", started.elapsed());
}

#[tokio::test]
async fn refused_connection_is_reported() {
    let gone = {
        let registry = TestRegistry::open().await;
        registry.host()
    };
    let name = reference(&format!("{gone}/app:1"));
    let session = crate::support::client().repository(&name, None).expect("hosts");
    // The port is closed once the registry's task has ended.
    let error = loop {
        match session.resolve().await {
            Err(error) if error.to_string().contains("cannot connect") => break error,
            Err(_) => tokio::task::yield_now().await,
            Ok(_) => panic!("nothing was pushed"),
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&format!("{gone}: cannot connect: Connection refused")), "{error}");
}

#[tokio::test(start_paused = true)]
async fn missing_response_times_out() {
    let registry = TestRegistry::open().await;
    registry.push("app", "1", &ImageBuilder::tiny("a"));
    let mut retry = crate::support::quick();
    retry.attempts = 2;
    retry.idle_timeout = std::time::Duration::from_millis(400);
    // The wait for an answer is that for a connection and the idle timeout together.
    let mut host = crate::support::host(&registry.url(), true);
    host.dial_timeout = std::time::Duration::from_millis(400);
    let client = crate::support::client_of(vec![host], retry);
    registry.faults().once("/manifests/", Fault::Hang);
    assert!(session(&client, &registry, "app:1", None).resolve().await.is_ok(), "the second attempt is answered");
    assert_eq!(registry.requests().len(), 2);
    registry.faults().always("/manifests/", Fault::HangAfter { after: 5 });
    let error = session(&client, &registry, "app:1", None).resolve().await.expect_err("hangs");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no answer within 0.4 s (in the middle of the transfer)"), "{error}");
    registry.faults().clear();
}

#[tokio::test]
async fn other_tags_and_what_refers_to_an_image() {
    let registry = TestRegistry::open().await;
    let image = ImageBuilder::tiny("a");
    let digest = registry.push("app", "1", &image);
    let other = registry.push("app", "2", &ImageBuilder::tiny("b"));
    let session = repository(&registry, "app:1");
    assert_eq!(session.tagged("2").await.expect("asks").expect("is there").digest, other);
    assert_eq!(session.tagged("3").await.expect("asks"), None);
    assert_eq!(session.referrers(&digest).await.expect("asks"), None);
    let subject = serde_json::json!({ "schemaVersion": 2, "subject": image.descriptor, "artifactType": "x/y" });
    let referrer = registry.push_manifest("app", media_type::OCI_MANIFEST, subject.to_string());
    let index = session.referrers(&digest).await.expect("asks").expect("is there");
    assert_eq!(index.media_type, media_type::OCI_INDEX);
    assert!(String::from_utf8_lossy(&index.bytes).contains(&referrer.to_string()));
    assert_eq!(session.referrers(&other).await.expect("asks"), None);
    for code in [405, 501] {
        registry.faults().once("/referrers/", Fault::status(code));
        assert_eq!(session.referrers(&digest).await.expect("asks"), None, "{code}");
    }
    for pattern in ["/manifests/2", "/referrers/"] {
        registry.faults().always(pattern, Fault::status(503));
    }
    let kinds =
        (session.tagged("2").await.map_err(|e| e.kind()), session.referrers(&digest).await.map_err(|e| e.kind()));
    assert_eq!(kinds, (Err(ErrorKind::Unavailable), Err(ErrorKind::Unavailable)));
}
