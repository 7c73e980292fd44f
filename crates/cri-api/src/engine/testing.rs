//! The conformance suite of [`ImageEngine`]: one function per rule, on a store that pulls from a registry with two images.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Error, ImageService, ImageSpec, Kind, ProgressSink, PullImageRequest};

use crate::engine::{
    CheckProgress, CheckRequest, CheckSink, ConvertRequest, Format, ImageEngine, ImportOptions, LayerShape,
    MountRequest, UnfinishedPulls,
};

/// An implementation under test.
pub struct Bench {
    /// The CRI half of the same store.
    pub service: Arc<dyn ImageService>,
    /// The implementation.
    pub engine: Arc<dyn ImageEngine>,
    /// Names of two images that a pull fetches. They share a layer, and each has one of its own.
    pub names: [String; 2],
    /// An empty directory.
    pub scratch: PathBuf,
}

/// Runs every rule, on an empty store that is empty again afterwards.
///
/// # Panics
/// Where a rule does not hold.
pub async fn run_all(bench: &Bench) {
    bench.usage_splits_unique_and_shared().await;
    bench.layer_sizes_match_image_usage().await;
    bench.many_are_removed_at_once_each_with_its_result().await;
    bench.inspection_shows_the_config().await;
    bench.pins_are_shown().await;
    bench.a_whole_store_is_found_sound().await;
    bench.layers_are_converted_and_stay_usable().await;
    bench.nothing_is_left_of_pulls_that_ended().await;
    bench.leases_are_of_what_is_here().await;
    bench.an_export_imports_as_the_same_image().await;
    bench.what_is_absent_is_not_found().await;
}

impl Bench {
    async fn pull(&self, index: usize) -> ImageSpec {
        let pulled = self.service.pull_image(PullImageRequest::new(&self.names[index])).await;
        ImageSpec::new(pulled.expect("the pull of a published image"))
    }

    async fn remove_all(&self) {
        let images = self.service.list_images(None).await.expect("a list");
        let specs: Vec<ImageSpec> = images.into_iter().map(|image| ImageSpec::new(image.id)).collect();
        assert!(self.engine.remove_images(&specs).await.iter().all(Result::is_ok));
        assert_eq!(self.service.list_images(None).await.expect("a list"), Vec::new());
    }

    /// Bytes that only one image uses go with it; bytes that others use stay.
    async fn usage_splits_unique_and_shared(&self) {
        let first = self.pull(0).await;
        let usage = async || self.engine.image_usage(&first).await.expect("usage").expect("of a present image");
        let alone = usage().await;
        assert!(alone.unique_bytes > 0, "an image that is alone has no unique bytes: {alone:?}");
        let second = self.pull(1).await;
        let shared = usage().await;
        assert!(shared.unique_bytes > 0, "an image with a layer of its own has no unique bytes: {shared:?}");
        assert!(shared.shared_bytes > alone.shared_bytes, "no bytes became shared: before {alone:?}, after {shared:?}");
        self.service.remove_image(&second).await.expect("a removal");
        assert_eq!(usage().await, alone, "usage after the other image went");
        assert_eq!(self.engine.image_usage(&second).await.expect("an answer"), None, "of an absent image");
        self.remove_all().await;
    }

    async fn layer_sizes_match_image_usage(&self) {
        let (first, second) = (self.pull(0).await, self.pull(1).await);
        let layers = self.engine.image_layers().await.expect("layers");
        let (one, other) = (&layers.images[&first.image], &layers.images[&second.image]);
        let of = |shared: bool| -> u64 {
            let wanted = one.layers.iter().filter(|layer| other.layers.contains(layer) == shared);
            wanted.map(|layer| layers.layers[*layer as usize]).sum()
        };
        let usage = self.engine.image_usage(&first).await.expect("usage").expect("of a present image");
        assert_eq!(of(true), usage.shared_bytes);
        // Documents lie in the database, whose file keeps its size: they are in the usage and free nothing.
        let frees = one.own_bytes + of(false);
        assert!((1..=usage.unique_bytes).contains(&frees), "{frees} of {usage:?}");
        self.remove_all().await;
    }

    async fn many_are_removed_at_once_each_with_its_result(&self) {
        let (first, second) = (self.pull(0).await, self.pull(1).await);
        let images = [first, ImageSpec::new("registry.test/absent:1"), ImageSpec::new(""), second];
        let results = self.engine.remove_images(&images).await;
        let kinds: Vec<Option<Kind>> = results.iter().map(|result| result.as_ref().err().map(Error::kind)).collect();
        assert_eq!(kinds, [None, None, Some(Kind::InvalidArgument), None]);
        assert_eq!(self.service.list_images(None).await.expect("a list"), Vec::new());
        assert!(self.engine.remove_images(&[]).await.is_empty());
    }

    async fn inspection_shows_the_config(&self) {
        let first = self.pull(0).await;
        let inspected = self.engine.inspect_image(&first).await.expect("a status");
        let status = self.service.image_status(&first, true).await.expect("a status");
        assert_eq!(inspected.image.as_ref().map(|image| &image.id), Some(&first.image));
        assert_eq!(inspected.info, status.info);
        assert!(inspected.info.contains_key("info"), "it is verbose");
        self.remove_all().await;
        assert_eq!(self.engine.inspect_image(&first).await.expect("an answer").image, None);
    }

    async fn pins_are_shown(&self) {
        let first = self.pull(0).await;
        for pinned in [true, false] {
            self.engine.pin_image(&first, pinned).await.expect("a pin");
            let images = self.service.list_images(None).await.expect("a list");
            assert_eq!(images.iter().map(|image| image.pinned).collect::<Vec<_>>(), [pinned]);
        }
        self.remove_all().await;
    }

    async fn a_whole_store_is_found_sound(&self) {
        self.pull(0).await;
        let reports = Arc::new(AtomicUsize::new(0));
        let sink = {
            let reports = Arc::clone(&reports);
            CheckSink::new(move |CheckProgress { .. }| {
                reports.fetch_add(1, Ordering::Relaxed);
            })
        };
        let request = CheckRequest { deep: true, ..CheckRequest::default() };
        let report = self.engine.check_images(&request, &sink).await.expect("a report");
        assert_eq!((report.images_checked, report.layers_checked, report.problems), (1, 2, Vec::new()));
        assert!(reports.load(Ordering::Relaxed) > 0, "progress is reported");
        self.remove_all().await;
    }

    async fn layers_are_converted_and_stay_usable(&self) {
        let first = self.pull(0).await;
        for to in LayerShape::ALL {
            let request = ConvertRequest { to, images: vec![first.image.clone()] };
            let report = self.engine.convert_images(&request).await.expect("a report");
            assert_eq!(report.images.len(), 1);
            assert_eq!((&report.images[0].id, &report.images[0].error), (&first.image, &None));
            assert!(self.service.image_status(&first, false).await.expect("a status").image.is_some());
        }
        self.remove_all().await;
    }

    async fn nothing_is_left_of_pulls_that_ended(&self) {
        self.pull(0).await;
        assert_eq!(self.engine.mounts().await.expect("an answer"), [], "nothing is mounted yet");
        assert_eq!(self.engine.unfinished_pulls().await.expect("an answer"), UnfinishedPulls::default());
        for all in [false, true] {
            assert_eq!(self.engine.drop_unfinished_pulls(all).await.expect("an answer"), 0);
        }
        self.remove_all().await;
    }

    async fn leases_are_of_what_is_here(&self) {
        let first = self.pull(0).await;
        let lease = self.engine.lease_layers(&first.image).await.expect("a lease");
        assert!(lease.root().is_absolute() && lease.stack().is_object(), "{lease:?}");
        self.remove_all().await;
        drop(lease);
        let error = self.engine.lease_layers(&first.image).await.expect_err("it is absent");
        assert_eq!(error.kind(), Kind::NotFound);
    }

    async fn an_export_imports_as_the_same_image(&self) {
        let first = self.pull(0).await;
        for (format, name) in [(Format::OciLayout, "layout"), (Format::DockerArchive, "archive.tar")] {
            let path = self.scratch.join(name);
            self.engine.export_images(&self.names[..1], &path, format.into()).await.expect("an export");
            self.remove_all().await;
            let reports = Arc::new(AtomicUsize::new(0));
            let progress = {
                let reports = Arc::clone(&reports);
                ProgressSink::new(move |_| {
                    reports.fetch_add(1, Ordering::Relaxed);
                })
            };
            let options = ImportOptions { progress, ..ImportOptions::default() };
            let imported = self.engine.import_images(&path, options).await.expect("an import").images;
            let ids: Vec<&str> = imported.iter().map(|image| image.id.as_str()).collect();
            assert_eq!(ids, [first.image.as_str()]);
            assert_eq!(imported[0].names, self.names[..1]);
            assert!(reports.load(Ordering::Relaxed) > 0, "progress is reported");
        }
        self.remove_all().await;
    }

    async fn what_is_absent_is_not_found(&self) {
        let absent = ImageSpec::new("registry.test/absent:1");
        let names = [absent.image.clone()];
        let mount = MountRequest { image: absent.clone(), target: self.scratch.clone(), writable: None };
        let convert = ConvertRequest { to: LayerShape::Dir, images: names.to_vec() };
        let errors = [
            self.engine.pin_image(&absent, true).await.err(),
            self.engine.mount_image(&mount).await.err(),
            self.engine.convert_images(&convert).await.err(),
            self.engine.export_images(&names, &self.scratch.join("none"), Format::OciLayout.into()).await.err(),
            self.engine.import_images(&self.scratch.join("none"), ImportOptions::default()).await.err(),
        ];
        for (number, error) in errors.into_iter().enumerate() {
            assert_eq!(error.map(|error| error.kind()), Some(Kind::NotFound), "call {number}");
        }
    }
}
