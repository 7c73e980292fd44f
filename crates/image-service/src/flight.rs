//! [`Flights`]: jobs in flight by key, shared by everybody who wants the same thing at the same time. A job runs as a
//! task of its own; it is cancelled when its last waiter has left, and its table entry goes with it, so that whoever
//! comes next starts afresh. It knows nothing of what the jobs do. Used for pulls and for layers.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use cri_api::{Error, Kind, Result};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::progress::Hub;

/// The table of one kind of jobs.
pub(crate) struct Flights<K, T>(Arc<Table<K, T>>);

struct Table<K, T> {
    /// Guards the entries and, with them, the number of waiters of every job.
    jobs: Mutex<HashMap<K, Arc<Job<T>>>>,
    tracker: TaskTracker,
    /// Parent of every job's token.
    shutdown: CancellationToken,
}

struct Job<T> {
    token: CancellationToken,
    hub: Hub,
    outcome: watch::Receiver<Option<Result<T>>>,
    /// Changed only under the table's lock.
    waiters: Mutex<usize>,
}

/// What a job is handed when it starts.
pub(crate) struct Context {
    /// Cancelled when nobody waits any more, and at shutdown. The job ends soon after, on its own.
    pub(crate) token: CancellationToken,
    /// Where it tells its progress.
    pub(crate) hub: Hub,
}

/// One waiter's share of a job. Dropping it is leaving.
pub(crate) struct Ticket<K: Hash + Eq, T> {
    table: Arc<Table<K, T>>,
    key: K,
    job: Arc<Job<T>>,
    /// Whether this waiter started the job.
    pub(crate) led: bool,
}

impl<K, T> Clone for Flights<K, T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, T> Flights<K, T>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
{
    pub(crate) fn new(tracker: TaskTracker, shutdown: CancellationToken) -> Self {
        Self(Arc::new(Table { jobs: Mutex::default(), tracker, shutdown }))
    }

    /// Joins the job for `key`, or starts it with what `start` makes.
    pub(crate) fn join<F, Fut>(&self, key: &K, start: F) -> Ticket<K, T>
    where
        F: FnOnce(Context) -> Fut,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let mut jobs = self.0.lock();
        if let Some(job) = jobs.get(key) {
            *job.waiters() += 1;
            return Ticket { table: Arc::clone(&self.0), key: key.clone(), job: Arc::clone(job), led: false };
        }
        let token = self.0.shutdown.child_token();
        let hub = Hub::default();
        let (sender, outcome) = watch::channel(None);
        let job = Arc::new(Job { token: token.clone(), hub: hub.clone(), outcome, waiters: Mutex::new(1) });
        jobs.insert(key.clone(), Arc::clone(&job));
        drop(jobs);
        let work = start(Context { token, hub });
        let entry = Entry { table: Arc::clone(&self.0), key: key.clone(), job: Arc::downgrade(&job) };
        self.0.tracker.spawn(async move {
            let result = work.await;
            // Out of the table first: whoever looks from now on finds the store's state, not a job that is over.
            drop(entry);
            sender.send_replace(Some(result));
        });
        Ticket { table: Arc::clone(&self.0), key: key.clone(), job, led: true }
    }

    /// Joins the job for `key`, if there is one.
    pub(crate) fn join_running(&self, key: &K) -> Option<Ticket<K, T>> {
        let jobs = self.0.lock();
        let job = jobs.get(key)?;
        *job.waiters() += 1;
        Some(Ticket { table: Arc::clone(&self.0), key: key.clone(), job: Arc::clone(job), led: false })
    }

    /// The keys of those jobs in flight that are `wanted`.
    pub(crate) fn keys(&self, wanted: impl Fn(&K) -> bool) -> Vec<K> {
        self.0.lock().keys().filter(|key| wanted(key)).cloned().collect()
    }

    /// Whether there is a job for `key`.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.0.lock().contains_key(key)
    }

    /// How many jobs are in flight.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl<K, T> Table<K, T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Arc<Job<T>>>> {
        self.jobs.lock()
    }
}

impl<T> Job<T> {
    fn waiters(&self) -> MutexGuard<'_, usize> {
        self.waiters.lock()
    }
}

impl<K: Hash + Eq, T> Ticket<K, T> {
    /// The job's progress.
    pub(crate) fn hub(&self) -> &Hub {
        &self.job.hub
    }
}

impl<K: Hash + Eq, T: Clone> Ticket<K, T> {
    /// Leaves; where that ends the job, waits until it has cleaned up after itself. The answer is what it had made all the same.
    pub(crate) async fn leave(self) -> Option<T> {
        let job = Arc::clone(&self.job);
        drop(self);
        if !job.token.is_cancelled() {
            return None;
        }
        let mut outcome = job.outcome.clone();
        let ended = outcome.wait_for(Option::is_some).await;
        match ended.as_deref() {
            Ok(Some(Ok(made))) => Some(made.clone()),
            // An error means that the job's task is gone, which is as good.
            _ => None,
        }
    }

    /// Waits for the job's outcome. It may be dropped and called again.
    pub(crate) async fn wait(&self) -> Result<T> {
        let mut outcome = self.job.outcome.clone();
        let ended = outcome.wait_for(Option::is_some).await;
        match ended.as_deref() {
            Ok(Some(result)) => result.clone(),
            _ => Err(Error::new(Kind::Internal, "the job ended without an answer: this is a fault of the program")),
        }
    }
}

impl<K: Hash + Eq, T> Drop for Ticket<K, T> {
    fn drop(&mut self) {
        let mut jobs = self.table.lock();
        let mut waiters = self.job.waiters();
        *waiters -= 1;
        if *waiters == 0 {
            self.job.token.cancel();
            if jobs.get(&self.key).is_some_and(|job| Arc::ptr_eq(job, &self.job)) {
                jobs.remove(&self.key);
            }
        }
    }
}

/// Takes a job out of the table when it ends, also when it panics.
struct Entry<K: Hash + Eq, T> {
    table: Arc<Table<K, T>>,
    key: K,
    job: std::sync::Weak<Job<T>>,
}

impl<K: Hash + Eq, T> Drop for Entry<K, T> {
    fn drop(&mut self) {
        let mut jobs = self.table.lock();
        if jobs.get(&self.key).is_some_and(|job| std::ptr::eq(Arc::as_ptr(job), self.job.as_ptr())) {
            jobs.remove(&self.key);
        }
    }
}

#[cfg(test)]
#[path = "flight_tests.rs"]
mod tests;
