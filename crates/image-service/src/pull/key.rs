//! [`PullKey`] and [`LayerKey`]: the keys by which jobs in flight are joined, and [`Names`], under which an image is recorded. Plain values;
//! a credential is in them only as a digest. Used by the pull, its layer jobs and the tables of both.

use oci::{Algorithm, Digest, Platform, Reference, RegistryAuth};

use crate::origin::Origin;

/// The identity of a pull job.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PullKey {
    reference: Reference,
    /// Digest of the credential, so that no pull gets content that only another credential may see.
    identity: Digest,
    platform: Platform,
}

impl PullKey {
    /// `reference` is in canonical form.
    pub(crate) fn new(reference: Reference, auth: Option<&RegistryAuth>, platform: Platform) -> Self {
        Self { reference, identity: identity(auth), platform }
    }
}

/// Names to record of an image, in normal form; `None` adds none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) tag: Option<String>,
    pub(crate) repo_digest: Option<String>,
}

/// The identity of a layer job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LayerKey {
    /// Digest of the compressed blob.
    pub(crate) blob: Digest,
    /// Algorithm of the diff id that is wanted.
    pub(crate) algorithm: Algorithm,
    /// Set where the layer must not be shared with other stacks, since its implicit directories depend on what is below.
    pub(crate) only_for: Option<Digest>,
    /// Where the blob comes from.
    pub(crate) origin: Origin,
}

impl LayerKey {
    /// Returns true if both jobs make the same of the same blob, wherever it comes from.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.blob == other.blob && self.algorithm == other.algorithm && self.only_for == other.only_for
    }
}

/// Stands for a credential in a key: equal credentials have equal identities, and nothing can be read from it.
fn identity(auth: Option<&RegistryAuth>) -> Digest {
    let mut hasher = oci::Algorithm::Sha256.hasher();
    if let Some(auth) = auth.filter(|auth| !auth.is_anonymous()) {
        let parts = [
            auth.username.as_str(),
            auth.password.expose(),
            auth.auth.expose(),
            auth.server_address.as_str(),
            auth.identity_token.expose(),
            auth.registry_token.expose(),
        ];
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_tell_credentials_apart() {
        let a = identity(Some(&RegistryAuth::basic("ab", "c")));
        assert_eq!(a, identity(Some(&RegistryAuth::basic("ab", "c"))));
        assert_ne!(a, identity(Some(&RegistryAuth::basic("a", "bc"))));
        assert_ne!(a, identity(None));
        assert_eq!(identity(None), identity(Some(&RegistryAuth::default())));
    }
}
