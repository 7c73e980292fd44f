//! Tests of the collector on a service that has a disk: upstream's rounds, and what the kubelet gets wrong.

use std::collections::BTreeMap;

use async_trait::async_trait;
use base::lock::Mutex;
use cri_api::engine::{
    CheckReport, CheckRequest, CheckSink, ConvertReport, ConvertRequest, ExportOptions, ImageEngine, ImageLayers,
    ImageMount, ImageUsage, ImportOptions, ImportReport, LayerLease, LayersOf, MountRequest, MountedImage,
    UnfinishedPulls,
};
use cri_api::testing::FakeRuntimeService;
use cri_api::{
    Container, Error, FilesystemUsage, FsInfo, ImageFilter, ImageSpec, ImageStatus, Kind, PullImageRequest, Result,
};

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use tokio::time::Instant;

use super::super::report::chain;
use super::super::{DiskProbe, DiskSpace, GcPolicy, GcReport, Goal, KeepRule, RemovedBecause, RuleEffect};
use super::*;
use crate::{ObjectRef, RingRecorder, WallClock};

pub(in crate::gc) const SECOND: i64 = 1_000_000_000;
pub(in crate::gc) const GIB: u64 = 1 << 30;

/// Images on a disk of so many bytes.
pub(in crate::gc) struct Shelf {
    capacity: u64,
    /// Bytes that are no images.
    other: u64,
    /// Guards what is there.
    content: Mutex<Content>,
    /// Guards the removed images: ids and handlers.
    pub(in crate::gc) removed: Mutex<Vec<(String, String)>>,
}

#[derive(Default)]
pub(in crate::gc) struct Content {
    pub(in crate::gc) images: Vec<Image>,
    layers: Option<ImageLayers>,
    pub(in crate::gc) stuck: BTreeSet<String>,
    no_stats: bool,
    inodes: (u64, u64),
}

impl Shelf {
    fn used(&self) -> u64 {
        let content = self.lock();
        let Some(known) = &content.layers else {
            return self.other + content.images.iter().map(|image| image.size).sum::<u64>();
        };
        let here = content.images.iter().filter_map(|image| known.images.get(&image.id));
        let layers: BTreeSet<u32> = here.clone().flat_map(|of| of.layers.iter().copied()).collect();
        let own: u64 = here.map(|of| of.own_bytes).sum();
        self.other + own + layers.iter().map(|&layer| known.layers[layer as usize]).sum::<u64>()
    }

    pub(in crate::gc) fn lock(&self) -> base::lock::MutexGuard<'_, Content> {
        self.content.lock()
    }

    pub(in crate::gc) fn ids(&self) -> Vec<String> {
        self.lock().images.iter().map(|image| image.id.clone()).collect()
    }
}

#[async_trait]
impl ImageService for Shelf {
    async fn list_images(&self, _: Option<&ImageFilter>) -> Result<Vec<Image>> {
        Ok(self.lock().images.clone())
    }

    async fn image_status(&self, _: &ImageSpec, _: bool) -> Result<ImageStatus> {
        Err(Error::new(Kind::Unimplemented, "collection asks for no status"))
    }

    async fn pull_image(&self, _: PullImageRequest) -> Result<String> {
        Err(Error::new(Kind::Unimplemented, "no pulls here"))
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        let mut content = self.lock();
        if content.stuck.contains(&image.image) {
            return Err(Error::new(Kind::Internal, "it is stuck"));
        }
        let handler = |here: &Image| here.spec.as_ref().map(|spec| spec.runtime_handler.clone()).unwrap_or_default();
        content.images.retain(|here| here.id != image.image || handler(here) != image.runtime_handler);
        content.inodes.1 += 100;
        self.removed.lock().push((image.image.clone(), image.runtime_handler.clone()));
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        if self.lock().no_stats {
            return Err(Error::new(Kind::Internal, "error"));
        }
        let fs = FilesystemUsage { mountpoint: "/shelf".into(), ..FilesystemUsage::default() };
        Ok(FsInfo { image_filesystems: vec![fs], container_filesystems: Vec::new() })
    }
}

/// A store of ours, where the layers are known; nothing but collection asks it.
#[async_trait]
impl ImageEngine for Shelf {
    async fn image_layers(&self) -> Result<ImageLayers> {
        Ok(self.lock().layers.clone().expect("only with layers"))
    }

    async fn remove_images(&self, images: &[ImageSpec]) -> Vec<Result<()>> {
        let mut results = Vec::new();
        for image in images {
            results.push(self.remove_image(image).await);
        }
        results
    }

    async fn unfinished_pulls(&self) -> Result<UnfinishedPulls> {
        Ok(UnfinishedPulls::default())
    }

    async fn drop_unfinished_pulls(&self, _: bool) -> Result<u64> {
        Ok(0)
    }

    async fn inspect_image(&self, image: &ImageSpec) -> Result<ImageStatus> {
        self.image_status(image, true).await
    }

    async fn image_usage(&self, _: &ImageSpec) -> Result<Option<ImageUsage>> {
        unreachable!("collection does not ask")
    }

    async fn pin_image(&self, _: &ImageSpec, _: bool) -> Result<()> {
        unreachable!("collection has pins of its own")
    }

    async fn check_images(&self, _: &CheckRequest, _: &CheckSink) -> Result<CheckReport> {
        unreachable!("collection does not check")
    }

    async fn convert_images(&self, _: &ConvertRequest) -> Result<ConvertReport> {
        unreachable!("collection does not convert")
    }

    async fn mount_image(&self, _: &MountRequest) -> Result<MountedImage> {
        unreachable!("collection does not mount")
    }

    async fn mounts(&self) -> Result<Vec<ImageMount>> {
        unreachable!("collection does not mount")
    }

    async fn lease_layers(&self, _: &str) -> Result<LayerLease> {
        unreachable!("collection does not read")
    }

    async fn import_images(&self, _: &Path, _: ImportOptions) -> Result<ImportReport> {
        unreachable!("collection does not import")
    }

    async fn export_images(&self, _: &[String], _: &Path, _: ExportOptions) -> Result<()> {
        unreachable!("collection does not export")
    }
}

pub(in crate::gc) struct Rig {
    pub(in crate::gc) shelf: Arc<Shelf>,
    pub(in crate::gc) runtime: FakeRuntimeService,
    ring: Arc<RingRecorder>,
    now: Arc<Mutex<Timestamp>>,
    pub(in crate::gc) manager: ImageGcManager,
}

pub(in crate::gc) fn image(id: &str, size: u64) -> Image {
    Image { id: id.into(), size, repo_tags: vec![format!("r.example/{id}:1")], ..Image::default() }
}

pub(in crate::gc) fn policy(high: i32, low: i32, min_age: u64, max_age: u64) -> GcPolicy {
    GcPolicy {
        high_threshold_percent: high,
        low_threshold_percent: low,
        min_age: Duration::from_secs(min_age),
        max_age: Duration::from_secs(max_age),
    }
}

impl Rig {
    /// A shelf of `capacity` bytes; what is not free and no image is something else.
    pub(in crate::gc) fn new(policy: GcPolicy, capacity: u64, available: u64, images: Vec<Image>) -> Self {
        Self::with(policy, capacity, available, Content { images, ..Content::default() }, |_| {})
    }

    /// The same with other options.
    pub(in crate::gc) fn changed(
        policy: GcPolicy,
        capacity: u64,
        available: u64,
        images: Vec<Image>,
        change: impl FnOnce(&mut GcOptions),
    ) -> Self {
        Self::with(policy, capacity, available, Content { images, ..Content::default() }, change)
    }

    fn with(
        policy: GcPolicy,
        capacity: u64,
        available: u64,
        content: Content,
        change: impl FnOnce(&mut GcOptions),
    ) -> Self {
        let exact = content.layers.is_some();
        let shelf = Shelf { capacity, other: 0, content: Mutex::new(content), removed: Mutex::default() };
        let other = capacity - available - shelf.used();
        let shelf = Arc::new(Shelf { other, ..shelf });
        let now = Arc::new(Mutex::new(Timestamp::from_second(1_700_000_000).expect("in range")));
        let (clock, disk) = (Arc::clone(&now), Arc::clone(&shelf));
        let probe: DiskProbe = Arc::new(move |_| {
            let (inodes, inodes_free) = disk.lock().inodes;
            let (capacity, available) = (disk.capacity, disk.capacity.saturating_sub(disk.used()));
            Ok(DiskSpace { capacity, available, inodes, inodes_free, ..DiskSpace::default() })
        });
        let wall_clock: WallClock = Arc::new(move || *clock.lock());
        // No time passes but what a test lets pass.
        let start = Instant::now();
        let mut options = GcOptions {
            policy,
            clock: Arc::new(move || start),
            settle: Duration::ZERO,
            boot_clock: None,
            protect_pre_pulled: Duration::ZERO,
            node: ObjectRef { name: "node-1".into(), ..ObjectRef::default() },
            engine: exact.then(|| Arc::clone(&shelf) as _),
            ..GcOptions::new(wall_clock, probe)
        };
        change(&mut options);
        let runtime = FakeRuntimeService::new();
        let ring = Arc::new(RingRecorder::new(100));
        let manager = ImageGcManager::new(
            Arc::clone(&shelf) as _,
            Some(Arc::new(runtime.clone())),
            Arc::clone(&ring) as _,
            options,
        );
        Self { shelf, runtime, ring, now, manager }
    }

    pub(in crate::gc) fn pass(&self, nanoseconds: i64) {
        let mut now = self.now.lock();
        *now += jiff::SignedDuration::from_nanos(nanoseconds);
    }

    pub(in crate::gc) fn use_image(&self, id: &str) {
        self.runtime.put_container(Container {
            id: format!("c-{id}"),
            image_id: id.into(),
            image_ref: id.into(),
            ..Container::default()
        });
    }

    pub(in crate::gc) fn events(&self) -> Vec<String> {
        let events = self.ring.events().into_iter();
        events.map(|e| format!("{} {} {}", e.event.kind.as_str(), e.event.reason, e.event.message)).collect()
    }
}

// upstream: gc/TestGarbageCollectBelowLowThreshold
#[tokio::test]
async fn nothing_is_removed_below_the_high_threshold() {
    let rig = Rig::new(policy(90, 80, 0, 0), 1000, 600, vec![image("0", 400)]);
    assert_eq!(
        rig.manager.garbage_collect().await.expect("content"),
        GcReport {
            disk: Some(DiskSpace { capacity: 1000, available: 600, ..DiskSpace::default() }),
            ..GcReport::default()
        }
    );
    assert_eq!(rig.shelf.ids(), ["0"]);
}

// upstream: gc/TestGarbageCollectCadvisorFailure
#[tokio::test]
async fn a_disk_that_cannot_be_measured_is_an_error() {
    let rig = Rig::new(policy(90, 80, 0, 0), 1000, 600, vec![]);
    rig.shelf.lock().no_stats = true;
    let error = rig.manager.garbage_collect().await.expect_err("not measured");
    assert_eq!(chain(&error), "ask for the image file system: error");
}

// upstream: gc/TestGarbageCollectBelowSuccess
#[tokio::test]
async fn collection_begins_above_the_high_mark_and_ends_below_the_low_one() {
    let rig = Rig::new(policy(90, 80, 0, 0), 1000, 50, vec![image("0", 450)]);
    let report = rig.manager.garbage_collect().await.expect("enough");
    assert_eq!((report.wanted_bytes, report.freed_bytes), (150, 450));
    assert_eq!(report.disk.map(|disk| disk.available), Some(500));
    assert_eq!(rig.events(), Vec::<String>::new());
}

// upstream: gc/TestGarbageCollectNotEnoughFreed
#[tokio::test]
async fn insufficient_space_is_reported_in_the_kubelets_words() {
    let gib = 1_u64 << 30;
    let rig = Rig::new(policy(90, 80, 0, 0), 10 * gib, gib / 2, vec![image("0", 500 << 20)]);
    let error = rig.manager.garbage_collect().await.expect_err("not enough");
    let text = "Insufficient free disk space on the node's image filesystem (95% of 10.0 GiB used). Failed to free sufficient \
                space by deleting unused images (freed 524288000 bytes). Investigate disk usage, as it could be used by \
                active images, logs, volumes, or other data.";
    assert_eq!(error.to_string(), text);
    assert_eq!(rig.events(), [format!("Warning FreeDiskSpaceFailed {text}")]);
    assert_eq!(rig.ring.events()[0].event.object.name, "node-1");
}

// upstream: gc/TestGarbageCollectImageTooOld
#[tokio::test]
async fn images_above_the_maximum_age_are_removed() {
    let rig = Rig::new(policy(90, 80, 0, 60), 10_000, 9000, vec![image("0", 100), image("1", 100)]);
    rig.use_image("0");
    rig.manager.garbage_collect().await.expect("fine");
    assert_eq!(rig.shelf.ids().len(), 2);
    rig.pass(60 * SECOND);
    rig.manager.garbage_collect().await.expect("fine");
    assert_eq!(rig.shelf.ids().len(), 2, "exactly the age is not older");
    rig.pass(1);
    let report = rig.manager.garbage_collect().await.expect("fine");
    assert_eq!(rig.shelf.ids(), ["0"]);
    assert_eq!(report.removed[0].because, RemovedBecause::Age);
}

/// A node that boots with its clock in the past gets the right time in the middle of a round, or a wrong one: at whichever
/// reading of the clock that happens, young images stay.
#[tokio::test]
async fn a_clock_that_is_set_within_a_round_makes_nothing_old() {
    let year = jiff::SignedDuration::from_hours(365 * 24);
    for (step, at) in [year * 50, -year, -year * 40].into_iter().flat_map(|step| (0..8).map(move |at| (step, at))) {
        let (looks, set_at) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
        let (asked, when) = (Arc::clone(&looks), Arc::clone(&set_at));
        let rules = policy(90, 10, 3600, 7 * 24 * 3600);
        let images = vec![image("0", 400), image("1", 300), image("2", 100)];
        let rig = Rig::changed(rules, 1000, 50, images, |options| {
            let clock = Arc::clone(&options.wall_clock);
            options.wall_clock = Arc::new(move || {
                let look = asked.fetch_add(1, Ordering::Relaxed);
                if look >= when.load(Ordering::Relaxed) { clock() + step } else { clock() }
            });
            let boot = crate::gc::Boot { id: "a life".into(), up: Duration::from_secs(1 << 20) };
            options.boot_clock = Some(Arc::new(move || Some(boot.clone())));
        });
        rig.manager.detect().await.expect("a first look");
        let from = looks.load(Ordering::Relaxed);
        set_at.store(from + at, Ordering::Relaxed);
        let context = format!("set by {step:#} at look {at}");
        let told = rig.manager.garbage_collect().await.expect_err("nothing may go");
        assert!(matches!(told, GcError::NotEnough(_)), "{context}: {told}");
        assert_eq!(rig.shelf.ids().len(), 3, "{context}: what is young stays");
        assert!(at > 0 || looks.load(Ordering::Relaxed) > from, "it looks at the clock");
    }
}

// upstream: gc/TestGarbageCollectImageMaxAgeDisabled
#[tokio::test]
async fn without_a_maximum_nothing_is_too_old() {
    let rig = Rig::new(policy(90, 80, 0, 0), 10_000, 9000, vec![image("0", 100)]);
    rig.manager.garbage_collect().await.expect("fine");
    *rig.now.lock() = Timestamp::MAX;
    rig.manager.garbage_collect().await.expect("fine");
    assert_eq!(rig.shelf.ids(), ["0"]);
}

// upstream: gc/TestDeleteUnusedImagesRemoveAllUnusedImages
#[tokio::test]
async fn all_unused_images_go_when_that_is_asked() {
    let rig = Rig::new(policy(90, 80, 0, 0), 10_000, 5000, vec![image("0", 1024), image("1", 1024), image("2", 1024)]);
    rig.use_image("2");
    rig.manager.collect(Goal::AllUnused).await.expect("fine");
    assert_eq!(rig.shelf.ids(), ["2"]);
}

// upstream: gc/TestDeleteUnusedImagesLimitByImageLiveTime
#[tokio::test]
async fn young_images_stay_until_they_are_old_enough() {
    let rig = Rig::new(policy(90, 80, 3, 0), 10_000, 5000, vec![image("0", 1024), image("1", 1024)]);
    rig.manager.collect(Goal::AllUnused).await.expect("fine");
    assert_eq!(rig.shelf.ids(), ["0", "1"]);
    rig.pass(3 * SECOND);
    rig.manager.collect(Goal::AllUnused).await.expect("fine");
    assert_eq!(rig.shelf.ids(), Vec::<String>::new());
}

#[tokio::test]
async fn sandbox_image_of_the_runtime_stays_unless_the_settings_name_another() {
    let images = vec![image("sandbox", 10), image("other", 10), image("unused", 10)];
    let rig = Rig::with(policy(90, 80, 0, 0), 1000, 100, Content { images, ..Content::default() }, |options| {
        let name = || Some("r.example/sandbox:1".to_owned());
        options.sandbox_image_lookup = Some(Arc::new(move || Box::pin(std::future::ready(name()))));
    });
    let removed = async || {
        let outline = rig.manager.plan(Some(Goal::AllUnused)).await.expect("a plan");
        let removed = outline.images.into_iter().filter(|row| row.decision == "remove").map(|row| row.id);
        removed.collect::<BTreeSet<_>>()
    };
    assert_eq!(removed().await, BTreeSet::from(["unused".to_owned(), "other".to_owned()]));
    // A reload keeps asking the runtime.
    let rules = |sandbox_image| GcOptions { sandbox_image, ..(*rig.manager.options()).clone() };
    rig.manager.adopt_rules(rules(Some("r.example/other:1".into())));
    assert_eq!(removed().await, BTreeSet::from(["unused".to_owned(), "sandbox".to_owned()]));
    rig.manager.adopt_rules(rules(None));
    assert_eq!(removed().await, BTreeSet::from(["unused".to_owned(), "other".to_owned()]));
}

// upstream: gc/TestDeleteUnusedImagesExemptSandboxImage
#[tokio::test]
async fn sandbox_pinned_and_kept_images_stay() {
    let runtimes = Image { pinned: true, ..image("runtimes", 10) };
    let images = vec![image("sandbox", 10), runtimes, image("mine", 10), image("ruled", 10), image("unused", 10)];
    let rule = KeepRule { pattern: Pattern::parse("r.example/rul*").expect("a pattern"), effect: RuleEffect::Keep };
    let rig = Rig::with(policy(90, 80, 0, 0), 1000, 100, Content { images, ..Content::default() }, |options| {
        options.sandbox_image = Some("r.example/sandbox:1".into());
        options.keep = vec![rule];
    });
    assert!(rig.manager.pin("r.example/mine").await.expect("pinned"));
    assert!(!rig.manager.pin("r.example/mine").await.expect("pinned before"));
    let outline = rig.manager.plan(Some(Goal::AllUnused)).await.expect("a plan");
    let words: BTreeMap<&str, &str> =
        outline.images.iter().map(|row| (row.id.as_str(), row.decision.as_str())).collect();
    let want =
        [("unused", "remove"), ("mine", "pinned"), ("ruled", "rule"), ("runtimes", "pinned"), ("sandbox", "in-use")];
    assert_eq!(words, BTreeMap::from(want));
    assert_eq!(rig.shelf.ids().len(), 5, "a plan removes nothing");
    rig.manager.collect(Goal::AllUnused).await.expect("fine");
    assert_eq!(rig.shelf.ids(), ["sandbox", "runtimes", "mine", "ruled"]);
    let pins = rig.manager.pins().await.expect("listed");
    assert_eq!((pins[0].0.as_str(), pins[0].1[0].id.as_str()), ("r.example/mine", "mine"));
    assert!(rig.manager.unpin("r.example/mine").await.expect("unpinned"));
    rig.manager.collect(Goal::AllUnused).await.expect("fine");
    assert_eq!(rig.shelf.ids(), ["sandbox", "runtimes", "ruled"]);
}

// upstream: gc/TestDeletePinnedImage
#[tokio::test]
async fn an_id_that_is_listed_twice_is_pinned_if_one_of_them_is() {
    let images = vec![Image { pinned: true, ..image("0", 1024) }, image("0", 1024)];
    let rig = Rig::new(policy(90, 80, 0, 0), 10_000, 5000, images);
    rig.manager.collect(Goal::AllUnused).await.expect("fine");
    // The kubelet removes the other entry; one id is one image, and a removal by id would take both.
    assert_eq!(rig.shelf.ids(), ["0", "0"]);
}

#[tokio::test]
async fn pressure_ends_at_the_low_mark() {
    let images = (0..10).map(|n| image(&n.to_string(), 100)).collect();
    let rig = Rig::new(policy(90, 80, 0, 0), 1000, 0, images);
    let report = rig.manager.delete_unused_images().await.expect("enough");
    // The kubelet would have removed all ten.
    assert_eq!((report.removed.len(), report.disk.map(|disk| disk.available)), (2, Some(200)));
    assert!(rig.manager.delete_unused_images().await.expect("nothing to do").removed.is_empty());
}

#[tokio::test]
async fn shared_layers_are_not_counted_as_freed() {
    let of = |layers: &[u32]| LayersOf { own_bytes: 1, layers: layers.to_vec(), used_by: None };
    let layers = ImageLayers {
        layers: vec![300, 100, 100],
        images: BTreeMap::from([("0".into(), of(&[0, 1])), ("1".into(), of(&[0, 2])), ("2".into(), of(&[0]))]),
    };
    let images = vec![image("0", 401), image("1", 401), image("2", 301)];
    let content = Content { images, layers: Some(layers), ..Content::default() };
    let rig = Rig::with(policy(90, 70, 0, 0), 1000, 50, content, |_| {});
    rig.use_image("2");
    let error = rig.manager.garbage_collect().await.expect_err("250 bytes are not to be had");
    assert!(error.to_string().contains("(freed 202 bytes)"), "{error}");
    assert_eq!(rig.shelf.ids(), ["2"]);
}

#[tokio::test]
async fn a_failed_removal_ends_neither_the_round_nor_the_other_phase() {
    let rig = Rig::new(policy(90, 50, 0, 60), 1000, 50, vec![image("0", 300), image("1", 300), image("2", 300)]);
    rig.manager.detect().await.expect("seen");
    rig.pass(61 * SECOND);
    rig.shelf.lock().stuck.insert("0".into());
    let error = rig.manager.garbage_collect().await.expect_err("one is stuck");
    let text = chain(&error);
    assert!(
        text.contains("wanted to free images older than 1m0s, encountered errors in image deletion: 0: it is stuck"),
        "{text}"
    );
    assert_eq!(rig.shelf.ids(), ["0"]);
    // By space the same: the image that cannot be removed is skipped, and the other ones are removed.
    let rig = Rig::new(policy(90, 50, 0, 0), 1000, 50, vec![image("0", 500), image("1", 200), image("2", 200)]);
    rig.shelf.lock().stuck.insert("0".into());
    let error = rig.manager.garbage_collect().await.expect_err("one is stuck").to_string();
    assert_eq!(
        error,
        "wanted to free 450 bytes, but freed 400 bytes space with errors in image deletion: 0: it is stuck"
    );
    assert_eq!(rig.shelf.ids(), ["0"]);
}

#[tokio::test]
async fn inodes_run_out_as_well() {
    let content = Content {
        images: (0..5).map(|n| image(&n.to_string(), 10)).collect(),
        inodes: (1000, 20),
        ..Content::default()
    };
    let rig = Rig::with(policy(90, 80, 0, 0), 1000, 900, content, |_| {});
    let report = rig.manager.garbage_collect().await.expect("enough");
    assert_eq!((report.removed.len(), report.disk.map(|disk| disk.inodes_free)), (2, Some(220)));
}

#[tokio::test]
async fn usage_survives_a_restart() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let at = directory.path().to_owned();
    let make = |images| {
        let at = at.clone();
        let content = Content { images, ..Content::default() };
        Rig::with(policy(90, 80, 120, 3600), 1000, 500, content, move |options| options.directory = Some(at))
    };
    let images = || vec![image("0", 100), image("1", 100)];
    let rig = make(images());
    rig.use_image("1");
    rig.manager.detect().await.expect("seen");
    // The next process begins two hours later: the old image is not young again, the used one not unused.
    let rig = make(images());
    rig.pass(3700 * SECOND);
    let outline = rig.manager.plan(None).await.expect("a plan");
    let row = |id: &str| outline.images.iter().find(|row| row.id == id).cloned().expect("listed");
    assert_eq!(row("0").decision, "remove");
    assert_eq!(row("0").first_detected, Some(Timestamp::from_second(1_700_000_000).expect("in range")));
    assert_eq!(row("1").last_used, Some(Timestamp::from_second(1_700_000_000).expect("in range")));
    assert_eq!(row("1").used_by, "container c-1");
}

#[tokio::test]
async fn failures_are_reported_from_the_second_in_a_row() {
    let rig = Rig::new(policy(90, 80, 0, 0), 1000, 600, vec![]);
    rig.shelf.lock().no_stats = true;
    for want in [0, 1, 2] {
        let result = rig.manager.garbage_collect().await;
        rig.manager.report_round(&result);
        assert_eq!(rig.events().len(), want);
    }
    assert_eq!(rig.events()[0], "Warning ImageGCFailed ask for the image file system: error");
    rig.shelf.lock().no_stats = false;
    let result = rig.manager.garbage_collect().await;
    rig.manager.report_round(&result);
    rig.shelf.lock().no_stats = true;
    let result = rig.manager.garbage_collect().await;
    rig.manager.report_round(&result);
    assert_eq!(rig.events().len(), 2);
}

#[tokio::test]
async fn a_disk_without_bytes_is_reported() {
    let rig = Rig::new(policy(90, 80, 0, 0), 0, 0, vec![]);
    let error = rig.manager.garbage_collect().await.expect_err("no disk").to_string();
    assert_eq!(error, "invalid capacity 0 on image filesystem");
    assert_eq!(rig.events(), ["Warning InvalidDiskCapacity invalid capacity 0 on image filesystem"]);
}

#[tokio::test]
async fn the_image_cache_is_sorted_by_size() {
    let rig = Rig::new(policy(90, 80, 0, 0), 10_000, 100, vec![image("b", 10), image("c", 20), image("a", 10)]);
    assert!(rig.manager.image_list().is_empty());
    rig.manager.refresh_cache().await.expect("listed");
    let ids: Vec<String> = rig.manager.image_list().iter().map(|image| image.id.clone()).collect();
    assert_eq!(ids, ["c", "b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn the_loops_run_at_once_on_their_timers_and_on_a_nudge() {
    let rig = Rig::new(policy(90, 80, 0, 0), 1000, 600, vec![image("0", 200), image("1", 200)]);
    let stop = tokio_util::sync::CancellationToken::new();
    let drive = async {
        // At once: the cache is filled, and nothing has to go.
        while rig.manager.image_list().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(rig.shelf.ids().len(), 2);
        // Something fills the disk; the nudge starts a round before the timer does.
        rig.shelf.lock().images.push(image("2", 550));
        let before = tokio::time::Instant::now();
        rig.manager.nudge();
        while rig.shelf.ids().len() == 3 {
            tokio::task::yield_now().await;
        }
        assert_eq!(before.elapsed(), Duration::ZERO);
        // And once more, without a nudge.
        rig.shelf.lock().images.push(image("3", 200));
        while rig.shelf.used() > 900 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(before.elapsed() <= Duration::from_secs(301), "{:?}", before.elapsed());
        stop.cancel();
    };
    tokio::join!(rig.manager.run(&stop), drive);
}

#[tokio::test]
async fn rules_by_namespace() {
    let images = ["other", "system", "shop"].map(|id| image(id, 10));
    let rig = Rig::changed(policy(90, 80, 0, 0), 1000, 900, images.into(), |options| {
        let pattern = Pattern::parse("namespace=kube-*").expect("a pattern");
        options.keep = vec![KeepRule { pattern, effect: RuleEffect::Keep }];
    });
    for (id, namespace) in [("system", "kube-system"), ("shop", "shop")] {
        let labels = [("io.kubernetes.pod.namespace", namespace), ("io.kubernetes.pod.name", "pod")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let (id, image_id) = (format!("c-{id}"), id.to_owned());
        rig.runtime.put_container(Container { id, image_id, labels, ..Container::default() });
    }
    rig.manager.detect().await.expect("seen");
    rig.runtime.take_container("c-system");
    rig.runtime.take_container("c-shop");
    let outline = rig.manager.plan(Some(Goal::AllUnused)).await.expect("a plan");
    let words: BTreeMap<&str, &str> = outline.images.iter().map(|row| (row.id.as_str(), row.why.as_str())).collect();
    let want = [("other", "unused"), ("shop", "unused"), ("system", "kept by rule namespace=kube-*")];
    assert_eq!(words, BTreeMap::from(want));
}

#[tokio::test]
async fn an_image_without_an_id_is_reported_and_stays() {
    let rig = Rig::new(policy(90, 80, 0, 0), 1000, 0, vec![image("", 500), image("1", 500)]);
    rig.manager.garbage_collect().await.expect("enough");
    assert_eq!(rig.shelf.ids(), [""]);
    assert_eq!(rig.events(), ["Warning InvalidImageID ImageID is not valid, skipping, ImageID: "]);
}
