//! [`PullKey`] and [`LayerKey`]: the keys by which jobs in flight are joined. Plain values, which have a credential only as a
//! digest.

use oci::{Algorithm, Digest, Platform, Reference, RegistryAuth};

use crate::origin::Origin;

/// The identity of a pull job.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PullKey {
    reference: Reference,
    /// Digest of the credential, so that no pull gets content that only another credential may read.
    credential: Digest,
    platform: Platform,
}

impl PullKey {
    /// Makes the key of a pull; `reference` is in canonical form.
    pub(crate) fn new(reference: Reference, auth: Option<&RegistryAuth>, platform: Platform) -> Self {
        Self { reference, credential: identity(auth), platform }
    }
}

/// The identity of a layer job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LayerKey {
    /// Digest of the compressed blob.
    pub(crate) blob: Digest,
    /// Algorithm of the wanted diff ID.
    pub(crate) algorithm: Algorithm,
    /// The only chain that the layer is for, if its implicit directories depend on the layers below it.
    pub(crate) only_for: Option<Digest>,
    /// Where the blob is fetched from.
    pub(crate) origin: Origin,
}

impl LayerKey {
    /// Returns true if both jobs unpack the same blob in the same way, from any origin.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.blob == other.blob && self.algorithm == other.algorithm && self.only_for == other.only_for
    }
}

/// Returns the digest that stands for a credential in a key: equal credentials have equal digests, and the credential cannot be
/// read from it.
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
    fn different_credentials_have_different_identities() {
        let a = identity(Some(&RegistryAuth::basic("ab", "c")));
        assert_eq!(a, identity(Some(&RegistryAuth::basic("ab", "c"))));
        assert_ne!(a, identity(Some(&RegistryAuth::basic("a", "bc"))));
        assert_ne!(a, identity(None));
        assert_eq!(identity(None), identity(Some(&RegistryAuth::default())));
    }
}
