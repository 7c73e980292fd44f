//! Metrics of the sets on this node, read from the [`SetBoard`] at each scrape: series of a set that no longer selects the node disappear.
//! Registered by the binary.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::board::SetBoard;
use crate::api::{ImagePhase, NodeImagesStatus, SetPhase};

impl SetBoard {
    /// Adds the metrics of the sets on this node.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(SetCollector(self.clone())));
    }
}

#[derive(Debug)]
struct SetCollector(SetBoard);

impl Collector for SetCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let facts = self.0.facts();
        if let Some(status) = facts.status.filter(|status| !status.sets.is_empty()) {
            let help = "The state of each set that selects this node.";
            let mut metric = encoder.encode_descriptor("imagelet_image_set_phase", help, None, MetricType::Gauge)?;
            for set in &status.sets {
                let labels = [("set", set.name.as_str()), ("phase", phase_of_set(set.phase))];
                ConstGauge::new(1_i64).encode(metric.encode_family(&labels)?)?;
            }
            let help = "Images of each set that selects this node, by their state.";
            let mut metric = encoder.encode_descriptor("imagelet_image_set_images", help, None, MetricType::Gauge)?;
            for ((set, phase), count) in images(&status) {
                ConstGauge::new(count).encode(metric.encode_family(&[("set", set), ("phase", phase)])?)?;
            }
        }
        if !facts.failures.is_empty() {
            let (name, help) = ("imagelet_image_set_pull_failures", "Failed pulls of images of sets, by reason.");
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (reason, count) in &facts.failures {
                ConstCounter::new(*count).encode(metric.encode_family(&[("reason", reason.as_str())])?)?;
            }
        }
        let help =
            "Time of the last report that the API server accepted, in seconds since 1970; 0 before the first one.";
        let name = "imagelet_node_images_last_report_timestamp_seconds";
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(facts.last_report.map_or(0, |time| time.as_second())).encode(metric)?;
        let (name, help) = ("imagelet_node_images_report_failures", "Reports that could not be written.");
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(facts.failed_reports).encode(metric)
    }
}

/// Returns the number of images by set and phase. Phases without an image are left out.
fn images(status: &NodeImagesStatus) -> BTreeMap<(&str, &'static str), u64> {
    let mut all = BTreeMap::new();
    for image in &status.images {
        *all.entry((image.set.as_str(), phase_of_image(image.phase))).or_default() += 1;
    }
    all
}

const fn phase_of_set(phase: SetPhase) -> &'static str {
    match phase {
        SetPhase::Waiting => "waiting",
        SetPhase::Pulling => "pulling",
        SetPhase::Ready => "ready",
        SetPhase::Failed => "failed",
    }
}

const fn phase_of_image(phase: ImagePhase) -> &'static str {
    match phase {
        ImagePhase::Waiting => "waiting",
        ImagePhase::Pulling => "pulling",
        ImagePhase::Ready => "ready",
        ImagePhase::Failed => "failed",
        ImagePhase::Gone => "gone",
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
