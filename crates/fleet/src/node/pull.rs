//! [`Puller`]: pulls one image for sets. The tag is pulled first, so that pods find the image by the name that they use; if the tag has
//! moved, the digest is pulled instead. Space is checked when the service has reported which layers are missing, before they are fetched;
//! with a service that does not report layers, free space alone is checked before the pull.
//! Decides nothing about when to pull. Called by [`super::daemon`].

use std::sync::Arc;

use base::units::bytes;
use cri_api::ImageSpec;
use image_manager::{Cause, EnsureImageError, EnsureImageRequest, ImageManager, PullPolicy};
use oci::Digest;

use super::collector::{Collector, Fit, fit};
use super::desired::{DesiredImage, ImageKey};
use super::progress::PullProgress;
use super::secrets::{PullCredentials, SecretReader};
use super::states::PullProblem;
use crate::api::MinFree;

/// A pull to make.
#[derive(Clone, Debug)]
pub(super) struct PullOrder {
    key: ImageKey,
    any_of_name: bool,
    secrets: Vec<String>,
    min_free: Vec<MinFree>,
}

impl PullOrder {
    pub(super) fn new(key: &ImageKey, image: &DesiredImage) -> Self {
        Self {
            key: key.clone(),
            any_of_name: image.any_of_name,
            secrets: image.secrets.clone(),
            min_free: image.min_free.clone(),
        }
    }

    /// Returns the digest that the tag must have.
    fn expected(&self) -> Option<&Digest> {
        self.key.digest.as_ref().filter(|_| !self.any_of_name)
    }
}

/// Pulls images for sets.
pub(super) struct Puller {
    pub(super) manager: Arc<ImageManager>,
    pub(super) collector: Arc<dyn Collector>,
    pub(super) secrets: SecretReader,
    /// True if the service reports which layers of an image are missing.
    pub(super) reports_layers: bool,
}

/// Reason for which an attempt ended without the image and without an error.
enum Interruption {
    TagMoved,
    /// So many bytes have to be free.
    ReclaimFirst(u64),
    Problem(PullProblem),
}

impl Puller {
    /// Pulls an image. Returns the image ID. Dropping the future cancels the pull.
    pub(super) async fn pull(&self, order: &PullOrder, progress: &PullProgress) -> Result<String, PullProblem> {
        let credentials = self.secrets.read(&order.secrets).await;
        let mut image = order.key.name.clone();
        let (mut by_digest, mut reclaimed) = (false, false);
        loop {
            let expected = order.expected().filter(|_| !by_digest);
            match self.attempt(order, &image, expected, &credentials, progress).await {
                Ok(id) => return Ok(id),
                Err(Interruption::TagMoved) => {
                    tracing::info!(image, digest = ?expected, "the tag has moved, pulling by digest");
                    image = order.key.by_digest().ok_or_else(no_digest)?;
                    by_digest = true;
                }
                Err(Interruption::ReclaimFirst(needed)) if !reclaimed => {
                    reclaimed = true;
                    self.collector.reclaim(needed).await;
                }
                Err(Interruption::ReclaimFirst(needed)) => return Err(too_large(needed)),
                Err(Interruption::Problem(problem)) => return Err(problem),
            }
        }
    }

    async fn attempt(
        &self,
        order: &PullOrder,
        image: &str,
        expected: Option<&Digest>,
        credentials: &PullCredentials,
        progress: &PullProgress,
    ) -> Result<String, Interruption> {
        if !self.reports_layers {
            self.check_space(order, None).await.map_or(Ok(()), Err)?;
        }
        let mut request = EnsureImageRequest {
            policy: PullPolicy::Always,
            secrets: credentials.secrets.clone(),
            missing_secrets: credentials.missing.clone(),
            priority: i32::MIN,
            progress: progress.sink(),
            ..EnsureImageRequest::new(image)
        };
        // Credential providers and messages see the namespace of the secrets.
        self.secrets.namespace().clone_into(&mut request.pod.namespace);
        let ensured = tokio::select! {
            ensured = self.manager.ensure_image_exists(&request) => ensured,
            interruption = self.inspect(order, expected, progress) => return Err(interruption),
        };
        let ensured = ensured.map_err(|error| Interruption::Problem(problem(&error, credentials)))?;
        if expected.is_some() && !self.has_digest(order, &ensured.image_ref).await {
            return Err(Interruption::TagMoved);
        }
        Ok(ensured.image_ref)
    }

    /// Waits until the progress shows that the pull must not go on.
    async fn inspect(&self, order: &PullOrder, expected: Option<&Digest>, progress: &PullProgress) -> Interruption {
        let mut is_checked = false;
        loop {
            progress.changed().await;
            let resolved = progress.digest();
            if expected.is_some() && resolved.is_some() && resolved.as_ref() != expected {
                return Interruption::TagMoved;
            }
            if is_checked {
                continue;
            }
            let Some(missing) = progress.missing() else { continue };
            is_checked = true;
            if let Some(interruption) = self.check_space(order, Some(missing)).await {
                return interruption;
            }
        }
    }

    /// Returns the interruption if the missing bytes do not fit on the disk. Space that cannot be measured stops no pull.
    async fn check_space(&self, order: &PullOrder, missing: Option<u64>) -> Option<Interruption> {
        let space = self.collector.space().await?;
        match fit(missing, space, &order.min_free) {
            Fit::Fits => None,
            Fit::AfterReclaim(needed) => Some(Interruption::ReclaimFirst(needed)),
            Fit::TooLarge(needed) => Some(Interruption::Problem(too_large(needed))),
        }
    }

    /// Returns true if the pulled image has the digest, or if that is not known.
    async fn has_digest(&self, order: &PullOrder, id: &str) -> bool {
        let Some(wanted) = order.key.by_digest() else { return true };
        match self.manager.image(&ImageSpec::new(id)).await {
            Ok(Some(image)) => image.repo_digests.is_empty() || image.repo_digests.contains(&wanted),
            Ok(None) | Err(_) => true,
        }
    }
}

fn no_digest() -> PullProblem {
    let message = "the tag has moved, and the image has no digest".to_owned();
    PullProblem { reason: "TagMoved".to_owned(), message, retry_after: None }
}

fn too_large(needed: u64) -> PullProblem {
    PullProblem {
        reason: "InsufficientSpace".to_owned(),
        message: format!(
            "{} would have to be free, minFree included, and image collection cannot free them",
            bytes(needed)
        ),
        retry_after: None,
    }
}

/// Returns the failure of a pull as a report has it.
fn problem(error: &EnsureImageError, credentials: &PullCredentials) -> PullProblem {
    let denied = error.cause() == Some(Cause::Unauthenticated);
    let retry_after = match error {
        EnsureImageError::Pull { source, .. } => source.retry_after(),
        _ => None,
    };
    let reason = match error.cause() {
        Some(Cause::Unauthenticated) if !credentials.missing.is_empty() => "SecretNotFound",
        Some(Cause::Unauthenticated) if !credentials.unreadable.is_empty() => "SecretUnreadable",
        Some(Cause::Unauthenticated) => "Unauthorized",
        Some(Cause::NotFound) => "ImageNotFound",
        Some(Cause::RateLimited) => "RateLimited",
        Some(Cause::Unavailable) => "RegistryUnavailable",
        Some(Cause::DiskFull) => "InsufficientSpace",
        Some(Cause::InvalidContent) => "InvalidContent",
        Some(Cause::SignatureInvalid) => "SignatureInvalid",
        Some(Cause::Deadline) => "PullStalled",
        Some(Cause::Cancelled | Cause::Throttled | Cause::Other) | None => error.reason(),
    };
    let mut message = error.message();
    if denied && !credentials.missing.is_empty() {
        message = format!("pull secret {} does not exist: {message}", credentials.missing.join(", "));
    } else if denied && !credentials.unreadable.is_empty() {
        message = format!("pull secret {}: {message}", credentials.unreadable.join("; "));
    }
    PullProblem { reason: reason.to_owned(), message, retry_after }
}
