//! [`Leftovers`]: images that were begun in a runtime's store and never ended. What they hold there is used by the next pull of the
//! same image, and given up after an hour, or at once where the image is there. Filled by pulls, and from what a process that was
//! killed has left.

use std::time::Duration;

use base::lock::Mutex;
use cri_api::engine::runtime_store::UnfinishedDeposit;
use oci::Digest;

use crate::options::RuntimeTarget;

/// How long what an interrupted pull left stays in a runtime's store: long enough for a kubelet to come again, whose back-off
/// ends at five minutes.
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// See the file's head.
#[derive(Default)]
pub(crate) struct Leftovers(Mutex<Vec<UnfinishedDeposit>>);

impl Leftovers {
    /// Those of a process before this one.
    pub(crate) fn of(found: Vec<UnfinishedDeposit>) -> Self {
        Self(Mutex::new(found))
    }

    /// Takes over those of a process that is gone.
    pub(crate) fn add(&self, found: Vec<UnfinishedDeposit>) {
        let mut left = self.0.lock();
        for found in found {
            if left.iter().all(|left| left.id != found.id) {
                left.push(found);
            }
        }
    }

    /// An image that was interrupted `now`, in nanoseconds since 1970.
    pub(crate) fn leave(&self, id: String, manifest: Digest, now: i64) {
        let begun_at = now / 1_000_000_000;
        self.0.lock().push(UnfinishedDeposit { id, manifest: Some(manifest), begun_at });
    }

    /// Ends an image, and gives up what earlier attempts of it left.
    pub(crate) async fn end(&self, target: &RuntimeTarget, id: &str, manifest: &Digest) {
        let own = UnfinishedDeposit { id: id.to_owned(), manifest: Some(manifest.clone()), begun_at: 0 };
        self.give_up(target, vec![own]).await;
        self.end_earlier(target, manifest).await;
    }

    /// Gives up what earlier attempts left of an image that is there.
    pub(crate) async fn end_earlier(&self, target: &RuntimeTarget, manifest: &Digest) {
        let mut ended = Vec::new();
        self.0.lock().retain(|left| {
            let same = left.manifest.as_ref() == Some(manifest);
            if same {
                ended.push(left.clone());
            }
            !same
        });
        self.give_up(target, ended).await;
    }

    /// Gives up what was begun an hour before `now`, in nanoseconds since 1970, or earlier; `all`: everything.
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
        self.give_up(target, old).await;
    }

    async fn give_up(&self, target: &RuntimeTarget, left: Vec<UnfinishedDeposit>) {
        for left in left {
            if let Err(error) = target.store.give_up(&left.id).await {
                tracing::debug!(%error, id = left.id, "what a pull held stays until the next sweep");
                self.0.lock().push(left);
            }
        }
    }
}
