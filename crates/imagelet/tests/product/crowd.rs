//! Many pods at once, through the library: each image is pulled once, a caller that cancels takes nothing from the others, and
//! when all have cancelled the traffic stops. On the embedded engine and on Debian's containerd.

use base::lock::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri_api::{FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, PullImageRequest};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, connect_image_service};
use futures::future::join_all;
use image_manager::{
    EnsureImageRequest, EventRecorder, EventRef, ImageManager, ObjectRef, Options, PodRef, PullPolicy, PullerOptions,
};
use image_service::{Engine, EngineOptions};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::support::Containerd;
use crate::support::gate::Gate;
use crate::support::scene::Scene;

const PODS: usize = 200;
const IMAGES: usize = 20;
/// Longest wait for the end of an unwanted pull: shorter than the time after which a stalled transfer resumes by itself (30 s).
const SOON: Duration = Duration::from_secs(20);
/// A layer that is longer than all buffers on its way together.
const LONG: usize = 48 << 20;

/// An image service that notes which images it is asked to pull.
struct Recording {
    service: Arc<dyn ImageService>,
    pulls: Mutex<BTreeMap<String, usize>>,
}

impl Recording {
    fn of(service: Arc<dyn ImageService>) -> Arc<Self> {
        Arc::new(Self { service, pulls: Mutex::default() })
    }

    fn pulls(&self) -> BTreeMap<String, usize> {
        self.pulls.lock().clone()
    }
}

#[async_trait]
impl ImageService for Recording {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> cri_api::Result<Vec<Image>> {
        self.service.list_images(filter).await
    }

    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> cri_api::Result<ImageStatus> {
        self.service.image_status(image, verbose).await
    }

    async fn pull_image(&self, request: PullImageRequest) -> cri_api::Result<String> {
        *self.pulls.lock().entry(request.image.image.clone()).or_default() += 1;
        self.service.pull_image(request).await
    }

    async fn remove_image(&self, image: &ImageSpec) -> cri_api::Result<()> {
        self.service.remove_image(image).await
    }

    async fn image_fs_info(&self) -> cri_api::Result<FsInfo> {
        self.service.image_fs_info().await
    }
}

/// Counts events by their reason.
#[derive(Clone, Default)]
struct Counting(Arc<(Mutex<BTreeMap<&'static str, usize>>, Notify)>);

impl Counting {
    fn count(&self, reason: &str) -> usize {
        self.0.0.lock().get(reason).copied().unwrap_or_default()
    }

    /// Returns when there are this many events.
    async fn until(&self, reason: &str, count: usize) {
        loop {
            let notified = self.0.1.notified();
            if self.count(reason) >= count {
                return;
            }
            notified.await;
        }
    }
}

impl EventRecorder for Counting {
    fn record(&self, event: EventRef<'_>) {
        *self.0.0.lock().entry(event.reason).or_default() += 1;
        self.0.1.notify_waiters();
    }
}

async fn engine(root: &Path) -> Arc<dyn ImageService> {
    let options = EngineOptions { root: root.to_path_buf(), hosts_roots: Vec::new(), ..EngineOptions::default() };
    Arc::new(Engine::open(options).await.expect("open a store"))
}

async fn containerd(running: &Containerd) -> Arc<dyn ImageService> {
    let endpoint = Endpoint::parse(&running.endpoint()).expect("an endpoint");
    Arc::new(connect_image_service(&endpoint, ClientOptions::default()).await.expect("connect"))
}

fn manager(service: Arc<Recording>, events: &Counting) -> Arc<ImageManager> {
    let puller = PullerOptions { serialize: false, max_parallel: Some(4), qps: 0.0, ..PullerOptions::default() };
    let options = Options { puller, ..Options::default() };
    Arc::new(ImageManager::new(service, Arc::new(events.clone()), options))
}

fn request(pod: usize, image: &str) -> EnsureImageRequest {
    let pod = PodRef {
        namespace: "crowd".into(),
        name: format!("pod-{pod}"),
        uid: format!("uid-{pod}"),
        ..PodRef::default()
    };
    EnsureImageRequest {
        object: Some(ObjectRef::container(&pod, "main")),
        policy: PullPolicy::IfNotPresent,
        pod,
        ..EnsureImageRequest::new(image)
    }
}

fn push_images(s: &Scene) -> Vec<String> {
    (0..IMAGES)
        .map(|n| s.push_file(&format!("crowd/image-{n}:1"), "data", format!("image {n}\n").repeat(1000)).0)
        .collect()
}

/// Every pod wants every image, all at the same time.
async fn crowd(manager: &Arc<ImageManager>, names: &[String]) {
    let pods = (0..PODS).flat_map(|pod| names.iter().map(move |name| (pod, name.clone())));
    let tasks: Vec<_> = pods
        .map(|(pod, name)| {
            let manager = Arc::clone(manager);
            tokio::spawn(async move { manager.ensure_image_exists(request(pod, &name)).await })
        })
        .collect();
    let mut by_image = BTreeMap::<String, usize>::new();
    for task in join_all(tasks).await {
        let ensured = task.expect("no panic").expect("every pod gets every image");
        *by_image.entry(ensured.image_ref).or_default() += 1;
    }
    assert_eq!(by_image.len(), IMAGES);
    assert!(by_image.values().all(|&pods| pods == PODS), "{by_image:?}");
}

fn each_once(names: &[String]) -> BTreeMap<String, usize> {
    names.iter().map(|name| (name.clone(), 1)).collect()
}

/// How often which blob was fetched, of those of the crowd's images.
fn fetched(requests: &[String]) -> BTreeMap<&str, usize> {
    let mut fetched = BTreeMap::new();
    for path in requests.iter().filter_map(|r| r.strip_prefix("GET ")).filter(|p| p.contains("/blobs/sha256:")) {
        *fetched.entry(path).or_default() += 1;
    }
    fetched
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn two_hundred_pods_pull_twenty_images_once_each() {
    let s = Scene::new();
    let names = push_images(&s);
    let service = Recording::of(engine(&s.scratch.join("library")).await);
    crowd(&manager(Arc::clone(&service), &Counting::default()), &names).await;
    assert_eq!(service.pulls(), each_once(&names));
    let requests = s.registry.requests();
    let manifests = requests.iter().filter(|r| r.contains("/manifests/")).count();
    assert_eq!(manifests, IMAGES, "one look at each manifest: {requests:?}");
    let fetched = fetched(&requests);
    assert_eq!(fetched.len(), 2 * IMAGES, "a config and a layer of each");
    assert!(fetched.values().all(|&times| times == 1), "{fetched:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn two_hundred_pods_pull_twenty_images_once_each_through_containerd() {
    let s = Scene::new();
    let names = push_images(&s);
    let running = Containerd::start(s.registry.host());
    let service = Recording::of(containerd(&running).await);
    crowd(&manager(Arc::clone(&service), &Counting::default()), &names).await;
    assert_eq!(service.pulls(), each_once(&names));
    let requests = s.registry.requests();
    let fetched = fetched(&requests);
    assert_eq!(fetched.len(), 2 * IMAGES, "a config and a layer of each");
    assert!(fetched.values().all(|&times| times == 1), "{fetched:?}");
}

/// Twenty pods that wait for one image, each as a task.
struct Waiters {
    service: Arc<Recording>,
    tasks: Vec<JoinHandle<Result<image_manager::EnsuredImage, image_manager::EnsureImageError>>>,
}

impl Waiters {
    /// Starts all requests, and waits until the pull has reached the gate. Must run on a runtime of one thread, where a
    /// request that has sent its event has joined the pull.
    async fn gather(service: Arc<dyn ImageService>, image: &str, gate: &Gate) -> Self {
        let (service, events) = (Recording::of(service), Counting::default());
        let manager = manager(Arc::clone(&service), &events);
        let tasks: Vec<_> = (0..20)
            .map(|pod| {
                let (manager, request) = (Arc::clone(&manager), request(pod, image));
                tokio::spawn(async move { manager.ensure_image_exists(request).await })
            })
            .collect();
        let asked = async {
            events.until("Pulling", 20).await;
            gate.reached().await;
        };
        tokio::time::timeout(Duration::from_secs(30), asked).await.expect("all ask, and the pull is under way");
        Self { service, tasks }
    }

    async fn nineteen_leave_and_the_last_is_served(mut self, gate: &Gate) {
        let last = self.tasks.remove(7);
        for task in &self.tasks {
            task.abort();
        }
        for task in self.tasks.drain(..) {
            assert!(task.await.expect_err("it was aborted").is_cancelled());
        }
        gate.open();
        let ensured = last.await.expect("no panic").expect("the last one is served");
        assert!(ensured.pulled);
        assert_eq!(self.service.pulls().into_values().collect::<Vec<_>>(), [1], "by the pull that all had joined");
    }

    /// After the last caller has cancelled, the transfer stops. How long a pull lingers, to the millisecond, is tested in virtual time.
    async fn all_leave(self, gate: &Gate) {
        assert_eq!(Options::default().puller.linger, Duration::from_millis(500), "half a second");
        for task in &self.tasks {
            task.abort();
        }
        tokio::time::timeout(SOON, gate.given_up()).await.expect("somebody still reads");
    }
}

/// A scene with one long image behind a gate that lets the first part of it through.
async fn long_image() -> (Scene, Gate, String) {
    let s = Scene::new();
    let tree = s.scratch.directory("long");
    let file = std::fs::File::create(tree.join("data")).expect("create a file");
    file.set_len(LONG as u64).expect("make it long");
    let layer = s.layout.layer(&tree, crate::support::Packing::Plain);
    s.registry.push(&s.layout, &s.layout.image(&[layer]), "crowd/long:1");
    let gate = Gate::start(s.registry.host().to_owned()).await;
    gate.hold_answers_after(1 << 20);
    let name = format!("{}/crowd/long:1", gate.host());
    (s, gate, name)
}

/// Asserts by the registry's own log that it did not send the whole layer.
fn broke_off(s: &Scene) {
    s.registry.accesses_until("the layer's transfer has ended", |all| {
        let reads = all.iter().filter(|a| a.method == "GET" && a.is_blob());
        let long: Vec<_> = reads.filter(|a| a.bytes > 1 << 19).collect();
        let [access] = long.as_slice() else { return None };
        assert!(access.bytes < LONG as u64, "the whole layer was sent: {access:?}");
        Some(())
    });
}

#[tokio::test]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn the_last_of_twenty_waiters_is_served() {
    let (s, gate, name) = long_image().await;
    let waiters = Waiters::gather(engine(&s.scratch.join("library")).await, &name, &gate).await;
    waiters.nineteen_leave_and_the_last_is_served(&gate).await;
}

#[tokio::test]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn when_all_have_left_the_traffic_stops() {
    let (s, gate, name) = long_image().await;
    let root = s.scratch.join("library");
    let waiters = Waiters::gather(engine(&root).await, &name, &gate).await;
    waiters.all_leave(&gate).await;
    broke_off(&s);
    let before = s.registry.requests().len();
    gate.open();
    assert_eq!(s.registry.requests().len(), before, "nobody asks again");
}

#[tokio::test]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn the_last_of_twenty_waiters_is_served_through_containerd() {
    let (s, gate, name) = long_image().await;
    let running = Containerd::start(&gate.host());
    let waiters = Waiters::gather(containerd(&running).await, &name, &gate).await;
    waiters.nineteen_leave_and_the_last_is_served(&gate).await;
    drop(s);
}

#[tokio::test]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn when_all_have_left_containerds_traffic_stops() {
    let (s, gate, name) = long_image().await;
    let running = Containerd::start(&gate.host());
    let waiters = Waiters::gather(containerd(&running).await, &name, &gate).await;
    waiters.all_leave(&gate).await;
    broke_off(&s);
}
