//! The daemon of a node: it follows the ImageSets that select its node, keeps their images present and pinned, and reports them. It
//! watches ImageSets, the Fleet and its own Node, and nothing that grows with the number of nodes. Without the API server it
//! continues with what it followed last. Runs in an agent; the binary starts it.

mod baked;
mod board;
mod cadence;
mod collector;
mod daemon;
mod desired;
#[cfg(test)]
mod fixtures;
mod followed;
mod held;
mod metrics;
mod model;
mod presence;
mod progress;
mod pull;
mod report;
mod secrets;
mod set_cache;
mod state_file;
mod states;
mod writer;

pub use baked::{BakeError, BakedSet, save_baked};
pub use board::SetBoard;
pub use collector::{Collector, ImageSpace};
pub use daemon::{NodeDaemon, NodeDaemonOptions, PodsPull};
