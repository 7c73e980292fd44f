//! [`Coming`]: through which blob each layer is on its way, by diff id, so that a layer which comes in one compression is
//! not fetched in another one at the same time; and how many pulls have begun without knowing the diff ids of what they
//! fetch. It knows jobs by their keys only. Used by [`super::assemble`].

use base::lock::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use oci::Digest;
use tokio::sync::watch;

use super::key::LayerKey;

/// How long a pull waits for others to learn what they are fetching; a config takes a moment.
const PATIENCE: Duration = Duration::from_secs(1);

/// See the file's head.
pub(crate) struct Coming {
    /// Guards the table, and with it the decision which of two jobs for one diff id begins.
    jobs: Mutex<HashMap<Digest, LayerKey>>,
    blind: Arc<watch::Sender<usize>>,
}

impl Default for Coming {
    fn default() -> Self {
        Self { jobs: Mutex::default(), blind: Arc::new(watch::Sender::new(0)) }
    }
}

/// A pull that fetches layers without knowing their diff ids, until this is dropped.
pub(crate) struct Blind(Arc<watch::Sender<usize>>);

impl Coming {
    /// Decides how a layer is fetched: as `joined` returns, which is called with the key of a job of another blob for
    /// the same diff ID, or by the own job, which is noted. `begin` is called before any other pull can decide about
    /// the same layer.
    pub(crate) fn decide<T>(
        &self,
        diff_id: &Digest,
        own: &LayerKey,
        joined: impl FnOnce(&LayerKey) -> Option<T>,
        begin: impl FnOnce() -> T,
    ) -> T {
        let mut jobs = self.lock();
        if let Some(other) = jobs.get(diff_id).filter(|other| *other != own)
            && let Some(joined) = joined(other)
        {
            return joined;
        }
        let begun = begin();
        jobs.insert(diff_id.clone(), own.clone());
        begun
    }

    /// Forgets jobs of which nothing is here any more.
    pub(crate) fn forget(&self, is_live: impl Fn(&LayerKey) -> bool) {
        self.lock().retain(|_, key| is_live(key));
    }

    /// Notes a pull that begins without knowing what it fetches.
    pub(crate) fn blind(&self) -> Blind {
        self.blind.send_modify(|n| *n += 1);
        Blind(Arc::clone(&self.blind))
    }

    /// Waits until every pull knows what it fetches, or for a moment at most.
    pub(crate) async fn all_see(&self) {
        let mut blind = self.blind.subscribe();
        // After the timeout a layer may be fetched twice, and nothing worse.
        let _ = tokio::time::timeout(PATIENCE, blind.wait_for(|n| *n == 0)).await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, LayerKey>> {
        self.jobs.lock()
    }
}

impl Drop for Blind {
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
    fn who_begins_is_joined_as_long_as_it_lives() {
        let coming = Coming::default();
        let diff_id = Digest::sha256(b"layer");
        let decide = |own: &str, alive: bool| {
            coming.decide(&diff_id, &key(own), |other| alive.then(|| other.clone()), || key(own))
        };
        assert_eq!(decide("gzip", true), key("gzip"));
        assert_eq!(decide("zstd", true), key("gzip"), "joined");
        assert_eq!(decide("gzip", true), key("gzip"), "itself is not joined here");
        assert_eq!(decide("zstd", false), key("zstd"), "the other one is gone");
        assert_eq!(decide("gzip", true), key("zstd"));
        coming.forget(|_| false);
        assert_eq!(decide("gzip", true), key("gzip"));
    }

    #[tokio::test]
    async fn who_sees_waits_for_who_does_not() {
        let coming = Coming::default();
        let blind = coming.blind();
        let mut wait = Box::pin(coming.all_see());
        assert!(futures::poll!(&mut wait).is_pending());
        drop(blind);
        wait.await;
    }
}
