//! [`Hub`]: the progress of one job, told to everybody who waits for it. It remembers the present state, so that a late
//! joiner is told what it missed in short form. It decides nothing and keeps no history. Pull jobs and layer jobs have
//! one each.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use cri_api::{LayerState, ProgressSink, PullEvent};
use oci::Digest;

/// Fans events out. Sinks are called in order and under the hub's lock: they must be quick and must not call back.
#[derive(Clone, Default)]
pub(crate) struct Hub(Arc<Mutex<State>>);

/// Guarded by the lock of [`Hub`].
#[derive(Default)]
struct State {
    sinks: Vec<(u64, ProgressSink)>,
    next: u64,
    resolving: bool,
    resolved: Option<PullEvent>,
    layers: HashMap<Digest, LayerNow>,
    committing: bool,
}

#[derive(Default)]
struct LayerNow {
    state: Option<LayerState>,
    done: u64,
}

/// A place in a hub; what it was made for is told nothing more once it is dropped.
pub(crate) struct Seat {
    hub: Hub,
    id: u64,
}

impl Hub {
    /// Adds a sink, which is told the present state at once.
    pub(crate) fn join(&self, sink: ProgressSink) -> Seat {
        let mut state = self.lock();
        match &state.resolved {
            Some(resolved) => sink.tell(resolved.clone()),
            None if state.resolving => sink.tell(PullEvent::Resolving),
            None => {}
        }
        for (digest, now) in &state.layers {
            if let Some(state) = now.state {
                sink.tell(PullEvent::Layer { digest: digest.clone(), state });
            }
            if now.done > 0 {
                sink.tell(PullEvent::Bytes { digest: digest.clone(), done: now.done });
            }
        }
        if state.committing {
            sink.tell(PullEvent::Committing);
        }
        let id = state.next;
        state.next += 1;
        state.sinks.push((id, sink));
        Seat { hub: self.clone(), id }
    }

    /// Tells everybody, and remembers.
    pub(crate) fn tell(&self, event: PullEvent) {
        let mut state = self.lock();
        match &event {
            PullEvent::Resolving => state.resolving = true,
            PullEvent::Resolved { .. } => state.resolved = Some(event.clone()),
            PullEvent::Layer { digest, state: now } => {
                state.layers.entry(digest.clone()).or_default().state = Some(*now);
            }
            PullEvent::Bytes { digest, done } => state.layers.entry(digest.clone()).or_default().done = *done,
            PullEvent::Unpacked { .. } => {}
            PullEvent::Committing => state.committing = true,
        }
        for (_, sink) in &state.sinks {
            sink.tell(event.clone());
        }
    }

    pub(crate) fn layer(&self, digest: &Digest, state: LayerState) {
        self.tell(PullEvent::Layer { digest: digest.clone(), state });
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, State> {
        // A sink that panicked leaves nothing half changed.
        self.0.lock()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.hub.lock().sinks.retain(|(id, _)| *id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder() -> (ProgressSink, Arc<Mutex<Vec<PullEvent>>>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&seen);
        (ProgressSink::new(move |event| into.lock().push(event)), seen)
    }

    #[test]
    fn a_late_joiner_is_told_where_things_stand() {
        let hub = Hub::default();
        let digest = Digest::sha256(b"layer");
        let resolved = PullEvent::Resolved { digest: Digest::sha256(b"m"), layers: vec![(digest.clone(), 9)] };
        let (early, early_seen) = recorder();
        let _early = hub.join(early);
        hub.tell(PullEvent::Resolving);
        let (asking, asking_seen) = recorder();
        drop(hub.join(asking));
        assert_eq!(*asking_seen.lock(), [PullEvent::Resolving]);
        hub.tell(resolved.clone());
        hub.layer(&digest, LayerState::Waiting);
        hub.layer(&digest, LayerState::Fetching);
        hub.tell(PullEvent::Bytes { digest: digest.clone(), done: 5 });
        let (late, late_seen) = recorder();
        let _late = hub.join(late);
        let want = vec![
            resolved,
            PullEvent::Layer { digest: digest.clone(), state: LayerState::Fetching },
            PullEvent::Bytes { digest: digest.clone(), done: 5 },
        ];
        assert_eq!(*late_seen.lock(), want);
        hub.layer(&digest, LayerState::Done);
        assert_eq!(late_seen.lock().last(), early_seen.lock().last());
        assert_eq!(early_seen.lock().len(), 6);
    }

    #[test]
    fn who_left_is_told_nothing() {
        let hub = Hub::default();
        let (sink, seen) = recorder();
        drop(hub.join(sink));
        hub.tell(PullEvent::Committing);
        assert!(seen.lock().is_empty());
    }
}
