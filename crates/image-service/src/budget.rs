//! [`Budget`]: the memory that all pulls of an engine may use together. A layer job reserves its minimum before it
//! starts and never waits for memory afterwards, so that every started job ends. More than the minimum is granted only
//! while memory is spare and no job is waiting. The pull that holds least is served next, its biggest layer first. The
//! budget counts what it is asked for and measures nothing. It also keeps used buffers for reuse. Called by layer jobs
//! and by the code that they call.

use base::lock::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use inflate::BUFFER;
use tokio::sync::oneshot;

/// This part of all is for decoders' windows alone, so that streams with the usual ones (8 MiB) need no more than there is.
const FOR_WINDOWS: usize = 4;

/// The memory. Clones share it.
#[derive(Clone)]
pub(crate) struct Budget(Arc<BudgetShared>);

struct BudgetShared {
    total: usize,
    pulls: AtomicU64,
    /// Guards all accounts.
    state: Mutex<BudgetState>,
}

#[derive(Default)]
struct BudgetState {
    used: usize,
    /// How many windows are out.
    windows: usize,
    /// Bytes that the jobs of each pull have reserved.
    holds: HashMap<Pull, usize>,
    /// In order of arrival.
    waiting: Vec<BudgetWaiter>,
    next: u64,
    /// Unused buffers. They are not counted, and are freed as soon as counted memory needs their space.
    buffers: Vec<Vec<u8>>,
}

/// The pull that a job's memory is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pull(u64);

/// Use that memory is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// The least of a layer of this size.
    Layer(Pull, u64),
    /// Memory that a job needs after its start.
    Window,
    /// Memory that a job can do without.
    Extra,
}

struct BudgetWaiter {
    number: u64,
    what: For,
    bytes: usize,
    tell: oneshot::Sender<Share>,
}

/// Memory that may be used. Dropping it gives it back.
pub(crate) struct Share {
    budget: Budget,
    what: For,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(total: usize) -> Self {
        Self(Arc::new(BudgetShared { total, pulls: AtomicU64::new(0), state: Mutex::default() }))
    }

    /// A name for a pull.
    pub(crate) fn pull(&self) -> Pull {
        Pull(self.0.pulls.fetch_add(1, Ordering::Relaxed))
    }

    /// The least that a layer of `size` compressed bytes needs; waits for its turn. More than there can ever be is cut down
    /// to that.
    pub(crate) async fn reserve(&self, pull: Pull, size: u64, bytes: usize) -> Share {
        self.wait(For::Layer(pull, size), bytes.min(self.for_layers())).await
    }

    /// A decoder's window; waits for its turn. One that is more than all that is left is given all the same as soon as no
    /// other is out: the alternative would be images that cannot be pulled.
    pub(crate) async fn window(&self, bytes: usize) -> Share {
        self.wait(For::Window, bytes).await
    }

    /// Memory that is useful, if there is some to spare.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<Share> {
        let mut state = self.lock();
        if !state.waiting.is_empty() || state.used.saturating_add(bytes) > self.for_layers() {
            return None;
        }
        Some(self.take(&mut state, For::Extra, bytes))
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

    async fn wait(&self, what: For, bytes: usize) -> Share {
        let (tell, told) = oneshot::channel();
        let number = {
            let mut state = self.lock();
            let number = state.next;
            state.next += 1;
            state.waiting.push(BudgetWaiter { number, what, bytes, tell });
            number
        };
        let _place = BudgetSlot { budget: self, number };
        self.grant();
        told.await.expect("whoever takes a waiter out of the line answers it, and only its own place drops it")
    }

    /// Serves every waiter that can be served.
    fn grant(&self) {
        loop {
            let (share, waiter) = {
                let mut state = self.lock();
                let Some(n) = state.first(self.0.total, self.for_layers()) else { return };
                let waiter = state.waiting.remove(n);
                (self.take(&mut state, waiter.what, waiter.bytes), waiter)
            };
            // Outside the lock: one that has left meanwhile gives it back at once.
            drop(waiter.tell.send(share));
        }
    }

    fn take(&self, state: &mut BudgetState, what: For, bytes: usize) -> Share {
        state.used += bytes;
        match what {
            For::Layer(pull, _) => *state.holds.entry(pull).or_default() += bytes,
            For::Window => state.windows += 1,
            For::Extra => {}
        }
        let room = self.0.total.saturating_sub(state.used) / BUFFER;
        state.buffers.truncate(room);
        Share { budget: self.clone(), what, bytes }
    }

    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        // Nothing here panics half way.
        self.0.state.lock()
    }
}

impl registry::Memory for Budget {
    fn try_take(&self, bytes: usize) -> Option<Box<dyn Send + Sync>> {
        Self::try_take(self, bytes).map(|share| Box::new(share) as Box<dyn Send + Sync>)
    }
}

impl BudgetState {
    /// Returns the index of the next waiter, if that one can be served.
    fn first(&self, total: usize, for_layers: usize) -> Option<usize> {
        // Jobs that have started go first, in the order in which they came.
        if let Some(n) = self.waiting.iter().position(|w| w.what == For::Window) {
            let fits = self.used.saturating_add(self.waiting[n].bytes) <= total;
            return (fits || self.windows == 0).then_some(n);
        }
        let key = |waiter: &BudgetWaiter| match waiter.what {
            For::Layer(pull, size) => {
                (self.holds.get(&pull).copied().unwrap_or(0), std::cmp::Reverse(size), waiter.number)
            }
            For::Window | For::Extra => (0, std::cmp::Reverse(0), waiter.number),
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
            match self.what {
                For::Layer(pull, _) => {
                    if let Some(held) = state.holds.get_mut(&pull) {
                        *held -= self.bytes;
                        if *held == 0 {
                            state.holds.remove(&pull);
                        }
                    }
                }
                For::Window => state.windows -= 1,
                For::Extra => {}
            }
            // No job is running: a process that waits for the next pull needs no memory.
            if state.used == 0 && state.waiting.is_empty() { std::mem::take(&mut state.buffers) } else { Vec::new() }
        };
        drop(idle);
        self.budget.grant();
    }
}

/// A slot in the queue, left when its future is dropped.
struct BudgetSlot<'a> {
    budget: &'a Budget,
    number: u64,
}

impl Drop for BudgetSlot<'_> {
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
#[path = "budget_tests.rs"]
mod tests;
