//! [`Client`]: the state that outlives a pull: connection pools, and the hosts that could not be reached.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::lock::Mutex;
use tokio::time::Instant;
use url::Url;

use crate::bandwidth::{Bandwidth, BandwidthShare};
use crate::error::Cause;
use crate::namespace::HostConfig;
use crate::options::Options;
use crate::transport::{Transport, TransportSettings};

/// How long a host that could not be reached, or did not answer, is asked last. Without it a dead mirror would cost its
/// timeout for every blob.
const REMEMBER_UNREACHABLE: Duration = Duration::from_secs(60);

/// The most hosts whose connections are kept; beyond that, connections that no pull uses are dropped.
const MAX_TRANSPORTS: usize = 64;

/// A client of any number of registries. Clones share connections.
#[derive(Clone)]
pub struct Client {
    inner: Arc<ClientState>,
}

struct ClientState {
    shared: Arc<TransportSettings>,
    bandwidth: Bandwidth,
    /// Connections per host, for the configuration that they were made with.
    transports: Mutex<HashMap<HostConfig, Arc<Transport>>>,
    /// Until when a host is asked last.
    unreachable: Mutex<HashMap<Url, Instant>>,
    /// Hosts that turned out to speak the other of HTTP and HTTPS.
    in_other_scheme: Mutex<HashSet<Url>>,
}

impl Client {
    /// A client without connections.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let bandwidth = options.bandwidth.clone();
        let shared = Arc::new(TransportSettings::new(options));
        let inner = ClientState {
            shared,
            bandwidth,
            transports: Mutex::default(),
            unreachable: Mutex::default(),
            in_other_scheme: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.shared.options
    }

    /// A pull's part of the bandwidth.
    pub(crate) fn share(&self) -> BandwidthShare {
        self.inner.bandwidth.share()
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

    /// Remembers that a host speaks the other of HTTP and HTTPS.
    pub(crate) fn note_other_scheme(&self, host: &Url) {
        let mut hosts = self.inner.in_other_scheme.lock();
        if hosts.len() >= MAX_TRANSPORTS {
            hosts.clear();
        }
        hosts.insert(host.clone());
    }

    /// The host as it was found to be spoken to.
    pub(crate) fn in_known_scheme(&self, config: HostConfig) -> HostConfig {
        let is_other = config.either_scheme && self.inner.in_other_scheme.lock().contains(&config.base);
        if is_other { config.in_other_scheme().unwrap_or(config) } else { config }
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
        f.debug_struct("Client").field("options", self.options()).finish_non_exhaustive()
    }
}
