//! [`Aftermath`]: what may still come of a pull that failed without saying why, or was given up. A service that is told to
//! stop may be about to make the image visible: without a record it would then count as one that was always here, and
//! every pod could have it. So the intent stays until the image was seen, or cannot come any more.
//!
//! It pulls nothing and tells nobody. A job calls it when it ends.

use std::time::Duration;

use cri_api::{ImageService, ImageSpec};

use super::context::PullContext;
use super::hub::Hub;
use crate::{Presence, PullIntent};

/// After which times a service is looked at that was told to stop. None commits for longer than all of them.
const LOOKS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(15),
    Duration::from_secs(40),
];
/// How long a service that is told to stop may take to answer at the end of the process.
const LAST_LOOK: Duration = Duration::from_secs(1);

pub(super) struct Aftermath<'a> {
    pub(super) context: &'a PullContext,
    pub(super) spec: ImageSpec,
    /// Presence of the image before the pull.
    pub(super) before: Presence,
}

/// Result of an inspection of the image.
enum ImageArrival {
    /// The pull brought this.
    Came(String),
    /// The pull has brought nothing so far.
    Nothing,
    /// The service did not answer.
    Unknown,
}

impl Aftermath<'_> {
    /// Looks until the image is seen or cannot come any more. `given_up`: the service was told to stop, so that not seeing
    /// it says nothing for a while; otherwise it has answered, and one look tells.
    pub(super) async fn watch(&self, intent: PullIntent, given_up: bool, hub: &Hub) {
        let mut seen = ImageArrival::Unknown;
        for wait in [Duration::ZERO].into_iter().chain(LOOKS) {
            let look = async {
                tokio::time::sleep(wait).await;
                self.inspect().await
            };
            tokio::select! {
                biased;
                () = self.context.shutdown.cancelled() => return self.last_look(intent, given_up, hub).await,
                look = look => seen = look,
            }
            if matches!(seen, ImageArrival::Came(_)) || (!given_up && matches!(seen, ImageArrival::Nothing)) {
                break;
            }
        }
        match seen {
            ImageArrival::Came(image_ref) => came(intent, &image_ref).await,
            ImageArrival::Nothing => intent.failed().await,
            ImageArrival::Unknown => intent.keep().await,
        }
    }

    /// The process ends. A service that tells what it does, and was not about to commit, brings nothing any more; of any
    /// other nobody knows, and the next start finds the intent.
    async fn last_look(&self, intent: PullIntent, given_up: bool, hub: &Hub) {
        tokio::time::sleep(LOOKS[0]).await;
        match tokio::time::timeout(LAST_LOOK, self.inspect()).await {
            Ok(ImageArrival::Came(image_ref)) => came(intent, &image_ref).await,
            Ok(ImageArrival::Nothing) if !given_up || hub.is_before_commit() => intent.failed().await,
            Ok(ImageArrival::Nothing | ImageArrival::Unknown) | Err(_) => intent.keep().await,
        }
    }

    async fn inspect(&self) -> ImageArrival {
        match (presence(&*self.context.service, &self.spec).await, &self.before) {
            (Presence::NotChecked, _) => ImageArrival::Unknown,
            (Presence::Absent, _) => ImageArrival::Nothing,
            (now, before) if now == *before => ImageArrival::Nothing,
            // Where nobody saw what was here before, it counts as pulled: then the registry is asked who may have it.
            (Presence::Present { image_ref }, _) => ImageArrival::Came(image_ref),
        }
    }
}

async fn came(intent: PullIntent, image_ref: &str) {
    let image = intent.image().to_owned();
    match intent.came(image_ref).await {
        Ok(()) => tracing::info!(
            image,
            image_ref,
            "a pull that was given up has brought its image: the registry is asked before it is used"
        ),
        // The intent stays on the disk, and says the same.
        Err(error) => tracing::error!(image, %error, "an image that was brought could not be recorded"),
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
            tracing::debug!(image = spec.image, %error, "whether an image is here cannot be told");
            Presence::NotChecked
        }
    }
}
