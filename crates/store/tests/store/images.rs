//! The same with layers that are EROFS files.

use imagelet_store::LayerFormat;

pub(crate) const FORMAT: LayerFormat = LayerFormat::Erofs;

#[path = "accounts.rs"]
mod accounts;
#[path = "check.rs"]
mod check;
#[path = "commit.rs"]
mod commit;
#[path = "concurrency.rs"]
mod concurrency;
#[path = "convert.rs"]
mod convert;
#[path = "crash.rs"]
mod crash;
#[path = "digests.rs"]
mod digests;
#[path = "faults.rs"]
mod faults;
#[path = "file_systems.rs"]
mod file_systems;
#[path = "full_disk.rs"]
mod full_disk;
#[path = "keeping.rs"]
mod keeping;
#[path = "mount.rs"]
mod mount;
#[path = "moved.rs"]
mod moved;
#[path = "names.rs"]
mod names;
#[path = "open.rs"]
mod open;
#[path = "order.rs"]
mod order;
#[path = "ordinary_user.rs"]
mod ordinary_user;
#[path = "power_cut.rs"]
mod power_cut;
#[path = "quota.rs"]
mod quota;
#[path = "remove.rs"]
mod remove;
#[path = "shared_files.rs"]
mod shared_files;
#[path = "support.rs"]
mod support;
#[path = "unfinished.rs"]
mod unfinished;
#[path = "view.rs"]
mod view;
