//! Whose images a node takes: a policy in the shape of `containers-policy.json(5)`, and the verification of cosign-style
//! signatures by public keys.
//!
//! Bytes in, verdict out: this crate reads no file, asks no registry and keeps nothing. Whoever calls it brings the policy's
//! text, the keys' contents and the signatures that were found; the image service does.
//!
//! Verification is keyed: a signature counts when it was made with a key that the policy names, over a payload that names
//! this image by digest and a repository that the policy accepts. It knows no certificates (keyless signing), no
//! transparency log, no attestations, no GPG signatures and no Notation; a policy that asks for one of them is refused,
//! because to pass over a demand is to accept.
#![deny(missing_docs)]

mod check;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod identity;
mod key;
mod payload;
mod policy;
mod read;
#[cfg(feature = "testing")]
pub mod testing;
mod written;

pub use check::{Check, MAX_SIGNATURE_TEXT, Signature};
pub use key::{KeyError, PublicKey};
pub use payload::MAX_PAYLOAD;
pub use policy::{Demand, Policy, PolicyError, Rule, Scope};
pub use written::MAX_KEYS;
