//! [`Hub`]: the progress of one job, reported to all its waiters. It remembers the present state, so that a late
//! subscriber gets what it missed in short form. It decides nothing and keeps no history. Pull jobs and layer jobs have
//! one each.

use std::collections::HashMap;

use base::single_flight::{Progress, Subscription};
use cri_api::{LayerState, ProgressSink, PullEvent};
use oci::Digest;

/// Fans events out.
#[derive(Clone, Default)]
pub(crate) struct Hub(base::single_flight::Hub<PullProgress>);

/// The present state of a pull or of a layer.
#[derive(Default)]
pub(crate) struct PullProgress {
    resolving: bool,
    resolved: Option<PullEvent>,
    layers: HashMap<Digest, LayerProgress>,
    sources: Option<PullEvent>,
    committing: bool,
}

#[derive(Default)]
struct LayerProgress {
    state: Option<LayerState>,
    done: u64,
}

impl Progress for PullProgress {
    type Event = PullEvent;

    fn replay(&self) -> impl Iterator<Item = PullEvent> {
        let resolving = (self.resolving && self.resolved.is_none()).then_some(PullEvent::Resolving);
        let layers = self.layers.iter().flat_map(|(digest, layer)| {
            let state = layer.state.map(|state| PullEvent::Layer { digest: digest.clone(), state });
            let bytes = (layer.done > 0).then(|| PullEvent::Bytes { digest: digest.clone(), done: layer.done });
            state.into_iter().chain(bytes)
        });
        let committing = self.committing.then_some(PullEvent::Committing);
        self.resolved.clone().into_iter().chain(resolving).chain(layers).chain(self.sources.clone()).chain(committing)
    }
}

impl PullProgress {
    fn update(&mut self, event: &PullEvent) {
        match event {
            PullEvent::Resolving => self.resolving = true,
            PullEvent::Resolved { .. } => self.resolved = Some(event.clone()),
            PullEvent::Layer { digest, state } => {
                self.layers.entry(digest.clone()).or_default().state = Some(*state);
            }
            PullEvent::Bytes { digest, done } => self.layers.entry(digest.clone()).or_default().done = *done,
            PullEvent::Sources { .. } => self.sources = Some(event.clone()),
            PullEvent::Unpacked { .. } => {}
            PullEvent::Committing => self.committing = true,
        }
    }
}

impl Hub {
    /// Subscribes a sink, which gets the present state at once.
    pub(crate) fn join(&self, sink: ProgressSink) -> Subscription<PullProgress> {
        self.0.subscribe(move |event| sink.report(event))
    }

    /// Reports to all subscribers, and remembers.
    pub(crate) fn report(&self, event: PullEvent) {
        self.0.send(&event, PullProgress::update);
    }

    pub(crate) fn layer(&self, digest: &Digest, state: LayerState) {
        self.report(PullEvent::Layer { digest: digest.clone(), state });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::lock::Mutex;

    use super::*;

    fn recorder() -> (ProgressSink, Arc<Mutex<Vec<PullEvent>>>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&seen);
        (ProgressSink::new(move |event| into.lock().push(event)), seen)
    }

    #[test]
    fn a_late_joiner_receives_the_current_state() {
        let hub = Hub::default();
        let digest = Digest::sha256(b"layer");
        let resolved = PullEvent::Resolved { digest: Digest::sha256(b"m"), layers: vec![(digest.clone(), 9)] };
        let (early, early_seen) = recorder();
        let _early = hub.join(early);
        hub.report(PullEvent::Resolving);
        let (asking, asking_seen) = recorder();
        drop(hub.join(asking));
        assert_eq!(*asking_seen.lock(), [PullEvent::Resolving]);
        hub.report(resolved.clone());
        hub.layer(&digest, LayerState::Waiting);
        hub.layer(&digest, LayerState::Fetching);
        hub.report(PullEvent::Bytes { digest: digest.clone(), done: 5 });
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
    fn a_sink_that_left_receives_nothing() {
        let hub = Hub::default();
        let (sink, seen) = recorder();
        drop(hub.join(sink));
        hub.report(PullEvent::Committing);
        assert!(seen.lock().is_empty());
    }
}
