//! Garbage collection of images: [`detect`] what is here and what is in use, [`select`] what goes (pure, with a reason for
//! every image), remove, record.

mod blocking;
mod collector;
mod detect;
mod disk;
mod entry;
mod eviction;
mod fast_hash;
mod history;
mod images;
mod labels;
mod loops;
mod metrics;
mod node_status;
mod node_time;
mod options;
mod outline;
mod plan;
mod policy;
mod pressure;
mod probe;
mod relief;
mod removal;
mod report;
mod room;
mod rounds;
mod rules;
mod select;
mod sketch;
mod state;
mod trigger;

pub use collector::ImageGcManager;
pub use detect::{AlwaysUsed, Detected, User, detect};
pub use disk::{DiskProbe, DiskSpace, Shortage, human};
pub use eviction::{Amount, Signal, ThresholdError, Thresholds};
pub use history::{UsageHistory, UsageRecord, key};
pub use metrics::GcMetrics;
pub use node_status::{FsStatus, NodeCondition, NodeImage, NodeImages, NodeStatus};
pub use node_time::{Boot, BootClock};
pub use options::{GcOptions, Intervals, PressureOptions, Volumes};
pub use outline::{Outline, Row};
pub use plan::{Because, Kept, Plan, Removal, RemovedBecause};
pub use policy::{GcPolicy, GcPolicyError};
pub use pressure::Observation;
pub use probe::measure;
pub use relief::ReclaimContainers;
pub use report::{GcError, GcReport, RemovedImage};
pub use rules::{KeepRule, Known, Pattern, PatternError, Pins, Says};
pub use select::{Goal, Inventory, Item, Order, Rules, select};
pub use state::{StateError, StateFiles};

#[cfg(test)]
mod protection_tests;
