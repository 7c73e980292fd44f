//! Pulls container images from registries into a store on disk, and reads their files without a mount and without root.
//!
//! [`Engine`] owns a store: it pulls, lists, inspects and removes images, and opens the root file system of one ([`RootFs`]). Layers
//! are fetched in parallel, shared between images, verified by digest, and unpacked within a fixed amount of memory; an image appears
//! as a whole or not at all. Dropping the future of a pull cancels it.
//!
//! ```no_run
#![doc = include_str!("../examples/pull_and_read.rs")]
//! ```
//!
//! # Settings of a pull
//! A [`PullRequest`] has a [`Credential`], which [`DockerConfig`] can look up, and a callback for progress:
//!
//! ```no_run
//! use imagelet_engine::{DockerConfig, Engine, ErrorKind, PullEvent, PullRequest, Reference, Result};
//!
//! async fn pull(engine: &Engine, image: &Reference) -> Result<()> {
//!     let config = DockerConfig::new("/etc/app/docker/config.json");
//!     let request = PullRequest::new(image.clone())
//!         .with_credential(config.credential(image).await?)
//!         .on_progress(|event| {
//!             if let PullEvent::Bytes { digest, done } = event {
//!                 eprintln!("{digest}: {done} bytes");
//!             }
//!         });
//!     match engine.pull(request).await {
//!         Ok(pulled) => eprintln!("{}: {} bytes fetched", pulled.digest, pulled.fetched_bytes),
//!         Err(error) if error.kind() == ErrorKind::NotFound => eprintln!("no such image: {error}"),
//!         Err(error) => return Err(error),
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Limits
//! Only one process at a time can open a store: [`Engine::open`] fails with [`ErrorKind::InUse`] if another process has opened it. The crate does not
//! start containers, has no pull policies and removes images only on request; the crate `imagelet-image-manager` has the kubelet's rules.
//! Linux only. An engine needs a tokio runtime that lives as long as the engine and the values that it returned.
#![deny(missing_docs)]

mod credential;
mod engine;
mod error;
mod image;
mod pull;
mod rootfs;

pub use credential::{Credential, DockerConfig};
pub use engine::{Engine, EngineBuilder};
pub use error::{Error, ErrorKind, Result};
pub use image::{Image, ImageDetails};
pub use pull::{PullRequest, Pulled};
pub use rootfs::{DirEntry, Metadata, READ_LIMIT, RootFs};

/// The kind of a file.
pub use store::view::Kind as FileKind;

/// Progress of a pull, and the state of a layer in it.
pub use cri_api::{LayerState, PullEvent};

/// Names, digests and documents of images.
pub use oci::{Digest, ImageConfig, Platform, Reference, ReferenceError, ReferenceOrId};

/// Proxies towards registries.
pub use registry::ProxySettings;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
