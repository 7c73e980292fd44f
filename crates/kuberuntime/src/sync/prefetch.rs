//! [`Prefetch`]: images that are ensured ahead of their turn, in tasks that outlive a sync: an init container may run
//! for long while the images of later containers are pulled. There is one request for each image and policy of a pod,
//! and the container that needs the image takes the answer out: so every request is made, reported and counted once, as
//! if it had been made in its turn. Decides nothing about images. Called by the syncs of pods.

use base::lock::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use image_manager::{EnsureImageError, EnsureImageRequest, EnsuredImage, ImageManager, PullPolicy};
use tokio::sync::watch;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::Instrument as _;

/// Result of a request.
pub(super) type EnsureResult = Result<EnsuredImage, EnsureImageError>;

/// Which request of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ImageKey {
    image: String,
    policy: PullPolicy,
}

impl ImageKey {
    pub(super) fn new(image: &str, policy: PullPolicy) -> Self {
        Self { image: image.to_owned(), policy }
    }
}

struct PrefetchedImage {
    answer: watch::Receiver<Option<EnsureResult>>,
    /// Ends with the entry.
    _task: AbortOnDropHandle<()>,
}

impl PrefetchedImage {
    fn failed(&self) -> bool {
        // A sender that was dropped without an answer is a task that panicked.
        matches!(&*self.answer.borrow(), Some(Err(_))) || self.answer.has_changed().is_err() && !self.answered()
    }

    fn answered(&self) -> bool {
        self.answer.borrow().is_some()
    }
}

/// Requests that run ahead.
pub(super) struct Prefetch {
    images: Arc<ImageManager>,
    tasks: TaskTracker,
    /// Guards the requests of pods, by their uids.
    pods: Mutex<HashMap<String, HashMap<ImageKey, PrefetchedImage>>>,
}

impl Prefetch {
    pub(super) fn new(images: Arc<ImageManager>) -> Self {
        Self { images, tasks: TaskTracker::new(), pods: Mutex::default() }
    }

    /// Sets the images that the pod needs: failed ones are retried, new ones begin, and all others end. Of several requests for
    /// the same image, the first counts.
    pub(super) fn want(&self, uid: &str, requests: Vec<EnsureImageRequest>) {
        let mut pods = self.pods.lock();
        let mut before = pods.remove(uid).unwrap_or_default();
        let mut now = HashMap::new();
        for request in requests {
            let key = ImageKey::new(&request.image, request.policy);
            if now.contains_key(&key) {
                continue;
            }
            let kept = before.remove(&key).filter(|entry| !entry.failed());
            now.insert(key, kept.unwrap_or_else(|| self.begin(request)));
        }
        if !now.is_empty() && !self.tasks.is_closed() {
            pods.insert(uid.to_owned(), now);
        }
    }

    fn begin(&self, request: EnsureImageRequest) -> PrefetchedImage {
        let (sender, answer) = watch::channel(None);
        let images = Arc::clone(&self.images);
        let ensure = async move {
            let ensured = images.ensure_image_exists(request).await;
            // The receiver may have been dropped.
            let _ = sender.send(Some(ensured));
        };
        let task = self.tasks.spawn(ensure.in_current_span());
        PrefetchedImage { answer, _task: AbortOnDropHandle::new(task) }
    }

    /// Waits for the answer to a request, and removes it; `None` if there is no such request.
    pub(super) async fn take(&self, uid: &str, key: &ImageKey) -> Option<EnsureResult> {
        let mut answer = self.pods.lock().get(uid)?.get(key)?.answer.clone();
        let answered = answer.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
        let mut pods = self.pods.lock();
        if let Some(entries) = pods.get_mut(uid) {
            entries.remove(key);
            if entries.is_empty() {
                pods.remove(uid);
            }
        }
        answered
    }

    /// Ends all requests of the pod.
    pub(super) fn forget(&self, uid: &str) {
        self.pods.lock().remove(uid);
    }

    /// Ends all of them, and begins none any more.
    pub(super) async fn shutdown(&self) {
        self.tasks.close();
        self.pods.lock().clear();
        self.tasks.wait().await;
    }
}
