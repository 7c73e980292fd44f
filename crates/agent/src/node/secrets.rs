//! [`PullCredentials`]: the credentials of pods. Their pull secrets are among the documents of the sources or in the secrets
//! directory, which is read periodically; accounts are in the latter. If it cannot be read, the last content stays in force.
//! Called by the syncs of pods.

use base::lock::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kuberuntime::pod::Pod;
use kuberuntime::sources::DocumentStore;
use kuberuntime::sync::PodCredentials;
use tokio_util::sync::CancellationToken;

use manifest::{SecretStore, read_directory};

/// The credentials with which pods may pull.
pub(super) struct PullCredentials {
    directory: Option<PathBuf>,
    documents: DocumentStore,
    /// Guards the last content.
    store: RwLock<Arc<SecretStore>>,
    /// Guards the problems that were already logged.
    logged: Mutex<BTreeSet<String>>,
}

/// The secrets directory cannot be read. The text is one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SecretsError(String);

impl PullCredentials {
    /// Reads the directory for the first time.
    ///
    /// # Errors
    /// The directory cannot be read: the configuration names something that does not exist.
    pub(super) async fn read(directory: Option<PathBuf>, documents: DocumentStore) -> Result<Self, SecretsError> {
        let this = Self { directory, documents, store: RwLock::default(), logged: Mutex::default() };
        this.read_again().await.map_err(SecretsError)?;
        Ok(this)
    }

    /// Reads the directory periodically until `stop`.
    pub(super) async fn keep(&self, period: Duration, stop: &CancellationToken) {
        if self.directory.is_none() {
            return;
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(period) => {}
            }
            if let Err(line) = self.read_again().await {
                self.report([format!("{line}; the last content stays in force")].into());
            }
        }
    }

    async fn read_again(&self) -> Result<(), String> {
        let Some(directory) = self.directory.clone() else { return Ok(()) };
        let read = tokio::task::spawn_blocking(move || store(&directory));
        let (store, problems) = read.await.map_err(|_| "secretsDirectory: the reader panicked".to_owned())??;
        *self.store.write() = Arc::new(store);
        self.report(problems);
        Ok(())
    }

    /// Logs the problems that were not logged the last time.
    fn report(&self, problems: BTreeSet<String>) {
        let mut logged = self.logged.lock();
        problems.difference(&logged).for_each(|problem| tracing::warn!(error = %problem, "secrets are left out"));
        *logged = problems;
    }

    /// Returns the credentials of a pod. Secrets next to the pod's manifest take precedence over those of the directory.
    pub(super) fn of(&self, pod: &Pod) -> PodCredentials {
        let store = Arc::clone(&self.store.read());
        let (namespace, spec) = (&pod.metadata.namespace, &pod.spec);
        let account = if spec.service_account_name.is_empty() { "default" } else { &spec.service_account_name };
        let of_manifest = |name: &str| self.documents.pull_secret(namespace, name);
        let resolved = store.resolve_names(namespace, account, &spec.image_pull_secrets, of_manifest);
        PodCredentials { secrets: resolved.secrets, missing: resolved.missing, account: resolved.account }
    }
}

/// Reads the content of the directory, and its problems.
fn store(directory: &Path) -> Result<(SecretStore, BTreeSet<String>), String> {
    let read =
        read_directory(directory).map_err(|error| format!("secretsDirectory {}: {error}", directory.display()))?;
    let problems = read.problems.iter().cloned().chain(read.duplicates()).collect();
    let mut store = SecretStore::default();
    store.add(read.objects);
    Ok((store, problems))
}
