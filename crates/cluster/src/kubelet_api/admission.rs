//! [`Admission`]: the connections of a listener that have not shown who they are, in a small budget of their own. One more is always admitted: the source
//! with the most of them loses its oldest. A connection that has shown who it is moves to a second budget, from which nothing is evicted. Knows no
//! protocol. Called by `port.rs` and by the admin socket of the agent.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use base::lock::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Connections younger than this are evicted only above [`Limits::burst`]: a client of many connections at once has time to say who it is.
const GRACE: Duration = Duration::from_secs(1);

/// The origin of a connection, by which the budget is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A host: an IPv4 address, or the network of 64 bits in which a host chooses its IPv6 address.
    Host(IpAddr),
    /// A user of this machine; `None` where the kernel does not say which.
    User(Option<u32>),
}

impl Source {
    /// Returns the host with this address.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self::Host(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
            }
            address => address,
        })
    }
}

/// The sizes of the budgets.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of unauthenticated connections.
    pub unauthenticated: usize,
    /// Maximum number of unauthenticated connections of one source.
    pub per_source: usize,
    /// Maximum number of unauthenticated connections of one source for a second, while all of them are new.
    pub burst: usize,
    /// Maximum number of authenticated connections.
    pub authenticated: usize,
}

/// The connections of a listener.
#[derive(Clone, Debug)]
pub struct Admission {
    limits: Limits,
    /// Guards which connection is in which budget.
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    unauthenticated: HashMap<u64, Entry>,
    authenticated: HashSet<u64>,
}

#[derive(Debug)]
struct Entry {
    source: Source,
    /// Rises with the time at which the connection entered this budget.
    order: u64,
    since: Instant,
    evicted: CancellationToken,
}

impl Admission {
    /// Creates an admission without connections.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, table: Arc::default() }
    }

    /// Admits a connection, and evicts other connections if there are too many.
    #[must_use]
    pub fn admit(&self, source: Source) -> Seat {
        let mut table = self.table.lock();
        let id = table.number();
        let seat = Seat { admission: self.clone(), id, source, evicted: CancellationToken::new() };
        table.enter(&seat);
        while let Some(victim) = table.victim(&self.limits) {
            if let Some(entry) = table.unauthenticated.remove(&victim) {
                tracing::debug!(source = ?entry.source, "an unauthenticated connection is evicted");
                entry.evicted.cancel();
            }
        }
        seat
    }
}

impl Table {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Puts a connection into the budget of those that have not shown who they are, as the youngest.
    fn enter(&mut self, seat: &Seat) {
        let order = self.number();
        let entry = Entry { source: seat.source, order, since: Instant::now(), evicted: seat.evicted.clone() };
        self.unauthenticated.insert(seat.id, entry);
    }

    /// Returns the connection to evict; `None` while the limits are kept.
    fn victim(&self, limits: &Limits) -> Option<u64> {
        let total = self.unauthenticated.len();
        let mut counts: HashMap<Source, usize> = HashMap::new();
        self.unauthenticated.values().for_each(|entry| *counts.entry(entry.source).or_default() += 1);
        let most = counts.values().copied().max()?;
        let count = |entry: &Entry| counts.get(&entry.source).copied().unwrap_or_default();
        let is_over =
            |entry: &Entry| count(entry) > limits.per_source || total > limits.unauthenticated && count(entry) == most;
        let may_go = |entry: &Entry| total > limits.burst || entry.since.elapsed() >= GRACE;
        let all = self.unauthenticated.iter().filter(|(_, entry)| is_over(entry) && may_go(entry));
        all.min_by_key(|(_, entry)| (Reverse(count(entry)), entry.order)).map(|(id, _)| *id)
    }
}

/// The place of a connection, until it is dropped.
#[derive(Debug)]
pub struct Seat {
    admission: Admission,
    id: u64,
    source: Source,
    evicted: CancellationToken,
}

impl Seat {
    /// Moves to the budget of those that have shown who they are. Returns false where that is full, or the connection was evicted.
    #[must_use]
    pub fn authenticate(&self) -> bool {
        let mut table = self.admission.table.lock();
        if table.authenticated.contains(&self.id) {
            return true;
        }
        if table.authenticated.len() >= self.admission.limits.authenticated
            || table.unauthenticated.remove(&self.id).is_none()
        {
            return false;
        }
        table.authenticated.insert(self.id)
    }

    /// Moves back to those that have not shown who they are.
    pub(crate) fn forget(&self) {
        let mut table = self.admission.table.lock();
        if table.authenticated.remove(&self.id) {
            table.enter(self);
        }
    }

    /// Returns true once the connection has shown who it is.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.admission.table.lock().authenticated.contains(&self.id)
    }

    /// Cancelled when the connection has to end for another one.
    #[must_use]
    pub fn eviction(&self) -> &CancellationToken {
        &self.evicted
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = self.admission.table.lock();
        table.unauthenticated.remove(&self.id);
        table.authenticated.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { unauthenticated: 6, per_source: 3, burst: 8, authenticated: 2 };

    fn admission() -> Admission {
        Admission::new(LIMITS)
    }

    fn from(last: u8) -> Source {
        Source::host(IpAddr::from([192, 0, 2, last]))
    }

    fn evicted(seats: &[Seat]) -> Vec<usize> {
        let all = seats.iter().enumerate().filter(|(_, seat)| seat.eviction().is_cancelled());
        all.map(|(index, _)| index).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_of_the_largest_source_is_evicted() {
        let admission = admission();
        let mut seats: Vec<Seat> = [1, 2, 1, 2, 1, 3].map(|last| admission.admit(from(last))).into();
        tokio::time::advance(GRACE).await;
        assert_eq!(evicted(&seats), [0; 0]);
        seats.push(admission.admit(from(1)));
        assert_eq!(evicted(&seats), [0], "a fourth of one source");
        seats.push(admission.admit(from(4)));
        assert_eq!(evicted(&seats), [0, 2], "a seventh in all: the source with three has the most");
        seats.push(admission.admit(from(5)));
        assert_eq!(evicted(&seats), [0, 1, 2], "of sources with as many, the oldest");
        assert!(!seats[5].eviction().is_cancelled(), "the only one of its source");
        assert!(!seats[0].authenticate(), "an evicted connection is over");
    }

    #[tokio::test(start_paused = true)]
    async fn new_connections_have_a_second_while_they_are_few() {
        let admission = admission();
        let mut seats: Vec<Seat> = (0..8).map(|_| admission.admit(from(1))).collect();
        assert_eq!(evicted(&seats), [0; 0], "a burst");
        seats.push(admission.admit(from(1)));
        assert_eq!(evicted(&seats), [0], "more than a burst");
        tokio::time::advance(GRACE).await;
        seats.push(admission.admit(from(2)));
        assert_eq!(evicted(&seats), [0, 1, 2, 3, 4, 5], "three of a source");
    }

    #[tokio::test(start_paused = true)]
    async fn authenticated_connections_stay_and_are_counted_apart() {
        let admission = admission();
        let mut seats: Vec<Seat> = (0..3).map(|_| admission.admit(from(1))).collect();
        assert_eq!(seats.iter().map(Seat::authenticate).collect::<Vec<_>>(), [true, true, false], "two fit");
        assert!(seats[0].authenticate() && seats[0].is_authenticated(), "once more is no other place");
        tokio::time::advance(GRACE).await;
        seats.extend((0..20).map(|last| admission.admit(from(last))));
        assert!(!seats[0].eviction().is_cancelled() && !seats[1].eviction().is_cancelled());
        assert!(seats[2].eviction().is_cancelled(), "the one that did not fit");
        drop(seats.remove(0));
        assert!(seats.last().is_some_and(Seat::authenticate), "there is room again");
        seats[0].forget();
        assert!(!seats[0].is_authenticated());
    }

    #[test]
    fn a_host_is_one_source() {
        let of = |text: &str| Source::host(text.parse().expect("an address"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("::1"), of("::2"));
    }
}
