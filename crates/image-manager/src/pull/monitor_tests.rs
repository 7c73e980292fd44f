//! Reports to subscribers of a pull's hub.

use cri_api::LayerState;
use oci::Digest;
use tokio::time::Instant;

use base::lock::Mutex;

use super::*;

fn hub() -> ProgressMonitor {
    ProgressMonitor::new(Timeline::new(Arc::new(Instant::now)), Metrics::new())
}

fn recorder() -> (ProgressSink, Arc<Mutex<Vec<PullEvent>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&seen);
    (ProgressSink::new(move |event| into.lock().push(event)), seen)
}

fn layer(state: LayerState) -> PullEvent {
    PullEvent::Layer { digest: Digest::sha256(b"layer"), state }
}

#[test]
fn late_subscribers_receive_the_same_later_events() {
    let hub = hub();
    let (early, early_seen) = recorder();
    let _early = hub.subscribe(early);
    hub.sink().report(layer(LayerState::Waiting));
    hub.sink().report(layer(LayerState::Fetching));
    let (late, late_seen) = recorder();
    let seat = hub.subscribe(late);
    hub.sink().report(PullEvent::Committing);
    drop(seat);
    hub.sink().report(layer(LayerState::Done));
    assert_eq!(early_seen.lock().len(), 4);
    assert_eq!(*late_seen.lock(), [layer(LayerState::Fetching), PullEvent::Committing], "none after it left");
}

#[test]
fn another_attempt_begins_with_nothing() {
    let hub = hub();
    hub.sink().report(PullEvent::Committing);
    hub.reset();
    let (sink, seen) = recorder();
    let _seat = hub.subscribe(sink);
    assert!(seen.lock().is_empty());
}

#[test]
fn a_panicking_sink_disturbs_no_other() {
    let hub = hub();
    let _bad = hub.subscribe(ProgressSink::new(|_| panic!("a sink that fails")));
    let (good, seen) = recorder();
    let _good = hub.subscribe(good);
    hub.sink().report(PullEvent::Committing);
    hub.sink().report(layer(LayerState::Done));
    assert_eq!(seen.lock().len(), 2);
    let _late = hub.subscribe(ProgressSink::new(|_| panic!("a sink that fails on what it missed")));
    hub.sink().report(PullEvent::Committing);
    assert_eq!(seen.lock().len(), 3);
}
