//! [`Group`] and [`Ticket`]: the waiters' side of a flight.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::Flight;

/// The part of a flight that its waiters share.
pub trait Shared: Send + Sync + 'static {
    /// Called, with the group locked, when the last waiter has left. Returns true if the flight ends for that: it leaves
    /// the group at once, so that the next caller starts another one.
    fn last_left(&self) -> bool {
        false
    }

    /// Returns true if the flight is about to end without waiting for anybody.
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

/// The flights under way by key `K`. `S` is what the waiters of a flight share, `A` its answer, and `W` what each waiter
/// brings.
pub struct Group<K, S, A, W = ()>(Arc<Table<K, S, A, W>>);

pub(crate) struct Table<K, S, A, W> {
    /// Guards the flights: none is joined, left or ended without it. Locked before the waiters of a flight.
    flights: Mutex<HashMap<K, Arc<Call<S, A, W>>>>,
}

/// A flight as its waiters see it.
pub(crate) struct Call<S, A, W> {
    pub(crate) shared: S,
    /// Guards the waiters.
    waiters: Mutex<Waiters<A, W>>,
    /// Number of waiters.
    pub(crate) count: watch::Sender<usize>,
    /// The answer. The channel closes without one if the flight panics.
    answer: watch::Receiver<Option<A>>,
}

struct Waiters<A, W> {
    next: u64,
    /// In order of arrival.
    by_id: BTreeMap<u64, Waiter<A, W>>,
}

struct Waiter<A, W> {
    own_answer: oneshot::Sender<A>,
    brought: W,
}

/// The number of a waiter of one flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaiterId(u64);

/// A caller's share of a flight. Dropping it is leaving.
#[must_use = "dropping it leaves the flight"]
pub struct Ticket<K: Hash + Eq, S: Shared, A, W = ()> {
    table: Arc<Table<K, S, A, W>>,
    key: K,
    call: Arc<Call<S, A, W>>,
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
    pub fn join(
        &self,
        key: &K,
        brought: W,
        start: impl FnOnce() -> S,
    ) -> (Ticket<K, S, A, W>, Option<Flight<K, S, A, W>>) {
        let mut flights = self.0.flights.lock();
        if let Some(call) = flights.get(key) {
            return (self.ticket(key, call, brought), None);
        }
        let (sender, answer) = watch::channel(None);
        let waiters = Mutex::new(Waiters { next: 0, by_id: BTreeMap::new() });
        let call = Arc::new(Call { shared: start(), waiters, count: watch::Sender::new(0), answer });
        let ticket = self.ticket(key, &call, brought);
        flights.insert(key.clone(), Arc::clone(&call));
        drop(flights);
        (ticket, Some(Flight::new(Arc::clone(&self.0), key.clone(), call, sender)))
    }

    /// Joins the flight of `key`, if there is one.
    pub fn join_running(&self, key: &K, brought: W) -> Option<Ticket<K, S, A, W>> {
        let flights = self.0.flights.lock();
        flights.get(key).map(|call| self.ticket(key, call, brought))
    }

    fn ticket(&self, key: &K, call: &Arc<Call<S, A, W>>, brought: W) -> Ticket<K, S, A, W> {
        let (sender, own_answer) = oneshot::channel();
        let mut waiters = call.waiters.lock();
        let id = waiters.next;
        waiters.next += 1;
        waiters.by_id.insert(id, Waiter { own_answer: sender, brought });
        call.count.send_replace(waiters.by_id.len());
        drop(waiters);
        Ticket { table: Arc::clone(&self.0), key: key.clone(), call: Arc::clone(call), id, own_answer }
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

impl<K: Hash + Eq, S, A, W> Table<K, S, A, W> {
    /// Takes a flight out.
    pub(crate) fn remove(&self, key: &K, call: &Arc<Call<S, A, W>>) {
        remove(&mut self.flights.lock(), key, call);
    }

    /// Takes a flight out if nobody waits for it. Returns true if nobody does.
    pub(crate) fn retire(&self, key: &K, call: &Arc<Call<S, A, W>>) -> bool {
        let mut flights = self.flights.lock();
        let is_left = call.waiters.lock().by_id.is_empty();
        if is_left {
            remove(&mut flights, key, call);
        }
        is_left
    }
}

fn remove<K: Hash + Eq, S, A, W>(flights: &mut HashMap<K, Arc<Call<S, A, W>>>, key: &K, call: &Arc<Call<S, A, W>>) {
    if flights.get(key).is_some_and(|entry| Arc::ptr_eq(entry, call)) {
        flights.remove(key);
    }
}

impl<S, A, W> Call<S, A, W> {
    /// The first waiter, in order of arrival, for which `of` returns something.
    pub(crate) fn find_waiter<R>(&self, mut of: impl FnMut(&mut W) -> Option<R>) -> Option<(WaiterId, R)> {
        let mut waiters = self.waiters.lock();
        waiters.by_id.iter_mut().find_map(|(id, waiter)| of(&mut waiter.brought).map(|found| (WaiterId(*id), found)))
    }

    /// Answers one waiter, which then waits no longer.
    pub(crate) fn answer_one(&self, waiter: WaiterId, answer: A) {
        if let Some(waiter) = self.leave(waiter.0) {
            // An error means that the waiter has gone away.
            let _ = waiter.own_answer.send(answer);
        }
    }

    fn leave(&self, id: u64) -> Option<Waiter<A, W>> {
        let mut waiters = self.waiters.lock();
        let waiter = waiters.by_id.remove(&id)?;
        self.count.send_replace(waiters.by_id.len());
        Some(waiter)
    }
}

impl<K: Hash + Eq, S: Shared, A, W> Ticket<K, S, A, W> {
    /// What the waiters of the flight share.
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
        if left.is_some() && *self.call.count.borrow() == 0 && self.call.shared.last_left() {
            remove(&mut flights, &self.key, &self.call);
        }
        // What the waiter brought may hold tickets of its own.
        drop(flights);
        drop(left);
    }
}
