//! Distribution-spec client: finds the hosts of a registry, answers their challenges, resolves names, fetches
//! manifests and blobs, starts again where a transfer broke off, and uploads.
//!
//! HTTP only: it reads no file (a `hosts.toml` arrives as text, a certificate as bytes), knows no store and no keyring.
//! It is handed one resolved credential for one pull and carries it to the origin that it is for, nowhere else. Nothing
//! that it prints has a secret in it: no token, no password, no query of a signed URL.
//!
//! The embedded image service calls it; the feature `testing` adds a registry with faults and a builder of small images.
//!
//! ```no_run
//! # use oci as imagelet_oci;
//! use imagelet_oci::Reference;
//! use imagelet_registry::{Client, Options};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(Options::default());
//! let image: Reference = "docker.io/library/busybox:1.36".parse()?;
//! let manifest = client.repository(&image, None)?.resolve().await?;
//! println!("{manifest:?}");
//! # Ok(()) }
//! ```
#![deny(missing_docs)]

mod address;
mod authenticator;
mod bandwidth;
mod blob;
mod challenge;
mod client;
mod client_error;
mod connector;
mod credential_origin;
mod document;
mod error;
mod extended_key_usage;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod hosts;
mod http_client;
mod namespace;
mod options;
mod pace;
mod part;
mod presence;
mod proxy;
mod range_request;
mod ranges;
mod redact;
mod redirect_token;
mod repository;
mod resolve;
mod retry;
mod scheme;
mod session;
mod sockets;
mod spare;
mod stall;
mod tags;
mod target;
mod tls;
mod token;
mod traffic;
mod transport;
mod upload;
mod upload_body;

#[cfg(feature = "testing")]
pub mod testing;

pub use bandwidth::Bandwidth;
pub use blob::BlobStream;
pub use client::Client;
pub use document::{Fetched, ManifestHead};
pub use error::{ErrorKind, RegistryError};
pub use hosts::HostsFile;
pub use namespace::{HostCapabilities, HostConfig, HostsError, Namespace, TlsConfig};
pub use options::{Limits, NamespaceLoader, Options};
pub use proxy::ProxySettings;
pub use ranges::{Allowance, Memory, RangePolicy};
pub use repository::Repository;
pub use resolve::{Lookup, system_lookup};
pub use retry::RetryPolicy;
pub use stall::StallPolicy;
pub use target::{AllowedTarget, AllowedTargetError};
pub use tls::{WallClock, system_clock};
pub use traffic::{HostBytes, Traffic};
pub use upload_body::{BlobUpload, UploadStream};
