//! [`ImageManager`]: the thin shell around [`decide`]: asks whether the image is here and whether the pod may have it,
//! has it pulled when that was decided, and tells events.

use std::borrow::Borrow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use credentials::Candidate;
use cri_api::{ImageService, ImageSpec};

use crate::backoff::{Backoff, Failure, Marks, Subject};
use crate::outcome::Outcome;
use crate::pull::{Mark, PullFailed, Puller, Recheck, Wanted};
use crate::{
    Access, BackoffEntry, BackoffSelector, Clock, Decision, EnsureImageError, EnsureImageRequest, EnsuredImage,
    EventRecorder, EventRef, EventType, Explanation, Grant, Options, Presence, PullFailure, PullPolicy, PullTiming,
    RefuseReason, RegistryFingerprint, decide,
};

/// Makes sure that images are there.
pub struct ImageManager {
    service: Arc<dyn ImageService>,
    events: Arc<dyn EventRecorder>,
    puller: Arc<Puller>,
    clock: Clock,
    registry_fingerprint: Option<RegistryFingerprint>,
    /// Guards everybody's back-off.
    backoff: Mutex<Backoff>,
}

impl ImageManager {
    /// A manager of the images behind `service`.
    #[must_use]
    pub fn new(service: Arc<dyn ImageService>, events: Arc<dyn EventRecorder>, options: Options) -> Self {
        let Options { puller, clock, backoff, registry_fingerprint } = options;
        Self {
            puller: Puller::new(Arc::clone(&service), puller, Arc::clone(&clock)),
            service,
            events,
            clock,
            registry_fingerprint,
            backoff: Mutex::new(Backoff::new(backoff)),
        }
    }

    /// Makes sure that the image is there, as the policy wants it, and answers what the runtime calls it. Dropping the
    /// future leaves the pull, which goes on as long as others want it.
    ///
    /// # Errors
    /// [`EnsureImageError`]; an event tells of each.
    pub async fn ensure_image_exists(
        &self,
        request: impl Borrow<EnsureImageRequest>,
    ) -> Result<EnsuredImage, EnsureImageError> {
        let request = request.borrow();
        let result = self.ensure(request).await;
        match &result {
            // Told where it is known whether it is the first of its window.
            Ok(_) | Err(EnsureImageError::BackOff { .. }) => {}
            Err(error) => drop(self.tell(request, Outcome::Failed(error))),
        }
        result
    }

    /// Everybody who waits, or has waited, before a pull that failed is tried again; sorted by pod and image.
    pub fn backoff(&self) -> Vec<BackoffEntry> {
        self.lock_backoff().list((self.clock)())
    }

    /// Forgets back-off, so that the next request pulls. Answers how many entries that were.
    pub fn reset_backoff(&self, what: &BackoffSelector) -> usize {
        self.lock_backoff().reset(what)
    }

    /// Ends every pull, and waits for their ends.
    pub async fn shutdown(&self) {
        self.puller.shutdown().await;
    }

    /// What [`ImageManager::ensure_image_exists`] would decide, and why. It asks the service for the image's status
    /// where the policy does; it pulls nothing and records no event.
    pub async fn explain(&self, request: impl Borrow<EnsureImageRequest>) -> Explanation {
        let request = request.borrow();
        let explanation = |sent, presence, decision| Explanation {
            image: request.image.clone(),
            sent,
            policy: request.policy,
            presence,
            decision,
        };
        let spec = match image_spec(request) {
            Ok(spec) => spec,
            Err(error) => return explanation(None, Presence::NotChecked, Err(error)),
        };
        match self.presence(request, &spec).await {
            Ok(presence) => {
                let decision = decide(request.policy, &presence, access());
                explanation(Some(spec.image), presence, Ok(decision))
            }
            Err(error) => explanation(Some(spec.image), Presence::NotChecked, Err(error)),
        }
    }

    fn lock_backoff(&self) -> MutexGuard<'_, Backoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ensure(&self, request: &EnsureImageRequest) -> Result<EnsuredImage, EnsureImageError> {
        let spec = image_spec(request)?;
        let mark = self.puller.mark();
        let presence = self.presence(request, &spec).await?;
        match decide(request.policy, &presence, access()) {
            Decision::UseLocal { image_ref, .. } => Ok(self.use_local(request, image_ref)),
            Decision::Refuse(RefuseReason::NotPresentAndNeverPulled | RefuseReason::MustVerifyAndNeverPulled(_)) => {
                Err(EnsureImageError::ErrImageNeverPull { image: request.image.clone() })
            }
            Decision::Pull(_) => self.pull(request, spec, mark).await,
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

    async fn pull(
        &self,
        request: &EnsureImageRequest,
        spec: ImageSpec,
        mark: Mark,
    ) -> Result<EnsuredImage, EnsureImageError> {
        let registry = registry(&spec);
        let subject = self.subject(request, &registry);
        let held = self.lock_backoff().check(&subject, (self.clock)());
        if let Some(held) = held {
            let image = request.image.clone();
            let error = EnsureImageError::BackOff { image, last: held.message, cause: held.cause, until: held.until };
            if held.tell {
                self.tell(request, Outcome::Failed(&error));
            }
            return Err(error);
        }
        let candidates: Arc<[Candidate]> = Arc::from([]);
        self.tell(request, Outcome::Pulling);
        let asked = (self.clock)();
        let wanted = Wanted {
            image: request.image.clone(),
            recheck: (request.policy == PullPolicy::IfNotPresent).then(|| self.recheck(&spec)),
            spec,
            sandbox: request.sandbox.clone(),
            candidates: Arc::clone(&candidates),
            priority: request.priority,
            progress: request.progress.clone(),
            mark,
        };
        let pulled = match self.puller.pull(wanted).await {
            Ok(pulled) => pulled,
            Err(failed) => return Err(self.pull_failed(request, &subject, failed)),
        };
        if pulled.found {
            return Ok(self.use_local(request, pulled.image_ref));
        }
        let ended = (self.clock)();
        self.lock_backoff().succeeded(&subject, ended);
        let timing = PullTiming { pulling: pulled.pulling, with_waiting: ended - asked };
        let PullTiming { pulling, with_waiting } = timing;
        let message = self.tell(request, Outcome::Pulled { pulling, with_waiting, size: pulled.size });
        Ok(EnsuredImage {
            image_ref: pulled.image_ref,
            message,
            pulled: true,
            credential: pulled.used.map(|used| candidates[used].source.clone()),
            timing: Some(timing),
            size: pulled.size,
        })
    }

    /// Begins a new window, and makes the error of it.
    fn pull_failed(&self, request: &EnsureImageRequest, subject: &Subject<'_>, failed: PullFailed) -> EnsureImageError {
        let source = match failed {
            PullFailed::Attempts(failure) => failure,
            PullFailed::Throttled => PullFailure::throttled(),
        };
        let (cause, retry_after) = (source.cause(), source.retry_after());
        let error = EnsureImageError::Pull { image: request.image.clone(), source };
        let message = format!("{}: {}", error.reason(), error.message());
        let failure = Failure { cause, retry_after, message: &message };
        self.lock_backoff().failed(subject, failure, (self.clock)());
        error
    }

    fn subject<'a>(&self, request: &'a EnsureImageRequest, registry: &'a str) -> Subject<'a> {
        let fingerprint = self.registry_fingerprint.as_ref();
        Subject {
            namespace: &request.pod.namespace,
            name: &request.pod.name,
            uid: &request.pod.uid,
            image: &request.image,
            registry,
            marks: Marks { keyring: 0, registry: fingerprint.map_or(0, |fingerprint| fingerprint(registry)) },
        }
    }

    /// Looks again when the turn has come: whoever was before may have brought it. Where the service cannot tell, the
    /// pull will.
    fn recheck(&self, spec: &ImageSpec) -> Recheck {
        let (service, spec) = (Arc::clone(&self.service), spec.clone());
        Arc::new(move || {
            let (service, spec) = (Arc::clone(&service), spec.clone());
            Box::pin(async move {
                match service.image_status(&spec, false).await {
                    Ok(status) => status.image.map(|image| image.id),
                    Err(error) => {
                        tracing::debug!(image = spec.image, %error, "pull without a second look");
                        None
                    }
                }
            })
        })
    }

    /// Records the event of an outcome, and answers its message. Without an object it goes to the log alone.
    fn tell(&self, request: &EnsureImageRequest, outcome: Outcome<'_>) -> String {
        let (kind, reason, message) = outcome.event(&request.image);
        match &request.object {
            Some(object) => self.events.record(EventRef { object, kind, reason, message: &message }),
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

/// The host that the image comes from.
fn registry(spec: &ImageSpec) -> String {
    let parsed = oci::Reference::parse(&spec.image);
    parsed.map_or_else(|_| String::new(), |reference| reference.domain().to_owned())
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
