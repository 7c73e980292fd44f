//! [`Explanation`]: the outcome that a request would have, and the reasons. [`ImageManager::explain`] runs no program, pulls
//! nothing, writes nothing and records no event: it asks the image service for the image's status, and reads files.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use credentials::{Candidate, Preview, Source};

use crate::credential_lookup::CredentialLookup;
use crate::manager::status_spec;
use crate::requested_image::RequestedImage;
use crate::{
    Access, AccessUnverified, Cause, Decision, EnsureImageError, EnsureImageRequest, Grant, ImageManager, Presence,
    PullPolicy, decide,
};

/// The decision for a request, with its reason.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The image as it was requested.
    pub image: String,
    /// The name that the runtime would be sent; `None` where the request is no image name.
    pub sent: Option<String>,
    /// Pull policy of the request.
    pub policy: PullPolicy,
    /// Presence of the image, as far as the policy asks.
    pub presence: Presence,
    /// The decision, or why there can be none.
    pub decision: Result<Decision, EnsureImageError>,
    /// The back-off that delays a pull, if the decision is a pull.
    pub backoff: Option<BackoffExplanation>,
    /// Sources of the credentials that a pull would try, in this order. If this and `would_ask` are empty, the pull would be
    /// anonymous.
    pub candidates: Vec<Source>,
    /// Credential helpers and providers that would be asked for more.
    pub would_ask: Vec<String>,
    /// Credentials that would be left out, each with the reason.
    pub notes: Vec<String>,
}

/// Why a pull would not be made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackoffExplanation {
    /// Cause of the last failure.
    pub cause: Cause,
    /// Reason and message of the last failure.
    pub message: String,
    /// How long it still is.
    pub remaining: Duration,
}

impl ImageManager {
    /// Explains the decision of [`ImageManager::ensure_image_exists`].
    pub async fn explain(&self, request: impl Borrow<EnsureImageRequest>) -> Explanation {
        let request = request.borrow();
        let mut explanation = Explanation {
            image: request.image.clone(),
            sent: None,
            policy: request.policy,
            presence: Presence::NotChecked,
            decision: Ok(decide(request.policy, Presence::NotChecked, Access::Granted(Grant::NoRecordsKept))),
            backoff: None,
            candidates: Vec::new(),
            would_ask: Vec::new(),
            notes: Vec::new(),
        };
        explanation.decision = self.explain_into(request, &mut explanation).await;
        explanation
    }

    async fn explain_into(
        &self,
        request: &EnsureImageRequest,
        explanation: &mut Explanation,
    ) -> Result<Decision, EnsureImageError> {
        let image = RequestedImage::parse(request)?;
        explanation.sent = Some(image.sent.clone());
        let spec = status_spec(request, image.sent.clone());
        explanation.presence = self.presence(request, &spec).await?;
        let preview = match self.keyring() {
            Some(keyring) => keyring.preview(image.reference(), &request.requester()).await,
            None => Ok(Preview::default()),
        };
        let preview = preview.map_err(|source| EnsureImageError::Credentials { source: Arc::new(source) });
        if let Ok(preview) = &preview {
            explanation.candidates = preview.candidates.iter().map(|candidate| candidate.source.clone()).collect();
            explanation.would_ask.clone_from(&preview.would_ask);
            explanation.notes = preview.notes.iter().map(ToString::to_string).collect();
        }
        let candidates: Result<Arc<[Candidate]>, _> = preview.map(|preview| preview.candidates.into());
        let permits = |image_ref: &str| self.namespace_access.permits(&image.name, image_ref, &request.pod.namespace);
        let access = match (&self.records, &explanation.presence) {
            (_, Presence::Present { image_ref }) if permits(image_ref) => Access::Granted(Grant::Namespace),
            (Some(records), Presence::Present { image_ref }) => {
                match records.peek_at(&image.name, image_ref, async || candidates.clone()).await {
                    Err(_) if request.policy == PullPolicy::Never => {
                        Access::MustVerify(AccessUnverified::NoMatchingCredential)
                    }
                    access => access?,
                }
            }
            _ => Access::Granted(Grant::NoRecordsKept),
        };
        let decision = decide(request.policy, explanation.presence.clone(), access);
        if matches!(decision, Decision::Pull(_)) {
            let keyring = self.keyring();
            let mut lookup = CredentialLookup::new(keyring.as_deref(), request, &image);
            let subject = self.subject(request, &mut lookup).await;
            let now = (self.clock)();
            explanation.backoff = self.lock_backoff().peek(&subject, now).map(|held| BackoffExplanation {
                cause: held.cause,
                message: held.message,
                remaining: held.until.saturating_duration_since(now),
            });
            if explanation.backoff.is_none() {
                candidates?;
            }
        }
        Ok(decision)
    }
}

impl Explanation {
    /// The decision in a word: `use-local`, `pull`, `back-off`, `refuse`, or `fail` where nothing could be decided.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match (&self.decision, &self.backoff) {
            (Ok(_), Some(_)) => "back-off",
            (Ok(decision), None) => decision.word(),
            (Err(_), _) => "fail",
        }
    }

    /// The reason, for people.
    #[must_use]
    pub fn why(&self) -> String {
        match (&self.decision, &self.backoff) {
            (Ok(decision), None) => decision.why().to_owned(),
            (Ok(decision), Some(backoff)) => {
                // A second more rather than "0 s".
                let seconds = backoff.remaining.as_secs() + u64::from(backoff.remaining.subsec_nanos() > 0);
                format!("{}, but not for another {seconds} s: {}", decision.why(), backoff.message)
            }
            (Err(error), _) => format!("{}: {}", error.reason(), error.message()),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.image, self.word(), self.why())
    }
}
