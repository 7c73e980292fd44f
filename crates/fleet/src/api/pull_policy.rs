//! [`PullPolicy`]: when a node pulls an image, in the spec and in the status of a set.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When a node pulls an image of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// Unless the image with the resolved digest is present.
    #[default]
    Always,
    /// Unless any image of this name is present.
    IfNotPresent,
}
