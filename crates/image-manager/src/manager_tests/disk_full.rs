//! Pulls that find the disk full: one collection is requested, and the pull is attempted again if space was freed.

use base::lock::Mutex;

use async_trait::async_trait;
use cri_api::{Error, Kind, Reason};
use oci::ReferenceOrId;

use super::*;
use crate::gc::{DiskSpace, GcOptions, GcPolicy, ImageGcManager};
use crate::{ImageHold, ReclaimSpace, ReclaimedSpace};

/// Returns a fixed answer, and records the requests.
struct FixedCollector {
    reclaimed: ReclaimedSpace,
    asked: Mutex<Vec<Option<u64>>>,
}

#[async_trait]
impl ReclaimSpace for FixedCollector {
    async fn reclaim_space(&self, needed: Option<u64>) -> ReclaimedSpace {
        self.asked.lock().push(needed);
        self.reclaimed.clone()
    }

    fn hold(&self, image: &ReferenceOrId) -> Option<ImageHold> {
        assert_eq!(*image, "missing_image:latest".into());
        None
    }
}

fn full(needed: Option<u64>) -> Error {
    let error = Error::new(Kind::ResourceExhausted, "no space left on the file system of /images");
    let error = error.with_reason(Reason::DiskFull);
    needed.into_iter().fold(error, Error::with_needed_bytes)
}

fn rig(reclaimed: ReclaimedSpace) -> (Rig, Arc<FixedCollector>) {
    let collector = Arc::new(FixedCollector { reclaimed, asked: Mutex::default() });
    let reclaim_space = Some(Arc::clone(&collector) as Arc<dyn ReclaimSpace>);
    (Rig::with(Options { puller: SERIAL, backoff: UPSTREAM, reclaim_space, ..Options::default() }), collector)
}

fn freed(removed: usize) -> ReclaimedSpace {
    ReclaimedSpace { freed_bytes: 3 << 19, removed, ..ReclaimedSpace::default() }
}

#[tokio::test]
async fn a_pull_is_tried_once_more_when_something_was_freed() {
    let (rig, collector) = rig(freed(1));
    rig.fake.faults().fail_times(CallKind::PullImage, 1, full(Some(4096)));
    let pulled = rig.ensure(request("missing_image", PullPolicy::IfNotPresent)).await.expect("there is space now");
    assert!(pulled.pulled);
    assert_eq!(*collector.asked.lock(), [Some(4096)]);
    assert_eq!(rig.pulled_names().len(), 2);
    assert_eq!(rig.reasons(), ["Pulling", "Pulled"]);
    assert!(rig.manager.backoff().is_empty(), "no pull waits");
}

/// The error states the space that is needed, in the form that fits a quota; the note does not repeat it.
#[tokio::test]
async fn the_note_reports_only_freed_space() {
    let (rig, collector) = rig(freed(1));
    let words = "no space left on the file system of /images (a quota is used up); about 600 bytes are needed";
    let error = Error::new(Kind::ResourceExhausted, words).with_needed_bytes(1 << 40);
    let error = error.with_reason(Reason::QuotaExceeded);
    rig.fake.faults().fail_times(CallKind::PullImage, 2, error);
    let error = rig.ensure(request("missing_image", PullPolicy::IfNotPresent)).await.expect_err("fails twice");
    assert_eq!(*collector.asked.lock(), [Some(1 << 40)]);
    let text = error.message();
    assert!(text.contains("garbage collection freed") && !text.contains("were needed"), "{text}");
}

#[tokio::test]
async fn a_second_failure_is_the_last_and_reports_the_collection() {
    let (rig, collector) = rig(ReclaimedSpace { problem: Some("1 image is stuck".into()), ..freed(2) });
    rig.fake.faults().fail(CallKind::PullImage, full(Some(5 << 30)));
    let error = rig.ensure(request("missing_image", PullPolicy::Always)).await.expect_err("full for good");
    assert_eq!((collector.asked.lock().len(), rig.pulled_names().len()), (1, 2));
    let text = "no space left on the file system of /images (garbage collection freed 1.57MB by removing 2 images: 1 image \
                is stuck)";
    assert_eq!(error.message(), text);
    assert_eq!((error.reason(), error.cause()), ("ErrImagePull", Some(crate::Cause::DiskFull)));
    assert_eq!(rig.reasons(), ["Pulling", "Failed"]);
    assert_eq!(rig.manager.backoff().len(), 1);
}

#[tokio::test]
async fn without_freed_space_there_is_no_second_attempt() {
    let (rig, collector) = rig(ReclaimedSpace::default());
    rig.fake.faults().fail(CallKind::PullImage, full(None));
    let error = rig.ensure(request("missing_image", PullPolicy::Always)).await.expect_err("full for good");
    assert_eq!(*collector.asked.lock(), [None]);
    assert_eq!(rig.pulled_names().len(), 1);
    let text = "no space left on the file system of /images (garbage collection found nothing to remove)";
    assert_eq!(error.message(), text);
    // Other failures do not ask for space.
    rig.pass(600);
    rig.fake.faults().fail(CallKind::PullImage, Error::new(Kind::NotFound, "manifest unknown"));
    let error = rig.ensure(request("missing_image", PullPolicy::Always)).await.expect_err("not there");
    assert_eq!(error.message(), "manifest unknown");
    assert_eq!(collector.asked.lock().len(), 1);
}

/// The collector itself, on a disk that is full until images are removed. With serial pulls no pull waits for a slot that a
/// failed pull still holds, and one collection serves all failed pulls.
#[tokio::test]
async fn one_collection_frees_space_for_many_pulls() {
    for puller in [SERIAL, PARALLEL] {
        let fake = FakeImageService::new();
        for name in ["old-1", "old-2"] {
            fake.preload(name, &FakeImage::new(name).sized(300));
        }
        for n in 0..5 {
            fake.publish(&format!("new-{n}"), &FakeImage::new(&format!("new-{n}")).sized(10));
        }
        let images = fake.clone();
        let disk = Arc::new(move |_: &std::path::Path| {
            let here = images.calls().into_iter().filter(|call| matches!(call, Call::RemoveImage(_))).count();
            let available = 300 * u64::try_from(here).unwrap_or(0);
            Ok(DiskSpace { capacity: 1000, available, ..DiskSpace::default() })
        });
        let wall_clock: crate::WallClock = Arc::new(jiff::Timestamp::now);
        let policy = GcPolicy { min_age: Duration::ZERO, ..GcPolicy::default() };
        let options = GcOptions { policy, settle: Duration::ZERO, ..GcOptions::new(wall_clock, disk) };
        let ring = Arc::new(RingRecorder::new(100));
        let events: Arc<dyn EventRecorder> = Arc::clone(&ring) as _;
        let gc = Arc::new(ImageGcManager::new(Arc::new(fake.clone()), None, Arc::clone(&events), options));
        let reclaim_space = Some(Arc::clone(&gc) as Arc<dyn ReclaimSpace>);
        let options = Options { puller, backoff: UPSTREAM, reclaim_space, ..Options::default() };
        let manager = Arc::new(ImageManager::new(Arc::new(fake.clone()), events, options));
        fake.faults().fail_times(CallKind::PullImage, 5, full(Some(200)));
        let mut tasks = JoinSet::new();
        for n in 0..5 {
            let manager = Arc::clone(&manager);
            let wanted = EnsureImageRequest {
                pod: PodRef { uid: n.to_string(), ..PodRef::default() },
                ..request(&format!("new-{n}"), PullPolicy::IfNotPresent)
            };
            tasks.spawn(async move { manager.ensure_image_exists(wanted).await });
        }
        let results =
            tokio::time::timeout(Duration::from_secs(60), tasks.join_all()).await.expect("no pull waits for good");
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        let removed = fake.calls().into_iter().filter(|call| matches!(call, Call::RemoveImage(_))).count();
        assert_eq!(removed, 1, "one collection was enough for all of them");
    }
}
