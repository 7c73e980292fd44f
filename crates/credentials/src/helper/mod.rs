//! [`get`]: asks a docker credential helper (`docker-credential-NAME get`) for the credential of a registry; [`store`] and
//! [`erase`] change its content. The standard output of a helper is never shown. The keyring calls this for `credHelpers`
//! and `credsStore`, and so do `login` and `logout`.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use oci::{RegistryAuth, Secret};
use tracing::debug;

use crate::exec::ended;
use crate::process::{self, ProcessSpec};

/// How helpers are run.
#[derive(Clone)]
pub struct HelperOptions {
    /// The directories of helpers, as in `PATH`. Without it there are no helpers.
    pub path: Option<OsString>,
    /// Environment of the helper.
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

/// Why a helper gave no answer. Does not name the helper, which the caller does, and quotes nothing of its answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HelperError(String);

/// Prefix of the names of helpers.
const PREFIX: &str = "docker-credential-";
/// Output of a helper that has no credential for the server.
const NOT_FOUND: &str = "credentials not found in native keychain";
/// Further texts on the standard output of helpers that are no secrets.
const SAYINGS: [&str; 2] = ["no credentials server URL", "no credentials username"];
/// The user name that makes the secret an identity token.
const IDENTITY: &str = "<token>";

/// The credential that the helper `helper` (without `docker-credential-`) holds for `server`. `None` when it holds
/// none. A user name of `<token>` makes it an identity token. Callers that go away take the helper's processes along.
///
/// # Errors
/// The helper is missing, fails, takes too long, or prints something that is no answer.
pub async fn get(helper: &str, server: &str, options: &HelperOptions) -> Result<Option<RegistryAuth>, HelperError> {
    ask(helper, server, options).await.map_err(HelperError)
}

async fn ask(helper: &str, server: &str, options: &HelperOptions) -> Result<Option<RegistryAuth>, String> {
    let program = program_of(helper, options).await?;
    debug!(helper, server, "asking a credential helper");
    let run = ProcessSpec {
        program: &program,
        arguments: &["get".to_owned()],
        environment: &options.environment,
        input: server.as_bytes(),
        timeout: options.timeout,
        secrets: &[],
    };
    let ran = process::run(&run).await.map_err(|e| e.to_string())?;
    if ran.status.success() {
        return answer(&ran.stdout);
    }
    let said = std::str::from_utf8(&ran.stdout).unwrap_or_default().trim();
    if said == NOT_FOUND {
        return Ok(None);
    }
    let mut cause = ended(ran.status);
    if SAYINGS.contains(&said) {
        cause = format!("{cause}: {said}");
    }
    // The output may be an answer all the same, and its secret may also occur in the error message.
    let (_, secret) = read(&ran.stdout).unwrap_or_default();
    let complaint = ran.complaint(&[secret.expose()]);
    Err(if complaint.is_empty() { cause } else { format!("{cause}: {complaint}") })
}

/// Has the helper `helper` keep a credential for `server`.
///
/// # Errors
/// The helper is missing, fails or takes too long.
pub async fn store(
    helper: &str,
    server: &str,
    user: &str,
    password: &Secret,
    options: &HelperOptions,
) -> Result<(), HelperError> {
    let input = serde_json::json!({ "ServerURL": server, "Username": user, "Secret": password.expose() });
    let input = zeroize::Zeroizing::new(input.to_string());
    change(helper, "store", &input, &[password.expose()], options).await.map_err(HelperError)
}

/// Has the helper `helper` forget what it holds for `server`.
///
/// # Errors
/// The helper is missing, fails or takes too long.
pub async fn erase(helper: &str, server: &str, options: &HelperOptions) -> Result<(), HelperError> {
    change(helper, "erase", server, &[], options).await.map_err(HelperError)
}

async fn change(
    helper: &str,
    verb: &str,
    input: &str,
    secrets: &[&str],
    options: &HelperOptions,
) -> Result<(), String> {
    let program = program_of(helper, options).await?;
    let run = ProcessSpec {
        program: &program,
        arguments: &[verb.to_owned()],
        environment: &options.environment,
        input: input.as_bytes(),
        timeout: options.timeout,
        secrets,
    };
    let ran = process::run(&run).await.map_err(|e| e.to_string())?;
    let said = std::str::from_utf8(&ran.stdout).unwrap_or_default().trim();
    if ran.status.success() || said == NOT_FOUND {
        return Ok(());
    }
    let complaint = ran.complaint(&[]);
    let cause = ended(ran.status);
    Err(if complaint.is_empty() { cause } else { format!("{cause}: {complaint}") })
}

async fn program_of(helper: &str, options: &HelperOptions) -> Result<PathBuf, String> {
    if helper.is_empty() || helper.contains(['/', '\0']) {
        return Err("this is not the name of a helper".to_owned());
    }
    find(&format!("{PREFIX}{helper}"), options).await
}

/// The program in the first directory of the search path that has it.
async fn find(name: &str, options: &HelperOptions) -> Result<PathBuf, String> {
    let Some(path) = &options.path else { return Err("there is no PATH to search it in".to_owned()) };
    // As in Go, what is relative to the working directory does not count.
    for directory in std::env::split_paths(path).filter(|directory| directory.is_absolute()) {
        let program = directory.join(name);
        if tokio::fs::metadata(&program).await.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0) {
            return Ok(program);
        }
    }
    Err("it is not in any directory of PATH, or may not be executed".to_owned())
}

/// Parses an answer, for the fuzzer.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzzed_answer(bytes: &[u8]) {
    let _ = read(bytes);
}

/// User name and secret. The parser's own words would quote what it met.
fn read(stdout: &[u8]) -> Option<(String, Secret)> {
    // A structure could be given as a list of its values as well.
    let object = Some(stdout).filter(|text| text.trim_ascii_start().starts_with(b"{"))?;
    let HelperOutput { username, secret } = serde_json::from_slice(object).ok()?;
    Some((username.unwrap_or_default(), Secret::new(secret.unwrap_or_default())))
}

/// Output of a helper. Further fields are ignored.
#[derive(serde::Deserialize)]
struct HelperOutput {
    #[serde(rename = "Username", alias = "username", default)]
    username: Option<String>,
    #[serde(rename = "Secret", alias = "secret", default)]
    secret: Option<String>,
}

fn answer(stdout: &[u8]) -> Result<Option<RegistryAuth>, String> {
    let (username, secret) = read(stdout).ok_or("its answer is not the JSON that helpers print")?;
    Ok(match username.as_str() {
        "" if secret.is_empty() => None,
        IDENTITY => Some(RegistryAuth { identity_token: secret, ..RegistryAuth::default() }),
        _ => Some(RegistryAuth { username, password: secret, ..RegistryAuth::default() }),
    })
}

#[cfg(test)]
#[path = "mod_tests.rs"]
mod tests;
