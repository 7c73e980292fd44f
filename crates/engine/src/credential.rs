//! [`Credential`] of a pull, and [`DockerConfig`], which looks one up in a file of docker or podman. Never prints a secret.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use credentials::helper::HelperOptions;
use credentials::{Keyring, KeyringOptions, NodeFiles, Requester};
use oci::{Reference, RegistryAuth, Secret};

use crate::error::{Error, ErrorKind, Result};

/// A credential for a registry. It is sent to the registry of the pulled reference and its token service only. The default is anonymous.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credential(RegistryAuth);

impl Credential {
    /// Returns the credential of a user name and a password or access token.
    #[must_use]
    pub fn basic(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self(RegistryAuth::basic(username, password))
    }

    /// Returns the credential of a bearer token, which is sent to the registry as it is.
    #[must_use]
    pub fn bearer(token: impl Into<String>) -> Self {
        Self(RegistryAuth { registry_token: Secret::new(token), ..RegistryAuth::default() })
    }

    /// Returns the credential of an OAuth 2 refresh token, which the registry's token service exchanges for an access token.
    #[must_use]
    pub fn identity_token(token: impl Into<String>) -> Self {
        Self(RegistryAuth { identity_token: Secret::new(token), ..RegistryAuth::default() })
    }

    pub(crate) fn into_auth(self) -> RegistryAuth {
        self.0
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_anonymous() { "Credential(anonymous)" } else { "Credential(…)" })
    }
}

/// Credentials in a file of docker (`config.json`) or podman (`auth.json`), and in the credential helpers that it names.
#[derive(Debug)]
pub struct DockerConfig {
    keyring: Keyring,
    files: NodeFiles,
}

impl DockerConfig {
    /// Uses the file at `path`, or `config.json` in the directory at `path`. The file is read when a credential is looked up, and again
    /// when it has changed. A missing file has no credentials.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::of_files(NodeFiles { paths: vec![path.into()], ..NodeFiles::default() }, HelperOptions::default())
    }

    /// Permits the credential helpers that the file names (`docker-credential-…`). They are searched for in `path`, which has the form of
    /// `PATH`, and run with these environment variables only.
    #[must_use]
    pub fn with_helpers(
        self,
        path: impl Into<OsString>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        let environment = environment.into_iter().collect();
        let helpers = HelperOptions { path: Some(path.into()), environment, ..HelperOptions::default() };
        Self::of_files(self.files, helpers)
    }

    fn of_files(files: NodeFiles, helpers: HelperOptions) -> Self {
        let options = KeyringOptions { node_files: files.clone(), helpers, ..KeyringOptions::default() };
        Self { keyring: Keyring::new(options), files }
    }

    /// Returns the most specific credential for the repository of `reference`, or the anonymous one if there is none.
    ///
    /// # Errors
    /// No credential was found, and the file or a helper could not be read: the pull would be anonymous by mistake.
    pub async fn credential(&self, reference: &Reference) -> Result<Credential> {
        let found = self.keyring.candidates(reference, &Requester::default()).await;
        let failed = |problem: String| {
            let message = format!("look up a credential for {}: {problem}", reference.repository());
            Error::new(ErrorKind::InvalidArgument, message)
        };
        let found = found.map_err(|error| failed(error.to_string()))?;
        match found.candidates.into_iter().next() {
            Some(candidate) => Ok(Credential(candidate.auth)),
            None if found.notes.is_empty() => Ok(Credential::default()),
            None => Err(failed(found.notes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))),
        }
    }
}
