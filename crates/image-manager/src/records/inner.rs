//! [`Inner`]: what the clones of [`PullRecords`](super::PullRecords) share: files, memory, the pulls of this process, and
//! the work that was begun. It orders steps; what is granted is judged in `check.rs`.

use base::lock::{Mutex, MutexGuard, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use base::{blocking, joined};
use oci::trim_tag_and_digest;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::files::{Lock, Use};
use super::options::RecordsOptions;
use super::pulled::{CachedRecord, Lookup, Pulled};
use super::pulling::Pulling;
use super::record::RecordedCredentials;
use super::stripes::Stripes;
use super::{RecordsError, VerificationPolicy};
use crate::requested_name::RequestedName;
use crate::{Metrics, RecordKind};

/// How many writers may be at work at once, at most. More only wait for the same disk.
const STRIPES: usize = 64;

pub(super) struct Inner {
    /// Guards the policy, which may change.
    policy: RwLock<Arc<VerificationPolicy>>,
    pub(super) pulled: Pulled,
    pub(super) pulling: Pulling,
    /// Guards the files of an image (intents) or image ref (records).
    stripes: Stripes,
    /// Guards how many pulls of an image this process has; held for look-ups and changes of the map alone.
    in_flight: Mutex<HashMap<String, InFlight>>,
    /// Everything that was begun and has to be ended.
    pub(super) tracker: TaskTracker,
    /// Where that runs; a guard may be dropped on any thread.
    runtime: Handle,
    pub(super) metrics: Arc<Metrics>,
    counted_intents: AtomicI64,
    counted_records: AtomicI64,
}

/// Records about an image.
pub(super) struct RecordState {
    pub(super) held: Option<Arc<CachedRecord>>,
    /// There is a record or an intent.
    pub(super) pulled_by_us: bool,
    /// The policy that decided whether intents were read: this state is valid for no other policy.
    pub(super) policy: Arc<VerificationPolicy>,
}

impl RecordState {
    fn record(policy: Arc<VerificationPolicy>, held: Arc<CachedRecord>) -> Self {
        Self { held: Some(held), pulled_by_us: true, policy }
    }
}

/// Only one policy makes a difference between an intent and nothing.
fn intents_count(policy: &VerificationPolicy) -> bool {
    *policy == VerificationPolicy::NeverVerifyPreloadedImages
}

/// Pulls of one image.
pub(super) struct InFlight {
    pub(super) count: usize,
    pub(super) lease: Lock,
}

impl Inner {
    /// Opens both directories.
    pub(super) async fn open(options: RecordsOptions, used: Use) -> Result<Arc<Self>, RecordsError> {
        let RecordsOptions { directory, policy, max_intents, max_records, wall_clock, metrics, durable: _ } = options;
        let (pulled, pulling) = blocking(move || {
            let pulling = Pulling::open(directory.join("pulling"), used, max_intents)?;
            let pulled = Pulled::open(directory.join("pulled"), used, max_records, wall_clock)?;
            Ok::<_, RecordsError>((pulled, pulling))
        })
        .await
        .ok_or(RecordsError::Closed)??;
        Ok(Arc::new(Self {
            policy: RwLock::new(Arc::new(policy)),
            pulled,
            pulling,
            stripes: Stripes::new(STRIPES),
            in_flight: Mutex::default(),
            tracker: TaskTracker::new(),
            runtime: Handle::current(),
            metrics,
            counted_intents: AtomicI64::new(0),
            counted_records: AtomicI64::new(0),
        }))
    }

    /// Returns the record of an image, and whether imagelet pulled the image: there is a record or an intent. `None`: that is
    /// not known without waiting for a disk.
    ///
    /// Where an intent counts, it is looked up before the record. It is removed after its record is written, so a look-up in
    /// this order that finds neither has missed none.
    pub(super) fn known_now(
        &self,
        image: &RequestedName<'_>,
        image_ref: &str,
    ) -> Result<Option<RecordState>, RecordsError> {
        let mut intended = false;
        let policy = self.policy();
        if intents_count(&policy) {
            if let Some(held) = self.pulled.lookup_in_memory(image_ref)? {
                return Ok(Some(RecordState::record(policy, held)));
            }
            match self.intended_now(image)? {
                Some(there) => intended = there,
                None => return Ok(None),
            }
        }
        Ok(match self.pulled.lookup(image_ref)? {
            Lookup::Found(held) => Some(RecordState::record(policy, held)),
            Lookup::Absent => Some(RecordState { held: None, pulled_by_us: intended, policy }),
            Lookup::Unknown => None,
        })
    }

    /// The same, with waiting.
    pub(super) async fn known(
        self: &Arc<Self>,
        image: &RequestedName<'_>,
        image_ref: &str,
    ) -> Result<RecordState, RecordsError> {
        let (image, image_ref) = (image.to_static(), image_ref.to_owned());
        let known = move |inner: &Self| {
            let policy = inner.policy();
            let intended = intents_count(&policy) && inner.intended(&image)?;
            Ok(match inner.pulled.read(&image_ref)? {
                Some(held) => RecordState::record(policy, held),
                None => RecordState { held: None, pulled_by_us: intended, policy },
            })
        };
        self.on_blocking(known).await
    }

    /// The policy of now.
    pub(super) fn policy(&self) -> Arc<VerificationPolicy> {
        Arc::clone(&self.policy.read())
    }

    /// Judges by another policy from now on.
    pub(super) fn set_policy(&self, policy: VerificationPolicy) {
        *self.policy.write() = Arc::new(policy);
    }

    /// Returns true if an intent makes a difference now.
    pub(super) fn intents_count(&self) -> bool {
        intents_count(&self.policy())
    }

    fn intended_now(&self, image: &RequestedName<'_>) -> Result<Option<bool>, RecordsError> {
        if self.is_in_flight(image.text()) { Ok(Some(true)) } else { self.pulling.lookup(image) }
    }

    /// Blocks.
    fn intended(&self, image: &RequestedName<'_>) -> Result<bool, RecordsError> {
        if self.is_in_flight(image.text()) { Ok(true) } else { self.pulling.exists(image) }
    }

    fn is_in_flight(&self, image: &str) -> bool {
        let in_flight = self.in_flight();
        !in_flight.is_empty() && in_flight.contains_key(image)
    }

    /// Counts a pull that begins.
    pub(super) async fn begin(self: &Arc<Self>, image: &str) -> Result<(), RecordsError> {
        let _turn = self.stripes.turn(image).await;
        let name = image.to_owned();
        let lease = self.on_blocking(move |inner| {
            let lease = inner.pulling.hold(&name)?;
            inner.recount_intents()?;
            Ok(lease)
        });
        let lease = lease.await?;
        let mut in_flight = self.in_flight();
        let count = in_flight.get(image).map_or(0, |pull| pull.count) + 1;
        in_flight.insert(image.to_owned(), InFlight { count, lease });
        Ok(())
    }

    /// Makes the intent of a pull that has begun outlive a stop of the machine.
    pub(super) async fn settle_intent(self: &Arc<Self>, image: &str) -> Result<(), RecordsError> {
        let name = image.to_owned();
        self.on_blocking(move |inner| inner.pulling.settle(&name)).await
    }

    /// Counts a pull that ended; the last one removes the intent.
    pub(super) async fn finish(self: &Arc<Self>, image: &str) {
        let _turn = self.stripes.turn(image).await;
        let Some(lease) = self.leave(image) else { return };
        let name = image.to_owned();
        let released = self.on_blocking(move |inner| {
            inner.pulling.release(&name, lease)?;
            inner.recount_intents()
        });
        if let Err(error) = released.await {
            tracing::warn!(%error, image, "a pull intent stays behind");
        }
    }

    /// Counts a pull that ended; the intent stays.
    pub(super) async fn abandon(self: &Arc<Self>, image: &str) {
        let _turn = self.stripes.turn(image).await;
        drop(self.leave(image));
    }

    /// The lease, if this was the last pull of the image.
    fn leave(&self, image: &str) -> Option<Lock> {
        let mut in_flight = self.in_flight();
        let pull = in_flight.get_mut(image)?;
        pull.count -= 1;
        if pull.count > 0 {
            return None;
        }
        in_flight.remove(image).map(|pull| pull.lease)
    }

    pub(super) fn in_flight(&self) -> MutexGuard<'_, HashMap<String, InFlight>> {
        // Nothing that panics is called with it held.
        self.in_flight.lock()
    }

    pub(super) async fn record(
        self: &Arc<Self>,
        image: &str,
        image_ref: &str,
        added: Option<RecordedCredentials>,
    ) -> Result<(), RecordsError> {
        let name =
            trim_tag_and_digest(image).map_err(|source| RecordsError::Name { image: image.to_owned(), source })?;
        self.learn(image_ref, Some(name), added).await
    }

    pub(super) async fn learn(
        self: &Arc<Self>,
        image_ref: &str,
        name: Option<String>,
        added: Option<RecordedCredentials>,
    ) -> Result<(), RecordsError> {
        let _turn = self.stripes.turn(image_ref).await;
        let image_ref = image_ref.to_owned();
        self.on_blocking(move |inner| inner.update(&image_ref, name.as_deref(), added.as_ref())).await
    }

    /// Blocks.
    pub(super) fn update(
        &self,
        image_ref: &str,
        name: Option<&str>,
        added: Option<&RecordedCredentials>,
    ) -> Result<(), RecordsError> {
        if self.pulled.update(image_ref, name, added)? {
            self.counted_records.fetch_add(1, Ordering::Relaxed);
            self.metrics.on_disk(0, 1);
        }
        self.report_usage();
        Ok(())
    }

    /// Counts what is on disk; other processes change it as well. Blocks.
    pub(super) fn recount(&self) -> Result<(), RecordsError> {
        let records = i64::try_from(self.pulled.count()?).unwrap_or(i64::MAX);
        self.metrics.on_disk(0, records - self.counted_records.swap(records, Ordering::Relaxed));
        self.recount_intents()
    }

    /// Blocks.
    fn recount_intents(&self) -> Result<(), RecordsError> {
        let intents = i64::try_from(self.pulling.count()?).unwrap_or(i64::MAX);
        self.metrics.on_disk(intents - self.counted_intents.swap(intents, Ordering::Relaxed), 0);
        self.report_usage();
        Ok(())
    }

    fn report_usage(&self) {
        self.metrics.in_memory_usage(RecordKind::Intents, self.pulling.usage());
        self.metrics.in_memory_usage(RecordKind::Records, self.pulled.usage());
    }

    /// Runs work that must not be interrupted: it continues when the returned future is dropped.
    pub(super) async fn task<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, RecordsError> {
        joined(self.tracker.spawn_on(task, &self.runtime)).await.ok_or(RecordsError::Closed)
    }

    /// Runs such work in the background; only [`PullRecords::settle`] waits for it.
    pub(super) fn background(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.tracker.spawn_on(task, &self.runtime));
    }

    pub(super) async fn on_blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, RecordsError> + Send + 'static,
    ) -> Result<T, RecordsError> {
        let inner = Arc::clone(self);
        blocking(move || work(&inner)).await.ok_or(RecordsError::Closed)?
    }
}
