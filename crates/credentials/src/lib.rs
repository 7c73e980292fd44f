//! Credentials for images, with their sources: [`Keyring`] joins a pod's pull secrets, the node's docker configuration with
//! its credential helpers, and the kubelet's exec credential providers.
//!
//! Only [`auth_file`] changes files of users. Files of the node are read, and the programs that the configuration names are
//! run; the crate knows no network and no CRI. It never logs, prints or serialises a secret. The image manager calls it.
#![deny(missing_docs)]

pub mod auth_file;
mod candidate;
mod docker_config;
pub mod exec;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod glob;
mod hash;
pub mod helper;
mod index;
mod keyring;
mod node_files;
mod pattern;
mod process;
mod pull_secrets;
mod requester;
#[cfg(test)]
mod test_support;

pub use candidate::{Candidate, NodeSource, Note, Origin, SecretCoordinates, ServiceAccountCoordinates, Source};
pub use docker_config::DockerConfigError;
pub use hash::credential_hash;
pub use index::Index;
pub use keyring::{Candidates, Keyring, KeyringError, KeyringOptions, Preview};
pub use node_files::NodeFiles;
pub use pattern::{BadLocation, PathMatch, Pattern, matches};
pub use process::end_programs;
pub use requester::{PullSecret, Requester, ServiceAccount};
