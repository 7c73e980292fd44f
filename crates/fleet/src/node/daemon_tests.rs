//! The daemon against an API server, an image service and a collection in memory, on a virtual clock.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use base::lock::Mutex;
use cluster::fake::FakeServer;
use cri_api::testing::{CallKind, FakeImage, FakeImageService};
use cri_api::{FsInfo, Image, ImageFilter, ImageSpec, ImageStatus, LayerState, PullEvent, PullImageRequest};
use image_manager::{BackoffOptions, LogRecorder, Options, PullerOptions};
use oci::RegistryAuth;
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

use super::*;

const APP: &str = "r.example/app:1";
const SETS: &str = "/apis/imagelet.dev/v1alpha1/imagesets";
const REPORT: &str = "/apis/imagelet.dev/v1alpha1/nodeimages/edge";

/// A collection in memory.
#[derive(Default)]
struct FakeCollector {
    /// Guards the pins.
    pins: Mutex<Pins>,
    /// Guards the space of the disk.
    space: Mutex<Option<ImageSpace>>,
    /// Guards the IDs of images in use.
    used: Mutex<BTreeSet<String>>,
    /// Guards the amounts of bytes that were requested.
    reclaimed: Mutex<Vec<u64>>,
    images: FakeImageService,
}

#[async_trait]
impl Collector for FakeCollector {
    async fn pin(&self, pins: Pins) -> Result<(), String> {
        *self.pins.lock() = pins;
        Ok(())
    }

    async fn space(&self) -> Option<ImageSpace> {
        *self.space.lock()
    }

    async fn reclaim(&self, bytes: u64) {
        self.reclaimed.lock().push(bytes);
        if let Some(space) = &mut *self.space.lock() {
            space.free += std::mem::take(&mut space.reclaimable);
        }
    }

    async fn remove_unused(&self, id: &str) -> Result<bool, String> {
        if self.used.lock().contains(id) {
            return Ok(false);
        }
        self.images.remove_image(&ImageSpec::new(id)).await.map(|()| true).map_err(|error| error.to_string())
    }
}

/// The service of the fake, which reports the layers of a pull before it fetches them.
struct Announcing(FakeImageService, u64);

#[async_trait]
impl ImageService for Announcing {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> cri_api::Result<Vec<Image>> {
        self.0.list_images(filter).await
    }

    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> cri_api::Result<ImageStatus> {
        self.0.image_status(image, verbose).await
    }

    async fn pull_image(&self, request: PullImageRequest) -> cri_api::Result<String> {
        let layer = oci::Digest::sha256(b"layer");
        let digest = FakeImage::new("app").digest();
        request.progress.report(PullEvent::Resolved { digest, layers: vec![(layer.clone(), self.1)] });
        request.progress.report(PullEvent::Layer { digest: layer, state: LayerState::Fetching });
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.0.pull_image(request).await
    }

    async fn remove_image(&self, image: &ImageSpec) -> cri_api::Result<()> {
        self.0.remove_image(image).await
    }

    async fn image_fs_info(&self) -> cri_api::Result<FsInfo> {
        self.0.image_fs_info().await
    }
}

struct Scene {
    server: FakeServer,
    fake: FakeImageService,
    collector: Arc<FakeCollector>,
    directory: tempfile::TempDir,
    begun: Instant,
    service: Arc<dyn ImageService>,
    reports_layers: bool,
    daemon: Option<(DropGuard, TaskTracker)>,
    board: SetBoard,
}

impl Scene {
    async fn new() -> Self {
        Self::with(|fake| Arc::new(fake.clone())).await
    }

    async fn with(service: impl FnOnce(&FakeImageService) -> Arc<dyn ImageService>) -> Self {
        let (server, fake) = (FakeServer::new(true), FakeImageService::new());
        fake.publish(APP, &FakeImage::new("app"));
        let metadata = json!({"creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"disk": "ssd"}});
        server.put("/api/v1/nodes/edge", json!({ "metadata": metadata }));
        let mut scene = Self {
            collector: Arc::new(FakeCollector { images: fake.clone(), ..FakeCollector::default() }),
            service: service(&fake),
            directory: tempfile::tempdir().expect("a directory"),
            begun: Instant::now(),
            reports_layers: true,
            daemon: None,
            board: SetBoard::default(),
            server,
            fake,
        };
        scene.start().await;
        scene
    }

    async fn start(&mut self) {
        let manager = Options {
            puller: PullerOptions { serialize: false, qps: 0.0, linger: Duration::ZERO, ..PullerOptions::default() },
            backoff: BackoffOptions {
                initial: Duration::ZERO,
                max: Duration::ZERO,
                by_cause: false,
                ..BackoffOptions::default()
            },
            keyring: Some(Arc::new(credentials::Keyring::new(credentials::KeyringOptions::default()))),
            ..Options::default()
        };
        let begun = self.begun;
        let wall = move || {
            let passed = Instant::now().duration_since(begun);
            jiff::Timestamp::from_second(1_800_000_000).expect("in range") + passed
        };
        let daemon = NodeDaemon::open(NodeDaemonOptions {
            node: "edge".to_owned(),
            namespace: "fleet".to_owned(),
            client: self.server.client(),
            service: Arc::clone(&self.service),
            reports_layers: self.reports_layers,
            manager: Arc::new(ImageManager::new(Arc::clone(&self.service), Arc::new(LogRecorder), manager)),
            collector: Arc::clone(&self.collector) as Arc<dyn Collector>,
            access: NamespaceAccess::default(),
            directory: self.directory.path().join("fleet"),
            version: "1".to_owned(),
            wall_clock: Arc::new(wall),
            random: Arc::new(|| 0.5),
            pods_pull: Arc::new(|| false),
            board: self.board.clone(),
        })
        .await;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let until = stop.clone();
        tasks.spawn(async move { daemon.run(&until).await });
        tasks.close();
        self.daemon = Some((stop.drop_guard(), tasks));
    }

    async fn restart(&mut self) {
        if let Some((stop, tasks)) = self.daemon.take() {
            drop(stop);
            tasks.wait().await;
        }
        self.start().await;
    }

    /// Puts a set of a generation with these images. Options are fields of its spec, and the threshold `released`.
    fn put_set(&self, generation: i64, images: &[(&str, &FakeImage)], options: &Value) {
        let listed: Vec<_> = images.iter().map(|(name, _)| json!({"name": name})).collect();
        let resolved = images.iter().map(|(name, image)| json!({"name": name, "digest": image.digest().to_string()}));
        let mut spec = json!({"images": listed, "nodeSelector": {}, "releaseAfter": "1h"});
        let mut released = json!("ffffffffffffffff");
        for (field, value) in options.as_object().expect("fields") {
            match field.as_str() {
                "released" => released = value.clone(),
                _ => spec[field] = value.clone(),
            }
        }
        let status = json!({
            "observedGeneration": generation, "rolloutGeneration": generation, "released": released,
            "newestNode": {"creationTime": "2026-01-01T00:00:00Z", "name": "edge"}, "resolved": resolved.collect::<Vec<_>>(),
        });
        let object = json!({
            "apiVersion": "imagelet.dev/v1alpha1", "kind": "ImageSet", "metadata": {"generation": generation},
            "spec": spec, "status": status,
        });
        self.server.put(&format!("{SETS}/web"), object);
    }

    /// Waits until the report is such, and returns its status.
    async fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut changes = self.server.changes();
        let wait = async {
            loop {
                let status = self.server.get(REPORT).map(|object| object["status"].clone()).unwrap_or_default();
                if wanted(&status) {
                    return status;
                }
                changes.changed().await.expect("the server lives");
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(4000), wait).await;
        waited.unwrap_or_else(|_| panic!("{what}: {:#}", self.server.get(REPORT).unwrap_or_default()))
    }

    async fn until_phase(&self, phase: &str) -> Value {
        self.until(phase, |status| status["images"][0]["phase"] == phase).await
    }

    /// Waits until this holds, for as long as the virtual clock advances.
    async fn eventually(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..5000 {
            if holds(self) {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("{what}");
    }

    fn pulls(&self) -> usize {
        self.fake.call_kinds().into_iter().filter(|kind| *kind == CallKind::PullImage).count()
    }

    fn pins(&self) -> Vec<String> {
        self.collector.pins.lock().iter().map(ToString::to_string).collect()
    }

    async fn images(&self) -> usize {
        self.fake.list_images(None).await.expect("listed").len()
    }
}

#[tokio::test(start_paused = true)]
async fn image_is_pinned_when_the_set_names_it_and_pulled_when_it_is_released() {
    let scene = Scene::new().await;
    let app = FakeImage::new("app");
    scene.put_set(1, &[(APP, &app)], &json!({"released": null}));
    let report = scene.until_phase("Waiting").await;
    assert_eq!(
        (&report["sets"][0]["phase"], &report["conditions"][0]["reason"]),
        (&json!("Waiting"), &json!("Waiting"))
    );
    assert!(scene.pins().contains(&APP.to_owned()), "the pin stands before the pull");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(scene.pulls(), 0);
    scene.put_set(1, &[(APP, &app)], &json!({}));
    let report = scene.until_phase("Ready").await;
    assert_eq!((&report["sets"][0]["phase"], &report["sets"][0]["ready"]), (&json!("Ready"), &json!(1)));
    assert_eq!(report["images"][0]["digest"], app.digest().to_string());
    assert_eq!(scene.pulls(), 1);
    let object = scene.server.get(REPORT).expect("there");
    let owner = &object["metadata"]["ownerReferences"][0];
    let node = scene.server.get("/api/v1/nodes/edge").expect("there");
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Node"), &node["metadata"]["uid"]));
    assert_eq!(scene.server.count("GET /secrets"), 0);
}

#[tokio::test(start_paused = true)]
async fn edited_set_pulls_the_new_image_and_releases_the_old_one_later() {
    let scene = Scene::new().await;
    let (app, next) = (FakeImage::new("app"), FakeImage::new("next"));
    scene.fake.publish("r.example/app:2", &next);
    scene.put_set(1, &[(APP, &app)], &json!({}));
    scene.until_phase("Ready").await;
    scene.put_set(2, &[("r.example/app:2", &next)], &json!({}));
    scene
        .until("the new generation", |status| {
            status["sets"][0]["generation"] == 2 && status["sets"][0]["phase"] == "Ready"
        })
        .await;
    assert!(scene.pins().contains(&APP.to_owned()), "protected for an hour");
    scene.eventually("the pin ends", |scene| !scene.pins().contains(&APP.to_owned())).await;
    assert_eq!(scene.images().await, 2, "the collection decides");
}

#[tokio::test(start_paused = true)]
async fn deleted_set_removes_its_images_unless_they_are_in_use() {
    for in_use in [false, true] {
        let scene = Scene::new().await;
        let app = FakeImage::new("app");
        scene.put_set(1, &[(APP, &app)], &json!({"onDelete": "Remove"}));
        scene.until_phase("Ready").await;
        if in_use {
            scene.collector.used.lock().insert(app.id().to_string());
        }
        scene.server.remove(&format!("{SETS}/web"));
        let report = scene.until("no set", |status| status["sets"].is_null()).await;
        assert_eq!(report["conditions"][0]["reason"], "NoImageSets");
        assert!(scene.pins().is_empty());
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(scene.images().await, usize::from(in_use));
    }
}

#[tokio::test(start_paused = true)]
async fn image_that_disappears_is_pulled_again() {
    let scene = Scene::new().await;
    let app = FakeImage::new("app");
    scene.put_set(1, &[(APP, &app)], &json!({}));
    scene.until_phase("Ready").await;
    let gate = scene.fake.faults().hold(CallKind::PullImage);
    scene.fake.remove_image(&ImageSpec::new(APP)).await.expect("removed");
    scene.until_phase("Pulling").await;
    gate.open();
    scene.until_phase("Ready").await;
    assert_eq!((scene.pulls(), scene.images().await), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn missing_secret_is_reported_and_used_once_it_exists() {
    let scene = Scene::new().await;
    let app = FakeImage::new("app");
    scene.fake.require_auth(APP, RegistryAuth::basic("u", "p"));
    scene.put_set(1, &[(APP, &app)], &json!({"pullSecrets": [{"name": "registry"}]}));
    let report = scene.until_phase("Failed").await;
    let image = &report["images"][0];
    assert_eq!((&image["reason"], &report["sets"][0]["phase"]), (&json!("SecretNotFound"), &json!("Failed")));
    assert!(image["message"].as_str().is_some_and(|text| text.starts_with("pull secret registry does not exist")));
    assert!(image["retryAt"].is_string());
    // {"auths":{"r.example":{"username":"u","password":"p"}}}
    let data =
        json!({".dockerconfigjson": "eyJhdXRocyI6eyJyLmV4YW1wbGUiOnsidXNlcm5hbWUiOiJ1IiwicGFzc3dvcmQiOiJwIn19fQ=="});
    let secret = json!({"kind": "Secret", "type": "kubernetes.io/dockerconfigjson", "data": data});
    scene.server.put("/api/v1/namespaces/fleet/secrets/registry", secret);
    scene.until_phase("Ready").await;
}

#[tokio::test(start_paused = true)]
async fn pull_that_does_not_fit_on_the_disk_stops_before_it_fetches() {
    let scene = Scene::with(|fake| Arc::new(Announcing(fake.clone(), 100))).await;
    let app = FakeImage::new("app");
    let space = ImageSpace { capacity: 1000, free: 250, images: 600, reclaimable: 40 };
    *scene.collector.space.lock() = Some(space);
    scene.put_set(1, &[(APP, &app)], &json!({}));
    let report = scene.until_phase("Failed").await;
    assert_eq!(report["images"][0]["reason"], "InsufficientSpace");
    assert_eq!((scene.pulls(), scene.collector.reclaimed.lock().len()), (0, 0));
    scene.until("the disk", |status| status["disk"]["freeBytes"] == 250).await;
    // Unused images make room.
    *scene.collector.space.lock() = Some(ImageSpace { reclaimable: 60, ..space });
    let report = scene.until_phase("Ready").await;
    assert_eq!(*scene.collector.reclaimed.lock(), [300]);
    assert_eq!(report["images"][0]["bytes"]["total"], 3, "of the fake's own layer");
}

#[tokio::test(start_paused = true)]
async fn changed_set_ends_the_wait_after_a_failure() {
    let scene = Scene::with(|fake| Arc::new(Announcing(fake.clone(), 100))).await;
    let app = FakeImage::new("app");
    *scene.collector.space.lock() = Some(ImageSpace { capacity: 1000, free: 250, ..ImageSpace::default() });
    scene.put_set(1, &[(APP, &app)], &json!({}));
    scene.until("several failures", |status| status["images"][0]["attempts"].as_u64() >= Some(4)).await;
    let failed = Instant::now();
    scene.put_set(2, &[(APP, &app)], &json!({"minFree": "1%"}));
    scene.until_phase("Ready").await;
    assert!(failed.elapsed() < Duration::from_secs(10), "{:?}", failed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn runtime_that_reports_no_layers_pulls_only_onto_a_disk_with_enough_free_space() {
    let mut scene = Scene::new().await;
    scene.reports_layers = false;
    scene.restart().await;
    let app = FakeImage::new("app");
    let space = ImageSpace { capacity: 1000, free: 90, images: 600, reclaimable: 9 };
    *scene.collector.space.lock() = Some(space);
    scene.put_set(1, &[(APP, &app)], &json!({}));
    let report = scene.until_phase("Failed").await;
    assert_eq!(report["images"][0]["reason"], "InsufficientSpace");
    assert_eq!((scene.pulls(), scene.collector.reclaimed.lock().len()), (0, 0));
    // Unused images make room.
    *scene.collector.space.lock() = Some(ImageSpace { reclaimable: 10, ..space });
    scene.until_phase("Ready").await;
    assert_eq!(*scene.collector.reclaimed.lock(), [100]);
}

#[tokio::test(start_paused = true)]
async fn node_keeps_its_images_while_the_api_server_is_away() {
    let mut scene = Scene::new().await;
    let app = FakeImage::new("app");
    scene.put_set(1, &[(APP, &app)], &json!({}));
    scene.until_phase("Ready").await;
    scene.server.set_away(true);
    *scene.collector.pins.lock() = Pins::default();
    scene.restart().await;
    scene.eventually("pinned again", |scene| scene.pins().contains(&APP.to_owned())).await;
    scene.fake.remove_image(&ImageSpec::new(APP)).await.expect("removed");
    scene.eventually("pulled again", |scene| scene.pulls() == 2).await;
    scene.server.take_requests();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let requests = scene.server.take_requests();
    assert!(requests.len() < 900, "{} requests in an hour without an answer", requests.len());
    let facts = scene.board.facts();
    let last = facts.last_report.expect("the first report was written");
    assert!(facts.failed_reports > 10 && last.as_second() < 1_800_000_060, "{facts:?}");
    assert_eq!(facts.status.expect("a state").sets[0].phase, crate::api::SetPhase::Ready);
    scene.server.set_away(false);
    scene.server.remove(&format!("{SETS}/web"));
    scene.until("no set", |status| status["sets"].is_null()).await;
}

#[tokio::test(start_paused = true)]
async fn quiet_node_writes_every_half_hour() {
    let scene = Scene::new().await;
    let app = FakeImage::new("app");
    scene.put_set(1, &[(APP, &app)], &json!({}));
    scene.until_phase("Ready").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    scene.server.take_requests();
    tokio::time::sleep(Duration::from_secs(4 * 3600)).await;
    let writes = scene.server.take_requests().into_iter().filter(|line| !line.starts_with("WATCH")).collect::<Vec<_>>();
    assert!((7..=9).contains(&writes.len()), "{writes:?}");
    assert!(writes.iter().all(|line| line == &format!("PATCH {REPORT}/status")), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn rollout_of_many_images_writes_at_the_interval_of_progress() {
    let scene = Scene::new().await;
    let images: Vec<(String, FakeImage)> =
        (0..60).map(|number| (format!("r.example/many:{number}"), FakeImage::new(&number.to_string()))).collect();
    images.iter().for_each(|(name, image)| scene.fake.publish(name, image));
    scene.fake.faults().delay(CallKind::PullImage, Duration::from_secs(4));
    let listed: Vec<(&str, &FakeImage)> = images.iter().map(|(name, image)| (name.as_str(), image)).collect();
    scene.put_set(1, &listed, &json!({}));
    let begun = Instant::now();
    scene.until("all", |status| status["sets"][0]["phase"] == "Ready").await;
    // Two at a time, four seconds each.
    let took = begun.elapsed().as_secs();
    assert!((115..160).contains(&took), "{took}");
    let writes = scene.server.count("PATCH nodeimages/edge/status");
    assert!((6..=12).contains(&writes), "{writes} writes in {took} s");
    assert_eq!(scene.pulls(), 60);
}

#[tokio::test(start_paused = true)]
async fn failing_image_is_retried_ever_less_and_never_given_up() {
    let scene = Scene::new().await;
    let app = FakeImage::new("app");
    scene.fake.withdraw(APP);
    scene.put_set(1, &[(APP, &app)], &json!({}));
    let report = scene.until_phase("Failed").await;
    assert_eq!(report["images"][0]["reason"], "ImageNotFound");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let tries = scene.pulls();
    assert!((14..=20).contains(&tries), "{tries} attempts in an hour");
    assert_eq!(scene.board.facts().failures, [("ImageNotFound".to_owned(), tries as u64)].into());
    scene.fake.publish(APP, &app);
    scene.until_phase("Ready").await;
}

#[tokio::test(start_paused = true)]
async fn deleted_set_cancels_its_pull() {
    let scene = Scene::new().await;
    let app = FakeImage::new("app");
    let _gate = scene.fake.faults().hold(CallKind::PullImage);
    scene.put_set(1, &[(APP, &app)], &json!({}));
    scene.until_phase("Pulling").await;
    scene.server.remove(&format!("{SETS}/web"));
    scene.eventually("cancelled", |scene| scene.fake.abandoned_pulls() == 1).await;
    assert_eq!(scene.images().await, 0);
}

#[tokio::test(start_paused = true)]
async fn image_whose_tag_has_moved_is_pulled_by_digest() {
    let scene = Scene::new().await;
    let (app, moved) = (FakeImage::new("app"), FakeImage::new("moved"));
    scene.fake.publish(APP, &moved);
    scene.put_set(1, &[(APP, &app)], &json!({}));
    let report = scene.until_phase("Ready").await;
    assert_eq!(report["images"][0]["digest"], app.digest().to_string());
    let names: Vec<String> =
        scene.fake.list_images(None).await.expect("listed").into_iter().flat_map(|image| image.repo_digests).collect();
    assert!(names.contains(&format!("r.example/app@{}", app.digest())), "{names:?}");
}
