//! Every call is counted once, by how it ended; and the service is the same as without: the conformance suite.

use std::time::Duration;

use cri_api::testing::conformance::{Harness, Hold, Identity};
use cri_api::testing::fixtures::FixtureImage;
use cri_api::testing::{CallKind, FakeImage, FakeImageService};
use cri_api::{Error, Kind, LayerState};
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use super::*;

const IMAGE: &str = "registry.test/a:1";

struct Rig {
    fake: FakeImageService,
    metrics: Arc<Metrics>,
    service: Instrumented,
}

fn rig() -> Rig {
    let fake = FakeImageService::new();
    fake.publish(IMAGE, &FakeImage::new("a").sized(30 << 20));
    let metrics = Metrics::new();
    let service = Instrumented::new(Arc::new(fake.clone()), Arc::clone(&metrics), Arc::new(Instant::now));
    Rig { fake, metrics, service }
}

/// Samples whose names begin so, buckets and zeros aside.
fn samples(metrics: &Metrics, name: &str) -> Vec<String> {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("a string takes everything");
    let wanted = |line: &&str| {
        line.starts_with(name) && !line.contains("_bucket{") && !line.ends_with(" 0") && !line.ends_with(" 0.0")
    };
    out.lines().filter(wanted).map(str::to_owned).collect()
}

fn operation(what: &str, kind: &str, value: &str) -> String {
    format!("kubelet_runtime_operations_{what}{{operation_type=\"{kind}\"}} {value}")
}

#[tokio::test]
async fn each_call_is_counted_under_its_name() {
    let r = rig();
    let s = &r.service;
    s.list_images(None).await.expect("a list");
    s.image_status(&IMAGE.into(), false).await.expect("a status");
    s.pull_image(PullImageRequest::new(IMAGE)).await.expect("a pull");
    s.remove_image(&IMAGE.into()).await.expect("a removal");
    s.image_fs_info().await.expect("use of the disk");
    let kinds = ["list_images", "image_status", "pull_image", "remove_image", "image_fs_info"];
    let want: Vec<String> = kinds.iter().map(|kind| operation("total", kind, "1")).collect();
    assert_eq!(samples(&r.metrics, "kubelet_runtime_operations_total"), want);
    assert_eq!(samples(&r.metrics, "kubelet_runtime_operations_errors"), Vec::<String>::new());
    assert_eq!(samples(&r.metrics, "imagelet_"), Vec::<String>::new(), "whoever is above counts pulls");
    assert_eq!(samples(&r.metrics, "kubelet_image_pull_duration"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn calls_are_timed_and_failures_counted() {
    let r = rig();
    let gate = r.fake.faults().hold(CallKind::PullImage);
    let pull = r.service.pull_image(PullImageRequest::new(IMAGE));
    let release = async {
        gate.until_arrived(1).await;
        tokio::time::advance(Duration::from_secs(3)).await;
        gate.open();
    };
    let (pulled, ()) = tokio::join!(pull, release);
    pulled.expect("a pull");
    r.fake.faults().clear(CallKind::PullImage);
    r.fake.faults().fail(CallKind::PullImage, Error::new(Kind::NotFound, "no such manifest"));
    r.service.pull_image(PullImageRequest::new(IMAGE)).await.expect_err("it fails");
    assert_eq!(
        samples(&r.metrics, "kubelet_runtime_operations"),
        [
            operation("total", "pull_image", "2"),
            operation("duration_seconds_sum", "pull_image", "3.0"),
            operation("duration_seconds_count", "pull_image", "2"),
            operation("errors_total", "pull_image", "1"),
        ]
    );
}

#[tokio::test]
async fn a_call_that_is_given_up_failed() {
    let r = rig();
    let service = r.service.with_pulls();
    let gate = r.fake.faults().hold(CallKind::PullImage);
    {
        let pull = service.pull_image(PullImageRequest::new(IMAGE));
        tokio::select! {
            _ = pull => panic!("nobody opens the gate"),
            () = gate.until_arrived(1) => {}
        }
    }
    assert_eq!(
        samples(&r.metrics, "kubelet_runtime_operations_errors"),
        [operation("errors_total", "pull_image", "1")]
    );
    assert_eq!(samples(&r.metrics, "imagelet_"), ["imagelet_pull_failures_total{cause=\"cancelled\"} 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_served_service_counts_its_pulls() {
    let r = rig();
    let service = r.service.with_pulls();
    let gate = r.fake.faults().hold(CallKind::PullImage);
    let pull = service.pull_image(PullImageRequest::new(IMAGE));
    let look = async {
        gate.until_arrived(1).await;
        assert_eq!(samples(&r.metrics, "imagelet_"), ["imagelet_pulls_in_flight 1"]);
        tokio::time::advance(Duration::from_secs(2)).await;
        gate.open();
    };
    let (pulled, ()) = tokio::join!(pull, look);
    pulled.expect("a pull");
    r.fake.faults().clear(CallKind::PullImage);
    let slow_down = Error::new(Kind::ResourceExhausted, "429").with_retry_after(Duration::from_secs(9));
    r.fake.faults().fail(CallKind::PullImage, slow_down);
    service.pull_image(PullImageRequest::new(IMAGE)).await.expect_err("it fails");
    assert_eq!(samples(&r.metrics, "imagelet_"), ["imagelet_pull_failures_total{cause=\"rate_limited\"} 1"]);
    assert_eq!(
        samples(&r.metrics, "kubelet_image_pull_duration_seconds"),
        [
            "kubelet_image_pull_duration_seconds_sum{image_size_in_bytes=\"10MB-100MB\"} 2.0",
            "kubelet_image_pull_duration_seconds_count{image_size_in_bytes=\"10MB-100MB\"} 1",
        ],
        "only what succeeded is timed"
    );
    assert_eq!(
        samples(&r.metrics, "kubelet_runtime_operations_total"),
        [operation("total", "pull_image", "2")],
        "the look for the size is our own and not a call of somebody"
    );
}

#[test]
fn watching_costs_one_allocation() {
    struct Nothing;

    #[async_trait]
    impl ImageService for Nothing {
        async fn list_images(&self, _: Option<&ImageFilter>) -> Result<Vec<Image>> {
            Ok(Vec::new())
        }

        async fn image_status(&self, _: &ImageSpec, _: bool) -> Result<ImageStatus> {
            Ok(ImageStatus::default())
        }

        async fn pull_image(&self, _: PullImageRequest) -> Result<String> {
            Ok(String::new())
        }

        async fn remove_image(&self, _: &ImageSpec) -> Result<()> {
            Ok(())
        }

        async fn image_fs_info(&self) -> Result<FsInfo> {
            Ok(FsInfo::default())
        }
    }

    let plain: Arc<dyn ImageService> = Arc::new(Nothing);
    let watched: Arc<dyn ImageService> =
        Arc::new(Instrumented::new(Arc::clone(&plain), Metrics::new(), Arc::new(Instant::now)));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let spec = ImageSpec::new(IMAGE);
    let count = |service: &Arc<dyn ImageService>| {
        let ask = || drop(runtime.block_on(service.image_status(&spec, false)));
        ask();
        allocation_counter::measure(ask).count_total
    };
    assert_eq!(count(&watched), count(&plain) + 1, "the box of the future");
}

#[test]
fn bytes_of_a_layer_count_once_for_all_who_wait_for_it() {
    let metrics = Metrics::new();
    let running = Arc::<Mutex<RunningPulls>>::default();
    let told = Arc::new(Mutex::new(Vec::new()));
    let inner = || {
        let told = Arc::clone(&told);
        ProgressSink::new(move |event| told.lock().push(event))
    };
    let first = PullGuard::begin(&metrics, &running);
    let second = PullGuard::begin(&metrics, &running);
    let sinks = [counting(inner(), &metrics, &running), counting(inner(), &metrics, &running)];
    let digest = Digest::sha256(b"layer");
    let bytes = |done| PullEvent::Bytes { digest: digest.clone(), done };
    // The layer is fetched again after 150 bytes: these bytes count as well.
    let events =
        [bytes(100), bytes(150), bytes(40), PullEvent::Layer { digest: digest.clone(), state: LayerState::Done }];
    for event in &events {
        for sink in &sinks {
            sink.report(event.clone());
        }
    }
    assert_eq!(samples(&metrics, "imagelet_pulled"), ["imagelet_pulled_bytes_total 190"]);
    let told = told.lock();
    assert_eq!(told.iter().step_by(2).cloned().collect::<Vec<_>>(), events, "nothing is kept from anybody");
    drop(first);
    assert_eq!(running.lock().came.len(), 1);
    drop(second);
    assert_eq!(running.lock().came.len(), 0, "nothing runs, nothing is remembered");
}

const DOMAIN: &str = "registry.test:5000";

struct Watched {
    fake: FakeImageService,
    service: Arc<Instrumented>,
}

#[async_trait]
impl Harness for Watched {
    fn name(&self) -> &str {
        "fake that is watched"
    }

    fn service(&self) -> Arc<dyn ImageService> {
        Arc::clone(&self.service) as _
    }

    fn domain(&self) -> String {
        DOMAIN.into()
    }

    fn other_domain(&self) -> Option<String> {
        Some("mirror.test".into())
    }

    fn serves_default_domain(&self) -> bool {
        true
    }

    fn identity(&self, fixture: &FixtureImage) -> Option<Identity> {
        let image = FakeImage::of_fixture(fixture);
        Some(Identity { id: image.id(), digest: image.digest() })
    }

    async fn move_tag(&self, repository: &str, tag: &str, to: &FixtureImage) -> bool {
        self.fake.publish(&format!("{DOMAIN}/{repository}:{tag}"), &FakeImage::of_fixture(to));
        true
    }

    fn hold_pulls(&self) -> Option<Hold> {
        let gate = self.fake.faults().hold(CallKind::PullImage);
        let (fake, reached) = (self.fake.clone(), gate.clone());
        let hold =
            Hold::new(async move { reached.until_arrived(1).await }, move || fake.faults().clear(CallKind::PullImage));
        Some(hold.with_given_up(async move { gate.until_waiting(0).await }))
    }

    fn reports_progress(&self) -> bool {
        true
    }

    fn runtime_handlers(&self) -> Option<Vec<String>> {
        Some(vec!["kata".into()])
    }
}

#[tokio::test]
async fn watching_changes_nothing() {
    let fake = FakeImageService::new();
    for domain in [DOMAIN, "mirror.test", "docker.io"] {
        fake.publish_fixtures(domain);
    }
    fake.know_only_handlers(&["kata"]);
    let plain = Instrumented::new(Arc::new(fake.clone()), Metrics::new(), Arc::new(Instant::now));
    let service = Arc::new(plain.with_pulls());
    cri_api::testing::conformance::run_all(&Watched { fake, service }).await.assert_passed();
}
