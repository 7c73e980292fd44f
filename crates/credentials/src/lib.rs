//! Credentials for images, with their sources: [`Keyring`] joins a pod's pull secrets, the node's docker configuration with
//! its credential helpers, and the kubelet's exec credential providers.
//!
//! Only [`auth_file`] changes files of users. Files of the node are read, and the programs that the configuration names are
//! run; the crate knows no network and no CRI. It never logs, prints or serialises a secret. The image manager calls it.
//!
//! ```no_run
//! # use oci as imagelet_oci;
//! use imagelet_credentials::{Keyring, KeyringOptions, NodeFiles, Requester};
//! use imagelet_oci::Reference;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let node_files = NodeFiles { paths: vec!["/var/lib/kubelet/config.json".into()], ..NodeFiles::default() };
//! let keyring = Keyring::new(KeyringOptions { node_files, ..KeyringOptions::default() });
//! let image: Reference = "registry.example/team/app:1".parse()?;
//! for candidate in keyring.candidates(&image, &Requester::default()).await?.candidates {
//!     println!("{}", candidate.source); // never the secret
//! }
//! # Ok(()) }
//! ```
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
