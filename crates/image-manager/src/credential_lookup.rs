//! [`CredentialLookup`]: the credentials of one request, looked up when they are first needed and at most once, because
//! a look-up may run programs. Nothing is logged or recorded here; the manager makes one for each request.

use std::sync::Arc;

use credentials::{Candidate, Keyring, KeyringError, Note, Requester};

use crate::requested_image::RequestedImage;
use crate::{EnsureImageError, EnsureImageRequest};

/// The credentials of one request.
pub(crate) struct CredentialLookup<'a> {
    keyring: Option<&'a Keyring>,
    request: &'a EnsureImageRequest,
    /// The name that is pulled.
    image: &'a RequestedImage<'a>,
    requester: Option<Requester>,
    found: Option<Result<ResolvedCredentials, Arc<KeyringError>>>,
}

/// Answer of a look-up.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedCredentials {
    /// In the order in which they are tried. Empty: the pull is anonymous.
    pub(crate) candidates: Arc<[Candidate]>,
    /// Credentials that were left out, each with the reason.
    pub(crate) notes: Arc<[Note]>,
}

impl<'a> CredentialLookup<'a> {
    pub(crate) fn new(
        keyring: Option<&'a Keyring>,
        request: &'a EnsureImageRequest,
        image: &'a RequestedImage<'a>,
    ) -> Self {
        Self { keyring, request, image, requester: None, found: None }
    }

    /// The name that is pulled.
    pub(crate) fn image(&self) -> &'a RequestedImage<'a> {
        self.image
    }

    /// Returns the requester of the pull.
    pub(crate) fn requester(&mut self) -> &Requester {
        requester(&mut self.requester, self.request)
    }

    /// The credentials that may be tried.
    pub(crate) async fn resolve(&mut self) -> Result<ResolvedCredentials, EnsureImageError> {
        if self.found.is_none() {
            let answer = match self.keyring {
                Some(keyring) => {
                    let requester = requester(&mut self.requester, self.request);
                    // Boxed, so that requests which need no credential do not carry the room for a look-up.
                    Box::pin(keyring.candidates(self.image.reference(), requester)).await
                }
                None => Ok(credentials::Candidates::default()),
            };
            let found = answer
                .map(|answer| ResolvedCredentials { candidates: answer.candidates.into(), notes: answer.notes.into() });
            self.found = Some(found.map_err(Arc::new));
        }
        let found = self.found.clone().expect("it was just looked up");
        found.map_err(|source| EnsureImageError::Credentials { source })
    }

    /// The same, for pull records.
    pub(crate) async fn candidates(&mut self) -> Result<Arc<[Candidate]>, EnsureImageError> {
        self.resolve().await.map(|found| found.candidates)
    }
}

fn requester<'r>(requester: &'r mut Option<Requester>, request: &EnsureImageRequest) -> &'r Requester {
    requester.get_or_insert_with(|| request.requester())
}
