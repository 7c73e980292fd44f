//! Garbage collection of images: [`detect`] what is here and what is in use, [`select`] what goes (pure, with a reason for
//! every image), remove, record.

mod collector;
mod detect;
mod disk;
mod history;
mod loops;
mod metrics;
mod options;
mod outline;
mod plan;
mod policy;
mod removal;
mod report;
mod rules;
mod select;
mod sketch;
mod state;

pub use collector::ImageGcManager;
pub use detect::{AlwaysUsed, Detected, User, detect};
pub use disk::{DiskProbe, DiskSpace, Shortage, human};
pub use history::{UsageHistory, UsageRecord, key};
pub use metrics::GcMetrics;
pub use options::{GcOptions, Intervals};
pub use outline::{Outline, Row};
pub use plan::{Because, Kept, Plan, Removal, RemovedBecause};
pub use policy::{GcPolicy, GcPolicyError};
pub use report::{GcError, GcReport, RemovedImage};
pub use rules::{KeepRule, Pattern, PatternError, Pins, Says};
pub use select::{Goal, Inventory, Item, Order, Rules, select};
pub use state::{StateError, StateFiles};
