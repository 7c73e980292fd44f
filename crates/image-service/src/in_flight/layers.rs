//! [`InFlightLayers`]: the job that provides each diff ID, so that one layer is not fetched in two compressions at the same
//! time, and the number of pulls that fetch layers before they know the diff IDs. Knows jobs by their keys only.

use base::lock::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use oci::Digest;
use tokio::sync::watch;

use super::LayerKey;

/// Longest wait for other pulls to read their configs.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The job that provides each diff ID, and the pulls whose diff IDs are unknown.
pub(crate) struct InFlightLayers {
    /// Guards the table, and the decision which of two jobs for one diff ID starts.
    jobs: Mutex<HashMap<Digest, LayerKey>>,
    unresolved: Arc<watch::Sender<usize>>,
}

impl Default for InFlightLayers {
    fn default() -> Self {
        Self { jobs: Mutex::default(), unresolved: Arc::new(watch::Sender::new(0)) }
    }
}

/// A pull that fetches layers without knowing their diff IDs, until this is dropped.
pub(crate) struct UnresolvedPull(Arc<watch::Sender<usize>>);

impl InFlightLayers {
    /// Decides how a layer is fetched. If a job of another blob provides the same diff ID, `join` is called with its key and
    /// may return the decision. Otherwise `own` is entered as the job for the diff ID, and `begin` is called before another
    /// pull can decide about the same layer.
    pub(crate) fn decide<T>(
        &self,
        diff_id: &Digest,
        own: &LayerKey,
        join: impl FnOnce(&LayerKey) -> Option<T>,
        begin: impl FnOnce() -> T,
    ) -> T {
        let mut jobs = self.lock();
        if let Some(other) = jobs.get(diff_id).filter(|other| *other != own)
            && let Some(joined) = join(other)
        {
            return joined;
        }
        let begun = begin();
        jobs.insert(diff_id.clone(), own.clone());
        begun
    }

    /// Removes the jobs that neither run nor have a layer that waits for its commit.
    pub(crate) fn retain(&self, is_live: impl Fn(&LayerKey) -> bool) {
        self.lock().retain(|_, key| is_live(key));
    }

    /// Counts a pull that fetches layers before it knows their diff IDs.
    pub(crate) fn unresolved(&self) -> UnresolvedPull {
        self.unresolved.send_modify(|n| *n += 1);
        UnresolvedPull(Arc::clone(&self.unresolved))
    }

    /// Waits until every pull knows its diff IDs, for a second at most.
    pub(crate) async fn all_resolved(&self) {
        let mut unresolved = self.unresolved.subscribe();
        // After the timeout, a layer may be fetched twice.
        let _ = tokio::time::timeout(MAX_WAIT, unresolved.wait_for(|n| *n == 0)).await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, LayerKey>> {
        self.jobs.lock()
    }
}

impl Drop for UnresolvedPull {
    fn drop(&mut self) {
        self.0.send_modify(|n| *n -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci::Algorithm;

    fn key(name: &str) -> LayerKey {
        LayerKey {
            blob: Digest::sha256(name.as_bytes()),
            algorithm: Algorithm::Sha256,
            only_for: None,
            origin: crate::origin::Origin::Archive,
        }
    }

    #[test]
    fn another_blobs_job_is_joined_while_it_lives() {
        let layers = InFlightLayers::default();
        let diff_id = Digest::sha256(b"layer");
        let decide = |own: &str, alive: bool| {
            layers.decide(&diff_id, &key(own), |other| alive.then(|| other.clone()), || key(own))
        };
        assert_eq!(decide("gzip", true), key("gzip"));
        assert_eq!(decide("zstd", true), key("gzip"), "joined");
        assert_eq!(decide("gzip", true), key("gzip"), "the own job is not joined");
        assert_eq!(decide("zstd", false), key("zstd"), "the other job has ended");
        assert_eq!(decide("gzip", true), key("zstd"));
        layers.retain(|_| false);
        assert_eq!(decide("gzip", true), key("gzip"));
    }

    #[tokio::test]
    async fn resolved_pulls_wait_for_unresolved_ones() {
        let layers = InFlightLayers::default();
        let unresolved = layers.unresolved();
        let mut wait = Box::pin(layers.all_resolved());
        assert!(futures::poll!(&mut wait).is_pending());
        drop(unresolved);
        wait.await;
    }
}
