//! Client of containerd's own API, for the calls that add images to its store: introspection, leases, content,
//! snapshots and images.
//!
//! A [`Client`] reads, a [`Lease`] of it writes: whatever a lease makes is safe from containerd's collection until the lease
//! is deleted. Every call that changes something may be repeated: what is there already is success. The crate knows no
//! registry and decides nothing about images. [`ContainerdStore`] and [`ContainerdDeposit`] put these calls behind the traits of
//! `cri_api::engine::runtime_store`: nothing above knows that it is containerd.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use imagelet_containerd::{CRI_NAMESPACE, Client};
//!
//! # async fn example() -> imagelet_containerd::Result<()> {
//! let client = Client::new(Path::new("/run/containerd/containerd.sock"), CRI_NAMESPACE)?;
//! if let Some(image) = client.image("docker.io/library/busybox:1.36").await? {
//!     println!("{image:?}");
//! }
//! # Ok(()) }
//! ```
#![deny(missing_docs)]

mod client;
mod config_file;
mod content;
mod decodable;
mod deposit;
mod error;
mod events;
mod filter;
mod handlers;
mod images;
mod introspection;
mod labels;
mod layout;
mod lease;
mod mounted_layers;
mod pb;
mod pins;
mod snapshots;
mod store;

use std::collections::BTreeMap;

pub use client::Client;
pub use config_file::configured_sandbox_image;
pub use deposit::ContainerdDeposit;
pub use error::{Error, ErrorKind, Result};
pub use images::ImageRecord;
pub use introspection::Snapshotter;
pub use layout::{SnapshotLayout, layout_of};
pub use lease::{ExistingLease, Lease};
pub use pins::PinLabels;
pub use snapshots::{Mount, Prepared, Snapshot, SnapshotKind, Usage};
pub use store::{ContainerdStore, Finder, LayerForm, LayerSettings, ReasonAgainstFiles, STAGING_ROOT};

/// Labels of an object in containerd's store.
pub type Labels = BTreeMap<String, String>;

/// The namespace of everything that CRI sees.
pub const CRI_NAMESPACE: &str = "k8s.io";
