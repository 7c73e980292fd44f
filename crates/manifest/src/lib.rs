//! Kubernetes manifests as they are written: YAML whose nodes know their lines, the images of pods and workloads, Secrets and
//! ServiceAccounts, and the pull secrets that a pod names. Pulls nothing, runs nothing, asks no API server. Called by the
//! commands that read manifests, the configuration and the node agent.
#![deny(missing_docs)]

mod directory;
mod error;
mod object;
mod place;
mod pod;
mod read;
mod secret;
mod secrets;
pub mod yaml;

pub use directory::{SecretsDirectory, read as read_directory};
pub use error::{ManifestError, ManifestNote, ObjectOrigin};
pub use object::{AccountObject, Objects, Pod, PodImage, Role, SecretObject};
pub use read::{check, parse, parse_secrets};
pub use secrets::{Resolved, SecretStore};
