//! Which credential for which image, and where it came from: [`Keyring`] joins a pod's pull secrets, the node's docker
//! configuration with its credential helpers, and the kubelet's exec credential providers.
//!
//! It reads files of the node and runs the programs that its configuration names; it knows no network and no CRI. It
//! never logs, prints or serialises a secret. The image manager asks it.
#![deny(missing_docs)]

mod candidate;
pub mod exec;
pub mod helper;
mod note;
mod requester;

pub use candidate::{Candidate, NodeSource, SecretCoordinates, ServiceAccountCoordinates, Source};
pub use note::Note;
pub use requester::{PullSecret, Requester, ServiceAccount};
