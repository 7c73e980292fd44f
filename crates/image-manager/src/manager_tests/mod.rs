//! The manager on the fake service: the rig, and one module per topic.

use cri_api::testing::{Call, CallKind, FakeImage, FakeImageService};
use tokio::task::{AbortHandle, JoinSet};

use super::*;
use crate::{ObjectRef, PodRef, RingRecorder};

mod queues;
mod requests;
mod upstream;

const SERIAL: PullerOptions = PullerOptions { serialize: true, max_parallel: None };
const PARALLEL: PullerOptions = PullerOptions { serialize: false, max_parallel: None };
const PULLERS: [PullerOptions; 3] = [SERIAL, PARALLEL, PullerOptions { serialize: false, max_parallel: Some(1) }];

/// A manager on a fake which has `present_image:latest`, and offers it and `missing_image:latest`.
struct Rig {
    fake: FakeImageService,
    ring: Arc<RingRecorder>,
    manager: Arc<ImageManager>,
    present_id: String,
}

impl Rig {
    fn new(puller: PullerOptions) -> Self {
        let fake = FakeImageService::new();
        let present_id = fake.preload("present_image", &FakeImage::new("present"));
        fake.publish("missing_image", &FakeImage::new("missing").sized(4096));
        let ring = Arc::new(RingRecorder::new(100));
        let events: Arc<dyn EventRecorder> = Arc::clone(&ring) as _;
        let options = Options { puller, ..Options::default() };
        let manager = Arc::new(ImageManager::new(Arc::new(fake.clone()), events, options));
        Self { fake, ring, manager, present_id }
    }

    async fn ensure(&self, request: EnsureImageRequest) -> Result<EnsuredImage, EnsureImageError> {
        self.manager.ensure_image_exists(request).await
    }

    fn reasons(&self) -> Vec<&'static str> {
        self.ring.events().iter().map(|e| e.event.reason).collect()
    }

    fn messages(&self) -> Vec<String> {
        self.ring.events().into_iter().map(|e| e.event.message).collect()
    }

    /// The names that were pulled, in order.
    fn pulled_names(&self) -> Vec<String> {
        let name = |call| match call {
            Call::PullImage(spec, _) => Some(spec.image),
            _ => None,
        };
        self.fake.calls().into_iter().filter_map(name).collect()
    }

    /// Starts a request and comes back when it waits: at the gate of the fake or in the queue.
    async fn start(
        &self,
        tasks: &mut JoinSet<Result<EnsuredImage, EnsureImageError>>,
        request: EnsureImageRequest,
    ) -> AbortHandle {
        let pulling = || self.reasons().iter().filter(|reason| **reason == "Pulling").count();
        let before = pulling();
        let manager = Arc::clone(&self.manager);
        let handle = tasks.spawn(async move { manager.ensure_image_exists(request).await });
        // The event of a pull is told in the same step in which it joins the queue.
        while pulling() == before {
            tokio::task::yield_now().await;
        }
        handle
    }
}

fn request(image: &str, policy: PullPolicy) -> EnsureImageRequest {
    let pod = PodRef { namespace: "default".into(), name: "pod".into(), uid: "uid-1".into(), ..PodRef::default() };
    EnsureImageRequest {
        object: Some(ObjectRef::container(&pod, "main")),
        pod,
        policy,
        ..EnsureImageRequest::new(image)
    }
}
