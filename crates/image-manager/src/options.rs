//! [`Options`]: what an [`ImageManager`](crate::ImageManager) works with. The binary makes it of its configuration.

use std::sync::Arc;

use credentials::Keyring;
use tokio::time::Instant;

use crate::{BackoffOptions, Clock, Metrics, NamespaceAccess, PullBoard, PullRecords, PullerOptions, ReclaimSpace};

/// Answers a number that changes whenever the configuration of a registry's host does (`docker.io`,
/// `127.0.0.1:5000`): what failed before may work now.
pub type RegistryFingerprint = Arc<dyn Fn(&str) -> u64 + Send + Sync>;

/// How the manager works.
#[derive(Clone)]
pub struct Options {
    /// How pulls are ordered, limited and shared.
    pub puller: PullerOptions,
    /// The clock by which pulls and back-off are timed.
    pub clock: Clock,
    /// Source of credentials; `None`: every pull is anonymous.
    pub keyring: Option<Arc<Keyring>>,
    /// Pull records; `None`: every image on the node is for every pod.
    pub records: Option<PullRecords>,
    /// Images that namespaces may use although no record proves it.
    pub namespace_access: NamespaceAccess,
    /// Where it is counted.
    pub metrics: Arc<Metrics>,
    /// How long a pull that failed is not tried again.
    pub backoff: BackoffOptions,
    /// Fingerprint of a registry's configuration; a change ends a back-off early.
    pub registry_fingerprint: Option<RegistryFingerprint>,
    /// Frees space for a pull that found the disk full, which is then tried once more; `None`: no space is freed.
    pub reclaim_space: Option<Arc<dyn ReclaimSpace>>,
    /// Where pulls are shown.
    pub board: PullBoard,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            puller: PullerOptions::default(),
            clock: Arc::new(Instant::now),
            keyring: None,
            records: None,
            namespace_access: NamespaceAccess::default(),
            metrics: Metrics::new(),
            backoff: BackoffOptions::default(),
            registry_fingerprint: None,
            reclaim_space: None,
            board: PullBoard::new(Arc::new(Instant::now), Arc::new(|| jiff::Timestamp::UNIX_EPOCH)),
        }
    }
}
