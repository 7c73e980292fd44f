//! From a kubeconfig file to a client. Every error names the file. Called by [`super::ClusterClient`].

use std::path::{Path, PathBuf};

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::connect;
use super::files::CredentialFiles;

/// Reason for which there is no client of the API server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig, or a file that it names, cannot be read or has the wrong form.
    #[error("kubeconfig {}", path.display())]
    Read {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// Error of the reader.
        source: Box<KubeconfigError>,
    },
    /// No client can be made of the credentials: a key that is no key, or an exec plugin that fails.
    #[error("kubeconfig {}: the credentials cannot be used", path.display())]
    Credentials {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// Error of the client's construction.
        source: Box<kube::Error>,
    },
    /// The cluster has a `proxy-url`, which is not supported.
    #[error("kubeconfig {}: the cluster has a proxy-url, and this node reaches its API server without a proxy", path.display())]
    Proxy {
        /// Path of the kubeconfig.
        path: PathBuf,
    },
    /// The process runs in no pod with a service account, or the account's files cannot be used.
    #[error("service account of this pod")]
    InCluster {
        /// Error of the reader.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The thread that reads the files ended before it answered.
    #[error("kubeconfig {}: the reader ended early", path.display())]
    Interrupted {
        /// Path of the kubeconfig.
        path: PathBuf,
    },
}

/// Reads the file and makes a client of it. Answers the files that were read, too.
pub(super) async fn client(path: &Path) -> Result<(kube::Client, CredentialFiles), ClientError> {
    let (config, files) = config(path).await?;
    // An exec plugin is a program that runs while this waits.
    let made = tokio::task::spawn_blocking(move || connect::service(&config)).await;
    let made = made.map_err(|_| ClientError::Interrupted { path: path.to_owned() })?;
    let client = made.map_err(|source| ClientError::Credentials { path: path.to_owned(), source: Box::new(source) })?;
    Ok((client, files))
}

/// Makes a client of the service account of the pod that this process runs in. The token is read again when it changes.
pub(super) fn in_cluster() -> Result<kube::Client, ClientError> {
    let config = Config::incluster().map_err(|source| ClientError::InCluster { source: source.into() })?;
    connect::service(&config).map_err(|source| ClientError::InCluster { source: source.into() })
}

/// Reads the file. The identity of every file is recorded before the read, so that a change in between is detected later.
async fn config(path: &Path) -> Result<(Config, CredentialFiles), ClientError> {
    let error = |source| ClientError::Read { path: path.to_owned(), source: Box::new(source) };
    let file = path.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let mut files = CredentialFiles::of(&file);
        let kubeconfig = Kubeconfig::read_from(file)?;
        files.add_named(&kubeconfig);
        Ok((kubeconfig, files))
    });
    let read = read.await.map_err(|_| ClientError::Interrupted { path: path.to_owned() })?;
    let (kubeconfig, files) = read.map_err(error)?;
    let clusters = kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref());
    if clusters.into_iter().any(|cluster| cluster.proxy_url.as_deref().is_some_and(|url| !url.is_empty())) {
        return Err(ClientError::Proxy { path: path.to_owned() });
    }
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(error)?;
    Ok((config, files))
}

#[cfg(test)]
#[path = "kubeconfig_tests.rs"]
mod tests;
