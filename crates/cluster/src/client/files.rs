//! [`CredentialFiles`]: the files that a client is made of, a kubeconfig and the files that it names, as they were when they were
//! read. Detects when one of them was replaced; does not read them. Blocks for a few calls of `stat`. Called by
//! [`super::ClusterClient`].

use std::path::{Path, PathBuf};

use base::FileIdentity;
use kube::config::Kubeconfig;

/// Files with their states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CredentialFiles(Vec<(PathBuf, Option<FileIdentity>)>);

impl CredentialFiles {
    /// Records the identity of the kubeconfig file alone.
    pub(super) fn of(kubeconfig: &Path) -> Self {
        let mut files = Self::default();
        files.add(kubeconfig.to_owned());
        files
    }

    /// Adds the files that the kubeconfig names, in their current state. The token file is not among them: the client rereads it by
    /// itself.
    pub(super) fn add_named(&mut self, kubeconfig: &Kubeconfig) {
        let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
        let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
        let authorities = clusters.filter_map(|cluster| cluster.certificate_authority.as_ref());
        let own = users.flat_map(|user| [user.client_certificate.as_ref(), user.client_key.as_ref()]).flatten();
        for path in authorities.chain(own) {
            self.add(PathBuf::from(path));
        }
    }

    /// Records the identities of the same files again.
    pub(super) fn restat(&self) -> Self {
        let mut files = Self::default();
        self.0.iter().for_each(|(path, _)| files.add(path.clone()));
        files
    }

    fn add(&mut self, path: PathBuf) {
        // Over links: what they lead to may be another file.
        let state = std::fs::metadata(&path).ok().map(|file| FileIdentity::from(&file));
        self.0.push((path, state));
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
