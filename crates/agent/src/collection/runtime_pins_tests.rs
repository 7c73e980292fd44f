//! Pins of a collection in the runtime that keeps its images, with a runtime in memory that takes pins.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::lock::Mutex;
use cri_api::engine::RuntimePins;
use cri_api::testing::{FakeImage, FakeImageService};
use cri_api::{Error, ImageService as _, Kind, Result};
use tokio_util::sync::CancellationToken;

use super::{Arc, BTreeMap, CollectRequest, Collection, CollectionParts, Collects as _, PIN_IN_RUNTIME, Pattern, Pins};

const FIRST: &str = "registry.test/first:1";
const SECOND: &str = "registry.test/second:1";

/// Pins in a runtime, and the pins of other programs next to them. Lists of the runtime show both.
struct FakePins {
    images: FakeImageService,
    /// Guards the IDs that were pinned through this value.
    own: Mutex<BTreeSet<String>>,
    /// Guards the IDs that other programs pinned.
    others: Mutex<BTreeSet<String>>,
    /// Guards the error of the next calls.
    error: Mutex<Option<Error>>,
    calls: AtomicUsize,
}

impl FakePins {
    fn new(images: &FakeImageService) -> Arc<Self> {
        let (own, others, error) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { images: images.clone(), own, others, error, calls: AtomicUsize::new(0) })
    }

    fn own(&self) -> Vec<String> {
        self.own.lock().iter().cloned().collect()
    }

    fn answers(&self) -> Result<()> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.error.lock().clone().map_or(Ok(()), Err)
    }
}

#[async_trait::async_trait]
impl RuntimePins for FakePins {
    async fn replace(&self, ids: &BTreeSet<String>) -> Result<usize> {
        self.answers()?;
        // Pins that end are listed for some time.
        ids.iter().for_each(|id| self.images.pin(id, true));
        let before = std::mem::replace(&mut *self.own.lock(), ids.clone());
        Ok(before.symmetric_difference(ids).count())
    }

    async fn pinned_by_others(&self) -> Result<Option<BTreeSet<String>>> {
        self.answers()?;
        Ok(Some(self.others.lock().clone()))
    }
}

struct Scene {
    _directory: tempfile::TempDir,
    collection: Collection,
    pins: Arc<FakePins>,
    images: FakeImageService,
    first: String,
    second: String,
}

impl Scene {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let images = FakeImageService::new();
        let first = images.preload(FIRST, &FakeImage::new("first").sized(5_000_000));
        let second = images.preload(SECOND, &FakeImage::new("second").sized(3_000_000));
        let pins = FakePins::new(&images);
        let mut parts = CollectionParts::for_tests(directory.path(), &images, "unix:///run/x.sock", Ok(None));
        parts.images.runtime_pins = Some(Arc::clone(&pins) as Arc<dyn RuntimePins>);
        let collection = Collection::open(parts).await.expect("it opens");
        Self { _directory: directory, collection, pins, images, first, second }
    }

    /// Returns the reason of the plan for each image.
    async fn why(&self) -> BTreeMap<String, String> {
        let everything = CollectRequest { all_unused: true, ..CollectRequest::default() };
        let plan = self.collection.plan(&everything).await.expect("a plan");
        plan.images.into_iter().map(|image| (image.id, image.why)).collect()
    }
}

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).expect("a pattern")
}

#[tokio::test]
async fn runtime_has_the_pins_of_all_owners() {
    let s = Scene::new().await;
    s.collection.pin_in_runtime().await;
    assert_eq!(s.pins.own(), Vec::<String>::new());
    s.collection.pin(&[pattern("registry.test/first")]).await.expect("pinned");
    assert_eq!(s.pins.own(), [&*s.first]);
    s.collection.pin_for_image_sets(Pins::from_iter([pattern(SECOND)])).await.expect("pinned");
    s.collection.pin_in_runtime().await;
    assert_eq!(s.pins.own().len(), 2);
    s.collection.unpin(&[pattern("registry.test/first")]).await.expect("unpinned");
    assert_eq!(s.pins.own(), [&*s.second]);
    s.collection.pin_for_image_sets(Pins::default()).await.expect("unpinned");
    s.collection.pin_in_runtime().await;
    assert_eq!(s.pins.own(), Vec::<String>::new());
}

#[tokio::test]
async fn own_pin_in_the_runtime_is_no_reason_of_its_own() {
    let s = Scene::new().await;
    s.collection.pin_for_image_sets(Pins::from_iter([pattern(FIRST)])).await.expect("pinned");
    s.collection.pin_in_runtime().await;
    assert_eq!(s.why().await[&s.first], "pinned by an image set of the cluster");
    // The runtime still lists the image as pinned.
    s.collection.pin_for_image_sets(Pins::default()).await.expect("unpinned");
    s.collection.pin_in_runtime().await;
    let listed = s.images.list_images(None).await.expect("a list");
    assert!(listed.iter().any(|image| image.id == s.first && image.pinned));
    assert_eq!(s.why().await[&s.first], "unused");
    // Another program's pin counts, and a missing answer protects.
    s.pins.others.lock().insert(FIRST.to_owned());
    assert_eq!(s.why().await[&s.first], "pinned by the runtime");
    s.pins.others.lock().clear();
    *s.pins.error.lock() = Some(Error::new(Kind::Unavailable, "no answer"));
    assert_eq!(s.why().await[&s.first], "pinned by the runtime");
}

#[tokio::test(start_paused = true)]
async fn lost_pins_are_written_again_and_a_failure_does_not_end_that() {
    let s = Scene::new().await;
    s.collection.pin(&[pattern(FIRST)]).await.expect("pinned");
    let stop = CancellationToken::new();
    let turns = async |count: usize| {
        let until = s.pins.calls.load(Ordering::SeqCst) + count;
        while s.pins.calls.load(Ordering::SeqCst) < until {
            tokio::time::sleep(PIN_IN_RUNTIME).await;
        }
    };
    let test = async {
        turns(1).await;
        s.pins.own.lock().clear();
        *s.pins.error.lock() = Some(Error::new(Kind::Unavailable, "no answer"));
        turns(2).await;
        assert_eq!(s.pins.own(), Vec::<String>::new());
        *s.pins.error.lock() = None;
        turns(1).await;
        assert_eq!(s.pins.own(), [&*s.first]);
        stop.cancel();
    };
    tokio::join!(s.collection.keep_pins_in_runtime(&stop), test);
}
