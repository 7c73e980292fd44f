//! Suites with layers that are directory trees.

/// The shape of layers, as in `--layer-format`.
pub(crate) const FORMAT: &str = "dir";

#[path = "bad_input.rs"]
mod bad_input;
#[path = "budget.rs"]
mod budget;
#[path = "check.rs"]
mod check;
#[cfg(target_arch = "x86_64")]
#[path = "faults.rs"]
mod faults;
#[path = "full_disk.rs"]
mod full_disk;
#[path = "gc_full.rs"]
mod gc_full;
#[path = "unprivileged.rs"]
mod unprivileged;
