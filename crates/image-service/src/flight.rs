//! [`Flights`]: jobs in flight by key, shared by all callers that want the same result at the same time, over
//! [`base::single_flight`]. A job runs as a task of its own and is cancelled when its last waiter is dropped. Used for pulls,
//! layers and configs.

use std::hash::Hash;

use base::single_flight::{Group, Shared};
use cri_api::{Error, Kind, Result};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::progress::Hub;

/// The table of one kind of jobs.
pub(crate) struct Flights<K, T> {
    group: Group<K, Context, Result<T>>,
    tracker: TaskTracker,
    /// Parent of every job's token.
    shutdown: CancellationToken,
}

/// Token and progress that a job and its waiters share.
#[derive(Clone)]
pub(crate) struct Context {
    /// Cancelled when no caller is waiting any more, and at shutdown. The job ends soon after by itself.
    pub(crate) token: CancellationToken,
    /// Receives the job's progress.
    pub(crate) hub: Hub,
}

impl Shared for Context {
    fn last_left(&self) -> bool {
        self.token.last_left()
    }

    fn is_ending(&self) -> bool {
        self.token.is_ending()
    }
}

/// A waiter's share of a job. Dropping it is leaving.
pub(crate) struct Ticket<K: Hash + Eq, T> {
    ticket: base::single_flight::Ticket<K, Context, Result<T>>,
    /// This waiter started the job.
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

    /// Joins the job for `key`, or starts it with what `start` makes.
    pub(crate) fn join<F, Fut>(&self, key: &K, start: F) -> Ticket<K, T>
    where
        F: FnOnce(Context) -> Fut,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let new = || Context { token: self.shutdown.child_token(), hub: Hub::default() };
        let (ticket, flight) = self.group.join(key, (), new);
        let led = flight.is_some();
        if let Some(flight) = flight {
            let work = start(flight.shared().clone());
            self.tracker.spawn(async move { flight.land(work.await) }.in_current_span());
        }
        Ticket { ticket, led }
    }

    /// Joins the job for `key`, if there is one.
    pub(crate) fn join_running(&self, key: &K) -> Option<Ticket<K, T>> {
        self.group.join_running(key, ()).map(|ticket| Ticket { ticket, led: false })
    }

    /// The keys of those jobs in flight that are `wanted`.
    pub(crate) fn keys(&self, wanted: impl Fn(&K) -> bool) -> Vec<K> {
        self.group.keys(wanted)
    }

    /// Returns true if there is a job for `key`.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.group.contains(key)
    }

    /// Number of jobs in flight.
    pub(crate) fn len(&self) -> usize {
        self.group.len()
    }
}

impl<K: Hash + Eq, T> Ticket<K, T> {
    /// The job's progress.
    pub(crate) fn hub(&self) -> &Hub {
        &self.ticket.shared().hub
    }
}

impl<K: Hash + Eq, T: Clone> Ticket<K, T> {
    /// Leaves. If that ends the job, waits until it has cleaned up after itself, and returns what it had made all the same.
    pub(crate) async fn leave(self) -> Option<T> {
        self.ticket.leave().await.and_then(Result::ok)
    }

    /// Waits for the job's outcome. It may be dropped and called again.
    pub(crate) async fn wait(&mut self) -> Result<T> {
        let ended = "the job ended without an answer: this is a fault of the program";
        self.ticket.wait().await.unwrap_or_else(|| Err(Error::new(Kind::Internal, ended)))
    }
}

#[cfg(test)]
#[path = "flight_tests.rs"]
mod tests;
