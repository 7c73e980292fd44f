//! [`TagResolver`]: from references to digests. [`RegistryResolver`] asks the registries; tests have one of their own. A digest costs one
//! HEAD, which registries with a limit on pulls do not count.

use async_trait::async_trait;
use credentials::{Keyring, KeyringOptions, PullSecret, Requester};
use futures::StreamExt as _;
use oci::{Reference, RegistryAuth};
use registry::{Client, ErrorKind, RegistryError};

use crate::api::{MAX_MESSAGE, ResolvedImage, SetImage};

/// Number of references of one set that are resolved at the same time.
const PARALLEL: usize = 4;

/// Resolves references.
#[async_trait]
pub trait TagResolver: Send + Sync {
    /// Returns the images in the same order; those that cannot be resolved have a reason and a message instead of a digest.
    async fn resolve(&self, images: &[SetImage], secrets: &[PullSecret]) -> Vec<ResolvedImage>;
}

/// Resolves references by their registries.
pub struct RegistryResolver {
    client: Client,
    keyring: Keyring,
}

impl RegistryResolver {
    /// Creates a resolver that reaches registries by this client, with the credentials of pull secrets alone.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, keyring: Keyring::new(KeyringOptions::default()) }
    }

    async fn resolve_one(&self, image: SetImage, requester: &Requester) -> ResolvedImage {
        let digest = self.digest(&image.name, requester).await;
        let resolved = ResolvedImage { name: image.name, pull_policy: image.pull_policy, ..ResolvedImage::default() };
        match digest {
            Ok(digest) => ResolvedImage { digest: Some(digest), ..resolved },
            Err((reason, message)) => ResolvedImage {
                reason: Some(reason.to_owned()),
                message: Some(message.chars().take(MAX_MESSAGE).collect()),
                ..resolved
            },
        }
    }

    async fn digest(&self, name: &str, requester: &Requester) -> Result<String, (&'static str, String)> {
        let reference = Reference::parse(name).map_err(|error| ("InvalidReference", error.to_string()))?;
        if let Some(digest) = reference.digest() {
            return Ok(digest.to_string());
        }
        let candidates = self.keyring.secrets_only(&reference, requester);
        let candidates = candidates.map_err(|error| ("InvalidSecret", error.to_string()))?.candidates;
        let mut auths: Vec<Option<RegistryAuth>> =
            candidates.into_iter().map(|candidate| Some(candidate.auth)).collect();
        if auths.is_empty() {
            auths.push(None);
        }
        let mut last = ("Unresolved", String::new());
        for auth in auths {
            match self.ask(&reference, auth).await {
                Ok(digest) => return Ok(digest),
                Err(error) => last = (reason(error.kind()), one_line(&error)),
            }
        }
        Err(last)
    }

    async fn ask(&self, reference: &Reference, auth: Option<RegistryAuth>) -> Result<String, RegistryError> {
        let repository = self.client.repository(reference, auth)?;
        match repository.probe().await {
            Some(digest) => Ok(digest.to_string()),
            // A registry that does not answer HEAD, or one whose error a GET names.
            None => Ok(repository.resolve().await?.digest.to_string()),
        }
    }
}

#[async_trait]
impl TagResolver for RegistryResolver {
    async fn resolve(&self, images: &[SetImage], secrets: &[PullSecret]) -> Vec<ResolvedImage> {
        let requester = Requester { secrets: secrets.to_vec(), ..Requester::default() };
        let requester = &requester;
        let all = futures::stream::iter(images.to_vec()).map(|image| self.resolve_one(image, requester));
        all.buffered(PARALLEL).collect().await
    }
}

const fn reason(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "NotFound",
        ErrorKind::Unauthenticated => "Unauthenticated",
        ErrorKind::PermissionDenied => "PermissionDenied",
        ErrorKind::RateLimited => "RateLimited",
        ErrorKind::Unavailable => "RegistryUnavailable",
        ErrorKind::InvalidContent => "InvalidContent",
        ErrorKind::InvalidReference => "InvalidReference",
        ErrorKind::Config => "HostConfiguration",
    }
}

/// Returns the error and its causes in one line.
fn one_line(error: &RegistryError) -> String {
    cri_api::Error::from_source(cri_api::Kind::Unknown, error).message().to_owned()
}
