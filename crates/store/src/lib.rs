//! Content and layers on disk: the lock and version of a store, layers that are unpacked in private, images that become
//! visible in one transaction, leases, accounting, removal that has freed the space when it returns, and mounts.
//!
//! Does not depend on the network, registries, CRI and the clock. Everything blocks; the image service calls it from threads that
//! may. Files on the disk that are not in the database are deleted by the next [`Store::open`].
//!
//! ```
//! use imagelet_store::{OpenOptions, Store};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let root = directory.path().join("store");
//! let store = Store::open(&root, OpenOptions::default())?;
//! assert_eq!(store.totals()?.layers, 0);
//! assert!(store.resolve(&"busybox:1.36".into())?.is_none());
//! # Ok(()) }
//! ```
#![deny(missing_docs)]

pub mod check;
mod content;
pub mod destination;
mod disk;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod images;
mod ingest;
mod io_error;
mod layers;
mod lower;
mod maintenance;
pub mod mount;
mod options;
mod podman;
pub mod recipe;
mod records;
mod store;
pub mod tar;
mod tree_stream;
pub mod unpack;
pub mod view;

pub use content::blobs::{BlobIngest, NewBlob};
pub use content::spool::Spool;
pub use content::unfinished::Unfinished;
pub use disk::confine::is_confined;
pub use disk::is_privileged;
pub use disk::layer::LayerId;
pub use disk::usage::is_out_of_inodes;
pub use error::{CommitError, OpenError, ResolveError, StoreError};
pub use images::convert::ConvertError;
pub use images::image_commit::{ImageCommit, LayerSource};
pub use ingest::choice::NewLayers;
pub use ingest::layer::{LayerIngest, UnpackedLayer};
pub use ingest::whole::WholeLayer;
pub use lower::Lower;
pub use maintenance::Lease;
pub use mount::MountError;
pub use options::{Cancelled, Durability, LayerFormat, OpenOptions};
pub use records::entries::{ImageRecord, Layer, LayerStats, Removed, Totals};
pub use store::Store;
pub use store::accounting::LayersOfImages;
pub use store::podman_view::PodmanViewError;
pub use tree_stream::write_tree;
pub use unpack::{Limits, PrintableName, TarError, UnpackError};
