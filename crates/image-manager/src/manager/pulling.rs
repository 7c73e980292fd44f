//! The half of a request that pulls: back-off, credentials, the puller, and what becomes of its answer. Whether to pull
//! was decided before; [`ImageManager`]'s steps call it.

use std::sync::Arc;

use base::units;
use credentials::Requester;
use cri_api::{Error, ImageSpec, Kind};

use super::ImageManager;
use crate::backoff::{Failure, Marks, Subject};
use crate::credential_lookup::{CredentialLookup, ResolvedCredentials};
use crate::outcome::Outcome;
use crate::pull::{Mark, PullFailed, Recheck, Wanted};
use crate::requested_name::RequestedName;
use crate::{
    Access, Attempt, Cause, EnsureImageError, EnsureImageRequest, EnsuredImage, ObjectRef, Presence, PullFailure,
    PullPolicy, PullTiming, ReclaimedSpace, WantedBy,
};

impl ImageManager {
    pub(super) async fn pull<'a>(
        &self,
        request: &'a EnsureImageRequest,
        lookup: &mut CredentialLookup<'a>,
        mark: Mark,
        before: Presence,
    ) -> Result<EnsuredImage, EnsureImageError> {
        let image = lookup.image();
        let subject = self.subject(request, lookup).await;
        self.respect_backoff(request, &subject)?;
        let found = lookup.resolve().await?;
        self.record_missing_secrets(request, &found);
        self.record_event(request, Outcome::Pulling);
        let asked = (self.clock)();
        let spec = ImageSpec {
            image: image.sent.clone(),
            annotations: request.pod.annotations.clone(),
            user_specified_image: request.image.clone(),
            runtime_handler: request.runtime_handler.clone(),
            image_ref: String::new(),
        };
        let wanted = || Wanted {
            image: request.image.clone(),
            recheck: (request.policy == PullPolicy::IfNotPresent).then(|| self.recheck(&image.name, &spec, &found)),
            spec: spec.clone(),
            reference: image.reference().clone(),
            sandbox: request.sandbox.clone(),
            candidates: Arc::clone(&found.candidates),
            priority: request.priority,
            by: WantedBy::pod_or_command(&request.pod),
            progress: request.progress.clone(),
            mark,
            before: before.clone(),
        };
        let _hold = self.reclaim_space.as_ref().and_then(|collector| collector.hold(&image.reference_or_id()));
        let mut pulled = self.puller.pull(wanted()).await;
        if let (Err(PullFailed::Record(source)), Some(collector)) = (&pulled, &self.reclaim_space)
            && source.is_disk_full()
            && collector.reclaim_space(None).await.justifies_retry()
        {
            // Not even the intent could be written down: nothing was asked of the registry yet.
            pulled = self.puller.pull(wanted()).await;
        }
        let mut tried = None;
        if let (Err(PullFailed::Attempts(failure)), Some(collector)) = (&pulled, &self.reclaim_space)
            && failure.cause() == Cause::DiskFull
        {
            // The pull has ended, so collection does not wait for it; the next pull waits for its turn again.
            let reclaimed = collector.reclaim_space(failure.needed_bytes()).await;
            if reclaimed.justifies_retry() {
                pulled = self.puller.pull(wanted()).await;
            }
            tried = Some(reclaimed);
        }
        let pulled = match pulled {
            Ok(pulled) => pulled,
            Err(failed) => return Err(self.pull_failed(request, &subject, &found, failed, tried)),
        };
        if pulled.found {
            return Ok(self.use_local(request, pulled.image_ref));
        }
        let ended = (self.clock)();
        self.note_success(request);
        let timing = PullTiming { pulling: pulled.pulling, with_waiting: ended - asked };
        let PullTiming { pulling, with_waiting } = timing;
        self.metrics.pull_duration(pulled.size, with_waiting);
        let message = self.record_event(request, Outcome::Pulled { pulling, with_waiting, size: pulled.size });
        let used = pulled.used.and_then(|used| found.candidates.get(used));
        Ok(EnsuredImage {
            image_ref: pulled.image_ref,
            message,
            pulled: true,
            credential: used.map(|candidate| candidate.source.clone()),
            timing: Some(timing),
            size: pulled.size,
        })
    }

    /// Before anything is written, and before any program is asked for a credential.
    fn respect_backoff(&self, request: &EnsureImageRequest, subject: &Subject<'_>) -> Result<(), EnsureImageError> {
        let held = {
            let mut backoff = self.lock_backoff();
            let held = backoff.check(subject, (self.clock)());
            self.count_backoff(&backoff);
            held
        };
        let Some(held) = held else { return Ok(()) };
        let image = request.image.clone();
        let error = EnsureImageError::BackOff { image, last: held.message, cause: held.cause, until: held.until };
        if held.tell {
            self.record_event(request, Outcome::Failed(&error));
        }
        Err(error)
    }

    /// Begins a new window where there was an attempt, and makes the error.
    fn pull_failed(
        &self,
        request: &EnsureImageRequest,
        subject: &Subject<'_>,
        found: &ResolvedCredentials,
        failed: PullFailed,
        tried: Option<ReclaimedSpace>,
    ) -> EnsureImageError {
        let image = request.image.clone();
        let source = match failed {
            PullFailed::Attempts(failure) => failure,
            PullFailed::Throttled => PullFailure::throttled(),
            // Nothing was tried, so that nothing is waited for.
            PullFailed::Record(source) => return EnsureImageError::Record { image, source },
            PullFailed::ShuttingDown => {
                let error = Error::new(Kind::Cancelled, failed.to_string());
                let source = PullFailure::new(vec![Attempt { source: None, error }]);
                return EnsureImageError::Pull { image, source };
            }
        };
        let mut notes: Vec<String> = found.notes.iter().map(ToString::to_string).collect();
        notes.extend(tried.as_ref().map(note));
        let source = source.with_notes(notes);
        let (cause, retry_after) = (source.cause(), source.retry_after());
        let error = EnsureImageError::Pull { image, source };
        let message = format!("{}: {}", error.reason(), error.message());
        let mut backoff = self.lock_backoff();
        backoff.failed(subject, Failure { cause, retry_after, message: &message }, (self.clock)());
        self.count_backoff(&backoff);
        error
    }

    pub(crate) async fn subject<'a>(
        &self,
        request: &'a EnsureImageRequest,
        lookup: &mut CredentialLookup<'a>,
    ) -> Subject<'a> {
        let registry = lookup.image().registry();
        Subject {
            namespace: &request.pod.namespace,
            name: &request.pod.name,
            uid: &request.pod.uid,
            image: &request.image,
            registry,
            marks: self.marks(registry, lookup).await,
        }
    }

    /// Fingerprints of a pull's dependencies. Files are read off this thread: their file system may not answer.
    async fn marks(&self, registry: &str, lookup: &mut CredentialLookup<'_>) -> Marks {
        let (keyring, fingerprint) = (self.keyring(), self.registry_fingerprint.clone());
        let blocks = fingerprint.is_some() || keyring.as_ref().is_some_and(|keyring| keyring.reads_files());
        let marks = move |image: &str, registry: &str, requester: &Requester| Marks {
            keyring: keyring.map_or(0, |keyring| keyring.fingerprint(image, requester)),
            registry: fingerprint.map_or(0, |fingerprint| fingerprint(registry)),
        };
        let image = lookup.image();
        if !blocks {
            return marks(&image.sent, registry, lookup.requester());
        }
        let (image, registry, requester) = (image.sent.clone(), registry.to_owned(), lookup.requester().clone());
        // An unknown fingerprint counts as a new one: the pull is tried.
        tokio::task::spawn_blocking(move || marks(&image, &registry, &requester)).await.unwrap_or_default()
    }

    /// Checks the presence again when the pull gets its turn: an earlier pull may have made the image present. If the service
    /// fails, the image is pulled.
    fn recheck(&self, name: &RequestedName<'_>, spec: &ImageSpec, found: &ResolvedCredentials) -> Recheck {
        let (service, records) = (Arc::clone(&self.service), self.records.clone());
        let (name, spec, candidates) = (name.to_static(), spec.clone(), Arc::clone(&found.candidates));
        Arc::new(move || {
            let (service, records) = (Arc::clone(&service), records.clone());
            let (name, spec, candidates) = (name.clone(), spec.clone(), Arc::clone(&candidates));
            Box::pin(async move {
                let image_ref = match service.image_status(&spec, false).await {
                    Ok(status) => status.image?.id,
                    Err(error) => {
                        tracing::debug!(image = name.text(), %error, "pull without a second check");
                        return None;
                    }
                };
                let Some(records) = records else { return Some(image_ref) };
                let candidates = async || Ok::<_, std::convert::Infallible>(candidates);
                match records.access_to(&name, &image_ref, candidates).await {
                    Ok(Access::Granted(_)) => Some(image_ref),
                    Ok(Access::MustVerify(_)) => None,
                }
            })
        })
    }

    /// Records missing pull secrets, and credentials that the look-up left out.
    fn record_missing_secrets(&self, request: &EnsureImageRequest, found: &ResolvedCredentials) {
        for note in found.notes.iter() {
            let pod = format_args!("{}/{}", request.pod.namespace, request.pod.name);
            tracing::warn!(%pod, image = request.image, error = %note, "credentials were left out");
        }
        if request.missing_secrets.is_empty() {
            return;
        }
        let (kind, reason, message) = Outcome::MissingSecrets(&request.missing_secrets).event(&request.image);
        // As in the kubelet it is about the pod, whichever container needs the image.
        let pod = request.object.as_ref().map(|_| ObjectRef::pod(&request.pod));
        self.record(request, pod.as_ref(), kind, reason, &message);
    }
}

/// Returns the note about a collection for a pull that found the disk full. The pull's error states the space that it needs.
fn note(reclaimed: &ReclaimedSpace) -> String {
    let images = if reclaimed.removed == 1 { "image" } else { "images" };
    let done = match reclaimed.removed {
        0 => "garbage collection found nothing to remove".to_owned(),
        count => {
            format!("garbage collection freed {} by removing {count} {images}", units::bytes(reclaimed.freed_bytes))
        }
    };
    let problem = reclaimed.problem.as_ref().map_or_else(String::new, |problem| format!(": {problem}"));
    format!("{done}{problem}")
}
