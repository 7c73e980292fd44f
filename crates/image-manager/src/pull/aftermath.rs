//! [`Aftermath`]: watches for the image of a pull that failed without a reason, or was abandoned. A service whose call was
//! cancelled may be about to make the image visible: without a record it would then count as preloaded, and every pod could
//! use it. So the intent stays until the image was seen, or can no longer appear.
//!
//! It pulls nothing and records no events. A job calls it when it ends.

use std::time::Duration;

use cri_api::{ImageService, ImageSpec};

use super::context::PullContext;
use super::monitor::ProgressMonitor;
use crate::{Presence, PullIntent};

/// Delays between inspections after a call was cancelled. No service commits for longer than their sum.
const DELAYS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(15),
    Duration::from_secs(40),
];
/// How long a service may take to answer the last inspection, at the end of the process.
const LAST_INSPECTION: Duration = Duration::from_secs(1);

pub(super) struct Aftermath<'a> {
    pub(super) context: &'a PullContext,
    pub(super) spec: ImageSpec,
    /// Presence of the image before the pull.
    pub(super) before: Presence,
}

/// Result of an inspection of the image.
enum ImageArrival {
    /// The pull made this image present.
    Present(String),
    /// The pull has made no image present so far.
    Nothing,
    /// The service did not answer.
    Unknown,
}

impl Aftermath<'_> {
    /// Inspects the image until it is seen or can no longer appear. `given_up`: the call was cancelled, so that an absent image
    /// may still appear for a while; otherwise the service has answered, and one inspection is enough.
    pub(super) async fn watch(&self, intent: PullIntent, given_up: bool, monitor: &ProgressMonitor) {
        let mut seen = ImageArrival::Unknown;
        for wait in [Duration::ZERO].into_iter().chain(DELAYS) {
            let inspection = async {
                tokio::time::sleep(wait).await;
                self.inspect().await
            };
            tokio::select! {
                biased;
                () = self.context.shutdown.cancelled() => return self.inspect_at_end(intent, given_up, monitor).await,
                inspection = inspection => seen = inspection,
            }
            if matches!(seen, ImageArrival::Present(_)) || (!given_up && matches!(seen, ImageArrival::Nothing)) {
                break;
            }
        }
        match seen {
            ImageArrival::Present(image_ref) => record_presence(intent, &image_ref).await,
            ImageArrival::Nothing => intent.failed().await,
            ImageArrival::Unknown => intent.keep().await,
        }
    }

    /// Inspects the image at the end of the process. A service that reports progress and was not about to commit will not make
    /// the image present; for any other the outcome is unknown, and the next start finds the intent.
    async fn inspect_at_end(&self, intent: PullIntent, given_up: bool, monitor: &ProgressMonitor) {
        tokio::time::sleep(DELAYS[0]).await;
        match tokio::time::timeout(LAST_INSPECTION, self.inspect()).await {
            Ok(ImageArrival::Present(image_ref)) => record_presence(intent, &image_ref).await,
            Ok(ImageArrival::Nothing) if !given_up || monitor.is_before_commit() => intent.failed().await,
            Ok(ImageArrival::Nothing | ImageArrival::Unknown) | Err(_) => intent.keep().await,
        }
    }

    async fn inspect(&self) -> ImageArrival {
        match (presence(&*self.context.service, &self.spec).await, &self.before) {
            (Presence::NotChecked, _) => ImageArrival::Unknown,
            (Presence::Absent, _) => ImageArrival::Nothing,
            (now, before) if now == *before => ImageArrival::Nothing,
            // Where the presence before the pull is not known, the image counts as pulled: the registry decides who may use it.
            (Presence::Present { image_ref }, _) => ImageArrival::Present(image_ref),
        }
    }
}

/// Records the image of an abandoned pull without credentials.
async fn record_presence(intent: PullIntent, image_ref: &str) {
    let image = intent.image().to_owned();
    match intent.present(image_ref).await {
        Ok(()) => tracing::info!(
            image,
            image_ref,
            "an abandoned pull has made its image present: the registry is asked before the image is used"
        ),
        // The intent stays on disk, with the same effect.
        Err(error) => tracing::error!(image, %error, "the image of an abandoned pull could not be recorded"),
    }
}

/// Presence of the image; not checked if the service fails.
pub(super) async fn presence(service: &dyn ImageService, spec: &ImageSpec) -> Presence {
    match service.image_status(spec, false).await {
        Ok(status) => match status.image {
            Some(image) => Presence::Present { image_ref: image.id },
            None => Presence::Absent,
        },
        Err(error) => {
            tracing::debug!(image = spec.image, %error, "cannot check whether the image is present");
            Presence::NotChecked
        }
    }
}
