//! [`PullRecords`]: the credentials with which each image was pulled, in files that outlive the process (KEP-2535): a pull
//! intent before a pull, a pulled record after it, and the check whether a pod may use an image that is already present.
//!
//! Directory, names and content of the files are the kubelet's (`pulling/` and `pulled/`, JSON `v1beta1`), so that
//! records can move between the two; not both at once. Several imagelet processes may share a directory:
//!
//! - a file is replaced as a whole, under a lock of its directory, by a draft with a name that no other process uses;
//! - a record is merged with what is on disk at that moment, not with what memory has;
//! - an intent is in use as long as a process that lives shares its lock (`pulling.rs`);
//! - memory counts only as long as the directory's time of change is the one under which it was filled; a hit costs one
//!   `fstat`. Files are replaced, never overwritten: an edit in place is noticed at the next change in the directory.
//!   This needs a local file system, whose clock is that of this kernel.
//!
//! Leftovers of a killed process, and their recovery:
//!
//! | killed | on disk | recovery |
//! |---|---|---|
//! | while the intent is written | a draft | removed by the next [`PullRecords::open`] |
//! | during the pull | the intent | [`PullRecords::recover`] keeps it for a day: the image is not there |
//! | between pull and record | the intent, the image | [`PullRecords::recover`] writes a record without credentials: the registry is asked the next time |
//! | between record and end | intent and record | [`PullRecords::recover`] removes the intent |
//!
//! It decides nothing about pulling, knows no runtime and no registry, and holds hashes of credentials, never one
//! itself. The manager and the puller call it.

mod cache;
mod canonical;
mod check;
mod error;
pub(crate) mod files;
mod format;
mod inner;
mod intent;
mod merge;
mod options;
mod policy;
mod pulled;
mod pulling;
mod record;
mod recover;
mod stripes;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use credentials::Candidate;
use tokio::sync::oneshot;

use crate::requested_name::RequestedName;
use crate::{Access, AccessUnverified, Grant, MustPullResult};

use check::{Before, Named};
use files::Use;
use inner::{Inner, RecordState};
use pulled::CachedRecord;
use record::RecordedCredentials;

pub use error::RecordsError;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use format::{fuzzed_intent, fuzzed_record};
pub use intent::PullIntent;
pub use options::RecordsOptions;
pub use policy::{Allowlist, AllowlistError, VerificationPolicy};

/// Pull intents and pulled records. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct PullRecords {
    inner: Arc<Inner>,
}

impl PullRecords {
    /// Opens the directory: creates it if it is missing, removes partial files of killed processes, migrates files of
    /// older kubelets, and caches as many files as fit in memory. A file that cannot be read is left where it is; its
    /// image has to be verified.
    ///
    /// # Errors
    /// [`RecordsError`], if the directory cannot be made, read or written.
    pub async fn open(options: RecordsOptions) -> Result<Self, RecordsError> {
        let used = if options.durable { Use::Shared } else { Use::SharedUnsynced };
        Self::open_for(options, used).await
    }

    /// Opens the directory only to [`peek`](PullRecords::peek): nothing is made, cleared or migrated, and what would write
    /// fails. A directory that is missing is one without records.
    ///
    /// # Errors
    /// [`RecordsError`], if the directory cannot be read.
    pub async fn open_to_peek(options: RecordsOptions) -> Result<Self, RecordsError> {
        Self::open_for(options, Use::Reading).await
    }

    async fn open_for(options: RecordsOptions, used: Use) -> Result<Self, RecordsError> {
        let inner = Inner::open(options, used).await?;
        inner.on_blocking(Inner::recount).await?;
        Ok(Self { inner })
    }

    /// Turns intents of a killed process into records without credentials, where the image is present (`images` is every
    /// image of the runtime), so that the registry is asked before a pod uses it. Intents in use are kept, and so are
    /// those whose image is absent, for a day: a runtime may still pull it. Returns how many became records.
    ///
    /// # Errors
    /// [`RecordsError`]: the first; the others were tried all the same.
    pub async fn recover(&self, images: &[cri_api::Image]) -> Result<usize, RecordsError> {
        let images = recover::Images::of(images);
        self.inner.on_blocking(move |inner| recover::recover(inner, &images)).await
    }

    /// Decides if a pod may use `image` (as its container names it), which is present as `image_ref`. `candidates` are the
    /// pod's credentials; they are requested only when the rules need them. An empty `image_ref` is an absent image. An
    /// image whose record cannot be read must be verified.
    ///
    /// When the pod has a recorded secret in another place or with another content, the record learns that in the
    /// background. A hit in memory never waits.
    ///
    /// # Errors
    /// Those of `candidates`.
    pub async fn access<E>(
        &self,
        image: &str,
        image_ref: &str,
        candidates: impl AsyncFnOnce() -> Result<Arc<[Candidate]>, E>,
    ) -> Result<Access, E> {
        self.access_to(&RequestedName::new(image), image_ref, candidates).await
    }

    /// [`PullRecords::access`] for a name that the caller has parsed or will parse.
    pub(crate) async fn access_to<E>(
        &self,
        image: &RequestedName<'_>,
        image_ref: &str,
        candidates: impl AsyncFnOnce() -> Result<Arc<[Candidate]>, E>,
    ) -> Result<Access, E> {
        if image_ref.is_empty() {
            return Ok(Access::MustVerify(AccessUnverified::NoRecord));
        }
        let checked = self.check(image, image_ref, candidates).await;
        self.count(checked.as_ref().ok().map(|(said, _)| *said));
        let (Said { access, .. }, lesson) = checked?;
        if let Some(check::Lesson { name, secret }) = lesson {
            let inner = Arc::clone(&self.inner);
            let image_ref = image_ref.to_owned();
            let added = RecordedCredentials { secrets: vec![secret], ..RecordedCredentials::default() };
            self.inner.background(async move {
                if let Err(error) = inner.learn(&image_ref, Some(name), Some(added)).await {
                    tracing::warn!(%error, image_ref, "a pulled record could not learn a secret");
                }
            });
        }
        Ok(access)
    }

    /// The answer of [`PullRecords::access`] where it is known without a pod's credentials and without waiting; nothing is
    /// counted or learnt where it is not.
    pub(crate) fn access_at_hand(&self, image: &RequestedName<'_>, image_ref: &str) -> Option<Access> {
        if image_ref.is_empty() {
            return None;
        }
        let known = self.inner.known_now(image, image_ref).transpose()?;
        let said = match self.by_policy(image, image_ref, known) {
            Ok(held) => by_record(&held, image).err()?,
            Err(said) => said,
        };
        self.count(Some(said));
        Some(said.access)
    }

    /// [`PullRecords::access`] without writing or counting anything.
    ///
    /// # Errors
    /// Those of `candidates`.
    pub async fn peek<E>(
        &self,
        image: &str,
        image_ref: &str,
        candidates: impl AsyncFnOnce() -> Result<Arc<[Candidate]>, E>,
    ) -> Result<Access, E> {
        self.peek_at(&RequestedName::new(image), image_ref, candidates).await
    }

    /// [`PullRecords::peek`] for a name that the caller has parsed or will parse.
    pub(crate) async fn peek_at<E>(
        &self,
        image: &RequestedName<'_>,
        image_ref: &str,
        candidates: impl AsyncFnOnce() -> Result<Arc<[Candidate]>, E>,
    ) -> Result<Access, E> {
        if image_ref.is_empty() {
            return Ok(Access::MustVerify(AccessUnverified::NoRecord));
        }
        self.check(image, image_ref, candidates).await.map(|(said, _)| said.access)
    }

    /// Writes down that `image` is going to be pulled, so that it outlives this process; what
    /// [`PullIntent::before_visible`] gives has to be done before the image may appear. Dropping the future takes it back.
    ///
    /// # Errors
    /// [`RecordsError`]; nothing may be pulled then.
    pub async fn intend(&self, image: &str) -> Result<PullIntent, RecordsError> {
        let (inner, image) = (Arc::clone(&self.inner), image.to_owned());
        let (sender, receiver) = oneshot::channel();
        // As a task, so that the file is not left without a guard when the caller's future is dropped. The guard is sent
        // within the task, so that a guard without a receiver is dropped before the task counts as done.
        self.inner.background(async move {
            let intent = inner.begin(&image).await.map(|()| PullIntent::new(inner, image));
            drop(sender.send(intent));
        });
        receiver.await.map_err(|_| RecordsError::Closed)?
    }

    /// Writes down that `image` was pulled with a credential (`None`: without one), though by another request: for one
    /// that joined it. Dropping the future does not stop it.
    ///
    /// # Errors
    /// [`RecordsError`].
    pub async fn add(&self, image: &str, image_ref: &str, used: Option<&Candidate>) -> Result<(), RecordsError> {
        let inner = Arc::clone(&self.inner);
        let (image, image_ref, used) = (image.to_owned(), image_ref.to_owned(), check::recorded(used));
        self.inner.task(async move { inner.record(&image, &image_ref, Some(used)).await }).await?
    }

    /// Removes the records of images that were removed, and returns how many. `present` is **every** image that is still on
    /// disk, including images that are in use, pinned or were not inspected: without a record every pod may use an image
    /// under the default policy, so only images that are certainly removed may lose their record. (The kubelet passes the
    /// images that garbage collection inspected and kept, and loses records of those that it did not inspect.) Records
    /// written or affirmed by a pull at or after `before`, the time at which the listing of `present` began, stay.
    ///
    /// # Errors
    /// [`RecordsError`]: the first; the others were tried all the same.
    pub async fn prune(&self, present: &BTreeSet<String>, before: jiff::Timestamp) -> Result<usize, RecordsError> {
        let present = present.clone();
        self.inner
            .on_blocking(move |inner| {
                let pruned = inner.pulled.prune(&present, before);
                inner.recount()?;
                pruned
            })
            .await
    }

    /// Returns true if an image without records is for every pod.
    pub(crate) fn frees_what_is_unknown(&self) -> bool {
        self.inner.intents_count()
    }

    /// Waits until everything that was begun is on disk: intents whose guards were dropped, lessons of records.
    pub async fn settle(&self) {
        self.inner.tracker.close();
        self.inner.tracker.wait().await;
        self.inner.tracker.reopen();
    }

    /// Judges by another policy from now on: what is recorded stays.
    pub fn set_policy(&self, policy: VerificationPolicy) {
        self.inner.set_policy(policy);
    }

    /// The rules, in the kubelet's order.
    async fn check<E>(
        &self,
        image: &RequestedName<'_>,
        image_ref: &str,
        candidates: impl AsyncFnOnce() -> Result<Arc<[Candidate]>, E>,
    ) -> Result<(Said, Option<check::Lesson>), E> {
        let known = match self.inner.known_now(image, image_ref).transpose() {
            Some(known) => known,
            None => self.inner.known(image, image_ref).await,
        };
        let held = match self.by_policy(image, image_ref, known) {
            Ok(held) => held,
            Err(said) => return Ok((said, None)),
        };
        Ok(match by_record(&held, image) {
            Ok(named) => {
                let (access, lesson) = named.with(&candidates().await?);
                (Said::plainly(access), lesson)
            }
            Err(said) => (said, None),
        })
    }

    /// The record that has to be asked; `Err`: what can be said without one.
    fn by_policy(
        &self,
        image: &RequestedName<'_>,
        image_ref: &str,
        known: Result<RecordState, RecordsError>,
    ) -> Result<Arc<CachedRecord>, Said> {
        let RecordState { held, pulled_by_us, policy } = known.map_err(|error| {
            tracing::error!(%error, image = image.text(), image_ref, "what is recorded about an image cannot be read");
            Said::BROKEN
        })?;
        if let Some(grant) = policy.exempts(image.text(), pulled_by_us) {
            return Err(Said::plainly(Access::Granted(grant)));
        }
        held.ok_or(Said::plainly(Access::MustVerify(AccessUnverified::NoRecord)))
    }

    /// Counts an answer; `None`: the pod's credentials could not be had.
    fn count(&self, said: Option<Said>) {
        self.inner.metrics.must_pull_check(match said {
            None | Some(Said { broken: true, .. }) => MustPullResult::Error,
            Some(Said { access, .. }) => match access {
                Access::Granted(Grant::NodeAccessible | Grant::CredentialMatches) => {
                    MustPullResult::CredentialRecordFound
                }
                Access::Granted(_) => MustPullResult::CredentialPolicyAllowed,
                Access::MustVerify(_) => MustPullResult::MustAuthenticate,
            },
        });
    }
}

impl fmt::Debug for PullRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PullRecords").field("policy", &self.inner.policy()).finish_non_exhaustive()
    }
}

/// The entries to compare with the pod's credentials; `Err`: the answer without them.
fn by_record<'a>(held: &'a CachedRecord, image: &RequestedName<'_>) -> Result<Named<'a>, Said> {
    match check::before_asking(held, image) {
        Ok(Before::Ask(named)) => Ok(named),
        Ok(Before::Decided(access)) => Err(Said::plainly(access)),
        Err(error) => {
            tracing::error!(%error, image = image.text(), "an image name cannot be looked for in its record");
            Err(Said::BROKEN)
        }
    }
}

/// Result of a check.
#[derive(Clone, Copy)]
struct Said {
    access: Access,
    /// Something could not be read.
    broken: bool,
}

impl Said {
    const BROKEN: Self = Self { access: Access::MustVerify(AccessUnverified::RecordUnreadable), broken: true };

    fn plainly(access: Access) -> Self {
        Self { access, broken: false }
    }
}

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
