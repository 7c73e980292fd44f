//! What pulls leave in the pull records, for those who share one too.

use std::convert::Infallible;
use std::fs;

use credentials::NodeSource;
use tempfile::TempDir;

use super::*;
use crate::{Access, Doubt, Grant, RecordsOptions};

/// A rig that keeps records.
struct Kept {
    rig: Rig,
    records: PullRecords,
    directory: TempDir,
}

impl Kept {
    async fn new(options: PullerOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let now = jiff::Timestamp::from_second(1_790_000_000).unwrap();
        let records = RecordsOptions::new(directory.path(), Arc::new(move || now));
        let records = PullRecords::open(records).await.unwrap();
        let Rig { fake, .. } = Rig::new(options);
        let service: Arc<dyn ImageService> = Arc::new(fake.clone());
        let puller = Puller::new(service, Some(records.clone()), options, Arc::new(Instant::now), Metrics::new());
        let rig = Rig { fake, puller, tasks: JoinSet::new() };
        Self { rig, records, directory }
    }

    /// Names of the files of intents, after everything that was begun is on disk.
    async fn intents(&self) -> usize {
        self.records.settle().await;
        fs::read_dir(self.directory.path().join("pulling")).unwrap().count()
    }

    async fn access(&self, image: &str, image_ref: &str, candidates: &[Candidate]) -> Access {
        let candidates: Arc<[Candidate]> = candidates.into();
        self.records.peek(image, image_ref, async || Ok::<_, Infallible>(candidates)).await.unwrap()
    }
}

/// A candidate of a secret in a namespace of its own, so that nothing but its coordinates tells it from others.
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
    assert_eq!(kept.access("a:1", &image_ref, &stranger).await, Access::MustVerify(Doubt::NoMatchingCredential));
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

    // Given up.
    let _gate = kept.rig.fake.faults().hold(CallKind::PullImage);
    let handle = kept.rig.ask("b:1").await;
    while kept.rig.pulled().len() < 2 {
        tokio::task::yield_now().await;
    }
    kept.rig.puller.shutdown().await;
    handle.abort();
    assert_eq!(kept.intents().await, 0);
    assert_eq!(fs::read_dir(kept.directory.path().join("pulled")).unwrap().count(), 0);
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
