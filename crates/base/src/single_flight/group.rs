//! [`Group`] and [`Ticket`]: the waiters' side of a flight.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::lock::Mutex;
use tokio::sync::{Notify, oneshot, watch};

use crate::single_flight::Flight;
use crate::single_flight::call::{Call, Shared, Table, Waiter, Waiters, remove};

/// The flights under way by key `K`. `S` is the state that the waiters of a flight share, `A` its answer, and `W` the data
/// that each waiter passes to [`Group::join`].
pub struct Group<K, S, A, W = ()>(Arc<Table<K, S, A, W>>);

/// A caller's ticket; with it, for the first caller, the flight to run.
pub type Joined<K, S, A, W> = (Ticket<K, S, A, W>, Option<Flight<K, S, A, W>>);

/// A caller's share of a flight. Dropping it is leaving.
#[must_use = "dropping it leaves the flight"]
pub struct Ticket<K: Hash + Eq, S: Shared, A, W = ()> {
    table: Arc<Table<K, S, A, W>>,
    call: Arc<Call<K, S, A, W>>,
    id: u64,
    own_answer: oneshot::Receiver<A>,
}

impl<K, S, A, W> Clone for Group<K, S, A, W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, S, A, W> Default for Group<K, S, A, W> {
    fn default() -> Self {
        Self(Arc::new(Table { flights: Mutex::default() }))
    }
}

impl<K: Hash + Eq + Clone, S: Shared, A: Clone, W> Group<K, S, A, W> {
    /// Joins the flight of `key`. If there is none, it is entered with what `start` makes, with the group locked, and the
    /// caller gets the [`Flight`] to run.
    pub fn join(&self, key: &K, brought: W, start: impl FnOnce() -> S) -> Joined<K, S, A, W> {
        let (own_answer, receiver) = oneshot::channel();
        let waiter = Waiter { own_answer, brought };
        let mut flights = self.0.flights.lock();
        if let Some(call) = flights.get(key) {
            return (self.ticket(call, waiter, receiver), None);
        }
        let (sender, answer) = watch::channel(None);
        let waiters = Mutex::new(Waiters { next: 0, by_id: BTreeMap::new() });
        let call = Call { key: key.clone(), shared: start(), waiters, first_or_last: Notify::new(), answer };
        let call = Arc::new(call);
        let ticket = self.ticket(&call, waiter, receiver);
        flights.insert(key.clone(), Arc::clone(&call));
        drop(flights);
        (ticket, Some(Flight::new(Arc::clone(&self.0), call, sender)))
    }

    /// Joins the flight of `key`, if there is one.
    pub fn join_running(&self, key: &K, brought: W) -> Option<Ticket<K, S, A, W>> {
        let (own_answer, receiver) = oneshot::channel();
        let flights = self.0.flights.lock();
        flights.get(key).map(|call| self.ticket(call, Waiter { own_answer, brought }, receiver))
    }

    fn ticket(
        &self,
        call: &Arc<Call<K, S, A, W>>,
        waiter: Waiter<A, W>,
        own_answer: oneshot::Receiver<A>,
    ) -> Ticket<K, S, A, W> {
        let id = call.enter(waiter);
        Ticket { table: Arc::clone(&self.0), call: Arc::clone(call), id, own_answer }
    }
}

impl<K: Hash + Eq + Clone, S, A, W> Group<K, S, A, W> {
    /// The keys of those flights that are `wanted`.
    #[must_use]
    pub fn keys(&self, wanted: impl Fn(&K) -> bool) -> Vec<K> {
        self.0.flights.lock().keys().filter(|key| wanted(key)).cloned().collect()
    }

    /// Returns true if the flight of `key` is under way.
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.0.flights.lock().contains_key(key)
    }

    /// Number of flights under way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.flights.lock().len()
    }

    /// Returns true if no flight is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of waiters of all flights under way.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.0.flights.lock().values().map(|call| call.waiters.lock().by_id.len()).sum()
    }
}

impl<K: Hash + Eq, S: Shared, A, W> Ticket<K, S, A, W> {
    /// The value that the waiters of the flight share.
    #[must_use]
    pub fn shared(&self) -> &S {
        &self.call.shared
    }
}

impl<K: Hash + Eq, S: Shared, A: Clone, W> Ticket<K, S, A, W> {
    /// Waits for the answer. `None`: the flight panicked, or was dropped. May be dropped and called again.
    pub async fn wait(&mut self) -> Option<A> {
        let mut answer = self.call.answer.clone();
        tokio::select! {
            biased;
            Ok(own) = &mut self.own_answer, if !self.own_answer.is_terminated() => Some(own),
            ended = answer.wait_for(Option::is_some) => ended.ok().and_then(|answer| answer.clone()),
        }
    }

    /// Leaves. If that ends the flight, waits until it has ended, and returns the answer that it had all the same.
    pub async fn leave(self) -> Option<A> {
        let call = Arc::clone(&self.call);
        drop(self);
        if !call.shared.is_ending() {
            return None;
        }
        let mut answer = call.answer.clone();
        let ended = answer.wait_for(Option::is_some).await;
        ended.ok().and_then(|answer| answer.clone())
    }
}

impl<K: Hash + Eq, S: Shared, A, W> Drop for Ticket<K, S, A, W> {
    fn drop(&mut self) {
        let mut flights = self.table.flights.lock();
        let left = self.call.leave(self.id);
        if left.as_ref().is_some_and(|(_, is_last)| *is_last) && self.call.shared.last_left() {
            remove(&mut flights, &self.call);
        }
        // The waiter's data may hold tickets itself, so drop it without the lock.
        drop(flights);
        drop(left);
    }
}
