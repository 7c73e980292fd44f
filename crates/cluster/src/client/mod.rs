//! [`ClusterClient`]: the client of the API server, made from a kubeconfig file and rebuilt when a file of its credentials
//! changes. A request is sent once; the caller decides whether, and when, to retry.

mod connect;
mod failure;
mod files;
mod kubeconfig;
mod patience;
pub(crate) mod request;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::lock::{Mutex, RwLock};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) use failure::chain;
pub use failure::{Failure, failure, text};
use files::CredentialFiles;
pub use kubeconfig::ClientError;
pub use patience::within;

/// Interval at which the files of credentials are checked.
const CHECK: Duration = Duration::from_secs(2);

/// The client of the API server. Clones share connections and credentials.
#[derive(Clone)]
pub struct ClusterClient {
    shared: Arc<Shared>,
}

struct Shared {
    /// The kubeconfig file; `None` for a client that stays as it is.
    path: Option<PathBuf>,
    /// Guards the client in use.
    current: RwLock<kube::Client>,
    /// Guards the files as they were when a client was last made of them, or could not be.
    files: Mutex<CredentialFiles>,
    /// Counts renewals.
    renewals: watch::Sender<u64>,
}

impl ClusterClient {
    /// Reads the kubeconfig file. Sends nothing yet; starts its exec plugin, if it names one.
    pub async fn open(path: &Path) -> Result<Self, ClientError> {
        let (client, files) = kubeconfig::client(path).await?;
        Ok(Self::with(Some(path.to_owned()), client, files))
    }

    /// Creates a client with the service account of the pod that this process runs in. Sends nothing yet.
    pub fn in_cluster() -> Result<Self, ClientError> {
        kubeconfig::in_cluster().map(Self::fixed)
    }

    /// Creates a client of the files that `$KUBECONFIG` lists, merged as kubectl merges them, for a command that ends soon: changed files
    /// are not read again. Sends nothing yet; starts the exec plugin, if the context has one.
    pub async fn open_merged(paths: &[PathBuf]) -> Result<Self, ClientError> {
        kubeconfig::merged(paths).await.map(Self::fixed)
    }

    /// Returns the namespace of the credentials: that of the kubeconfig's context, or of the pod.
    #[must_use]
    pub fn default_namespace(&self) -> String {
        self.shared.current.read().default_namespace().to_owned()
    }

    /// Creates a client without reloads.
    #[must_use]
    pub fn fixed(client: kube::Client) -> Self {
        Self::with(None, client, CredentialFiles::default())
    }

    fn with(path: Option<PathBuf>, client: kube::Client, files: CredentialFiles) -> Self {
        let (current, files, renewals) = (RwLock::new(client), Mutex::new(files), watch::Sender::new(0));
        let shared = Shared { path, current, files, renewals };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the client to use now. Call it for each request, and keep a client only as long as a watch.
    #[must_use]
    pub fn current(&self) -> kube::Client {
        self.shared.current.read().clone()
    }

    /// Changes when the client was rebuilt. Watches then have to start again, because they still use the old credentials.
    #[must_use]
    pub fn renewals(&self) -> watch::Receiver<u64> {
        self.shared.renewals.subscribe()
    }

    /// Reads the kubeconfig file again and opens new connections from now on. After an error the old client stays.
    pub async fn renew(&self) -> Result<(), ClientError> {
        let Some(path) = &self.shared.path else {
            return Ok(());
        };
        let (client, files) = kubeconfig::client(path).await?;
        *self.shared.current.write() = client;
        *self.shared.files.lock() = files;
        self.shared.renewals.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Rebuilds the client whenever the kubeconfig or a file that it names was replaced, until `stop`. Files that do not fit
    /// together are reported, and tried again when one of them changes.
    pub async fn follow_files(&self, stop: &CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(CHECK)).await.is_some() {
            let before = self.shared.files.lock().clone();
            let known = before.clone();
            let Ok(now) = tokio::task::spawn_blocking(move || known.restat()).await else { continue };
            if now == before {
                continue;
            }
            match self.renew().await {
                Ok(()) => tracing::info!("the credentials of this node changed on disk and are used from now on"),
                Err(error) => {
                    tracing::warn!(
                        error = chain(&error),
                        "the credentials of this node changed on disk, and cannot be used"
                    );
                    *self.shared.files.lock() = now;
                }
            }
        }
    }
}

impl std::fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterClient").field("path", &self.shared.path).finish_non_exhaustive()
    }
}
