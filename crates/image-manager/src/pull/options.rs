//! [`PullerOptions`]: how many pulls there may be, how fast they may begin, and how long one may stall. Plain data; the
//! binary makes it of its configuration.

use std::time::Duration;

/// How pulls are ordered, limited and shared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PullerOptions {
    /// A single pull at a time (`serializeImagePulls`).
    pub serialize: bool,
    /// Where they are not serial: at most so many (`maxParallelImagePulls`); `None` and 0: no limit.
    pub max_parallel: Option<usize>,
    /// At most so many of one registry at a time (`maxParallelImagePullsPerRegistry`); `None` and 0: no limit. A pull that
    /// waits for its registry does not delay pulls from other registries.
    pub per_registry: Option<usize>,
    /// How many pulls may begin per second (`registryPullQPS`); 0: as many as there are.
    pub qps: f64,
    /// How many may begin at once after a quiet time (`registryBurst`); 0 with a rate above 0 refuses every pull, as it
    /// does in the kubelet.
    pub burst: u32,
    /// How long a pull may wait for its turn by `qps`. One that would wait longer fails at once; with
    /// 0 every pull that would wait fails, as in the kubelet.
    pub pull_wait: Duration,
    /// How long a pull continues after its last caller left, so that a recreated pod can join it.
    pub linger: Duration,
    /// A pull that waited longer than this precedes all others, whatever their priority, so that none starves.
    pub ageing: Duration,
    /// True if requests for the same image share one pull. The kubelet's do not.
    pub coalesce: bool,
    /// Ends a pull that resolves its name or fetches layers, and has received no byte for this long
    /// (`imagePullProgressDeadline`). Needs a service that reports progress. `None` and 0: it may stall for ever.
    pub progress_deadline: Option<Duration>,
}

impl Default for PullerOptions {
    fn default() -> Self {
        Self {
            serialize: true,
            max_parallel: None,
            per_registry: None,
            qps: 5.0,
            burst: 10,
            pull_wait: Duration::from_secs(30),
            linger: Duration::from_millis(500),
            ageing: Duration::from_secs(60),
            coalesce: true,
            progress_deadline: None,
        }
    }
}

impl PullerOptions {
    /// Returns the longest time without progress; `None`: no limit.
    pub(super) fn stall_limit(&self) -> Option<Duration> {
        self.progress_deadline.filter(|limit| !limit.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_zero_are_no_limit() {
        for progress_deadline in [None, Some(Duration::ZERO)] {
            assert_eq!(PullerOptions { progress_deadline, ..PullerOptions::default() }.stall_limit(), None);
        }
    }
}
