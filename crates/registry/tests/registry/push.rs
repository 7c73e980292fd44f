//! Uploads to registries that answer in other ways than the specification says: other statuses of success, redirects, relative
//! addresses. The registry is scripted; `upload` has the real one.

use std::sync::Arc;

use bytes::Bytes;
use oci::{Descriptor, Digest, RegistryAuth};
use registry::testing::{Auth, Fault, Options, TestRegistry, TokenAuth};
use registry::{BlobUpload, ErrorKind, Repository, UploadStream};

use crate::support::{client, session};

const CONTENT: &[u8] = b"some bytes";

fn blob() -> BlobUpload {
    let bytes = Bytes::from_static(CONTENT);
    let descriptor = Descriptor::new("", Digest::sha256(&bytes), bytes.len() as u64);
    let open = move || -> UploadStream { Box::pin(futures::stream::iter([Ok(bytes.clone())])) };
    BlobUpload { descriptor, open: Arc::new(open) }
}

fn answer(code: u16, location: Option<&str>) -> Fault {
    let headers = location.map(|location| ("location".to_owned(), location.to_owned())).into_iter().collect();
    Fault::Status { code, headers, body: String::new() }
}

async fn guarded() -> TestRegistry {
    let auth = Auth::Basic { user: "ada".into(), password: "swordfish".into() };
    TestRegistry::start(Options { auth: Some(auth), ..Options::default() }).await
}

fn of_ada(registry: &TestRegistry) -> Repository {
    session(&client(), registry, "app:1", Some(RegistryAuth::basic("ada", "swordfish")))
}

fn lines(registry: &TestRegistry) -> Vec<String> {
    registry.requests().iter().map(|r| format!("{} {}?{}", r.method, r.path, r.query)).collect()
}

#[tokio::test]
async fn statuses_of_success() {
    for (start, end, done) in [
        (202, 201, true),
        (202, 200, true),
        (202, 204, true),
        (200, 201, true),
        (201, 201, true),
        (204, 201, true),
        (202, 202, false),
        (206, 201, false),
    ] {
        let registry = TestRegistry::open().await;
        registry.faults().once("/uploads/", answer(start, Some("/v2/app/blobs/uploads/7?_state=s")));
        registry.faults().once("/uploads/7", answer(end, None));
        let uploaded = session(&client(), &registry, "app:1", None).upload_blob(&blob()).await;
        assert_eq!(uploaded.is_ok(), done, "{start} {end}: {uploaded:?}");
        if done {
            let put = registry.requests().pop().expect("a PUT");
            assert_eq!((put.method.as_str(), put.body.as_bytes()), ("PUT", CONTENT), "{start} {end}");
            let digest = blob().descriptor.digest.to_string().replace(':', "%3A");
            assert_eq!(put.query, format!("_state=s&digest={digest}"), "{start} {end}");
        } else {
            assert_eq!(uploaded.expect_err("no success").kind(), ErrorKind::InvalidContent);
        }
    }
    let digest = blob().descriptor.digest;
    for (status, mounted) in
        [(201, true), (202, false), (200, false), (204, false), (401, false), (403, false), (404, false)]
    {
        let registry = TestRegistry::open().await;
        registry.faults().always("/uploads/", answer(status, None));
        let got = session(&client(), &registry, "app:1", None).mount_blob(&digest, "other/app").await;
        assert_eq!(got.map_err(|error| error.to_string()), Ok(mounted), "{status}");
    }
    for status in [200, 201, 202, 204] {
        let registry = TestRegistry::open().await;
        registry.faults().always("/manifests/", answer(status, None));
        let session = session(&client(), &registry, "app:1", None);
        let pushed = session.put_manifest("1", "a/b", Bytes::from_static(b"{}"));
        assert_eq!(pushed.await.expect("pushed"), Digest::sha256(b"{}"), "{status}");
    }
}

#[tokio::test]
async fn a_relative_location_is_relative_to_the_url_that_answered() {
    for relative in ["/v2/app/blobs/uploads/7", "7", "./7"] {
        let (registry, storage) = (guarded().await, TestRegistry::open().await);
        registry.faults().once("/uploads/", Fault::RedirectTo { base: storage.url() });
        storage.faults().once("/uploads/", answer(202, Some(relative)));
        storage.faults().once("/uploads/7", answer(201, None));
        of_ada(&registry).upload_blob(&blob()).await.expect("uploaded");
        let there = storage.requests();
        assert_eq!((there.len(), there[1].method.as_str(), there[1].body.as_bytes()), (2, "PUT", CONTENT));
        assert!(there.iter().all(|r| r.authorization().is_none()), "another origin gets no secret: {there:?}");
        assert!(registry.requests().iter().all(|r| r.method == "POST"), "{:?}", lines(&registry));
    }
    // Within the origin, to another path.
    let registry = guarded().await;
    registry.faults().once("/uploads/", answer(307, Some("/moved/v2/app/blobs/uploads/")));
    registry.faults().once("/moved/", answer(202, Some("7")));
    registry.faults().once("/moved/", answer(201, None));
    of_ada(&registry).upload_blob(&blob()).await.expect("uploaded");
    let put = registry.requests().pop().expect("a PUT");
    assert_eq!((put.method.as_str(), put.path.as_str()), ("PUT", "/moved/v2/app/blobs/uploads/7"));
    assert!(put.authorization().is_some(), "it is the same origin");
}

#[tokio::test]
async fn upload_redirected_back_to_the_registry_is_authenticated() {
    let (registry, storage) = (guarded().await, TestRegistry::open().await);
    registry.faults().once("/uploads/", Fault::RedirectTo { base: storage.url() });
    storage.faults().once("/uploads/", answer(202, Some(&format!("{}/v2/app/blobs/uploads/7", registry.url()))));
    registry.faults().once("/uploads/7", answer(201, None));
    of_ada(&registry).upload_blob(&blob()).await.expect("uploaded");
    assert!(storage.requests().iter().all(|r| r.authorization().is_none()));
    let put = registry.requests().pop().expect("a PUT");
    assert_eq!((put.method.as_str(), put.path.as_str()), ("PUT", "/v2/app/blobs/uploads/7"));
}

#[tokio::test]
async fn upload_token_has_push_scope() {
    let registry = TestRegistry::start(Options {
        auth: Some(Auth::Token(TokenAuth {
            // A challenge that names no repository.
            challenge_scope: Some(String::new()),
            ..TokenAuth::user("ada", "swordfish")
        })),
        ..Options::default()
    })
    .await;
    // The test registry takes no uploads; the request for the token is what counts.
    of_ada(&registry).upload_blob(&blob()).await.expect_err("no uploads");
    let asked = registry.requests_for("/token")[0].body.clone();
    assert!(asked.ends_with("scope=repository%3Aapp%3Apull%2Cpush"), "{asked}");
}
