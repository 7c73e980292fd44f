//! [`ImageManager`]: the thin shell around [`decide`]: checks whether the image is present and whether the pod may use it,
//! has it pulled if that is the decision, and records events. The order of its steps is the kubelet's (v1.36).

mod pulling;

use base::lock::{Mutex, MutexGuard, RwLock};
use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use credentials::Keyring;
use cri_api::{Image, ImageService, ImageSpec, ImageStatus};
use tokio::sync::Notify;
use tracing::Instrument as _;

use crate::backoff::Backoff;
use crate::credential_lookup::CredentialLookup;
use crate::outcome::Outcome;
use crate::pull::{Mark, Puller};
use crate::requested_image::{RequestedImage, sent_name};
use crate::requested_name::RequestedName;
use crate::{
    Access, AccessUnverified, BackoffEntry, BackoffOptions, BackoffSelector, Clock, Decision, EnsureImageError,
    EnsureImageRequest, EnsuredImage, EventRecorder, EventRef, EventType, Grant, Metrics, NamespaceAccess, ObjectRef,
    Options, Presence, PullPolicy, PullRecords, PullerOptions, ReclaimSpace, RefuseReason, RegistryFingerprint, decide,
};

/// Makes sure that images are there.
pub struct ImageManager {
    pub(crate) service: Arc<dyn ImageService>,
    events: Arc<dyn EventRecorder>,
    puller: Arc<Puller>,
    pub(crate) clock: Clock,
    /// Guards the keyring, which may change.
    keyring: RwLock<Option<Arc<Keyring>>>,
    pub(crate) records: Option<PullRecords>,
    pub(crate) namespace_access: NamespaceAccess,
    metrics: Arc<Metrics>,
    registry_fingerprint: Option<RegistryFingerprint>,
    reclaim_space: Option<Arc<dyn ReclaimSpace>>,
    /// Guards the back-off of all pods.
    backoff: Mutex<Backoff>,
    /// Number of its entries, so that a request for a present image need not lock it.
    backed_off: AtomicUsize,
    /// Notified when entries of the back-off are reset.
    reset: Notify,
}

/// State of a request that needs more than an inspection of the image.
enum Next {
    /// The request is decided.
    Decided(Decision),
    /// This is known of the image, and, where that could be said at once, whether the pod may have it.
    Open(Presence, Option<Access>),
}

/// Counts of a request, which are recorded even when its caller cancels.
struct Sample<'a> {
    metrics: &'a Metrics,
    policy: PullPolicy,
    present: Option<bool>,
    pull_required: Option<bool>,
}

impl Drop for Sample<'_> {
    fn drop(&mut self) {
        self.metrics.ensure_request(self.policy, self.present, self.pull_required);
    }
}

impl ImageManager {
    /// A manager of the images behind `service`.
    #[must_use]
    pub fn new(service: Arc<dyn ImageService>, events: Arc<dyn EventRecorder>, options: Options) -> Self {
        let Options {
            puller,
            clock,
            keyring,
            records,
            namespace_access,
            metrics,
            backoff,
            registry_fingerprint,
            reclaim_space,
            board,
        } = options;
        Self {
            puller: Puller::new(
                Arc::clone(&service),
                records.clone(),
                puller,
                Arc::clone(&clock),
                Arc::clone(&metrics),
                board,
            ),
            service,
            events,
            clock,
            keyring: RwLock::new(keyring),
            records,
            namespace_access,
            metrics,
            registry_fingerprint,
            reclaim_space,
            backoff: Mutex::new(Backoff::new(backoff)),
            backed_off: AtomicUsize::new(0),
            reset: Notify::new(),
        }
    }

    /// Ensures that the image is present as the policy demands, and returns its image ref. Dropping the future leaves the
    /// pull, which continues while other callers wait for it.
    ///
    /// # Errors
    /// [`EnsureImageError`]. An event is recorded for each, except for a pull secret that cannot be read: as in the kubelet
    /// the caller reports that.
    pub async fn ensure_image_exists(
        &self,
        request: impl Borrow<EnsureImageRequest>,
    ) -> Result<EnsuredImage, EnsureImageError> {
        let request = request.borrow();
        let span = tracing::debug_span!(
            "EnsureImageExists",
            pod = %format_args!("{}/{}", request.pod.namespace, request.pod.name),
            image = request.image,
            policy = request.policy.as_str(),
            outcome = tracing::field::Empty,
        );
        if span.is_disabled() {
            // Not wrapped: that would move the whole future once more, for every request.
            return self.ensure(request).await;
        }
        let result = Box::pin(self.ensure(request)).instrument(span.clone()).await;
        span.record("outcome", outcome_word(&result));
        result
    }

    /// Returns the status of the image with this name or image ref from the service, for callers that use its content. Makes
    /// no other call, and records no event.
    ///
    /// # Errors
    /// The error of the service.
    pub async fn image(&self, spec: &ImageSpec) -> cri_api::Result<Option<Image>> {
        Ok(self.service.image_status(spec, false).await?.image)
    }

    /// Returns the entries of the back-off that wait, and those whose wait is over without a success since, sorted by pod and
    /// image.
    pub fn backoff(&self) -> Vec<BackoffEntry> {
        let mut backoff = self.lock_backoff();
        let list = backoff.list((self.clock)());
        self.count_backoff(&backoff);
        list
    }

    /// Removes entries of the back-off, so that the next request pulls. Returns how many were removed.
    pub fn reset_backoff(&self, what: &BackoffSelector) -> usize {
        let mut backoff = self.lock_backoff();
        let forgotten = backoff.reset(what);
        self.count_backoff(&backoff);
        drop(backoff);
        self.reset.notify_waiters();
        forgotten
    }

    /// Ends when [`ImageManager::reset_backoff`] is called after this call: for callers that sleep until they ask again.
    pub fn backoff_was_reset(&self) -> impl Future<Output = ()> + Send {
        self.reset.notified()
    }

    /// Changes limits, order and back-off of pulls, for those that wait and for later ones.
    pub fn set_limits(&self, puller: PullerOptions, backoff: BackoffOptions) {
        self.puller.set_options(puller);
        self.lock_backoff().set_options(backoff);
    }

    /// Looks credentials up in another keyring from now on.
    pub fn set_keyring(&self, keyring: Arc<Keyring>) {
        *self.keyring.write() = Some(keyring);
    }

    /// Returns the current keyring.
    pub(crate) fn keyring(&self) -> Option<Arc<Keyring>> {
        self.keyring.read().clone()
    }

    /// Starts no more pulls, lets those under way end within `grace`, even without a waiting caller, and cancels the rest.
    pub async fn drain(&self, grace: Duration) {
        self.puller.drain(grace).await;
    }

    /// Cancels every pull, and waits until they have ended.
    pub async fn shutdown(&self) {
        self.puller.shutdown().await;
    }

    pub(crate) fn lock_backoff(&self) -> MutexGuard<'_, Backoff> {
        self.backoff.lock()
    }

    fn count_backoff(&self, backoff: &Backoff) {
        self.backed_off.store(backoff.len(), Ordering::Relaxed);
        self.metrics.backoff_entries(backoff.len());
    }

    /// Runs the steps, and records events of a failure. A present image that the pod may use without a request to a registry or
    /// a helper is returned within this future, which is therefore kept small: everything else is boxed.
    async fn ensure(&self, request: &EnsureImageRequest) -> Result<EnsuredImage, EnsureImageError> {
        let metrics = &*self.metrics;
        let mut sample = Sample { metrics, policy: request.policy, present: None, pull_required: None };
        let spec = match sent_name(request) {
            Ok(name) => status_spec(request, name),
            Err(error) => return Err(self.failed(request, error)),
        };
        let mark = self.puller.mark();
        let mut presence = Presence::NotChecked;
        if request.policy != PullPolicy::Always {
            let status = self.service.image_status(&spec, false).await;
            presence = match presence_of(request, status) {
                Ok(presence) => presence,
                Err(error) => return Err(self.failed(request, error)),
            };
            sample.present = Some(matches!(presence, Presence::Present { .. }));
        }
        let name = RequestedName::new(&request.image);
        let next = match self.access_without_a_credential(request, &name, &presence) {
            Some(access @ Access::Granted(_)) => match decide(request.policy, presence, access) {
                Decision::UseLocal { image_ref, .. } => {
                    sample.pull_required = Some(false);
                    return Ok(self.use_local(request, image_ref));
                }
                decision => Next::Decided(decision),
            },
            access => Next::Open(presence, access),
        };
        Box::pin(async move {
            let image = RequestedImage { name, sent: spec.image };
            let result = self.further(request, image, mark, next, &mut sample).await;
            result.map_err(|error| self.failed(request, error))
        })
        .await
    }

    /// Records an event of a failure that has none yet.
    #[cold]
    fn failed(&self, request: &EnsureImageRequest, error: EnsureImageError) -> EnsureImageError {
        match &error {
            // Back-off knows whether it is the first of its window.
            EnsureImageError::BackOff { .. } => {}
            EnsureImageError::Credentials { .. } => {
                let pod = format_args!("{}/{}", request.pod.namespace, request.pod.name);
                tracing::warn!(%pod, image = request.image, error = error.message(), "cannot look up credentials");
            }
            told => drop(self.record_event(request, Outcome::Failed(told))),
        }
        error
    }

    /// Runs the steps after the decision or, if only the presence is known, from the check on whether the pod may use the
    /// present image.
    async fn further(
        &self,
        request: &EnsureImageRequest,
        image: RequestedImage<'_>,
        mark: Mark,
        next: Next,
        sample: &mut Sample<'_>,
    ) -> Result<EnsuredImage, EnsureImageError> {
        let keyring = self.keyring();
        let mut lookup = CredentialLookup::new(keyring.as_deref(), request, &image);
        let (decision, before) = match next {
            Next::Decided(decision) => (decision, Presence::NotChecked),
            Next::Open(presence, access) => {
                let access = match access {
                    Some(access) => access,
                    None => self.access(request, &presence, &mut lookup).await?,
                };
                (decide(request.policy, presence.clone(), access), presence)
            }
        };
        match decision {
            Decision::UseLocal { image_ref, .. } => {
                sample.pull_required = Some(false);
                Ok(self.use_local(request, image_ref))
            }
            Decision::Refuse(why) => {
                if matches!(why, RefuseReason::MustVerifyAndNeverPulled(_)) {
                    sample.pull_required = Some(true);
                }
                self.lookup_all_the_same(&mut lookup).await;
                Err(EnsureImageError::ErrImageNeverPull { image: request.image.clone() })
            }
            Decision::Pull(_) => {
                sample.pull_required = Some(true);
                self.pull(request, &mut lookup, mark, before).await
            }
        }
    }

    /// Looks for the image where the policy asks for it.
    pub(crate) async fn presence(
        &self,
        request: &EnsureImageRequest,
        spec: &ImageSpec,
    ) -> Result<Presence, EnsureImageError> {
        if request.policy == PullPolicy::Always {
            return Ok(Presence::NotChecked);
        }
        presence_of(request, self.service.image_status(spec, false).await)
    }

    /// Returns the access of the pod to a present image where that needs neither its credentials nor a disk: by the records, or by its
    /// namespace.
    fn access_without_a_credential(
        &self,
        request: &EnsureImageRequest,
        name: &RequestedName<'_>,
        presence: &Presence,
    ) -> Option<Access> {
        let by_record = self.access_at_hand(name, presence);
        if matches!(by_record, Some(Access::Granted(_))) {
            return by_record;
        }
        let Presence::Present { image_ref } = presence else { return by_record };
        let permits = self.namespace_access.permits(name, image_ref, &request.pod.namespace);
        if permits { Some(Access::Granted(Grant::Namespace)) } else { by_record }
    }

    /// Access of the pod to a present image, where that needs neither its credentials nor a disk.
    fn access_at_hand(&self, name: &RequestedName<'_>, presence: &Presence) -> Option<Access> {
        let Presence::Present { image_ref } = presence else { return None };
        match &self.records {
            Some(records) => records.access_at_hand(name, image_ref),
            None => Some(Access::Granted(Grant::NoRecordsKept)),
        }
    }

    /// Returns the access of the pod to a present image. With the policy Never a failed look-up counts as doubt: its error would
    /// reveal that the image is present.
    async fn access(
        &self,
        request: &EnsureImageRequest,
        presence: &Presence,
        lookup: &mut CredentialLookup<'_>,
    ) -> Result<Access, EnsureImageError> {
        let (Some(records), Presence::Present { image_ref }) = (&self.records, presence) else {
            return Ok(Access::Granted(Grant::NoRecordsKept));
        };
        let name = &lookup.image().name;
        let access = records.access_to(name, image_ref, async || lookup.candidates().await).await;
        match access {
            Err(error) if request.policy == PullPolicy::Never => {
                tracing::warn!(image = request.image, error = error.message(), "cannot look up who may have the image");
                Ok(Access::MustVerify(AccessUnverified::NoMatchingCredential))
            }
            access => access,
        }
    }

    /// Makes the look-up that only some images need, so that a pod that may not use an image learns nothing about it from the
    /// duration of the request.
    async fn lookup_all_the_same(&self, lookup: &mut CredentialLookup<'_>) {
        if self.records.is_some() {
            drop(lookup.resolve().await);
        }
    }

    fn use_local(&self, request: &EnsureImageRequest, image_ref: String) -> EnsuredImage {
        self.note_success(request);
        let message = self.record_event(request, Outcome::AlreadyPresent { verified: self.records.is_some() });
        EnsuredImage { image_ref, message, pulled: false, credential: None, timing: None, size: None }
    }

    /// Records that the pod has its image, pulled or not, and no longer waits.
    fn note_success(&self, request: &EnsureImageRequest) {
        if self.backed_off.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut backoff = self.lock_backoff();
        backoff.succeeded(&request.pod.uid, &request.image, (self.clock)());
        self.count_backoff(&backoff);
    }

    /// Records the event of an outcome, and returns its message. Without an object it is only logged.
    fn record_event(&self, request: &EnsureImageRequest, outcome: Outcome<'_>) -> String {
        let (kind, reason, message) = outcome.event(&request.image);
        self.record(request, request.object.as_ref(), kind, reason, &message);
        message
    }

    fn record(
        &self,
        request: &EnsureImageRequest,
        object: Option<&ObjectRef>,
        kind: EventType,
        reason: &'static str,
        message: &str,
    ) {
        if let Some(object) = object {
            return self.events.record(EventRef { object, kind, reason, message });
        }
        let pod = ObjectRef::pod(&request.pod).pod_title();
        match kind {
            EventType::Normal => tracing::info!(pod, reason, "{message}"),
            EventType::Warning => tracing::warn!(pod, reason, "{message}"),
        }
    }
}

/// The presence in a service's answer.
fn presence_of(
    request: &EnsureImageRequest,
    status: cri_api::Result<ImageStatus>,
) -> Result<Presence, EnsureImageError> {
    match status {
        Ok(ImageStatus { image: Some(image), .. }) => Ok(Presence::Present { image_ref: image.id }),
        Ok(ImageStatus { image: None, .. }) => Ok(Presence::Absent),
        Err(source) => Err(EnsureImageError::ImageInspect { image: request.image.clone(), source }),
    }
}

/// Outcome of a request in a word, for the span.
fn outcome_word(result: &Result<EnsuredImage, EnsureImageError>) -> &'static str {
    match result {
        Ok(image) if image.pulled => "pulled",
        Ok(_) => "present",
        Err(error) => error.reason(),
    }
}

/// Returns the spec of a status request. Annotations and the user's own spelling are for pulls: no runtime reads them in a status
/// request.
pub(crate) fn status_spec(request: &EnsureImageRequest, image: String) -> ImageSpec {
    ImageSpec { image, runtime_handler: request.runtime_handler.clone(), ..ImageSpec::default() }
}

#[cfg(test)]
#[path = "manager_tests/mod.rs"]
mod tests;
