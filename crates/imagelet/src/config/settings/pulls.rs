//! Settings of pulls: their number, rate and duration, and the back-off after a failure.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::flag::Group::{Advanced, Pulls as Group};
use crate::config::flag::flag;
use crate::config::form::{As, DAY, MOST, SECOND, Size, Span};

/// Longest delay of a pod after failed pulls: the kubelet's.
pub(crate) const LONGEST_BACK_OFF: Duration = Duration::from_secs(300);

/// Limits on pulls. `None` has a default that depends on the caller: an agent has the kubelet's, a
/// command that a person started has no limits. Numbers are as they were written; [`crate::config::check`] validates them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Pulls {
    #[serde(rename = "serializeImagePulls")]
    #[schemars(
        description = "Pull one image after the other. The kubelet's default is true; here the images of a pod are pulled at the same \
                       time unless this is set [default: false]",
        extend("imagelet" = flag(Group, "serialize-image-pulls").kubelet_with_zero().reloads())
    )]
    pub(crate) serialize: Option<bool>,
    #[serde(rename = "maxParallelImagePulls")]
    #[schemars(
        description = "Largest number of images that are pulled at the same time [default: for run 5; for ensure no limit]",
        range(min = 1, max = MOST),
        extend("imagelet" = flag(Group, "max-parallel-image-pulls").allowed("a whole number").kubelet_with_zero().reloads())
    )]
    pub(crate) max_parallel: Option<i64>,
    #[serde(rename = "registryPullQPS")]
    #[schemars(
        description = "Pulls that may start per second, in the long run; 0 is no limit [default: for an agent 5, for ensure 0]",
        range(min = 0, max = MOST),
        extend("imagelet" = flag(Group, "registry-qps").allowed("a whole number").kubelet_with_zero().reloads())
    )]
    pub(crate) qps: Option<i64>,
    #[serde(rename = "registryBurst")]
    #[schemars(
        description = "Pulls that may start at once, while registryPullQPS limits the rate in the long run; 0 is the default \
                       [default: 10]",
        range(min = 0, max = MOST),
        extend("imagelet" = flag(Group, "registry-burst").allowed("a whole number").kubelet().reloads())
    )]
    pub(crate) burst: Option<i64>,
    /// Zero: none.
    #[serde(rename = "imagePullProgressDeadline", with = "As::<Span<0, DAY>>")]
    #[schemars(
        description = "A pull of the embedded engine that makes no progress for this long is given up. 0: never",
        extend("imagelet" = flag(Group, "image-pull-progress-deadline").reloads())
    )]
    pub(crate) progress_deadline: Duration,
    /// Bytes per second of all pulls together. Zero: no limit.
    #[serde(rename = "maxPullBandwidth", with = "As::<Size<0, { 1 << 40 }>>")]
    #[schemars(
        description = "Bytes per second that all pulls of the embedded engine may receive together; running pulls share them \
                       equally. 0: no limit",
        extend("imagelet" = flag(Group, "max-pull-bandwidth").reloads())
    )]
    pub(crate) bandwidth: u64,
}

impl Default for Pulls {
    fn default() -> Self {
        Self {
            serialize: None,
            max_parallel: None,
            qps: None,
            burst: None,
            progress_deadline: Duration::from_secs(300),
            bandwidth: 0,
        }
    }
}

/// The back-off after a failed pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct BackOff {
    #[serde(rename = "imagePullBackOff.initial", with = "As::<Span<1, { 300 * SECOND }>>")]
    #[schemars(
        description = "How long a pod waits after the first failed pull of an image; doubled after each further one, up to 5m",
        extend("imagelet" = flag(Advanced, "image-pull-back-off-initial").reloads())
    )]
    pub(crate) initial: Duration,
}

impl Default for BackOff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(10) }
    }
}
