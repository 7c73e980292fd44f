//! Metrics of pulls.

use std::collections::BTreeMap;

use cri_api::{LayerState, ProgressSink, PullEvent};
use oci::Digest;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use super::*;

/// Every sample whose name begins with `imagelet_pull`, but for the buckets.
fn counted(metrics: &Metrics) -> BTreeMap<String, f64> {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("a string takes everything");
    let samples = out.lines().filter(|line| line.starts_with("imagelet_pull") && !line.contains("_bucket"));
    samples
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .filter(|(_, value)| *value != 0.0)
        .collect()
}

fn samples(wanted: &[(&str, f64)]) -> BTreeMap<String, f64> {
    wanted.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

#[tokio::test(start_paused = true)]
async fn pulls_are_counted() {
    let mut rig = Rig::new(PullerOptions { qps: 1.0, burst: 1, pull_wait: Duration::ZERO, ..serial() });
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    for image in ["a:1", "a:1", "b:1", "c:1"] {
        rig.ask(image).await;
    }
    rig.ask("d:1").await.abort();
    settle().await;
    assert_eq!(
        counted(&rig.puller.context.metrics),
        samples(&[
            ("imagelet_pull_queue_length", 2.0),
            ("imagelet_pull_queue_wait_seconds_count", 1.0),
            ("imagelet_pulls_coalesced_total", 1.0),
            ("imagelet_pulls_in_flight", 1.0),
        ])
    );
    rig.fake.withdraw("a:1");
    tokio::time::sleep(Duration::from_millis(500)).await;
    gate.open();
    assert_eq!(rig.outcomes().await.iter().filter(|outcome| outcome.is_err()).count(), 4);
    assert_eq!(
        counted(&rig.puller.context.metrics),
        samples(&[
            ("imagelet_pull_queue_wait_seconds_count", 3.0),
            ("imagelet_pull_queue_wait_seconds_sum", 1.0),
            ("imagelet_pulls_coalesced_total", 1.0),
            ("imagelet_pulls_throttled_total", 2.0),
            ("imagelet_pull_failures_total{cause=\"not_found\"}", 1.0),
            ("imagelet_pull_failures_total{cause=\"throttled\"}", 2.0),
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn bytes_are_counted_once_for_all_who_wait() {
    let rig = Rig::new(free());
    let hub = ProgressMonitor::new(rig.puller.context.time.clone(), Arc::clone(&rig.puller.context.metrics));
    let _seats = [hub.subscribe(ProgressSink::default()), hub.subscribe(ProgressSink::default())];
    let digest = Digest::sha256(b"layer");
    hub.sink().report(PullEvent::Layer { digest: digest.clone(), state: LayerState::Fetching });
    for done in [100, 100, 250] {
        hub.sink().report(PullEvent::Bytes { digest: digest.clone(), done });
    }
    assert_eq!(counted(&rig.puller.context.metrics), samples(&[("imagelet_pulled_bytes_total", 250.0)]));
}
