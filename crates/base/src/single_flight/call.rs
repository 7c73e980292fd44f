//! [`Call`]: a flight as a record in the table, which its waiters and its work share.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use crate::lock::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// The part of a flight that its waiters share.
pub trait Shared: Send + Sync + 'static {
    /// Called, with the group locked, when the last waiter has left. Returns true if the flight ends for that: it leaves
    /// the group at once, so that the next caller starts another one.
    fn last_left(&self) -> bool {
        false
    }

    /// Returns true if the flight is about to end regardless of its waiters.
    fn is_ending(&self) -> bool {
        false
    }
}

/// A flight that is cancelled when its last waiter leaves.
impl Shared for CancellationToken {
    fn last_left(&self) -> bool {
        self.cancel();
        true
    }

    fn is_ending(&self) -> bool {
        self.is_cancelled()
    }
}

pub(crate) type Flights<K, S, A, W> = HashMap<K, Arc<Call<K, S, A, W>>>;

/// Flights by key.
pub(crate) struct Table<K, S, A, W> {
    /// Guards the flights: none is joined, left or ended without it. Locked before the waiters of a flight.
    pub(crate) flights: Mutex<Flights<K, S, A, W>>,
}

/// A flight as its waiters see it.
pub(crate) struct Call<K, S, A, W> {
    pub(crate) key: K,
    pub(crate) shared: S,
    /// Guards the waiters.
    pub(crate) waiters: Mutex<Waiters<A, W>>,
    /// Notified when the first waiter joins and when the last one has left. Only the flight waits for it.
    pub(crate) first_or_last: Notify,
    /// The answer. The channel closes without one if the flight panics.
    pub(crate) answer: watch::Receiver<Option<A>>,
}

pub(crate) struct Waiters<A, W> {
    pub(crate) next: u64,
    /// In order of arrival.
    pub(crate) by_id: BTreeMap<u64, Waiter<A, W>>,
}

pub(crate) struct Waiter<A, W> {
    pub(crate) own_answer: oneshot::Sender<A>,
    pub(crate) brought: W,
}

/// The number of a waiter of one flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaiterId(u64);

impl<K: Hash + Eq, S, A, W> Table<K, S, A, W> {
    /// Removes a flight.
    pub(crate) fn remove(&self, call: &Arc<Call<K, S, A, W>>) {
        remove(&mut self.flights.lock(), call);
    }

    /// Removes a flight if it has no waiters. Returns true if it has none.
    pub(crate) fn retire(&self, call: &Arc<Call<K, S, A, W>>) -> bool {
        let mut flights = self.flights.lock();
        let is_left = call.waiters.lock().by_id.is_empty();
        if is_left {
            remove(&mut flights, call);
        }
        is_left
    }
}

pub(crate) fn remove<K: Hash + Eq, S, A, W>(flights: &mut Flights<K, S, A, W>, call: &Arc<Call<K, S, A, W>>) {
    if flights.get(&call.key).is_some_and(|entry| Arc::ptr_eq(entry, call)) {
        flights.remove(&call.key);
    }
}

impl<K, S, A, W> Call<K, S, A, W> {
    /// Adds a waiter, and returns its number.
    pub(crate) fn enter(&self, waiter: Waiter<A, W>) -> u64 {
        let mut waiters = self.waiters.lock();
        let id = waiters.next;
        waiters.next += 1;
        waiters.by_id.insert(id, waiter);
        let is_first = waiters.by_id.len() == 1;
        drop(waiters);
        if is_first {
            self.first_or_last.notify_one();
        }
        id
    }

    /// Returns when there is a waiter (`true`), or when there is none (`false`).
    pub(crate) async fn until_waited_for(&self, is_waited_for: bool) {
        while self.waiters.lock().by_id.is_empty() == is_waited_for {
            self.first_or_last.notified().await;
        }
    }

    /// The first waiter, in order of arrival, for which `of` returns something.
    pub(crate) fn find_waiter<R>(&self, mut of: impl FnMut(&mut W) -> Option<R>) -> Option<(WaiterId, R)> {
        let mut waiters = self.waiters.lock();
        waiters.by_id.iter_mut().find_map(|(id, waiter)| of(&mut waiter.brought).map(|found| (WaiterId(*id), found)))
    }

    /// Answers one waiter and removes it.
    pub(crate) fn answer_one(&self, waiter: WaiterId, answer: A) {
        if let Some((waiter, _)) = self.leave(waiter.0) {
            // An error means that the ticket was dropped.
            let _ = waiter.own_answer.send(answer);
        }
    }

    /// Removes a waiter. Returns it, and true if it was the last one; `None` if it was answered before.
    pub(crate) fn leave(&self, id: u64) -> Option<(Waiter<A, W>, bool)> {
        let mut waiters = self.waiters.lock();
        let waiter = waiters.by_id.remove(&id)?;
        let is_last = waiters.by_id.is_empty();
        drop(waiters);
        if is_last {
            self.first_or_last.notify_one();
        }
        Some((waiter, is_last))
    }
}
