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
    let (kubeconfig, files) = read_file(path).await?;
    let config = usable(kubeconfig, path).await?;
    Ok((connected(config, path).await?, files))
}

async fn connected(config: Config, path: &Path) -> Result<kube::Client, ClientError> {
    // An exec plugin is a program that runs while this waits.
    let made = tokio::task::spawn_blocking(move || connect::service(&config)).await;
    let made = made.map_err(|_| ClientError::Interrupted { path: path.to_owned() })?;
    made.map_err(|source| ClientError::Credentials { path: path.to_owned(), source: Box::new(source) })
}

/// Makes a client of several files, as kubectl merges them: the first one that has a value decides. Files that do not exist are left out
/// unless there is no other one.
pub(super) async fn merged(paths: &[PathBuf]) -> Result<kube::Client, ClientError> {
    let existing: Vec<&PathBuf> = paths.iter().filter(|path| path.exists()).collect();
    let read = if existing.is_empty() { paths.iter().collect() } else { existing };
    let first = read.first().map_or_else(PathBuf::new, |path| (*path).clone());
    let mut all = Kubeconfig::default();
    for path in read {
        let (kubeconfig, _) = read_file(path).await?;
        let error = |source| ClientError::Read { path: path.clone(), source: Box::new(source) };
        all = all.merge(kubeconfig).map_err(error)?;
    }
    let config = usable(all, &first).await?;
    connected(config, &first).await
}

/// Makes a client of the service account of the pod that this process runs in. The token is read again when it changes.
pub(super) fn in_cluster() -> Result<kube::Client, ClientError> {
    let config = Config::incluster().map_err(|source| ClientError::InCluster { source: source.into() })?;
    connect::service(&config).map_err(|source| ClientError::InCluster { source: source.into() })
}

/// Reads the file. The identity of every file is recorded before the read, so that a change in between is detected later.
async fn read_file(path: &Path) -> Result<(Kubeconfig, CredentialFiles), ClientError> {
    let error = |source| ClientError::Read { path: path.to_owned(), source: Box::new(source) };
    let file = path.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let mut files = CredentialFiles::of(&file);
        let kubeconfig = Kubeconfig::read_from(file)?;
        files.add_named(&kubeconfig);
        Ok((kubeconfig, files))
    });
    let read = read.await.map_err(|_| ClientError::Interrupted { path: path.to_owned() })?;
    read.map_err(error)
}

/// Returns the configuration of the current context.
async fn usable(kubeconfig: Kubeconfig, path: &Path) -> Result<Config, ClientError> {
    let clusters = kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref());
    if clusters.into_iter().any(|cluster| cluster.proxy_url.as_deref().is_some_and(|url| !url.is_empty())) {
        return Err(ClientError::Proxy { path: path.to_owned() });
    }
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.map_err(|source| ClientError::Read { path: path.to_owned(), source: Box::new(source) })
}

#[cfg(test)]
#[path = "kubeconfig_tests.rs"]
mod tests;
