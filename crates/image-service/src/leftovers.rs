//! [`Leftovers`]: images that were begun in a runtime's store and never ended. The next pull of the same image uses the content that
//! they hold. It is released after an hour, or as soon as the image is complete. Interrupted pulls and killed processes leave
//! them.

use std::time::Duration;

use base::lock::Mutex;
use cri_api::engine::runtime_store::UnfinishedDeposit;
use oci::Digest;

use crate::options::RuntimeTarget;

/// How long leftovers stay in a runtime's store: longer than the back-off of a kubelet, which ends at five minutes.
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// Images that were begun in a runtime's store and never ended.
#[derive(Default)]
pub(crate) struct Leftovers(Mutex<Vec<UnfinishedDeposit>>);

impl Leftovers {
    /// Starts with the leftovers of an earlier process.
    pub(crate) fn new(found: Vec<UnfinishedDeposit>) -> Self {
        Self(Mutex::new(found))
    }

    /// Adds the leftovers of a process that has ended.
    pub(crate) fn add(&self, found: Vec<UnfinishedDeposit>) {
        let mut left = self.0.lock();
        for found in found {
            if left.iter().all(|left| left.id != found.id) {
                left.push(found);
            }
        }
    }

    /// Adds an image whose pull was interrupted `now`, in nanoseconds since 1970.
    pub(crate) fn add_interrupted(&self, id: String, manifest: Digest, now: i64) {
        let begun_at = now / 1_000_000_000;
        self.0.lock().push(UnfinishedDeposit { id, manifest: Some(manifest), begun_at });
    }

    /// Releases an image, and the leftovers of earlier attempts.
    pub(crate) async fn end(&self, target: &RuntimeTarget, id: &str, manifest: &Digest) {
        let own = UnfinishedDeposit { id: id.to_owned(), manifest: Some(manifest.clone()), begun_at: 0 };
        self.release(target, vec![own]).await;
        self.end_earlier(target, manifest).await;
    }

    /// Releases the leftovers of earlier attempts of an image.
    pub(crate) async fn end_earlier(&self, target: &RuntimeTarget, manifest: &Digest) {
        let mut ended = Vec::new();
        self.0.lock().retain(|left| {
            let same = left.manifest.as_ref() == Some(manifest);
            if same {
                ended.push(left.clone());
            }
            !same
        });
        self.release(target, ended).await;
    }

    /// Releases the leftovers that were begun at least an hour before `now`, in nanoseconds since 1970; all of them if `all`.
    pub(crate) async fn sweep(&self, target: &RuntimeTarget, now: i64, all: bool) {
        let since = now / 1_000_000_000 - i64::try_from(KEPT_FOR.as_secs()).unwrap_or(i64::MAX);
        let mut old = Vec::new();
        self.0.lock().retain(|left| {
            let is_old = all || left.begun_at <= since;
            if is_old {
                old.push(left.clone());
            }
            !is_old
        });
        self.release(target, old).await;
    }

    async fn release(&self, target: &RuntimeTarget, left: Vec<UnfinishedDeposit>) {
        for left in left {
            if let Err(error) = target.store.give_up(&left.id).await {
                tracing::debug!(%error, id = left.id, "leftovers of a pull stay until the next sweep");
                self.0.lock().push(left);
            }
        }
    }
}
