//! [`MemoryBudget`]: the memory that all pulls of an engine may use together. A layer job reserves its minimum before it
//! starts and never waits for memory afterwards, so that every started job ends. More than the minimum is granted only
//! while memory is spare and no job is waiting. The pull that holds least is served next, its biggest layer first. The
//! budget counts reservations and measures nothing. Unused buffers are kept for reuse. Called by layer jobs and by the
//! threads that unpack their layers.

use base::lock::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::inflate::BUFFER;
use tokio::sync::oneshot;

/// The fraction (one in so many) that only decoders' windows may use, so that streams with the usual window (8 MiB) fit
/// next to the layers in flight.
const FOR_WINDOWS: usize = 4;

/// The memory of all pulls. Clones share it.
#[derive(Clone)]
pub(crate) struct MemoryBudget(Arc<MemoryInner>);

struct MemoryInner {
    total: usize,
    pulls: AtomicU64,
    /// Guards all accounts.
    state: Mutex<MemoryState>,
}

#[derive(Default)]
struct MemoryState {
    used: usize,
    /// Number of granted windows.
    windows: usize,
    /// Bytes that the jobs of each pull have reserved.
    holds: HashMap<PullAccount, usize>,
    /// In order of arrival.
    waiting: Vec<MemoryWaiter>,
    next: u64,
    /// Unused buffers. They are not counted, and are freed as soon as counted memory needs their space.
    buffers: Vec<Vec<u8>>,
}

/// The pull that the memory of a layer job is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PullAccount(u64);

/// The purpose of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The minimum of a layer with this many compressed bytes.
    Layer(PullAccount, u64),
    /// Memory that a job needs after its start.
    Window,
    /// Memory that a job can do without.
    Extra,
}

struct MemoryWaiter {
    number: u64,
    purpose: Purpose,
    bytes: usize,
    sender: oneshot::Sender<Share>,
}

/// Memory that may be used until the share is dropped.
pub(crate) struct Share {
    budget: MemoryBudget,
    purpose: Purpose,
    bytes: usize,
}

impl MemoryBudget {
    pub(crate) fn new(total: usize) -> Self {
        Self(Arc::new(MemoryInner { total, pulls: AtomicU64::new(0), state: Mutex::default() }))
    }

    /// Opens an account for a pull.
    pub(crate) fn pull(&self) -> PullAccount {
        PullAccount(self.0.pulls.fetch_add(1, Ordering::Relaxed))
    }

    /// Reserves the minimum of a layer with `size` compressed bytes, in turn. A reservation above the whole budget is
    /// reduced to it.
    pub(crate) async fn reserve(&self, pull: PullAccount, size: u64, bytes: usize) -> Share {
        self.wait(Purpose::Layer(pull, size), bytes.min(self.for_layers())).await
    }

    /// Reserves a decoder's window, in turn. A window that does not fit is granted as soon as no other window is in use:
    /// otherwise images with such layers could never be pulled.
    pub(crate) async fn window(&self, bytes: usize) -> Share {
        self.wait(Purpose::Window, bytes).await
    }

    /// Reserves optional memory, if some is spare.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<Share> {
        let mut state = self.lock();
        if !state.waiting.is_empty() || state.used.saturating_add(bytes) > self.for_layers() {
            return None;
        }
        Some(self.take(&mut state, Purpose::Extra, bytes))
    }

    /// Returns true if a job is waiting, so that optional memory should be given back.
    pub(crate) fn is_short(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Returns a buffer of [`BUFFER`] bytes with arbitrary content. The caller holds a share for it.
    pub(crate) fn buffer(&self) -> Vec<u8> {
        let kept = self.lock().buffers.pop();
        kept.unwrap_or_else(|| vec![0; BUFFER])
    }

    /// Takes buffers back, while the share for them is still held.
    pub(crate) fn keep(&self, buffers: Vec<Vec<u8>>) {
        self.lock().buffers.extend(buffers);
    }

    fn for_layers(&self) -> usize {
        self.0.total - self.0.total / FOR_WINDOWS
    }

    async fn wait(&self, purpose: Purpose, bytes: usize) -> Share {
        let (sender, share) = oneshot::channel();
        let number = {
            let mut state = self.lock();
            let number = state.next;
            state.next += 1;
            state.waiting.push(MemoryWaiter { number, purpose, bytes, sender });
            number
        };
        let _place = QueuePlace { budget: self, number };
        self.grant();
        share.await.expect("a waiter leaves the queue with an answer, or with its own place")
    }

    /// Serves every waiter that can be served.
    fn grant(&self) {
        loop {
            let (share, waiter) = {
                let mut state = self.lock();
                let Some(n) = state.first(self.0.total, self.for_layers()) else { return };
                let waiter = state.waiting.remove(n);
                (self.take(&mut state, waiter.purpose, waiter.bytes), waiter)
            };
            // Sent without the lock: a waiter that was dropped in the meantime returns its share at once.
            drop(waiter.sender.send(share));
        }
    }

    fn take(&self, state: &mut MemoryState, purpose: Purpose, bytes: usize) -> Share {
        state.used += bytes;
        match purpose {
            Purpose::Layer(pull, _) => *state.holds.entry(pull).or_default() += bytes,
            Purpose::Window => state.windows += 1,
            Purpose::Extra => {}
        }
        let room = self.0.total.saturating_sub(state.used) / BUFFER;
        state.buffers.truncate(room);
        Share { budget: self.clone(), purpose, bytes }
    }

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.0.state.lock()
    }
}

impl registry::Memory for MemoryBudget {
    fn try_take(&self, bytes: usize) -> Option<Box<dyn Send + Sync>> {
        Self::try_take(self, bytes).map(|share| Box::new(share) as Box<dyn Send + Sync>)
    }
}

impl MemoryState {
    /// Returns the index of the next waiter, if that one can be served.
    fn first(&self, total: usize, for_layers: usize) -> Option<usize> {
        // Jobs that have started are served first, in order of arrival.
        if let Some(n) = self.waiting.iter().position(|w| w.purpose == Purpose::Window) {
            let fits = self.used.saturating_add(self.waiting[n].bytes) <= total;
            return (fits || self.windows == 0).then_some(n);
        }
        let key = |waiter: &MemoryWaiter| match waiter.purpose {
            Purpose::Layer(pull, size) => {
                (self.holds.get(&pull).copied().unwrap_or(0), std::cmp::Reverse(size), waiter.number)
            }
            Purpose::Window | Purpose::Extra => (0, std::cmp::Reverse(0), waiter.number),
        };
        let (n, waiter) = self.waiting.iter().enumerate().min_by_key(|(_, waiter)| key(waiter))?;
        (self.used.saturating_add(waiter.bytes) <= for_layers).then_some(n)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let idle = {
            let mut state = self.budget.lock();
            state.used -= self.bytes;
            match self.purpose {
                Purpose::Layer(pull, _) => {
                    if let Some(held) = state.holds.get_mut(&pull) {
                        *held -= self.bytes;
                        if *held == 0 {
                            state.holds.remove(&pull);
                        }
                    }
                }
                Purpose::Window => state.windows -= 1,
                Purpose::Extra => {}
            }
            // No job is running: a process that waits for the next pull needs no buffers.
            if state.used == 0 && state.waiting.is_empty() { std::mem::take(&mut state.buffers) } else { Vec::new() }
        };
        drop(idle);
        self.budget.grant();
    }
}

/// A place in the queue, given up when its future is dropped.
struct QueuePlace<'a> {
    budget: &'a MemoryBudget,
    number: u64,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        let at = state.waiting.iter().position(|w| w.number == self.number);
        let left = at.map(|n| state.waiting.remove(n));
        drop(state);
        if left.is_some() {
            // The next waiter may fit now.
            self.budget.grant();
        }
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
