//! 10,000 requests for 100 images at the same moment: the cost of sharing a pull, and the savings compared with the kubelet,
//! where every request pulls. Run by `cargo bench -p imagelet-image-manager --bench coalesce`.

use base::lock::Mutex;
use std::collections::HashSet;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use cri_api::{
    Error, FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, Kind, PullImageRequest, Result,
};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use imagelet_image_manager::{EnsureImageRequest, ImageManager, Options, PullPolicy, PullerOptions, RingRecorder};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const REQUESTS: usize = 10_000;
const IMAGES: usize = 100;
const ID: &str = "sha256:9b871de323e37aa0eb6dc2ca6f8b8ff2f1df2e5a0e6a2e1b0d6d28c0a1f3d7f1";

/// An image service with minimal cost, which pulls nothing before all requests have arrived. Counts pulls.
struct Quick {
    asked: AtomicUsize,
    /// Closed when all requests have arrived.
    gate: Semaphore,
    present: Mutex<HashSet<String>>,
    pulls: AtomicUsize,
    fails: bool,
}

impl Quick {
    fn new(fails: bool) -> Self {
        let present = Mutex::default();
        Self { asked: AtomicUsize::new(0), gate: Semaphore::new(0), present, pulls: AtomicUsize::new(0), fails }
    }
}

#[async_trait]
impl ImageService for Quick {
    async fn list_images(&self, _: Option<&ImageFilter>) -> Result<Vec<Image>> {
        Ok(Vec::new())
    }

    async fn image_status(&self, image: &ImageSpec, _: bool) -> Result<ImageStatus> {
        let present = self.present.lock().contains(&image.image);
        if self.asked.fetch_add(1, Ordering::Relaxed) + 1 == REQUESTS {
            self.gate.close();
        }
        let image = present.then(|| Image { id: ID.to_owned(), size: 1, ..Image::default() });
        Ok(ImageStatus { image, ..ImageStatus::default() })
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<String> {
        self.pulls.fetch_add(1, Ordering::Relaxed);
        self.gate.acquire().await.expect_err("it is closed, and gives no permits");
        if self.fails {
            return Err(Error::new(Kind::Unavailable, "the registry is away"));
        }
        self.present.lock().insert(request.image.image);
        Ok(ID.to_owned())
    }

    async fn remove_image(&self, _: &ImageSpec) -> Result<()> {
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        Ok(FsInfo::default())
    }
}

/// A request of one pod.
fn request(index: usize) -> EnsureImageRequest {
    let mut request = EnsureImageRequest::new(format!("registry.example/team/image-{}:v1", index % IMAGES));
    request.policy = PullPolicy::IfNotPresent;
    request.pod.namespace = "team".into();
    request.pod.name = format!("pod-{index}");
    request.pod.uid = format!("uid-{index}");
    request
}

/// All requests at once; answers how many pulls the service saw.
fn storm(runtime: &Runtime, puller: PullerOptions, fails: bool) -> usize {
    let service = Arc::new(Quick::new(fails));
    let options = Options { puller, ..Options::default() };
    let events = Arc::new(RingRecorder::new(REQUESTS));
    let manager = Arc::new(ImageManager::new(Arc::clone(&service) as _, events, options));
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for index in 0..REQUESTS {
            let manager = Arc::clone(&manager);
            tasks.spawn(async move { manager.ensure_image_exists(request(index)).await.is_ok() });
        }
        let succeeded = tasks.join_all().await.into_iter().filter(|&ok| ok).count();
        assert_eq!(succeeded, if fails { 0 } else { REQUESTS });
    });
    service.pulls.load(Ordering::Relaxed)
}

fn coalesce(c: &mut Criterion) {
    let free = PullerOptions { serialize: false, qps: 0.0, ..PullerOptions::default() };
    let cases = [
        ("shared", free, false),
        ("shared, one at a time", PullerOptions { serialize: true, ..free }, false),
        ("shared, failing", free, true),
        ("alone", PullerOptions { coalesce: false, ..free }, false),
        ("alone, one at a time", PullerOptions { coalesce: false, serialize: true, ..free }, false),
    ];
    let mut group = c.benchmark_group("10000 requests for 100 images");
    group.throughput(Throughput::Elements(REQUESTS as u64)).sample_size(20);
    for (name, puller, fails) in cases {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime starts");
        let pulls = storm(&runtime, puller, fails);
        assert!(!name.starts_with("shared") || fails || pulls == IMAGES, "{name}: {pulls} pulls");
        group.bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter(|| black_box(storm(&runtime, puller, fails)));
        });
    }
    group.finish();
}

criterion_group!(benches, coalesce);
criterion_main!(benches);
