//! The words of images: [`Reference`], [`ReferenceOrId`], [`Digest`], [`Descriptor`], [`Manifest`], [`Index`], [`ImageConfig`],
//! [`Platform`], [`RegistryAuth`].
//!
//! Pure values: this crate knows no file, no network, no clock and no environment. Everything else in the
//! project speaks with these types. Formats follow the OCI image specification 1.1 and Docker's schema 2;
//! references follow the docker-normalised grammar which the kubelet and containerd use.
//!
//! ```
//! use imagelet_oci::{Digest, Platform, Reference};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let image: Reference = "busybox".parse()?;
//! assert_eq!((image.domain(), image.path()), ("docker.io", "library/busybox"));
//! assert_eq!(image.with_default_tag().to_string(), "docker.io/library/busybox:latest");
//! assert!(Digest::sha256(b"{}").to_string().starts_with("sha256:44136fa3"));
//! assert_eq!("linux/arm64".parse::<Platform>()?.architecture, "arm64");
//! # Ok(()) }
//! ```
#![deny(missing_docs)]

mod auth;
pub mod base64_bytes;
mod config;
mod descriptor;
mod digest;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod grammar;
mod host;
pub mod json;
#[cfg(any(test, feature = "fuzzing"))]
mod lenient;
mod manifest;
pub mod media_type;
mod platform;
mod quantity;
mod reference;
mod reference_or_id;
pub mod text;

pub use auth::{CredentialId, RegistryAuth, Secret};
pub use config::{ConfigError, ImageConfig, RootFs, RunConfig};
pub use descriptor::Descriptor;
pub use digest::{Algorithm, Digest, DigestError, Hasher, Verifier, VerifyError, chain_id};
pub use host::{HostError, is_loopback_host, normal_host, normal_port};
pub use manifest::{Document, Index, Manifest, ManifestError};
pub use platform::{Platform, PlatformError};
pub use quantity::{Quantity, QuantityError, QuantityFormat, parse_bytes, show_bytes};
pub use reference::{
    ImageName, ImageNameError, Reference, ReferenceError, apply_default_tag, bare_name, parse_image_name,
    trim_tag_and_digest,
};
pub use reference_or_id::ReferenceOrId;
