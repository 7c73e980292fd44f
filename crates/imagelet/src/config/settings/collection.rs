//! Settings of garbage collection of images.

use std::time::Duration;

use image_manager::gc::GcPolicy;
use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::flag::Group::{Advanced, Collection as Group};
use crate::config::flag::flag;
use crate::config::form::{Age, As};
use crate::config::keep::Rules;

/// Settings of image collection. Numbers and ages are as written; [`crate::config::check`] validates them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Gc {
    #[serde(rename = "imageGCHighThresholdPercent")]
    #[schemars(
        description = "Percent of the image file system in use, in bytes or in inodes, from which images are collected. 100: never",
        range(min = 0, max = 100),
        extend("imagelet" = flag(Group, "image-gc-high-threshold").allowed("a whole number").kubelet_with_zero().reloads())
    )]
    pub(crate) high: i64,
    #[serde(rename = "imageGCLowThresholdPercent")]
    #[schemars(
        description = "Percent in use at which a collection ends, also under disk pressure",
        range(min = 0, max = 100),
        extend("imagelet" = flag(Group, "image-gc-low-threshold").allowed("a whole number").kubelet_with_zero().reloads())
    )]
    pub(crate) low: i64,
    #[serde(rename = "imageMinimumGCAge", with = "As::<Age>")]
    #[schemars(
        description = "An image that has been on the node for less than this is not collected",
        extend("imagelet" = flag(Group, "minimum-image-ttl-duration").kubelet().reloads())
    )]
    pub(crate) min_age: SignedDuration,
    #[serde(rename = "imageMaximumGCAge", with = "As::<Age>")]
    #[schemars(
        description = "An image that was unused for longer than this is removed, however much space is free. 0: never",
        extend("imagelet" = flag(Group, "image-maximum-gc-age").kubelet_with_zero().reloads())
    )]
    pub(crate) max_age: SignedDuration,
    /// `None`: where imagelet itself knows the containers.
    #[serde(rename = "imageGC.enabled")]
    #[schemars(
        description = "Whether an agent collects by itself. `serve` then needs to know the containers (containerRuntimeEndpoint) \
                       [default: true for run; false for serve, since a kubelet in front collects by itself]",
        extend("imagelet" = flag(Group, "image-gc"))
    )]
    pub(crate) enabled: Option<bool>,
    /// Texts that were checked, see [`crate::config::keep`].
    #[serde(rename = "imageGC.keep", with = "As::<Rules>")]
    #[schemars(
        description = "Which images stay, by name: registry.example/team/* one level, registry.example/** everything below; without a \
                       tag every tag. By the namespace of the pod that used it last: namespace=NAME. With the suffix ;weight=N, those \
                       images cost N times as much instead. May be given again",
        extend("imagelet" = flag(Group, "image-gc-keep").value("RULE").reloads())
    )]
    pub(crate) keep: Vec<String>,
    /// Empty: that of the runtime.
    #[serde(rename = "imageGC.sandboxImage")]
    #[schemars(
        description = "The image of pod sandboxes: `run` ensures it before the first pod, and collection keeps it [default: the one that the runtime names]",
        extend("imagelet" = flag(Advanced, "pod-infra-container-image").value("IMAGE").allowed("an image by name or id").reloads())
    )]
    pub(crate) sandbox_image: String,
}

impl Default for Gc {
    fn default() -> Self {
        let policy = GcPolicy::default();
        Self {
            high: policy.high_threshold_percent.into(),
            low: policy.low_threshold_percent.into(),
            min_age: age(policy.min_age),
            max_age: age(policy.max_age),
            enabled: None,
            keep: Vec::new(),
            sandbox_image: String::new(),
        }
    }
}

fn age(age: Duration) -> SignedDuration {
    SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX)
}
