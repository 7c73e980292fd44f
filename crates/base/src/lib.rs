//! Small mechanisms of the node that several crates need: [locks](lock) that a panic does not poison, [work that several
//! callers share](single_flight), [`blocking`] work with its panics handed on, [`GoDuration`], the table of
//! [mounts](mount), [mounts of EROFS files](mount_erofs), [layers that stay mounted](layer_mount), [loop devices](LoopDevice), [groups of a peer](peer_groups), [locks](FileLock) and
//! [states](FileIdentity) of files, files that [no other user reads](write_private), the error of a
//! [full disk](is_disk_full), the [identity](process_instance) of this process, reads that [`fill`] a buffer, [walks](walk_tree) over trees that other processes change,
//! the text form of certificates ([`pem`]), [sizes and durations](units) for people, the names [`nearest`] to a
//! wrong one, trace context in headers, and parts of TLS clients.
//!
//! No module of this crate knows images, pods or settings.
//!
//! ```
//! use imagelet_base::{GoDuration, nearest};
//! use imagelet_base::lock::Mutex;
//!
//! let timeout = GoDuration::parse("1m30s").and_then(GoDuration::to_std);
//! assert_eq!(timeout, Some(std::time::Duration::from_secs(90)));
//! assert_eq!(nearest("pul", ["pull", "push", "ls"]), Some("pull"));
//! let counter = Mutex::new(0);
//! *counter.lock() += 1;
//! assert_eq!(*counter.lock(), 1);
//! ```
#![deny(missing_docs)]

#[cfg(feature = "tokio")]
mod blocking;
mod disk_full;
mod erofs_mount;
mod file_identity;
mod file_lock;
mod fill;
mod go_duration;
pub mod layer_mount;
pub mod lock;
mod loop_device;
pub mod mount;
mod nearest;
mod overlay;
pub mod peer_groups;
pub mod pem;
mod private_file;
mod process_instance;
#[cfg(feature = "tokio")]
pub mod single_flight;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(feature = "trace")]
pub mod trace_context;
mod tree_walk;
pub mod units;

#[cfg(feature = "tokio")]
pub use blocking::{blocking, joined};
pub use disk_full::is_disk_full;
pub use erofs_mount::{ErofsMount, ErofsMountError, ErofsMountStep, explain, mount_erofs};
pub use file_identity::FileIdentity;
pub use file_lock::FileLock;
pub use fill::fill;
pub use go_duration::GoDuration;
pub use loop_device::{LAYER_DEVICE, LoopDevice, LoopDevices, LoopFlags};
pub use nearest::{closest, near_names, nearest};
pub use overlay::{OverlayMount, overlay_mounts};
pub use private_file::write_private;
pub use process_instance::process_instance;
pub use tree_walk::{TreeWalkError, walk_tree};
