//! [`Turns`]: waits in the [`Line`] for the right to pull. It decides no order and knows nothing of pulls.

use base::lock::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::order::{Line, PullLimits, SlotId};
use super::time::Timeline;
use crate::Metrics;

/// The line, and the waiters in it.
pub(super) struct Turns {
    /// Guards the line together with its waiters.
    state: Mutex<TurnQueue>,
    time: Timeline,
    metrics: Arc<Metrics>,
}

struct TurnQueue {
    line: Line,
    waiters: HashMap<SlotId, oneshot::Sender<()>>,
}

/// A place in the line, and later the right to pull. Dropping it is leaving.
pub(super) struct QueueSlot {
    turns: Arc<Turns>,
    id: SlotId,
    since: Duration,
    granted: Option<oneshot::Receiver<()>>,
}

impl Turns {
    pub(super) fn new(limits: PullLimits, time: Timeline, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(TurnQueue { line: Line::new(limits), waiters: HashMap::new() }),
            time,
            metrics,
        })
    }

    /// Joins the line. If there is a free slot, the pull gets its turn at once.
    pub(super) fn join(self: &Arc<Self>, registry: &str, priority: i32) -> QueueSlot {
        let since = self.time.now();
        let mut state = self.lock();
        let id = state.line.join(registry, priority, since);
        let (sender, granted) = oneshot::channel();
        state.waiters.insert(id, sender);
        self.metrics.queue_length(1);
        self.admit(&mut state);
        let waits = state.waiters.contains_key(&id);
        drop(state);
        QueueSlot { turns: Arc::clone(self), id, since, granted: waits.then_some(granted) }
    }

    /// Changes the limits. Where they are lower than before, running pulls end as they would have.
    pub(super) fn set_limits(&self, limits: PullLimits) {
        let mut state = self.lock();
        state.line.set_limits(limits);
        self.admit(&mut state);
    }

    /// Raises the priority of a waiting pull to at least this one.
    pub(super) fn raise(&self, id: SlotId, priority: i32) {
        self.lock().line.raise(id, priority);
    }

    /// The places of those that wait: 1 is the next.
    pub(super) fn positions(&self) -> HashMap<SlotId, usize> {
        self.lock().line.positions(self.time.now())
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.lock().line.waiting()
    }

    fn admit(&self, state: &mut TurnQueue) {
        while let Some(id) = state.line.admit(self.time.now()) {
            if let Some(waiter) = state.waiters.remove(&id) {
                self.metrics.queue_length(-1);
                // If the waiter has just been dropped, it gives the turn back as soon as it gets this lock.
                let _ = waiter.send(());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, TurnQueue> {
        self.state.lock()
    }
}

impl QueueSlot {
    /// The id by which others raise the priority.
    pub(super) fn id(&self) -> SlotId {
        self.id
    }

    /// Waits for the turn. Returns true if it had to wait.
    pub(super) async fn turn(&mut self) -> bool {
        let Some(granted) = &mut self.granted else {
            self.turns.metrics.queue_waited(Duration::ZERO);
            return false;
        };
        // The sender is dropped without a message only when this slot leaves the line, which it has not.
        let _ = granted.await;
        self.granted = None;
        self.turns.metrics.queue_waited(self.turns.time.now().saturating_sub(self.since));
        true
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        if state.waiters.remove(&self.id).is_some() {
            self.turns.metrics.queue_length(-1);
        }
        state.line.leave(self.id);
        self.turns.admit(&mut state);
    }
}
