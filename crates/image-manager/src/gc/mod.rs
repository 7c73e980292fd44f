//! Garbage collection of images: [`detect`] which images are in use, [`select`] which ones to remove (pure, with a reason for
//! every image), remove, record. [`ImageGcManager`] is the entry.

mod context;
mod detect;
mod disk;
mod evict;
mod eviction;
mod history;
mod inventory;
mod keep_rules;
mod manager;
mod metrics;
mod name_glob;
mod node_status;
mod node_time;
mod options;
mod outline;
mod plan;
mod policy;
mod pressure;
mod pressure_monitor;
mod probe;
mod reclaim_for_pull;
mod relief;
mod removal;
mod report;
mod rounds;
mod select;
mod state_files;
mod state_store;
mod survey;
mod turns;

pub use detect::{AlwaysUsed, Detected, User, detect};
pub use disk::{DiskProbe, DiskSpace, Shortage};
pub use evict::{EvictPods, EvictionCause};
pub use eviction::{Amount, Signal, ThresholdError, Thresholds};
pub use history::{UsageHistory, UsageRecord, key};
pub use keep_rules::{KeepRule, Pattern, PatternError, Pins, RuleEffect};
pub use manager::ImageGcManager;
pub use metrics::GcMetrics;
pub use node_status::{FsStatus, NodeCondition, NodeImage, NodeImages, NodeStatus};
pub use node_time::{Boot, BootClock};
pub use options::{GcOptions, Intervals, PressureOptions, ReclaimContainers, Volumes};
pub use outline::{Outline, PlannedImage};
pub use plan::{Because, Kept, Plan, Removal, RemovedBecause};
pub use policy::{GcPolicy, GcPolicyError};
pub use pressure::Observation;
pub use probe::measure;
pub use report::{GcError, GcReport, RemovedImage};
pub use select::{Goal, Inventory, Item, Rules, select};
pub use state_files::{StateError, StateFiles};
pub use turns::Turns;

#[cfg(test)]
mod protection_tests;
