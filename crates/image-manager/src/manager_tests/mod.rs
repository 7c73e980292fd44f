//! The manager on the fake service: the rig, and one module per topic.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use credentials::{KeyringOptions, PullSecret};
use cri_api::testing::{Call, CallKind, FakeImage, FakeImageService};
use tokio::task::{AbortHandle, JoinSet};

use super::*;
use crate::{BackoffOptions, ObjectRef, PodRef, PullerOptions, RecordsOptions, RingRecorder, VerificationPolicy};

mod backoff;
mod credentials_of_pods;
mod disk_full;
mod explain;
mod namespaces;
mod queues;
mod requests;
mod spans;
mod upstream;
mod verification;

/// As in the kubelet, without limits.
const SERIAL: PullerOptions = PullerOptions {
    serialize: true,
    max_parallel: None,
    per_registry: None,
    qps: 0.0,
    burst: 0,
    pull_wait: Duration::ZERO,
    linger: Duration::ZERO,
    ageing: Duration::from_secs(60),
    coalesce: false,
    progress_deadline: None,
};
const PARALLEL: PullerOptions = PullerOptions { serialize: false, ..SERIAL };

/// Upstream's fixture: 1 s doubling to 60 s, an event for each check.
const UPSTREAM: BackoffOptions = BackoffOptions {
    initial: Duration::from_secs(1),
    max: Duration::from_secs(60),
    by_cause: false,
    passing_max: Duration::from_secs(60),
    retry_after_max: Duration::from_secs(60),
    event_every_check: true,
    max_entries: 100,
};

/// A manager on a fake which has `present_image:latest`, and offers it and `missing_image:latest`.
struct Rig {
    fake: FakeImageService,
    ring: Arc<RingRecorder>,
    manager: Arc<ImageManager>,
    present_id: String,
    metrics: Arc<Metrics>,
    seconds: Arc<AtomicU64>,
    /// Where records are kept, where there are any.
    directory: Option<tempfile::TempDir>,
}

impl Rig {
    fn new(puller: PullerOptions) -> Self {
        Self::with(Options { puller, backoff: UPSTREAM, ..Options::default() })
    }

    /// The same with a keyring that knows the pods' secrets and nothing of the node.
    fn with_keyring(puller: PullerOptions) -> Self {
        let keyring = Some(Arc::new(Keyring::new(KeyringOptions::default())));
        Self::with(Options { puller, keyring, backoff: UPSTREAM, ..Options::default() })
    }

    /// The same with records in an empty directory.
    async fn with_records(options: Options, policy: VerificationPolicy) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let clock = Arc::new(|| jiff::Timestamp::UNIX_EPOCH);
        let kept = RecordsOptions { policy, ..RecordsOptions::new(directory.path().join("image_manager"), clock) };
        let records = PullRecords::open(kept).await.expect("an empty directory");
        let mut rig = Self::with(Options { records: Some(records), ..options });
        rig.directory = Some(directory);
        rig
    }

    /// Counts of requests: policy, presence, whether a pull was required, and how often.
    fn samples(&self) -> Vec<(String, String, String, u64)> {
        let line = |line: &str| {
            let labels = line.strip_prefix("kubelet_image_manager_ensure_image_requests_total{")?;
            let (labels, count) = labels.split_once("} ")?;
            let value = |label: &str| {
                let (_, rest) = labels.split_once(&format!("{label}=\"")).expect("the label is there");
                rest.split('"').next().unwrap_or_default().to_owned()
            };
            Some((value("pull_policy"), value("present_locally"), value("pull_required"), count.parse().ok()?))
        };
        self.metrics_text().lines().filter_map(line).collect()
    }

    /// The metrics as they are served.
    fn metrics_text(&self) -> String {
        let mut registry = prometheus_client::registry::Registry::default();
        self.metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("a string takes everything");
        text
    }

    /// Every request of [`Rig::ensure`] is a second after the previous one, in addition to the time of tokio's clock.
    fn with(options: Options) -> Self {
        let fake = FakeImageService::new();
        let present_id = fake.preload("present_image", &FakeImage::new("present"));
        fake.publish("missing_image", &FakeImage::new("missing").sized(4096));
        let ring = Arc::new(RingRecorder::new(100));
        let events: Arc<dyn EventRecorder> = Arc::clone(&ring) as _;
        let seconds = Arc::new(AtomicU64::new(0));
        let passed = Arc::clone(&seconds);
        let now = move || tokio::time::Instant::now() + Duration::from_secs(passed.load(Ordering::Relaxed));
        let metrics = Arc::clone(&options.metrics);
        let options = Options { clock: Arc::new(now), ..options };
        let manager = Arc::new(ImageManager::new(Arc::new(fake.clone()), events, options));
        Self { fake, ring, manager, present_id, metrics, seconds, directory: None }
    }

    /// Lets time pass.
    fn pass(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }

    async fn ensure(&self, request: EnsureImageRequest) -> Result<EnsuredImage, EnsureImageError> {
        self.pass(1);
        let answer = self.manager.ensure_image_exists(request).await;
        assert_no_secret("an answer", format!("{answer:?}").as_bytes());
        if let Err(error) = &answer {
            assert_no_secret("an error", error.message().as_bytes());
        }
        answer
    }

    fn reasons(&self) -> Vec<&'static str> {
        self.ring.events().iter().map(|e| e.event.reason).collect()
    }

    fn messages(&self) -> Vec<String> {
        self.ring.events().into_iter().map(|e| e.event.message).collect()
    }

    /// The names that were pulled, in order.
    fn pulled_names(&self) -> Vec<String> {
        let name = |call| match call {
            Call::PullImage(spec, _) => Some(spec.image),
            _ => None,
        };
        self.fake.calls().into_iter().filter_map(name).collect()
    }

    /// Starts a request and returns when it waits: at the gate of the fake or in the queue.
    async fn start(
        &self,
        tasks: &mut JoinSet<Result<EnsuredImage, EnsureImageError>>,
        request: EnsureImageRequest,
    ) -> AbortHandle {
        let pulling = || self.reasons().iter().filter(|reason| **reason == "Pulling").count();
        let before = pulling();
        let manager = Arc::clone(&self.manager);
        let handle = tasks.spawn(async move { manager.ensure_image_exists(request).await });
        // The event of a pull is recorded in the same step in which it joins the queue.
        while pulling() == before {
            tokio::task::yield_now().await;
        }
        handle
    }
}

/// Asserts that no output of these tests holds a password.
impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        assert_no_secret("the events", format!("{:?}", self.ring.events()).as_bytes());
        assert_no_secret("the back-off", format!("{:?}", self.manager.backoff()).as_bytes());
        assert_no_secret("the metrics", self.metrics_text().as_bytes());
        self.directory.iter().for_each(|directory| search_below(directory.path()));
    }
}

/// Asserts that the bytes hold no password of these tests: all of them have the same suffix, and those for a registry are also
/// sent in base64.
#[track_caller]
fn assert_no_secret(what: &str, bytes: &[u8]) {
    // `ada:ada-password`, `rex:rex-password`, `grace:grace-password`, `token:exec-password`
    let encoded = [
        "YWRhOmFkYS1wYXNzd29yZA",
        "cmV4OnJleC1wYXNzd29yZA",
        "Z3JhY2U6Z3JhY2UtcGFzc3dvcmQ",
        "dG9rZW46ZXhlYy1wYXNzd29yZA",
    ];
    for secret in ["-password", "s3cret", "pa55"].iter().chain(&encoded) {
        let told = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!told, "{what} tells {secret:?}: {}", String::from_utf8_lossy(bytes));
    }
}

#[track_caller]
fn search_below(directory: &Path) {
    for entry in std::fs::read_dir(directory).expect("readable") {
        let path = entry.expect("an entry").path();
        assert_no_secret("the name of a file", path.as_os_str().as_encoded_bytes());
        if path.is_dir() {
            search_below(&path);
        } else {
            assert_no_secret(&path.display().to_string(), &std::fs::read(&path).expect("readable"));
        }
    }
}

#[test]
fn what_looks_for_passwords_finds_them() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("record"), "dG9rZW46ZXhlYy1wYXNzd29yZA==").expect("writes");
    assert!(std::panic::catch_unwind(|| search_below(directory.path())).is_err());
    assert!(std::panic::catch_unwind(|| assert_no_secret("a text", b"it was ada-password")).is_err());
    assert_no_secret("a text", b"it was ada");
}

fn request(image: &str, policy: PullPolicy) -> EnsureImageRequest {
    let pod = PodRef { namespace: "default".into(), name: "pod".into(), uid: "uid-1".into(), ..PodRef::default() };
    EnsureImageRequest {
        object: Some(ObjectRef::container(&pod, "main")),
        pod,
        policy,
        ..EnsureImageRequest::new(image)
    }
}

/// A pull secret of the pod's namespace for Docker Hub, to which the images without a host belong.
fn secret(name: &str, user: &str) -> PullSecret {
    let config = format!(
        r#"{{"auths":{{"https://index.docker.io/v1/":{{"username":"{user}","password":"{user}-password"}}}}}}"#
    );
    PullSecret {
        namespace: "default".into(),
        name: name.into(),
        uid: format!("uid-of-{name}"),
        origin: credentials::Origin::ApiServer,
        kind: "kubernetes.io/dockerconfigjson".into(),
        data: [(".dockerconfigjson".to_owned(), oci::Secret::new(config))].into(),
    }
}
