//! The identity of a node that joins a cluster by itself: with the bootstrap token of a kubeconfig it asks for a client certificate,
//! and renews it long before its end. Keys never leave the directory of the node, which only its owner can read. Called by the
//! binary.

mod certificate;
mod files;
mod join;
mod request;
mod rotation;
mod signing;

pub use files::IdentityFiles;
pub use join::{JoinError, join};
pub use rotation::Rotation;
