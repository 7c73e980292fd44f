//! Traces, answers, progress and files of an engine that pulls with tokens and by signed addresses: no
//! secret is in any of it, at the finest level and by every library.

use base::lock::Mutex;
use std::io;
use std::path::Path;
use std::sync::Arc;

use cri_api::{ImageService as _, ImageSpec, PullImageRequest};
use image_service::{Engine, EngineOptions, Resume};
use oci::{RegistryAuth, Secret};
use registry::testing::{Auth, Fault, Options, TestRegistry, TokenAuth};

use crate::support::{Watch, image, layer, options};

const PASSWORD: &str = "pass-word-of-ada";
const IDENTITY: &str = "identity-token-of-ada";
const SIGNATURE: &str = "signature-of-the-store";
/// All tokens that the test registry gives out begin so.
const TOKEN: &str = "test-token-";

/// Traces of every thread of this process.
#[derive(Clone, Default)]
struct Traced(Arc<Mutex<Vec<u8>>>);

impl io::Write for Traced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[track_caller]
fn search(what: &str, bytes: &[u8]) {
    // `ada:pass-word-of-ada`
    for secret in [PASSWORD, IDENTITY, SIGNATURE, TOKEN, "YWRhOnBhc3Mtd29yZC1vZi1hZGE="] {
        let at = bytes.windows(secret.len()).position(|window| window == secret.as_bytes());
        assert!(at.is_none(), "{what} tells {secret:?}: {}", String::from_utf8_lossy(&bytes[at.unwrap_or(0)..][..60]));
    }
}

fn search_below(directory: &Path) -> usize {
    let mut files = 0;
    for entry in std::fs::read_dir(directory).expect("readable") {
        let path = entry.expect("an entry").path();
        search("a name", path.as_os_str().as_encoded_bytes());
        if path.is_symlink() {
            continue;
        }
        files += if path.is_dir() { search_below(&path) } else { 1 };
        if path.is_file() {
            search(&path.display().to_string(), &std::fs::read(&path).expect("readable"));
        }
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_an_engine_says_or_writes_is_a_secret() {
    let traced = Traced::default();
    let writer = traced.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone());
    // In a process of all tests another one may have come first; this one is run in one of its own.
    let is_first = tracing::subscriber::set_global_default(subscriber.finish()).is_ok();
    let auth = TokenAuth { identity_token: Some(IDENTITY.into()), ..TokenAuth::user("ada", PASSWORD) };
    let registry = TestRegistry::start(Options { auth: Some(Auth::Token(auth)), ..Options::default() }).await;
    let store = TestRegistry::open().await;
    let big = image().layer(layer("a/x", 1, 1_500_000)).layer(layer("b/y", 2, 100_000)).build();
    let directory = tempfile::tempdir().expect("a directory");
    let options = EngineOptions { keep_blobs: true, resume: Resume::Always, ..options(directory.path()) };
    let engine = Engine::open(options).await.expect("opens");
    let credentials = [
        RegistryAuth::basic("ada", PASSWORD),
        RegistryAuth { identity_token: Secret::new(IDENTITY), ..RegistryAuth::default() },
        RegistryAuth::basic("ada", format!("{PASSWORD}-of-yesterday")),
    ];
    let mut told = 0;
    for (number, auth) in credentials.into_iter().enumerate() {
        let repository = format!("app{number}");
        registry.push(&repository, "v1", &big);
        store.push_untagged(&repository, &big);
        for (digest, _) in big.blobs() {
            let path = format!("/v2/{repository}/blobs/{digest}");
            let url = format!("{}{path}?X-Amz-Signature={SIGNATURE}&X-Amz-Date=20260101", store.url());
            registry.faults().always(&path, Fault::Location { url });
        }
        let name = format!("{}/{repository}:v1", registry.host());
        let pull = || PullImageRequest { auth: Some(auth.clone()), ..PullImageRequest::new(name.clone()) };
        // Refused with what it was asked with, cut off, and then good; or refused by the token service.
        let shown = if auth.password.expose().is_empty() { IDENTITY } else { auth.password.expose() };
        let body = format!("<Error>{SIGNATURE} of ada:{shown}</Error>");
        store.faults().once("/blobs/", Fault::Status { code: 403, headers: vec![], body });
        store.faults().once("/blobs/", Fault::Truncate { after: 1000 });
        for _ in 0..3 {
            let watch = Watch::default();
            let pulled = engine.pull_image(PullImageRequest { progress: watch.sink(), ..pull() }).await;
            if let Err(error) = &pulled {
                told += 1;
                search("an error", format!("{error} {error:?}").as_bytes());
            }
            search("progress", format!("{:?}", watch.events()).as_bytes());
        }
        if let Ok(status) = engine.image_status(&ImageSpec::new(name.clone()), true).await {
            search("a status", format!("{status:?}").as_bytes());
        }
        engine.settled().await;
        store.faults().clear();
    }
    assert!(told >= 4, "{told} errors");
    assert!(!registry.issued_tokens().is_empty() && !store.requests().is_empty());
    assert!(search_below(&directory.path().join("store")) > 5);
    engine.shutdown().await;
    let traced = traced.0.lock();
    assert!(!is_first || traced.windows(7).any(|window| window == b" TRACE "), "tracing was on");
    search("a trace", &traced);
}
