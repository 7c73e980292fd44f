//! Settings of garbage collection of images and containers, and of the images that a node reports.

use std::time::Duration;

use image_manager::gc::GcPolicy;
use jiff::SignedDuration;

use crate::config::declare::settings;
use crate::config::keep;
use crate::config::kind::MOST;
use crate::config::kind::{boolean, duration, integer, signed_duration, text, unset, words};

/// Longest age that may be demanded, and longest protection.
const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);

settings! {
    /// When images are collected, and which stay. Numbers and ages are as they were written; [`crate::config::check`] validates them.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Gc() {
        Collection {
            high: i64 = GcPolicy::default().high_threshold_percent.into() =>
                "imageGCHighThresholdPercent", "image-gc-high-threshold", integer(0..=100),
                "Percent of the image file system in use, in bytes or in inodes, from which images are \
                 collected. 100: never", kubelet_with_zero(), reloads();
            low: i64 = GcPolicy::default().low_threshold_percent.into() =>
                "imageGCLowThresholdPercent", "image-gc-low-threshold", integer(0..=100),
                "Percent in use at which a collection ends, also under disk pressure", kubelet_with_zero(), reloads();
            min_age: SignedDuration = age(GcPolicy::default().min_age) =>
                "imageMinimumGCAge", "minimum-image-ttl-duration", signed_duration(YEAR),
                "An image that has been on the node for less than this is not collected", kubelet(), reloads();
            max_age: SignedDuration = age(GcPolicy::default().max_age) =>
                "imageMaximumGCAge", "image-maximum-gc-age", signed_duration(YEAR),
                "An image that was unused for longer than this is removed, however much space is free. 0: \
                 never", kubelet_with_zero(), reloads();
            /// `None`: where imagelet itself knows the containers.
            enabled: Option<bool> = None =>
                "imageGC.enabled", "image-gc", unset(boolean()),
                "Whether an agent collects by itself. `serve` then needs to know the containers \
                 (containerRuntimeEndpoint) [default: true for run; false for serve, since a kubelet in front \
                 collects by itself]";
            /// Texts that were checked, see [`crate::config::keep`].
            keep: Vec<String> = Vec::new() =>
                "imageGC.keep", "image-gc-keep", words("RULE", keep::checked),
                "Which images stay, by name: registry.example/team/* one level, registry.example/** \
                 everything below; without a tag every tag. By the namespace of the pod \
                 that used it last: namespace=NAME. With the suffix ;weight=N, those images cost N \
                 times as much instead. May be given again", reloads();
            protect: Duration = Duration::from_secs(3600) =>
                "imageGC.protectPrePulled", "image-gc-protect-pre-pulled", duration(Duration::ZERO..=YEAR),
                "For how long an image that `ensure` or `pull` pulled is collected after all others; where \
                 the containers are known, also any other that none of them has used so far", reloads();
            /// Empty: the runtime pins it.
            sandbox_image: String = String::new() =>
                "imageGC.sandboxImage", "pod-infra-container-image", text("IMAGE", "an image by name or id"),
                "The image of pod sandboxes, which always counts as used [default: none: the runtime pins it]", reloads();
            status_max_images: i64 = 50 =>
                "nodeStatusMaxImages", "node-status-max-images", integer(-1..=MOST),
                "Number of images in the node's status, the largest first. -1: all", kubelet_with_zero(), reloads();
        }
    }
}

settings! {
    /// Which ended containers stay.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct ContainerGc() {
        Collection {
            /// Below zero: any number.
            per_container: i64 = 1 =>
                "containerGC.maximumPerContainer", "maximum-dead-containers-per-container", integer(i64::MIN..=MOST),
                "Number of ended instances of each container of a pod that stay, for their logs. Below 0: any \
                 number", reloads();
        }
    }
}

/// Converts a duration to minutes, the precision of the library's ages.
fn age(age: Duration) -> SignedDuration {
    SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX)
}
