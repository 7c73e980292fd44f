//! Content and layers on disk: the lock and version of a store, layers that are unpacked in private, images that become
//! visible in one transaction, leases, accounting, removal that has freed the space when it returns, and mounts.
//!
//! It refuses to know the network, registries, CRI and the clock. Everything blocks; the image service calls it from
//! threads that may. What is on the disk and not in the database is deleted by the next [`Store::open`].

mod accounting;
mod backend;
mod blobs;
pub mod check;
mod commit;
mod confine;
mod convert;
mod copy;
mod db;
pub mod destination;
mod digests;
mod error;
mod flush;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod ground;
mod images;
mod ingest;
mod layers;
mod layout;
mod lease;
mod lock;
pub mod mount;
mod names;
mod open;
mod plan;
pub mod recipe;
mod records;
mod remove;
mod remove_tree;
mod reserve;
mod respell;
mod shape;
mod share;
mod shares;
mod sweep;
mod tables;
pub mod tar;
mod unfinished;
pub mod unpack;
pub mod view;
mod young;

pub use accounting::{LayersOfImages, is_out_of_inodes};
pub use blobs::{BlobIngest, NewBlob};
pub use commit::{ImageCommit, LayerSource};
pub use confine::is_confined;
pub use convert::{Conversion, ConvertError, LeftLayer};
pub use error::{CommitError, OpenError, ResolveError, StoreError};
pub use ingest::{LayerIngest, UnpackedLayer};
pub use lease::Lease;
pub use mount::{ImageMount, MountError};
pub use open::{Durability, LayerFormat, OpenOptions, Sharing, Store};
pub use records::{ImageRecord, Layer, LayerId, LayerStats, Removed, Totals};
pub use shape::NewLayers;
pub use unfinished::{Spool, Unfinished, WholeLayer};
pub use unpack::{Limits, UnpackError};
