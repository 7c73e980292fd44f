//! This node in the cluster: its Node object with labels and taints, its Lease, its status. [`NodeKeeper`] keeps all of them; the
//! rest are pure functions below it. Knows no pod. Called by the binary.

mod conditions;
mod instance;
mod keeper;
mod labels;
mod lease;
mod machine;
mod observed;
mod options;
mod own_node;
mod patch;
mod register;
mod status;
mod taint;

pub use conditions::MIN_FREE_MEMORY;
pub use instance::{InstanceError, instance};
pub use keeper::NodeKeeper;
pub use labels::{Label, LabelError};
pub use lease::NameTaken;
pub use machine::Machine;
pub use observed::{Disk, Observe, Observed, RuntimeReport};
pub use options::{NodeIdentity, NodeOptions};
pub use own_node::OwnNode;
pub use patch::{has_changed, status_patch};
pub use status::allocatable;
pub use taint::{DEFAULT_TAINT, Taint, TaintError};
