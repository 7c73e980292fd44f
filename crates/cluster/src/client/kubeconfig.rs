//! From a kubeconfig file to a client. Every error names the file. Called by [`super::ClusterClient`].

use std::path::{Path, PathBuf};

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::connect;

/// Why there is no client of the API server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("kubeconfig {}", path.display())]
    Read { path: PathBuf, source: Box<KubeconfigError> },
    #[error("kubeconfig {}: the credentials cannot be used", path.display())]
    Credentials { path: PathBuf, source: Box<kube::Error> },
    #[error("kubeconfig {}: the cluster has a proxy-url, and this node reaches its API server without a proxy", path.display())]
    Proxy { path: PathBuf },
    #[error("kubeconfig {}: the reader ended early", path.display())]
    Interrupted { path: PathBuf },
}

/// Reads the file and makes a client of it.
pub(super) async fn client(path: &Path) -> Result<kube::Client, ClientError> {
    let config = config(path).await?;
    // An exec plugin is a program that runs while this waits.
    let made = tokio::task::spawn_blocking(move || connect::service(&config)).await;
    let made = made.map_err(|_| ClientError::Interrupted { path: path.to_owned() })?;
    made.map_err(|source| ClientError::Credentials { path: path.to_owned(), source: Box::new(source) })
}

/// Reads the file.
async fn config(path: &Path) -> Result<Config, ClientError> {
    let error = |source| ClientError::Read { path: path.to_owned(), source: Box::new(source) };
    let file = path.to_owned();
    let read = tokio::task::spawn_blocking(move || Kubeconfig::read_from(file)).await;
    let kubeconfig = read.map_err(|_| ClientError::Interrupted { path: path.to_owned() })?.map_err(error)?;
    let clusters = kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref());
    if clusters.into_iter().any(|cluster| cluster.proxy_url.as_deref().is_some_and(|url| !url.is_empty())) {
        return Err(ClientError::Proxy { path: path.to_owned() });
    }
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(error)
}

#[cfg(test)]
#[path = "kubeconfig_tests.rs"]
mod tests;
