//! [`get`]: asks a docker credential helper (`docker-credential-NAME get`) for the credential of a registry. What it
//! prints to its standard output is never shown to anybody. The keyring calls this for `credHelpers` and `credsStore`.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use oci::RegistryAuth;

/// How helpers are run.
#[derive(Clone)]
pub struct HelperOptions {
    /// The directories in which a helper is looked up, as in `PATH`. Without it there are no helpers.
    pub path: Option<OsString>,
    /// Its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// How long one run may take.
    pub timeout: Duration,
}

impl Default for HelperOptions {
    fn default() -> Self {
        Self { path: None, environment: Vec::new(), timeout: Duration::from_secs(30) }
    }
}

impl fmt::Debug for HelperOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the environment: it may hold secrets.
        f.debug_struct("HelperOptions")
            .field("path", &self.path)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Why a helper gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct HelperError(String);

/// The credential that the helper `helper` (without `docker-credential-`) holds for `server`. `None` when it holds
/// none. A user name of `<token>` makes it an identity token.
///
/// # Errors
/// The helper is missing, fails, takes too long, or prints something that is no answer.
pub async fn get(helper: &str, _server: &str, _options: &HelperOptions) -> Result<Option<RegistryAuth>, HelperError> {
    Err(HelperError(format!("docker-credential-{helper}: credential helpers cannot be run yet")))
}
