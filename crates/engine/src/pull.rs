//! [`PullRequest`] and its result. The result is counted from the events of the pull, which the caller's callback gets as well.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use base::lock::Mutex;
use cri_api::{ProgressSink, PullEvent, PullImageRequest};
use oci::{Digest, Reference};

use crate::credential::Credential;
use crate::error::{Error, ErrorKind, Result};
use crate::image::image_id;

type ProgressCallback = Arc<dyn Fn(&PullEvent) + Send + Sync>;

/// A request to pull an image.
#[derive(Clone)]
pub struct PullRequest {
    pub(crate) reference: Reference,
    credential: Credential,
    progress: Option<ProgressCallback>,
}

impl PullRequest {
    /// Creates an anonymous request. A reference without tag and digest gets the tag `latest`.
    #[must_use]
    pub fn new(reference: Reference) -> Self {
        Self { reference, credential: Credential::default(), progress: None }
    }

    /// Sets the credential.
    #[must_use]
    pub fn with_credential(self, credential: Credential) -> Self {
        Self { credential, ..self }
    }

    /// Sets a callback for progress. It is called often and from any thread, and must return quickly: send the events to a channel to
    /// process them. The events are for display; a caller that joins a running pull gets its present state first.
    #[must_use]
    pub fn on_progress(self, callback: impl Fn(&PullEvent) + Send + Sync + 'static) -> Self {
        Self { progress: Some(Arc::new(callback)), ..self }
    }

    /// Returns the counters for the result of this request.
    pub(crate) fn tally(&self) -> Tally {
        Tally::default()
    }

    /// Returns the call of the image service, whose events go to the counters and to the callback.
    pub(crate) fn into_call(self, tally: &Tally) -> PullImageRequest {
        let (counts, callback) = (Arc::clone(&tally.0), self.progress);
        let progress = ProgressSink::new(move |event| {
            counts.lock().add(&event);
            if let Some(callback) = &callback {
                callback(&event);
            }
        });
        PullImageRequest {
            auth: Some(self.credential.into_auth()),
            progress,
            ..PullImageRequest::new(self.reference.canonical().to_string())
        }
    }
}

impl From<Reference> for PullRequest {
    fn from(reference: Reference) -> Self {
        Self::new(reference)
    }
}

impl fmt::Debug for PullRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PullRequest")
            .field("reference", &self.reference)
            .field("credential", &self.credential)
            .finish_non_exhaustive()
    }
}

/// The result of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pulled {
    /// The reference in normal form, under which the image is recorded.
    pub reference: Reference,
    /// The image ID: the digest of the config.
    pub image_id: Digest,
    /// The digest of the manifest or index to which the reference resolved.
    pub digest: Digest,
    /// Bytes of the image on disk, with the layers that other images share.
    pub size: u64,
    /// Compressed bytes of the layers that were fetched, by this pull or by a concurrent one that it waited for. 0 if the store had all
    /// layers.
    pub fetched_bytes: u64,
}

/// Counters of one pull.
#[derive(Default)]
pub(crate) struct Tally(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    resolved: Option<Digest>,
    /// The bytes of each layer. A layer that is fetched again starts over.
    fetched: HashMap<Digest, u64>,
}

impl Counts {
    fn add(&mut self, event: &PullEvent) {
        match event {
            PullEvent::Resolved { digest, .. } => self.resolved = Some(digest.clone()),
            PullEvent::Bytes { digest, done } => drop(self.fetched.insert(digest.clone(), *done)),
            _ => {}
        }
    }
}

impl Tally {
    /// Returns the result of the pull that succeeded with the image `id`.
    pub(crate) fn into_pulled(self, reference: Reference, id: &str, size: u64) -> Result<Pulled> {
        let counts = self.0.lock();
        let resolved = counts.resolved.clone().or_else(|| reference.digest().cloned());
        let unresolved = || Error::new(ErrorKind::Internal, format!("pull {reference}: no digest was reported"));
        Ok(Pulled {
            image_id: image_id(id)?,
            digest: resolved.ok_or_else(unresolved)?,
            size,
            fetched_bytes: counts.fetched.values().sum(),
            reference,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_that_is_fetched_again_counts_once() {
        let mut counts = Counts::default();
        let (one, two) = (Digest::sha256(b"1"), Digest::sha256(b"2"));
        for (digest, done) in [(&one, 10), (&one, 60), (&two, 5), (&one, 0), (&one, 70)] {
            counts.add(&PullEvent::Bytes { digest: digest.clone(), done });
        }
        assert_eq!(counts.fetched.values().sum::<u64>(), 75);
    }
}
