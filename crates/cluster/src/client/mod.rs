//! [`ClusterClient`]: the client of the API server, made from a kubeconfig file and made anew when its credentials change. A
//! request is sent once: whoever asks decides whether, and when, to ask again.

mod connect;
mod failure;
mod kubeconfig;
mod patience;
pub(crate) mod request;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::watch;

pub(crate) use failure::chain;
pub use failure::{Failure, failure, text};
pub use kubeconfig::ClientError;
pub use patience::within;

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
    /// Counts renewals.
    renewals: watch::Sender<u64>,
}

impl ClusterClient {
    /// Reads the kubeconfig file. Sends nothing yet; starts its exec plugin, if it names one.
    pub async fn open(path: &Path) -> Result<Self, ClientError> {
        let client = kubeconfig::client(path).await?;
        Ok(Self::with(Some(path.to_owned()), client))
    }

    /// A client that stays as it is.
    #[must_use]
    pub fn fixed(client: kube::Client) -> Self {
        Self::with(None, client)
    }

    fn with(path: Option<PathBuf>, client: kube::Client) -> Self {
        let shared = Shared { path, current: RwLock::new(client), renewals: watch::Sender::new(0) };
        Self { shared: Arc::new(shared) }
    }

    /// The client to use now. Take it for each request anew, and hold it only as long as a watch.
    #[must_use]
    pub fn current(&self) -> kube::Client {
        self.shared.current.read().clone()
    }

    /// Changes when the client was made anew: watches then start anew, since theirs has the old credentials.
    #[must_use]
    pub fn renewals(&self) -> watch::Receiver<u64> {
        self.shared.renewals.subscribe()
    }

    /// Reads the kubeconfig file again and opens new connections from now on. After an error the old client stays.
    pub async fn renew(&self) -> Result<(), ClientError> {
        let Some(path) = &self.shared.path else {
            return Ok(());
        };
        let client = kubeconfig::client(path).await?;
        *self.shared.current.write() = client;
        self.shared.renewals.send_modify(|count| *count += 1);
        Ok(())
    }
}

impl std::fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterClient").field("path", &self.shared.path).finish_non_exhaustive()
    }
}
