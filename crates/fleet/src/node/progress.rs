//! [`PullProgress`]: the layers of a running pull as the image service reports them: the resolved digest, the bytes that are missing, and
//! those that were fetched. Decides nothing. Filled by the progress events of [`super::pull`], read by the daemon.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::lock::Mutex;
use cri_api::{LayerState, ProgressSink, PullEvent, SourceBytes};
use oci::Digest;
use tokio::sync::Notify;

use crate::api::TransferredBytes;

/// Progress of a pull. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct PullProgress(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Guards what is known of the layers.
    layers: Mutex<Layers>,
    /// Notified when the digest, or the state of a layer, becomes known.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Layers {
    digest: Option<Digest>,
    layers: BTreeMap<Digest, Layer>,
    sources: Vec<SourceBytes>,
}

#[derive(Debug)]
struct Layer {
    size: u64,
    state: Option<LayerState>,
    received: u64,
}

impl PullProgress {
    /// Returns a receiver of events for one attempt, and forgets an earlier attempt.
    pub(super) fn sink(&self) -> ProgressSink {
        *self.0.layers.lock() = Layers::default();
        let shared = Arc::clone(&self.0);
        ProgressSink::new(move |event| {
            if shared.layers.lock().see(event) {
                shared.changed.notify_one();
            }
        })
    }

    /// Waits for the next change. One change that was not waited for counts.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Returns the digest that the name was resolved to.
    pub(super) fn digest(&self) -> Option<Digest> {
        self.0.layers.lock().digest.clone()
    }

    /// Returns the compressed bytes of the layers that are not present; `None` before the state of each layer is known.
    pub(super) fn missing(&self) -> Option<u64> {
        let layers = self.0.layers.lock();
        layers.digest.as_ref()?;
        let missing = |layer: &Layer| match layer.state? {
            LayerState::Present | LayerState::Done => Some(0),
            _ => Some(layer.size),
        };
        layers.layers.values().map(missing).try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(bytes?)))
    }

    /// Returns the bytes of the pull.
    pub(super) fn bytes(&self) -> TransferredBytes {
        let layers = self.0.layers.lock();
        let done = |layer: &Layer| match layer.state {
            Some(LayerState::Present | LayerState::Done) => layer.size,
            _ => layer.received.min(layer.size),
        };
        let from = |mirror: bool| {
            let sources = layers.sources.iter().filter(|source| source.mirror == mirror);
            sources.fold(0, |sum: u64, source| source.bytes.saturating_add(sum))
        };
        TransferredBytes {
            total: layers.layers.values().fold(0, |sum, layer| layer.size.saturating_add(sum)),
            done: layers.layers.values().fold(0, |sum, layer| done(layer).saturating_add(sum)),
            from_registry: from(false),
            from_mirrors: from(true),
        }
    }
}

impl Layers {
    /// Takes an event. Returns true if the digest or a state changed.
    fn see(&mut self, event: PullEvent) -> bool {
        match event {
            PullEvent::Resolved { digest, layers } => {
                let layer = |size| Layer { size, state: None, received: 0 };
                self.layers = layers.into_iter().map(|(digest, size)| (digest, layer(size))).collect();
                self.digest = Some(digest);
                true
            }
            PullEvent::Layer { digest, state } => match self.layers.get_mut(&digest) {
                Some(layer) => layer.state.replace(state) != Some(state),
                None => false,
            },
            PullEvent::Bytes { digest, done } => {
                if let Some(layer) = self.layers.get_mut(&digest) {
                    layer.received = done;
                }
                false
            }
            PullEvent::Sources { sources } => {
                self.sources = sources;
                false
            }
            PullEvent::Resolving | PullEvent::Unpacked { .. } | PullEvent::Committing => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_bytes_are_known_when_the_state_of_each_layer_is() {
        let progress = PullProgress::default();
        let sink = progress.sink();
        assert_eq!((progress.missing(), progress.digest()), (None, None));
        let (base, top) = (Digest::sha256(b"base"), Digest::sha256(b"top"));
        let layers = vec![(base.clone(), 100), (top.clone(), 20)];
        sink.report(PullEvent::Resolved { digest: Digest::sha256(b"index"), layers });
        sink.report(PullEvent::Layer { digest: base, state: LayerState::Present });
        assert_eq!(progress.missing(), None, "one layer may be present or not");
        sink.report(PullEvent::Layer { digest: top.clone(), state: LayerState::Waiting });
        assert_eq!(progress.missing(), Some(20));
        sink.report(PullEvent::Bytes { digest: top.clone(), done: 5 });
        let want = TransferredBytes { total: 120, done: 105, ..TransferredBytes::default() };
        assert_eq!(progress.bytes(), want);
        let source = |host: &str, mirror, bytes| SourceBytes { host: host.to_owned(), mirror, bytes };
        let sources = vec![source("a", true, 7), source("b", true, 3), source("r", false, 10)];
        sink.report(PullEvent::Sources { sources });
        assert_eq!((progress.bytes().from_registry, progress.bytes().from_mirrors), (10, 10));
        sink.report(PullEvent::Layer { digest: top, state: LayerState::Done });
        assert_eq!((progress.missing(), progress.bytes().done), (Some(0), 120));
        progress.sink();
        assert_eq!((progress.missing(), progress.bytes()), (None, TransferredBytes::default()), "another attempt");
    }
}
