//! [`Options`]: how a client behaves, with defaults for everything but the hosts.

use std::fmt;
use std::sync::Arc;

use crate::bandwidth::Bandwidth;
use crate::namespace::{HostsError, Namespace};
use crate::proxy::ProxySettings;
use crate::ranges::{Allowance, Memory, RangePolicy};
use crate::resolve::{Lookup, system_lookup};
use crate::retry::RetryPolicy;
use crate::stall::StallPolicy;
use crate::target::AllowedTarget;
use crate::tls::{WallClock, system_clock};
use crate::traffic::Traffic;

/// Returns the hosts of a registry domain. Called for every pull, so that a changed file counts at once.
pub type NamespaceLoader = Arc<dyn Fn(&str) -> Result<Namespace, HostsError> + Send + Sync>;

/// The largest answers that are taken.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Manifest or index.
    pub manifest: u64,
    /// Image config.
    pub config: u64,
    /// Answer of a token service.
    pub token: u64,
    /// Body of an error, as far as it is read.
    pub error_body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { manifest: 4 << 20, config: 4 << 20, token: 1 << 20, error_body: 64 << 10 }
    }
}

/// The settings of a client.
#[derive(Clone)]
pub struct Options {
    /// Returns the hosts of a domain.
    pub namespaces: NamespaceLoader,
    /// `User-Agent`.
    pub user_agent: String,
    /// How often and how soon a request is tried again.
    pub retry: RetryPolicy,
    /// The largest answers that are taken.
    pub limits: Limits,
    /// The proxies of the environment.
    pub proxy: ProxySettings,
    /// When a blob is fetched by several ranges at once.
    pub ranges: RangePolicy,
    /// When a connection that delivers next to nothing is replaced.
    pub stall: StallPolicy,
    /// Limit of the bytes a second that all pulls take in together.
    pub bandwidth: Bandwidth,
    /// Counts the bytes that are received from each host.
    pub traffic: Traffic,
    /// Targets of redirects and token services that are allowed though they are in plain HTTP or near this machine and
    /// not near the registry.
    pub allowed_targets: Vec<AllowedTarget>,
    /// Resolves names to addresses.
    pub lookup: Lookup,
    /// The clock by which certificates are judged.
    pub wall_clock: WallClock,
    /// Where the bytes of ranges wait for their turn: a range is only asked for when its bytes may be held.
    pub memory: Arc<dyn Memory>,
}

impl Options {
    /// The usual behaviour with these hosts.
    #[must_use]
    pub fn new(namespaces: NamespaceLoader) -> Self {
        Self {
            namespaces,
            user_agent: concat!("imagelet/", env!("CARGO_PKG_VERSION")).to_owned(),
            retry: RetryPolicy::default(),
            limits: Limits::default(),
            proxy: ProxySettings::default(),
            ranges: RangePolicy::default(),
            stall: StallPolicy::default(),
            bandwidth: Bandwidth::default(),
            traffic: Traffic::default(),
            allowed_targets: Vec::new(),
            lookup: system_lookup(),
            wall_clock: system_clock(),
            memory: Arc::new(Allowance::default()),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new(Arc::new(Namespace::default_for))
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("user_agent", &self.user_agent)
            .field("retry", &self.retry)
            .field("limits", &self.limits)
            .field("proxy", &self.proxy)
            .field("ranges", &self.ranges)
            .field("stall", &self.stall)
            .field("bandwidth", &self.bandwidth)
            .field("allowed_targets", &self.allowed_targets)
            .finish_non_exhaustive()
    }
}
