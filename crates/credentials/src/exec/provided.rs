//! [`Provided`]: the answer of all providers for one image. Plain data.

use oci::RegistryAuth;

use crate::{Note, Source};

/// Answers of the providers for an image.
#[derive(Clone, Debug, Default)]
pub struct Provided {
    /// Credentials in the order of the configuration, each with the pattern of images that it is for. They are not
    /// yet narrowed to the image.
    pub entries: Vec<ProvidedEntry>,
    /// Errors of providers.
    pub notes: Vec<Note>,
}

/// A credential of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvidedEntry {
    /// The images that it is for: a pattern as in a docker configuration.
    pub location: String,
    /// The credential.
    pub auth: RegistryAuth,
    /// The provider, with the service account where one was used.
    pub source: Source,
}
