//! The embedded image service: registry client and store put together, behind [`cri_api::ImageService`] and
//! [`cri_api::engine::ImageEngine`].
//!
//! [`Engine`] pulls (resolve, choose, fetch, verify, unpack, commit; one job per image at a time, layers shared between
//! jobs), answers for what is present, and imports and exports archives by the same pipeline. [`Registries`] uploads. It has no opinion on when
//! to pull or what to remove, holds no keyring and knows no gRPC: it is called by the binary, directly or through the
//! server of `cri-grpc`.
//!
//! Every byte passes through memory once: async fetch → bounded window → thread one (inflate) → ring of buffers →
//! thread two (unpack); the digests of blob and tar stream are computed meanwhile by whichever thread waits. All pulls
//! share one memory budget. Nothing is visible before every digest of an image matches.
//!
//! ```no_run
//! # use cri_api as imagelet_cri_api;
//! use imagelet_cri_api::{ImageService as _, PullImageRequest};
//! use imagelet_image_service::{Engine, EngineOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let options = EngineOptions { root: "/var/lib/app/images".into(), memory: 64 << 20, ..EngineOptions::default() };
//! let engine = Engine::open(options).await?;
//! let image_id = engine.pull_image(PullImageRequest::new("docker.io/library/busybox:1.36")).await?;
//! println!("{image_id}");
//! engine.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! The crate `imagelet-engine` has these calls with fewer settings and types, for programs that only pull and read.
#![deny(missing_docs)]

mod background;
mod budgets;
mod certs_d;
mod check;
mod content;
mod content_hints;
mod convert;
mod crio_ids;
mod crio_images;
mod destination;
mod engine;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod hashing;
mod image_engine;
mod in_flight;
pub mod inflate;
mod intake;
mod leftovers;
mod names;
mod options;
mod origin;
mod parts;
mod podman;
mod progress;
mod pull;
mod push;
mod reach;
mod registries;
mod ring;
mod runtime_convert;
mod runtime_images;
mod runtime_layers;
mod runtime_policy;
mod runtime_pull;
mod runtime_reading;
mod runtime_records;
mod service;
mod signatures;
mod source;
mod transfer;
mod unpack;

pub use crio_ids::CrioIds;
pub use crio_images::CrioImages;
pub use engine::Engine;
pub use error::OpenError;
pub use options::{Clock, EngineOptions, LEAST_MEMORY, Limits, Resume, RuntimeTarget, UnsupportedImages};
pub use origin::SharedContent;
pub use push::{Pushed, Upload};
pub use reach::Reach;
pub use registries::Registries;
pub use runtime_images::{PullEngineChoice, RuntimeImages};
pub use runtime_pull::PullEngine;
pub use transfer::open_within;
