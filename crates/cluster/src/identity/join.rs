//! [`join`]: the first certificate of a node, by a bootstrap kubeconfig, unless there is one that still holds. Called by the binary.

use std::path::{Path, PathBuf};

use image_manager::WallClock;
use kube::config::{Kubeconfig, KubeconfigError};

use super::certificate::Validity;
use super::files::{FileError, IdentityFiles};
use super::signing::{self, SigningError};
use crate::client::{ClientError, ClusterClient};
use crate::retry::Random;

/// Reason for which a node has no identity.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// No certificate was issued.
    #[error("join the cluster by {}", bootstrap.display())]
    Signing {
        /// Path of the kubeconfig that the request was made with; of a renewal the kubeconfig of the node.
        bootstrap: PathBuf,
        /// Refusal, denial or the end of the time for an approval.
        source: SigningError,
    },
    /// The issued certificate cannot be read, or has expired by the clock of the node.
    #[error("join the cluster by {}: the certificate that came cannot be used", bootstrap.display())]
    Certificate {
        /// Path of the kubeconfig that the request was made with.
        bootstrap: PathBuf,
    },
    /// The bootstrap kubeconfig cannot be read a second time, for the kubeconfig that is made of it.
    #[error("kubeconfig {}", path.display())]
    Bootstrap {
        /// Path of the bootstrap kubeconfig.
        path: PathBuf,
        /// Error of the reader.
        source: Box<KubeconfigError>,
    },
    /// No client can be made of a kubeconfig.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The key, the certificate or the kubeconfig of the node cannot be read or written.
    #[error(transparent)]
    Files(#[from] FileError),
    /// The thread that works with the files ended before it answered.
    #[error("join the cluster: interrupted")]
    Interrupted,
}

/// Makes sure that the node has a certificate and a kubeconfig with it; answers false where a kubeconfig with other credentials is
/// there, which is used as it is. Nothing is asked where the certificate holds.
///
/// # Errors
/// [`JoinError`]; a server that is away is waited for.
pub async fn join(
    files: &IdentityFiles,
    bootstrap: &Path,
    node: &str,
    clock: &WallClock,
    random: &Random,
) -> Result<bool, JoinError> {
    let now = clock();
    if blocking(files, |files| Ok(files.are_foreign())).await? {
        return Ok(false);
    }
    if blocking(files, move |files| Ok(files.kubeconfig.exists() && holds(files.validity()?.as_ref(), now))).await? {
        return Ok(true);
    }
    let client = ClusterClient::open(bootstrap).await?;
    let path = bootstrap.to_owned();
    let read = tokio::task::spawn_blocking(move || Kubeconfig::read_from(path)).await;
    let of_bootstrap = read.map_err(|_| JoinError::Interrupted)?;
    let of_bootstrap =
        of_bootstrap.map_err(|source| JoinError::Bootstrap { path: bootstrap.to_owned(), source: Box::new(source) })?;
    obtain(files, &client, bootstrap, node, clock, random).await?;
    blocking(files, move |files| files.write_kubeconfig(&of_bootstrap)).await?;
    tracing::info!(kubeconfig = %files.kubeconfig.display(), "this node has a client certificate");
    Ok(true)
}

/// Returns true for a certificate that exists and has not expired.
fn holds(validity: Option<&Validity>, now: jiff::Timestamp) -> bool {
    validity.is_some_and(|validity| !validity.is_over(now))
}

/// Gets a certificate by this client, and keeps it.
pub(super) async fn obtain(
    files: &IdentityFiles,
    client: &ClusterClient,
    by: &Path,
    node: &str,
    clock: &WallClock,
    random: &Random,
) -> Result<(), JoinError> {
    let key = blocking(files, IdentityFiles::key).await?;
    let signed = signing::certificate(client, node, &key, random).await;
    if matches!(signed, Err(SigningError::Denied { .. } | SigningError::Failed { .. })) {
        // The next try is another request.
        blocking(files, |files| {
            files.drop_key();
            Ok(())
        })
        .await?;
    }
    let certificate = signed.map_err(|source| JoinError::Signing { bootstrap: by.to_owned(), source })?;
    let validity = Validity::of(&certificate);
    if !holds(validity.as_ref(), clock()) {
        blocking(files, |files| {
            files.drop_key();
            Ok(())
        })
        .await?;
        return Err(JoinError::Certificate { bootstrap: by.to_owned() });
    }
    blocking(files, move |files| files.keep(&certificate, &key)).await
}

/// Work with the files, off the async threads.
pub(super) async fn blocking<T: Send + 'static>(
    files: &IdentityFiles,
    work: impl FnOnce(&IdentityFiles) -> Result<T, FileError> + Send + 'static,
) -> Result<T, JoinError> {
    let files = files.clone();
    let done = tokio::task::spawn_blocking(move || work(&files)).await;
    Ok(done.map_err(|_| JoinError::Interrupted)??)
}

#[cfg(test)]
#[path = "join_tests.rs"]
mod tests;
