//! [`ImageManager`]: the thin shell around [`decide`]: asks whether the image is here, has it pulled when that was
//! decided, and tells events.

use std::sync::Arc;

use cri_api::{ImageService, ImageSpec, PullImageRequest};
use tokio::time::Instant;

use crate::attempts::pull_with_credentials;
use crate::outcome::Outcome;
use crate::puller::Puller;
use crate::{
    Access, Decision, EnsureImageError, EnsureImageRequest, EnsuredImage, Event, EventRecorder, EventType, Explanation,
    Grant, Presence, PullPolicy, PullTiming, PullerOptions, RefuseReason, decide,
};

/// Tells the time. Only differences are used.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// How the manager works.
#[derive(Clone)]
pub struct Options {
    /// How many pulls at a time.
    pub puller: PullerOptions,
    /// The clock by which pulls are timed.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self { puller: PullerOptions::default(), clock: Arc::new(Instant::now) }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("puller", &self.puller).finish_non_exhaustive()
    }
}

/// Makes sure that images are there.
pub struct ImageManager {
    service: Arc<dyn ImageService>,
    events: Arc<dyn EventRecorder>,
    puller: Puller,
    clock: Clock,
}

impl ImageManager {
    /// A manager of the images behind `service`.
    #[must_use]
    pub fn new(service: Arc<dyn ImageService>, events: Arc<dyn EventRecorder>, options: Options) -> Self {
        Self { service, events, puller: Puller::new(options.puller), clock: options.clock }
    }

    /// Makes sure that the image is there, as the policy wants it, and answers what the runtime calls it. Dropping the
    /// future leaves the queue, or stops the pull.
    ///
    /// # Errors
    /// [`EnsureImageError`]; an event tells of each.
    pub async fn ensure_image_exists(&self, request: EnsureImageRequest) -> Result<EnsuredImage, EnsureImageError> {
        let result = self.ensure(&request).await;
        if let Err(error) = &result {
            self.tell(&request, Outcome::Failed(error));
        }
        result
    }

    /// What [`ImageManager::ensure_image_exists`] would decide, and why. It asks the service for the image's status
    /// where the policy does; it pulls nothing and records no event.
    pub async fn explain(&self, request: EnsureImageRequest) -> Explanation {
        let explanation = |sent, presence, decision| Explanation {
            image: request.image.clone(),
            sent,
            policy: request.policy,
            presence,
            decision,
        };
        let spec = match image_spec(&request) {
            Ok(spec) => spec,
            Err(error) => return explanation(None, Presence::NotChecked, Err(error)),
        };
        match self.presence(&request, &spec).await {
            Ok(presence) => {
                let decision = decide(request.policy, &presence, access());
                explanation(Some(spec.image), presence, Ok(decision))
            }
            Err(error) => explanation(Some(spec.image), Presence::NotChecked, Err(error)),
        }
    }

    async fn ensure(&self, request: &EnsureImageRequest) -> Result<EnsuredImage, EnsureImageError> {
        let spec = image_spec(request)?;
        let presence = self.presence(request, &spec).await?;
        match decide(request.policy, &presence, access()) {
            Decision::UseLocal { image_ref, .. } => Ok(self.use_local(request, image_ref)),
            Decision::Refuse(RefuseReason::NotPresentAndNeverPulled | RefuseReason::MustVerifyAndNeverPulled(_)) => {
                Err(EnsureImageError::ErrImageNeverPull { image: request.image.clone() })
            }
            Decision::Pull(_) => self.pull(request, spec).await,
        }
    }

    /// Looks for the image where the policy asks for it.
    async fn presence(&self, request: &EnsureImageRequest, spec: &ImageSpec) -> Result<Presence, EnsureImageError> {
        if request.policy == PullPolicy::Always {
            return Ok(Presence::NotChecked);
        }
        match self.service.image_status(spec, false).await {
            Ok(status) => Ok(match status.image {
                Some(image) => Presence::Present { image_ref: image.id },
                None => Presence::Absent,
            }),
            Err(source) => Err(EnsureImageError::ImageInspect { image: request.image.clone(), source }),
        }
    }

    fn use_local(&self, request: &EnsureImageRequest, image_ref: String) -> EnsuredImage {
        let message = self.tell(request, Outcome::AlreadyPresent);
        EnsuredImage { image_ref, message, pulled: false, credential: None, timing: None, size: None }
    }

    async fn pull(&self, request: &EnsureImageRequest, spec: ImageSpec) -> Result<EnsuredImage, EnsureImageError> {
        self.tell(request, Outcome::Pulling);
        let asked = (self.clock)();
        let turn = self.puller.turn().await;
        if turn.waited && request.policy == PullPolicy::IfNotPresent {
            // Whoever was before us may have brought it. Where the service cannot tell, the pull will.
            match self.presence(request, &spec).await {
                Ok(Presence::Present { image_ref }) => return Ok(self.use_local(request, image_ref)),
                Ok(Presence::Absent | Presence::NotChecked) => {}
                Err(error) => tracing::debug!(image = request.image, error = error.message(), "pull without a look"),
            }
        }
        let begun = (self.clock)();
        let pull = PullImageRequest {
            image: spec.clone(),
            auth: None,
            sandbox: request.sandbox.clone(),
            progress: request.progress.clone(),
        };
        let (image_ref, credential) = pull_with_credentials(&*self.service, &pull, &request.credentials)
            .await
            .map_err(|source| EnsureImageError::Pull { image: request.image.clone(), source })?;
        let ended = (self.clock)();
        drop(turn);

        let timing = PullTiming { pulling: ended - begun, with_waiting: ended - asked };
        let size = self.size(ImageSpec { image: image_ref.clone(), ..spec }).await;
        let PullTiming { pulling, with_waiting } = timing;
        let message = self.tell(request, Outcome::Pulled { pulling, with_waiting, size });
        Ok(EnsuredImage { image_ref, message, pulled: true, credential, timing: Some(timing), size })
    }

    /// Size of a pulled image, for the message: whether it is known changes nothing.
    async fn size(&self, spec: ImageSpec) -> Option<u64> {
        match self.service.image_status(&spec, false).await {
            Ok(status) => status.image.map(|image| image.size),
            Err(error) => {
                tracing::debug!(image = spec.image, %error, "size of a pulled image is not known");
                None
            }
        }
    }

    /// Records the event of an outcome, and answers its message. Without an object it goes to the log alone.
    fn tell(&self, request: &EnsureImageRequest, outcome: Outcome<'_>) -> String {
        let (kind, reason, message) = outcome.event(&request.image);
        match &request.object {
            Some(object) => {
                self.events.record(Event { object: object.clone(), kind, reason, message: message.clone() });
            }
            None => {
                let pod = format_args!("{}/{}", request.pod.namespace, request.pod.name);
                match kind {
                    EventType::Normal => tracing::info!(%pod, reason, "{message}"),
                    EventType::Warning => tracing::warn!(%pod, reason, "{message}"),
                }
            }
        }
        message
    }
}

/// Whether the pod may have what is here. Pull records and credential verification will answer this.
fn access() -> Access {
    Access::Granted(Grant::NoRecordsKept)
}

/// What the runtime is sent: the name with its default tag but otherwise as the user spelled it, so that the runtime
/// applies its own default registry.
fn image_spec(request: &EnsureImageRequest) -> Result<ImageSpec, EnsureImageError> {
    let image =
        oci::apply_default_tag(&request.image).map_err(|source| EnsureImageError::InvalidImageName { source })?;
    Ok(ImageSpec {
        image,
        annotations: request.pod.annotations.clone(),
        user_specified_image: request.image.clone(),
        runtime_handler: request.runtime_handler.clone(),
        image_ref: String::new(),
    })
}

#[cfg(test)]
#[path = "manager_tests/mod.rs"]
mod tests;
