//! [`Bandwidth`]: limits the bytes a second that a client receives, shared equally among active pulls, whatever
//! number of connections each has (start-time fair queueing, with debt instead of tokens: bytes are paid for by the
//! time until the next piece may be read). A pull that has to wait does not read from its connection, so that TCP slows
//! the sender down. Without a limit none of this runs. The limit may change during pulls. `part` and `transport` call it after each piece.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::lock::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Time whose bytes may be taken at once after a rest.
const BURST: Duration = Duration::from_millis(50);

/// A limit that all pulls of its clients share. Clones are the same limit.
#[derive(Clone)]
pub struct Bandwidth {
    limit: Arc<Limit>,
}

struct Limit {
    /// Bytes a second; 0: no limit.
    rate: AtomicU64,
    state: Mutex<QueueState>,
}

impl fmt::Debug for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bandwidth({})", self.limit.rate.load(Ordering::Relaxed))
    }
}

impl Default for Bandwidth {
    /// No limit.
    fn default() -> Self {
        Self::new(0)
    }
}

struct QueueState {
    /// The time at which everything taken so far is paid for.
    paid: Instant,
    /// Virtual time of the queue, in bytes of each waiting pull.
    served: u64,
    /// The entries in the order in which they are served: by what their pulls had before, and then by age.
    waiting: BTreeMap<QueuePosition, Arc<Notify>>,
    age: u64,
}

type QueuePosition = (u64, u64);

impl Bandwidth {
    /// A limit of `rate` bytes a second; 0: no limit.
    #[must_use]
    pub fn new(rate: u64) -> Self {
        let state = QueueState { paid: Instant::now(), served: 0, waiting: BTreeMap::new(), age: 0 };
        Self { limit: Arc::new(Limit { rate: AtomicU64::new(rate), state: Mutex::new(state) }) }
    }

    /// Changes the limit, also for pulls that go on: what they took before is paid for.
    pub fn set_rate(&self, rate: u64) {
        let mut state = self.limit.state.lock();
        self.limit.rate.store(rate, Ordering::Relaxed);
        state.paid = Instant::now();
        state.waiting.values().for_each(|turn| turn.notify_one());
    }

    /// The part of one pull.
    pub(crate) fn share(&self) -> BandwidthShare {
        BandwidthShare { limit: Arc::clone(&self.limit), had: Arc::default() }
    }
}

impl Limit {
    fn time_of(&self, bytes: u64) -> Duration {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return Duration::ZERO;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The share of one pull in a [`Bandwidth`]. Clones belong to the same pull.
#[derive(Clone)]
pub(crate) struct BandwidthShare {
    limit: Arc<Limit>,
    /// Position in the queue of the next piece of this pull.
    had: Arc<Mutex<u64>>,
}

impl BandwidthShare {
    /// The share, where there is a limit now.
    pub(crate) fn limited(&self) -> Option<&Self> {
        (self.limit.rate.load(Ordering::Relaxed) > 0).then_some(self)
    }

    /// Records received bytes, and waits until more may be read.
    pub(crate) async fn take(&self, bytes: u64) {
        if self.limited().is_none() {
            return;
        }
        let waiting = self.queue(bytes);
        loop {
            let (next, paid) = {
                let state = self.limit.state.lock();
                (state.waiting.first_key_value().map(|(ticket, _)| *ticket), state.paid)
            };
            if next != Some(waiting.ticket) {
                waiting.turn.notified().await;
            } else if Instant::now() < paid {
                // A pull that is due earlier may arrive meanwhile, and the limit may change.
                tokio::select! {
                    () = tokio::time::sleep_until(paid) => {}
                    () = waiting.turn.notified() => {}
                }
            } else {
                self.pay(waiting.ticket, bytes);
                return;
            }
        }
    }

    fn queue(&self, bytes: u64) -> QueueEntry<'_> {
        let mut state = self.limit.state.lock();
        let mut had = self.had.lock();
        // A pull that wanted no bytes has saved nothing up.
        let start = (*had).max(state.served);
        *had = start.saturating_add(bytes);
        state.age += 1;
        let ticket = (start, state.age);
        let turn = Arc::new(Notify::new());
        state.waiting.insert(ticket, Arc::clone(&turn));
        QueueEntry { limit: &self.limit, ticket, turn }
    }

    fn pay(&self, ticket: QueuePosition, bytes: u64) {
        let mut state = self.limit.state.lock();
        let now = Instant::now();
        state.served = state.served.max(ticket.0);
        state.paid = state.paid.max(now.checked_sub(BURST).unwrap_or(now)) + self.limit.time_of(bytes);
    }
}

/// A position in the queue, given up on drop.
struct QueueEntry<'b> {
    limit: &'b Limit,
    ticket: QueuePosition,
    turn: Arc<Notify>,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        let mut state = self.limit.state.lock();
        state.waiting.remove(&self.ticket);
        if let Some((_, turn)) = state.waiting.first_key_value() {
            turn.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1 << 20;

    /// Takes pieces until a time, and counts their bytes.
    async fn taking(share: BandwidthShare, piece: u64, until: Instant, taken: Arc<AtomicU64>) {
        while Instant::now() < until {
            share.take(piece).await;
            taken.fetch_add(piece, Ordering::SeqCst);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_holds_in_the_long_run_and_a_rest_saves_little() {
        let bandwidth = Bandwidth::new(RATE);
        let share = bandwidth.share();
        for _ in 0..2 {
            let start = Instant::now();
            for _ in 0..160 {
                share.take(64 << 10).await;
            }
            let took = start.elapsed().as_secs_f64();
            assert!((9.7..=10.0).contains(&took), "{took}");
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bandwidth_is_shared_per_pull_not_per_connection() {
        let bandwidth = Bandwidth::new(RATE);
        let (one, many) = (bandwidth.share(), bandwidth.share());
        let (by_one, by_many) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let until = Instant::now() + Duration::from_secs(20);
        let first = taking(one, 16 << 10, until, Arc::clone(&by_one));
        // Five connections, of larger pieces.
        let rest: Vec<_> = (0..5).map(|_| taking(many.clone(), 64 << 10, until, Arc::clone(&by_many))).collect();
        futures::future::join(first, futures::future::join_all(rest)).await;
        let (by_one, by_many) = (by_one.load(Ordering::SeqCst), by_many.load(Ordering::SeqCst));
        let all = by_one + by_many;
        assert!((20 * RATE..21 * RATE).contains(&all), "{all}");
        assert!(by_one * 100 / all >= 46, "{by_one} and {by_many}");
    }

    #[tokio::test(start_paused = true)]
    async fn late_pull_starts_without_credit_or_debt() {
        let bandwidth = Bandwidth::new(RATE);
        let early = bandwidth.share();
        for _ in 0..100 {
            early.take(64 << 10).await;
        }
        let late = bandwidth.share();
        let (by_early, by_late) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let until = Instant::now() + Duration::from_secs(10);
        let both = futures::future::join(
            taking(early, 64 << 10, until, Arc::clone(&by_early)),
            taking(late, 64 << 10, until, Arc::clone(&by_late)),
        );
        both.await;
        let (by_early, by_late) = (by_early.load(Ordering::SeqCst), by_late.load(Ordering::SeqCst));
        assert!(by_early.abs_diff(by_late) <= 256 << 10, "{by_early} and {by_late}");
    }

    #[tokio::test(start_paused = true)]
    async fn new_limit_applies_to_waiting_pulls() {
        let bandwidth = Bandwidth::new(1);
        let shares = [bandwidth.share(), bandwidth.share()];
        shares[0].take(1 << 20).await;
        let start = Instant::now();
        let change = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            bandwidth.set_rate(RATE);
        };
        // By the first limit, each would wait for days.
        let both = futures::future::join(shares[0].take(RATE), shares[1].take(RATE));
        futures::future::join(both, change).await;
        let took = start.elapsed().as_secs_f64();
        assert!((1.0..=3.1).contains(&took), "{took}");
        bandwidth.set_rate(0);
        let start = Instant::now();
        for share in &shares {
            share.take(1 << 40).await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        bandwidth.set_rate(RATE);
        shares[0].take(RATE).await;
        shares[0].take(RATE).await;
        assert!(start.elapsed() >= Duration::from_millis(900), "it counts again");
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_waiter_does_not_block_others() {
        let bandwidth = Bandwidth::new(RATE);
        let share = bandwidth.share();
        share.take(10 * RATE).await;
        // This pull is first in the queue and is dropped.
        let given_up = tokio::time::timeout(Duration::from_secs(1), share.take(1)).await;
        assert!(given_up.is_err());
        let other = bandwidth.share();
        tokio::time::timeout(Duration::from_secs(10), other.take(1)).await.expect("its turn comes");
        assert!(bandwidth.limit.state.lock().waiting.is_empty());
    }
}
