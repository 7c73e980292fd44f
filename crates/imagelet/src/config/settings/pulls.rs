//! Settings of pulls: their number, rate and duration, and the back-off after a failure.

use std::time::Duration;

use crate::config::declare::settings;
use crate::config::kind::MOST;
use crate::config::kind::{boolean, bytes, count, duration, integer, unset};

/// Longest time that a pull or a wait may be given.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// More concurrent pulls than any node has.
const MANY: usize = 10_000;

settings! {
    /// Limits on pulls. `None` has a default that depends on the caller: an agent has the kubelet's, a
    /// command that a person started has no limits. Numbers are as they were written; [`crate::config::check`] validates them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Pulls() {
        Pulls {
            serialize: Option<bool> = None =>
                "serializeImagePulls", "serialize-image-pulls", unset(boolean()),
                "Pull one image after the other. The kubelet's default is true; here the images of a pod are \
                 pulled at the same time unless this is set [default: false]", kubelet_with_zero(), reloads();
            max_parallel: Option<i64> = None =>
                "maxParallelImagePulls", "max-parallel-image-pulls", unset(integer(1..=MOST)),
                "Largest number of images that are pulled at the same time [default: for run 5; for ensure no \
                 limit]", kubelet_with_zero(), reloads();
            per_registry: Option<usize> = None =>
                "maxParallelImagePullsPerRegistry", "max-parallel-image-pulls-per-registry", unset(count(1..=MANY)),
                "Largest number of images that are pulled from one registry at the same time [default: no \
                 limit]", reloads();
            qps: Option<i64> = None =>
                "registryPullQPS", "registry-qps", unset(integer(0..=MOST)),
                "Pulls that may start per second, in the long run; 0 is no limit [default: for an agent 5, \
                 for ensure 0]", kubelet_with_zero(), reloads();
            burst: Option<i64> = None =>
                "registryBurst", "registry-burst", unset(integer(0..=MOST)),
                "Pulls that may start at once, while registryPullQPS limits the rate in the long run; 0 is \
                 the default [default: 10]", kubelet(), reloads();
            /// Zero: none.
            progress_deadline: Duration = Duration::from_secs(300) =>
                "imagePullProgressDeadline", "image-pull-progress-deadline", duration(Duration::ZERO..=DAY),
                "A pull of the embedded engine that makes no progress for this long is given up. 0: never", reloads();
            /// Bytes per second of all pulls together. Zero: no limit.
            bandwidth: u64 = 0 =>
                "maxPullBandwidth", "max-pull-bandwidth", bytes(0..=1 << 40),
                "Bytes per second that all pulls of the embedded engine may receive together; running pulls \
                 share them equally. 0: no limit", reloads();
        }
    }
}

settings! {
    /// The back-off after a failed pull.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct BackOff() {
        Pulls {
            initial: Duration = Duration::from_secs(10) =>
                "imagePullBackOff.initial", "image-pull-back-off-initial", duration(Duration::from_millis(1)..=DAY),
                "How long a pod waits after the first failed pull of an image; doubled after each further one", reloads();
            max: Duration = Duration::from_secs(300) =>
                "imagePullBackOff.max", "image-pull-back-off-max", duration(Duration::from_millis(1)..=DAY),
                "Longest time that a pod waits", reloads();
        }
    }
}
