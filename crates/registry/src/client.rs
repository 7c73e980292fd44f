//! [`Client`]: what lasts longer than a pull: connection pools, and the memory of hosts that could not be reached.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use oci::{Reference, RegistryAuth};
use tokio::time::Instant;
use url::Url;

use crate::bandwidth::{Bandwidth, Share};
use crate::error::{Cause, RegistryError};
use crate::hosts::HostsError;
use crate::namespace::{HostConfig, Namespace};
use crate::proxy::ProxySettings;
use crate::ranges::{Allowance, Memory, RangePolicy};
use crate::repository::Repository;
use crate::resolve::{Lookup, system_lookup};
use crate::retry::RetryPolicy;
use crate::stall::StallPolicy;
use crate::target::AllowedTarget;
use crate::tls::{WallClock, system_clock};
use crate::transport::{Shared, Transport};

/// How long a host that could not be reached, or did not answer, is asked last. Without it a dead mirror would cost its
/// timeout for every blob.
const REMEMBER_UNREACHABLE: Duration = Duration::from_secs(60);

/// Hosts whose connections are kept; beyond it those that no pull is using go.
const MAX_TRANSPORTS: usize = 64;

/// Tells the hosts of a registry domain. It is called for every pull, so that a changed file counts at once.
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

/// How a client behaves.
#[derive(Clone)]
pub struct Options {
    /// Who stands for a domain.
    pub namespaces: NamespaceLoader,
    /// `User-Agent`.
    pub user_agent: String,
    /// Patience.
    pub retry: RetryPolicy,
    /// Sizes.
    pub limits: Limits,
    /// Proxies.
    pub proxy: ProxySettings,
    /// When a blob is fetched by several ranges at once.
    pub ranges: RangePolicy,
    /// When a connection that brings next to nothing is replaced.
    pub stall: StallPolicy,
    /// Bytes a second that all pulls take in together at most.
    pub bandwidth: Option<u64>,
    /// Where registries may send us to though it is in plain HTTP or at an address that they are not near to.
    pub allowed_targets: Vec<AllowedTarget>,
    /// Who is asked for the addresses of names.
    pub lookup: Lookup,
    /// What time it is, for certificates.
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
            bandwidth: None,
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

/// A client of any number of registries. Clones share connections.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    options: Options,
    shared: Arc<Shared>,
    bandwidth: Option<Arc<Bandwidth>>,
    /// Connections per host, for the configuration that they were made with.
    transports: Mutex<HashMap<HostConfig, Arc<Transport>>>,
    /// Until when a host is asked last.
    unreachable: Mutex<HashMap<Url, Instant>>,
}

impl Client {
    /// A client that has not spoken to anybody yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let shared = Shared::new(&options);
        let bandwidth = options.bandwidth.map(Bandwidth::new);
        let inner = Inner {
            options,
            shared: Arc::new(shared),
            bandwidth,
            transports: Mutex::default(),
            unreachable: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// One pull's session with the registry of `reference`. Asks the loader for the hosts, and nobody else yet.
    ///
    /// # Errors
    /// Of kind [`Config`](crate::ErrorKind::Config), when the hosts cannot be told or used.
    pub fn repository(&self, reference: &Reference, auth: Option<RegistryAuth>) -> Result<Repository, RegistryError> {
        Repository::new(self.clone(), reference, auth)
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.options
    }

    /// A pull's part of the bandwidth, where that is limited.
    pub(crate) fn share(&self) -> Option<Share> {
        self.inner.bandwidth.as_ref().map(Bandwidth::share)
    }

    /// The connections to a host; a changed configuration gets new ones.
    pub(crate) fn transport(&self, config: HostConfig) -> Result<Arc<Transport>, Cause> {
        let mut transports = self.inner.transports.lock();
        if let Some(transport) = transports.get(&config) {
            return Ok(Arc::clone(transport));
        }
        if transports.len() >= MAX_TRANSPORTS {
            transports.retain(|_, transport| Arc::strong_count(transport) > 1);
        }
        let transport = Arc::new(Transport::new(config.clone(), Arc::clone(&self.inner.shared))?);
        transports.insert(config, Arc::clone(&transport));
        Ok(transport)
    }

    pub(crate) fn note_unreachable(&self, host: &Url) {
        let mut unreachable = self.inner.unreachable.lock();
        let now = Instant::now();
        unreachable.retain(|_, until| now < *until);
        unreachable.insert(host.clone(), now + REMEMBER_UNREACHABLE);
    }

    pub(crate) fn note_reached(&self, host: &Url) {
        self.inner.unreachable.lock().remove(host);
    }

    pub(crate) fn is_unreachable(&self, host: &Url) -> bool {
        self.inner.unreachable.lock().get(host).is_some_and(|until| Instant::now() < *until)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("options", &self.inner.options).finish_non_exhaustive()
    }
}
