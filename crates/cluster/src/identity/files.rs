//! [`IdentityFiles`]: the key, the certificate and the kubeconfig of a node that joined by itself. Each is whole or not there, and no
//! other user can read them. Blocks for as long as small files take. Called by [`super::join`] and [`super::rotation`].

use std::fs;
use std::io;
use std::path::PathBuf;

use base::write_private;
use kube::config::{AuthInfo, Context, Kubeconfig, NamedAuthInfo, NamedContext};
use oci::Secret;

use super::certificate::Validity;
use super::request::ClientKey;

/// Names in the kubeconfig.
const NAME: &str = "imagelet";

/// Paths of the files.
#[derive(Clone, Debug)]
pub struct IdentityFiles {
    /// Directory of key and certificate.
    pub directory: PathBuf,
    /// The kubeconfig that names them.
    pub kubeconfig: PathBuf,
}

/// A file of the identity cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{} {}", if *write { "write" } else { "read" }, path.display())]
pub struct FileError {
    path: PathBuf,
    write: bool,
    source: io::Error,
}

impl IdentityFiles {
    /// Certificate and key, one after the other.
    pub(super) fn certificate(&self) -> PathBuf {
        self.directory.join("client.pem")
    }

    /// Returns the path of the key of a pending request, which stays the same request after a restart.
    fn next_key(&self) -> PathBuf {
        self.directory.join("client.key.next")
    }

    /// Returns the validity of the certificate in use, or `None` without one.
    pub(super) fn validity(&self) -> Result<Option<Validity>, FileError> {
        let path = self.certificate();
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Validity::of(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(FileError { path, write: false, source }),
        }
    }

    /// Returns true if there is a kubeconfig whose credentials imagelet did not make; they are used as they are. A kubeconfig that
    /// cannot be read counts as foreign: the code that uses it reports why.
    pub(super) fn are_foreign(&self) -> bool {
        if !self.kubeconfig.exists() {
            return false;
        }
        let ours = self.certificate().display().to_string();
        let read = Kubeconfig::read_from(&self.kubeconfig);
        let users = read.into_iter().flat_map(|read| read.auth_infos).filter_map(|user| user.auth_info);
        !users.into_iter().any(|user| user.client_certificate.as_deref() == Some(&*ours))
    }

    /// Returns the key for the next certificate.
    pub(super) fn key(&self) -> Result<ClientKey, FileError> {
        let path = self.next_key();
        let damaged = match fs::read_to_string(&path) {
            Ok(text) => match ClientKey::read(Secret::new(text)) {
                Ok(key) => return Ok(key),
                Err(error) => Some(error),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(FileError { path, write: false, source }),
        };
        if let Some(error) = damaged {
            tracing::warn!(path = %path.display(), error = %error, "another key is made");
        }
        let failed = |source| FileError { path: path.clone(), write: true, source };
        let key = ClientKey::generate().map_err(|error| failed(io::Error::other(error)))?;
        write_private(&path, key.pem().expose().as_bytes()).map_err(failed)?;
        Ok(key)
    }

    /// Puts a certificate with its key in the place of the one in use.
    pub(super) fn keep(&self, certificate: &str, key: &ClientKey) -> Result<(), FileError> {
        let path = self.certificate();
        let text = Secret::new(format!("{}\n{}", certificate.trim_end(), key.pem().expose()));
        write_private(&path, text.expose().as_bytes()).map_err(|source| FileError { path, write: true, source })?;
        self.drop_key();
        Ok(())
    }

    /// Removes the key of a request that yielded no certificate.
    pub(super) fn drop_key(&self) {
        if let Err(error) = fs::remove_file(self.next_key())
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.next_key().display(), %error, "the key of an earlier request stays");
        }
    }

    /// Writes the kubeconfig: the cluster of the bootstrap one, with the certificate.
    pub(super) fn write_kubeconfig(&self, bootstrap: &Kubeconfig) -> Result<(), FileError> {
        let failed = |source| FileError { path: self.kubeconfig.clone(), write: true, source };
        let current = bootstrap
            .current_context
            .as_ref()
            .and_then(|name| bootstrap.contexts.iter().find(|context| context.name == *name)?.context.as_ref());
        let cluster = current.map(|context| context.cluster.clone()).unwrap_or_default();
        let path = self.certificate().display().to_string();
        let user = AuthInfo { client_certificate: Some(path.clone()), client_key: Some(path), ..AuthInfo::default() };
        let context = Context { cluster: cluster.clone(), user: Some(NAME.to_owned()), ..Context::default() };
        let made = Kubeconfig {
            api_version: Some("v1".to_owned()),
            kind: Some("Config".to_owned()),
            clusters: bootstrap.clusters.iter().filter(|known| known.name == cluster).cloned().collect(),
            auth_infos: vec![NamedAuthInfo {
                name: NAME.to_owned(),
                auth_info: Some(user),
                ..NamedAuthInfo::default()
            }],
            contexts: vec![NamedContext { name: NAME.to_owned(), context: Some(context), ..NamedContext::default() }],
            current_context: Some(NAME.to_owned()),
            ..Kubeconfig::default()
        };
        // JSON is YAML, too.
        let text = serde_json::to_vec_pretty(&made).map_err(|error| failed(error.into()))?;
        write_private(&self.kubeconfig, &text).map_err(failed)
    }
}
