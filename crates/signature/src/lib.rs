//! Signature policies: a policy in the format of `containers-policy.json(5)`, and the verification of cosign-style
//! signatures by public keys.
//!
//! Bytes in, verdict out: this crate reads no file, asks no registry and keeps no state. The caller, which is the image
//! service, passes the policy's text, the contents of the keys and the signatures that were found.
//!
//! Verification is keyed: a signature counts when it was made with a key that the policy names, over a payload that names
//! this image by digest and a repository that the policy accepts. Certificates (keyless signing), transparency logs,
//! attestations, GPG signatures and Notation are not supported; a policy that asks for one of them is refused, because
//! to skip a demand is to accept.
//!
//! ```
//! # use oci as imagelet_oci;
//! use imagelet_oci::Reference;
//! use imagelet_signature::{Demand, Policy};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = br#"{
//!     "default": [{ "type": "reject" }],
//!     "transports": { "docker": { "registry.example": [{ "type": "insecureAcceptAnything" }] } }
//! }"#;
//! let policy = Policy::parse(text, &mut |path| std::fs::read(path).map_err(|error| error.to_string()))?;
//! let demand = |image: &str| Ok::<_, Box<dyn std::error::Error>>(policy.rule(&image.parse::<Reference>()?).demand());
//! assert_eq!(demand("registry.example/app:1")?, Demand::Nothing);
//! assert_eq!(demand("docker.io/library/busybox:1")?, Demand::Refused);
//! # Ok(()) }
//! ```
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
