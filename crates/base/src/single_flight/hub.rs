//! [`Hub`]: reports the progress of a flight to its subscribers. It keeps the present state and no history, so that a late
//! subscriber gets the missed events in short form.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::lock::Mutex;

/// The present state of some work.
pub trait Progress: Send + 'static {
    /// A report on the work.
    type Event: Clone;

    /// Returns the events that give a late subscriber the present state.
    fn replay(&self) -> impl Iterator<Item = Self::Event>;
}

type Sink<E> = Box<dyn Fn(E) + Send + Sync>;

/// Fans events out. Sinks are called in order and with the hub locked: they must be quick and must not call back. A sink
/// that panics gets no more events, and harms no other.
pub struct Hub<P: Progress>(Arc<Mutex<Subscribers<P>>>);

struct Subscribers<P: Progress> {
    sinks: Vec<(u64, Sink<P::Event>)>,
    next: u64,
    progress: P,
}

/// A subscription to a hub. Its sink gets no more events once it is dropped.
#[must_use = "dropping it ends the subscription"]
pub struct Subscription<P: Progress> {
    hub: Hub<P>,
    id: u64,
}

impl<P: Progress> Clone for Hub<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P: Progress + Default> Default for Hub<P> {
    fn default() -> Self {
        Self::new(P::default())
    }
}

impl<P: Progress> Hub<P> {
    /// A hub of work in this state.
    pub fn new(progress: P) -> Self {
        Self(Arc::new(Mutex::new(Subscribers { sinks: Vec::new(), next: 0, progress })))
    }

    /// Subscribes a sink, which gets the present state at once.
    pub fn subscribe(&self, sink: impl Fn(P::Event) + Send + Sync + 'static) -> Subscription<P> {
        let mut subscribers = self.0.lock();
        let id = subscribers.next;
        subscribers.next += 1;
        if subscribers.progress.replay().all(|event| send(&sink, event)) {
            subscribers.sinks.push((id, Box::new(sink)));
        }
        drop(subscribers);
        Subscription { hub: self.clone(), id }
    }

    /// Updates the state by an event, and sends the event to all subscribers. Returns what `update` returns.
    pub fn send<R>(&self, event: &P::Event, update: impl FnOnce(&mut P, &P::Event) -> R) -> R {
        let mut subscribers = self.0.lock();
        let updated = update(&mut subscribers.progress, event);
        subscribers.sinks.retain(|(_, sink)| send(sink, event.clone()));
        updated
    }

    /// Reads or changes the state, and reports nothing.
    pub fn with<R>(&self, work: impl FnOnce(&mut P) -> R) -> R {
        work(&mut self.0.lock().progress)
    }
}

/// Calls a sink. Returns false if it panicked.
fn send<E>(sink: &(impl Fn(E) + ?Sized), event: E) -> bool {
    let sent = catch_unwind(AssertUnwindSafe(|| sink(event)));
    if sent.is_err() {
        tracing::error!("a progress sink panicked, and gets no more events");
    }
    sent.is_ok()
}

impl<P: Progress> Drop for Subscription<P> {
    fn drop(&mut self) {
        self.hub.0.lock().sinks.retain(|(id, _)| *id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last number reported.
    #[derive(Default)]
    struct Last(Option<u32>);

    impl Progress for Last {
        type Event = u32;

        fn replay(&self) -> impl Iterator<Item = u32> {
            self.0.into_iter()
        }
    }

    fn report(hub: &Hub<Last>, number: u32) {
        hub.send(&number, |last, number| last.0 = Some(*number));
    }

    fn recorder() -> (impl Fn(u32) + Send + Sync + 'static, Arc<Mutex<Vec<u32>>>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&seen);
        (move |event| into.lock().push(event), seen)
    }

    #[test]
    fn late_subscriber_gets_the_current_state() {
        let hub = Hub::<Last>::default();
        let (early, early_seen) = recorder();
        let _early = hub.subscribe(early);
        report(&hub, 1);
        report(&hub, 2);
        let (late, late_seen) = recorder();
        let late = hub.subscribe(late);
        report(&hub, 3);
        drop(late);
        report(&hub, 4);
        assert_eq!((early_seen.lock().clone(), late_seen.lock().clone()), (vec![1, 2, 3, 4], vec![2, 3]));
        assert_eq!(hub.with(|last| last.0), Some(4));
    }

    #[test]
    fn panicking_sink_is_dropped_and_other_sinks_continue() {
        let hub = Hub::<Last>::default();
        let calls = Arc::new(Mutex::new(0));
        let count = Arc::clone(&calls);
        let _bad = hub.subscribe(move |_| {
            *count.lock() += 1;
            panic!("on purpose");
        });
        let (good, seen) = recorder();
        let _good = hub.subscribe(good);
        report(&hub, 1);
        report(&hub, 2);
        assert_eq!((*calls.lock(), seen.lock().clone()), (1, vec![1, 2]));
        // Nor one that panics on what it missed.
        let count = Arc::clone(&calls);
        let _late = hub.subscribe(move |_| {
            *count.lock() += 1;
            panic!("on purpose");
        });
        report(&hub, 3);
        assert_eq!((*calls.lock(), seen.lock().len()), (2, 3));
    }
}
