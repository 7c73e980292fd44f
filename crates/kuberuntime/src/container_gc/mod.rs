//! Collection of what containers leave behind: containers that have ended, sandboxes that are not ready, and log
//! directories of removed pods. `select` decides (pure, with a reason for each object), [`ContainerGc`] removes over
//! `cri_api::RuntimeService`. It never touches what runs, and images are not its business. The binary calls it, and
//! image collection under disk pressure.

mod collector;
mod logs;
mod plan;
mod policy;
mod select;

pub use collector::{ContainerGc, ContainerGcOptions};
pub use logs::LogDirectories;
pub(crate) use logs::link_name;
pub use plan::{ContainerGcError, ContainerGcReport};
pub use plan::{ContainerPlan, GcRow, GcVerdict, KeepReason, RemovalReason};
pub use policy::{ContainerGcPolicy, ContainerGcPolicyError};
pub use policy::{NoPodSource, PodStates};
