//! Small mechanisms of the node that several crates need: [`blocking`] work with its panics handed on, [`GoDuration`], the
//! table of [mounts](mount) and [loop devices](LoopDevice).
//!
//! Nothing here knows images, pods or settings.

#[cfg(feature = "tokio")]
mod blocking;
mod go_duration;
mod loop_device;
pub mod mount;

#[cfg(feature = "tokio")]
pub use blocking::{blocking, joined};
pub use go_duration::GoDuration;
pub use loop_device::{LoopDevice, LoopFlags};
