//! [`PullKey`] and [`LayerKey`]: the keys by which jobs in flight are joined. Plain values, which have a credential only as its
//! ID.

use oci::{Algorithm, CredentialId, Digest, Platform, Reference, RegistryAuth};

use crate::origin::Origin;

/// The identity of a pull job.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PullKey {
    reference: Reference,
    /// The credential, so that no pull gets content that only another credential may read.
    credential: CredentialId,
    platform: Platform,
}

impl PullKey {
    /// Makes the key of a pull; `reference` is in canonical form.
    pub(crate) fn new(reference: Reference, auth: Option<&RegistryAuth>, platform: Platform) -> Self {
        let credential = auth.map_or_else(CredentialId::anonymous, RegistryAuth::id);
        Self { reference, credential, platform }
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
