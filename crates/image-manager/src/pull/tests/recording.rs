//! Pull records after pulls, also those that several requests share.

use base::lock::Mutex;
use std::convert::Infallible;
use std::fs;
use std::path::Path;

use credentials::NodeSource;
use cri_api::{FsInfo, Image, ImageFilter, ImageStatus, PullEvent, PullImageRequest};
use tempfile::TempDir;
use tokio::sync::Notify;

use super::*;
use crate::{Access, AccessUnverified, Grant, RecordsOptions};

/// A rig that keeps records.
struct Kept {
    rig: Rig,
    records: PullRecords,
    directory: TempDir,
}

impl Kept {
    async fn new(options: PullerOptions) -> Self {
        let Rig { fake, .. } = Rig::new(options);
        let mut kept = Self::on(Arc::new(fake.clone()), options).await;
        kept.rig.fake = fake;
        kept
    }

    async fn open(directory: &Path) -> PullRecords {
        let now = jiff::Timestamp::from_second(1_790_000_000).unwrap();
        PullRecords::open(RecordsOptions::new(directory, Arc::new(move || now))).await.unwrap()
    }

    async fn on(service: Arc<dyn ImageService>, options: PullerOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let records = Self::open(directory.path()).await;
        let fake = FakeImageService::new();
        let puller =
            Puller::new(service, Some(records.clone()), options, Arc::new(Instant::now), Metrics::new(), board());
        let rig = Rig { fake, puller, tasks: JoinSet::new() };
        Self { rig, records, directory }
    }

    /// Names of the files of intents, after everything that was begun is on disk.
    async fn intents(&self) -> usize {
        self.records.settle().await;
        fs::read_dir(self.directory.path().join("pulling")).unwrap().count()
    }

    /// How many files of records there are.
    fn records(&self) -> usize {
        fs::read_dir(self.directory.path().join("pulled")).unwrap().count()
    }

    async fn access(&self, image: &str, image_ref: &str, candidates: &[Candidate]) -> Access {
        let candidates: Arc<[Candidate]> = candidates.into();
        self.records.peek(image, image_ref, async || Ok::<_, Infallible>(candidates)).await.unwrap()
    }
}

/// A candidate of a secret in a namespace of its own, so that only its coordinates distinguish it from others.
fn tenant(secret: &str, password: &str) -> Candidate {
    Candidate { hash: format!("hash of {secret}"), ..candidate("ada", password, secret) }
}

#[tokio::test]
async fn everybody_who_shares_a_pull_is_recorded() {
    let mut kept = Kept::new(free()).await;
    let gate = kept.rig.fake.faults().hold(CallKind::PullImage);
    kept.rig.fake.require_auth("a:1", RegistryAuth::basic("ada", "right"));
    let tenants = ["one", "two", "three"].map(|secret| tenant(secret, "right"));
    for tenant in &tenants[..2] {
        kept.rig.start(with("a:1", [tenant.clone()])).await;
    }
    // By another name.
    kept.rig.start(Wanted { image: "a:alias".into(), ..with("a:1", [tenants[2].clone()]) }).await;
    gate.until_waiting(1).await;
    assert_eq!(kept.intents().await, 1);
    gate.open();
    let outcomes = kept.rig.outcomes().await;
    let image_ref = outcomes[0].as_ref().expect("pulled").image_ref.clone();
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(kept.rig.pulled().len(), 1);
    assert_eq!(kept.intents().await, 0);

    let granted = Access::Granted(Grant::CredentialMatches);
    for tenant in &tenants[..2] {
        assert_eq!(kept.access("a:1", &image_ref, std::slice::from_ref(tenant)).await, granted);
    }
    assert_eq!(kept.access("a:alias", &image_ref, &tenants[2..]).await, granted);
    let stranger = [tenant("stranger", "right")];
    assert_eq!(
        kept.access("a:1", &image_ref, &stranger).await,
        Access::MustVerify(AccessUnverified::NoMatchingCredential)
    );
}

#[tokio::test]
async fn a_waiter_of_the_node_makes_it_everybodys() {
    let mut kept = Kept::new(free()).await;
    let gate = kept.rig.fake.faults().hold(CallKind::PullImage);
    kept.rig.start(with("a:1", [tenant("one", "right")])).await;
    let node = Candidate { source: Source::Node(NodeSource::File("/config.json".into())), ..tenant("one", "right") };
    kept.rig.start(with("a:1", [node])).await;
    gate.until_waiting(1).await;
    gate.open();
    let outcomes = kept.rig.outcomes().await;
    let image_ref = outcomes[0].as_ref().expect("pulled").image_ref.clone();
    assert_eq!(kept.access("a:1", &image_ref, &[]).await, Access::Granted(Grant::NodeAccessible));
}

#[tokio::test]
async fn what_was_not_pulled_leaves_nothing() {
    let mut kept = Kept::new(PullerOptions { qps: 1e-6, burst: 2, pull_wait: Duration::ZERO, ..serial() }).await;
    kept.rig.fake.withdraw("a:1");
    kept.rig.ask("a:1").await;
    assert!(kept.rig.outcomes().await.iter().all(Result::is_err));
    assert_eq!(kept.intents().await, 0);

    assert_eq!(kept.records(), 0);
}

/// An image service of one image, which may pull it although the call was cancelled, or report a failure.
struct Sly {
    /// Image ref before the pull; empty: the image is absent.
    before: &'static str,
    /// How long after the end of the pull the new image is visible; `None`: never.
    late: Option<Duration>,
    /// Answer of a pull; `None`: it runs until it is given up.
    answer: Option<Kind>,
    /// Progress that the pull reports.
    tells: &'static [PullEvent],
    visible: Mutex<Option<Instant>>,
    pulling: Notify,
}

/// Ends a pull, however it ends.
struct Ended<'a>(&'a Sly);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        *self.0.visible.lock() = self.0.late.map(|late| Instant::now() + late);
    }
}

#[async_trait::async_trait]
impl ImageService for Sly {
    async fn list_images(&self, _: Option<&ImageFilter>) -> Result<Vec<Image>, Error> {
        Ok(Vec::new())
    }

    async fn image_status(&self, _: &ImageSpec, _: bool) -> Result<ImageStatus, Error> {
        let visible = self.visible.lock().is_some_and(|at| Instant::now() >= at);
        let id = if visible { "new" } else { self.before };
        let image = (!id.is_empty()).then(|| Image { id: id.to_owned(), ..Image::default() });
        Ok(ImageStatus { image, ..ImageStatus::default() })
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<String, Error> {
        let _ended = Ended(self);
        self.tells.iter().for_each(|event| request.progress.report(event.clone()));
        self.pulling.notify_one();
        match self.answer {
            Some(kind) => Err(Error::new(kind, "it broke")),
            None => std::future::pending().await,
        }
    }

    async fn remove_image(&self, _: &ImageSpec) -> Result<(), Error> {
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<FsInfo, Error> {
        Ok(FsInfo::default())
    }
}

impl Default for Sly {
    fn default() -> Self {
        Self { before: "", late: None, answer: None, tells: &[], visible: Mutex::default(), pulling: Notify::new() }
    }
}

const PRELOADED: Access = Access::Granted(Grant::Preloaded);
const UNPROVEN: Access = Access::MustVerify(AccessUnverified::NoRecord);

/// Requests the image, waits for the pull, and cancels; or waits for its failure.
async fn pull_and_leave(kept: &mut Kept, sly: &Sly) {
    let handle = kept.rig.ask("a:1").await;
    sly.pulling.notified().await;
    if sly.answer.is_none() {
        handle.abort();
        tokio::time::sleep(LINGER + Duration::from_millis(50)).await;
    }
    kept.rig.outcomes().await;
}

#[tokio::test(start_paused = true)]
async fn an_image_of_an_abandoned_pull_is_not_accessible_to_every_pod() {
    let second = Duration::from_secs(1);
    struct Case {
        name: &'static str,
        sly: Sly,
        /// Access of a pod without credentials to the new image, and to the old one, in the end.
        ends: (Access, Access),
        records: usize,
    }
    let unavailable = Some(Kind::Unavailable);
    let nothing = (PRELOADED, PRELOADED);
    let brought = (UNPROVEN, PRELOADED);
    let cases = [
        Case { name: "at once", sly: Sly { late: Some(Duration::ZERO), ..Sly::default() }, ends: brought, records: 1 },
        Case { name: "later", sly: Sly { late: Some(30 * second), ..Sly::default() }, ends: brought, records: 1 },
        Case { name: "never", sly: Sly::default(), ends: nothing, records: 0 },
        Case { name: "it was here", sly: Sly { before: "old", ..Sly::default() }, ends: nothing, records: 0 },
        Case {
            name: "another was here",
            sly: Sly { before: "old", late: Some(3 * second), ..Sly::default() },
            ends: brought,
            records: 1,
        },
        Case {
            name: "it is said to have failed",
            sly: Sly { answer: unavailable, late: Some(Duration::ZERO), ..Sly::default() },
            ends: brought,
            records: 1,
        },
        Case {
            name: "it has failed",
            sly: Sly { answer: unavailable, before: "old", ..Sly::default() },
            ends: nothing,
            records: 0,
        },
    ];
    for Case { name, sly, ends, records } in cases {
        let sly = Arc::new(sly);
        let mut kept = Kept::on(Arc::clone(&sly) as _, free()).await;
        pull_and_leave(&mut kept, &sly).await;
        if sly.answer.is_none() {
            assert_eq!(kept.access("a:1", "new", &[]).await, UNPROVEN, "{name}: it may come at any time");
        }
        tokio::time::sleep(100 * second).await;
        assert_eq!(kept.intents().await, 0, "{name}");
        let access = (kept.access("a:1", "new", &[]).await, kept.access("a:1", "old", &[]).await);
        assert_eq!(access, ends, "{name}");
        assert_eq!(kept.records(), records, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_the_process_an_intent_stays_unless_nothing_can_come() {
    let resolved = PullEvent::Resolved { digest: oci::Digest::sha256(b"m"), layers: Vec::new() };
    let commits = || vec![resolved.clone(), PullEvent::Committing];
    let cases = [
        ("a service that tells nothing", Vec::new(), None, (1, 0)),
        ("one that fetches", vec![resolved.clone()], None, (0, 0)),
        ("one that commits", commits(), None, (1, 0)),
        ("one that has committed", commits(), Some(Duration::ZERO), (0, 1)),
    ];
    for (name, tells, late, (intents, records)) in cases {
        let sly = Arc::new(Sly { tells: tells.leak(), late, ..Sly::default() });
        let mut kept = Kept::on(Arc::clone(&sly) as _, free()).await;
        let handle = kept.rig.ask("a:1").await;
        sly.pulling.notified().await;
        kept.rig.puller.shutdown().await;
        handle.abort();
        assert_eq!((kept.intents().await, kept.records()), (intents, records), "{name}");
        // The next process makes a record of it, if the image is present by then.
        let directory = kept.directory;
        drop((kept.rig, kept.records));
        let next = Kept::open(directory.path()).await;
        let new = Image { id: "new".into(), repo_tags: vec!["docker.io/library/a:1".into()], ..Image::default() };
        assert_eq!(next.recover(&[new]).await.unwrap(), intents, "{name}");
        if intents + records > 0 {
            let candidates = async || Ok::<_, Infallible>(Arc::from([]));
            assert_eq!(next.peek("a:1", "new", candidates).await.unwrap(), UNPROVEN, "{name}");
        }
    }
}

#[tokio::test]
async fn a_refused_token_writes_nothing() {
    let mut kept = Kept::new(PullerOptions { qps: 1.0, burst: 0, ..free() }).await;
    // Where an intent would fail, and say so.
    let pulling = kept.directory.path().join("pulling");
    fs::remove_dir_all(&pulling).unwrap();
    fs::write(&pulling, "no directory").unwrap();
    kept.rig.ask("a:1").await;
    assert!(matches!(kept.rig.outcomes().await[..], [Err(PullFailed::Throttled)]));
}

#[tokio::test]
async fn without_an_intent_nothing_is_pulled() {
    let mut kept = Kept::new(free()).await;
    let pulling = kept.directory.path().join("pulling");
    fs::remove_dir_all(&pulling).unwrap();
    fs::write(&pulling, "no directory").unwrap();
    kept.rig.ask("a:1").await;
    kept.rig.ask("a:1").await;
    for outcome in kept.rig.outcomes().await {
        assert!(matches!(outcome, Err(PullFailed::Record(_))), "{outcome:?}");
    }
    assert!(kept.rig.pulled().is_empty());
}
