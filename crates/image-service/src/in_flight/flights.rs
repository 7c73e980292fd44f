//! [`Flights`]: jobs in flight by key, over [`base::single_flight`]. All callers that want the same result at the same time
//! share one job, which runs as a task of its own and is cancelled when its last waiter is dropped.

use std::hash::Hash;

use base::single_flight::{Group, Shared};
use cri_api::{Error, Kind, Result};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::progress::Hub;

/// The table of one kind of job.
pub(crate) struct Flights<K, T> {
    group: Group<K, JobContext, Result<T>>,
    tracker: TaskTracker,
    /// Parent of every job's token.
    shutdown: CancellationToken,
}

/// The token and the progress that a job shares with its waiters.
#[derive(Clone)]
pub(crate) struct JobContext {
    /// Cancelled when the last waiter leaves, and at shutdown. The job then ends soon by itself.
    pub(crate) token: CancellationToken,
    /// Receives the job's progress.
    pub(crate) hub: Hub,
}

impl Shared for JobContext {
    fn last_left(&self) -> bool {
        self.token.last_left()
    }

    fn is_ending(&self) -> bool {
        self.token.is_ending()
    }
}

/// A waiter's share of a job. A dropped ticket leaves the job.
pub(crate) struct Ticket<K: Hash + Eq, T> {
    ticket: base::single_flight::Ticket<K, JobContext, Result<T>>,
    /// True if this waiter started the job.
    pub(crate) led: bool,
}

impl<K, T> Clone for Flights<K, T> {
    fn clone(&self) -> Self {
        Self { group: self.group.clone(), tracker: self.tracker.clone(), shutdown: self.shutdown.clone() }
    }
}

impl<K, T> Flights<K, T>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
{
    pub(crate) fn new(tracker: TaskTracker, shutdown: CancellationToken) -> Self {
        Self { group: Group::default(), tracker, shutdown }
    }

    /// Joins the job for `key`, or starts it with the future that `start` makes.
    pub(crate) fn join<F, Fut>(&self, key: &K, start: F) -> Ticket<K, T>
    where
        F: FnOnce(JobContext) -> Fut,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let new = || JobContext { token: self.shutdown.child_token(), hub: Hub::default() };
        let (ticket, flight) = self.group.join(key, (), new);
        let led = flight.is_some();
        if let Some(flight) = flight {
            let work = start(flight.shared().clone());
            self.tracker.spawn(async move { flight.land(work.await) }.in_current_span());
        }
        Ticket { ticket, led }
    }

    /// Joins the job for `key` if one is running.
    pub(crate) fn join_running(&self, key: &K) -> Option<Ticket<K, T>> {
        self.group.join_running(key, ()).map(|ticket| Ticket { ticket, led: false })
    }

    /// Returns the keys of the `wanted` jobs in flight.
    pub(crate) fn keys(&self, wanted: impl Fn(&K) -> bool) -> Vec<K> {
        self.group.keys(wanted)
    }

    /// Returns true if a job for `key` is running.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.group.contains(key)
    }

    /// Returns the number of jobs in flight.
    pub(crate) fn len(&self) -> usize {
        self.group.len()
    }
}

impl<K: Hash + Eq, T> Ticket<K, T> {
    /// Returns the progress of the job.
    pub(crate) fn hub(&self) -> &Hub {
        &self.ticket.shared().hub
    }
}

impl<K: Hash + Eq, T: Clone> Ticket<K, T> {
    /// Leaves the job. If that ends it, waits for its cleanup, and returns its result if it completed nevertheless.
    pub(crate) async fn leave(self) -> Option<T> {
        self.ticket.leave().await.and_then(Result::ok)
    }

    /// Waits for the job's result. The future may be dropped and the call repeated.
    pub(crate) async fn wait(&mut self) -> Result<T> {
        let ended = "the job ended without an answer: this is a fault of the program";
        self.ticket.wait().await.unwrap_or_else(|| Err(Error::new(Kind::Internal, ended)))
    }
}

#[cfg(test)]
#[path = "flights_tests.rs"]
mod tests;
