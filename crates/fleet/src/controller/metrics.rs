//! [`ControllerMetrics`]: figures of a replica: whether it leads, the nodes and sets of its last pass, the duration of passes, and writes
//! that failed. Figures of nodes and sets are those of the leader alone, so that sums over replicas count nothing twice. Written by
//! [`super::Controller`] and its passes, read at each scrape; registered by the binary.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::lock::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::api::{ImageSetStatus, NodeCounts};

/// Seconds that a pass takes.
const PASS_BUCKETS: [f64; 8] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0];
/// Conditions of a set that are metrics.
const CONDITIONS: [&str; 2] = ["Ready", "Degraded"];

/// Figures of a replica. Copies share them.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    passes: Histogram,
    /// Guards all other figures.
    figures: Arc<Mutex<Figures>>,
}

#[derive(Clone, Debug, Default)]
struct Figures {
    /// `None` while another replica leads.
    leading: Option<LastPass>,
    /// Writes that failed, by kind of the object.
    failures: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Debug, Default)]
struct LastPass {
    nodes: usize,
    sets: Vec<SetFigures>,
}

/// Figures of a set.
#[derive(Clone, Debug)]
pub(super) struct SetFigures {
    name: String,
    nodes: NodeCounts,
    /// True for each of [`CONDITIONS`] that is true.
    conditions: [bool; CONDITIONS.len()],
}

impl SetFigures {
    pub(super) fn of(name: String, status: &ImageSetStatus) -> Self {
        let is_true = |name| status.conditions.iter().any(|known| known.type_ == name && known.status == "True");
        Self { name, nodes: status.nodes.unwrap_or_default(), conditions: CONDITIONS.map(is_true) }
    }
}

impl Default for ControllerMetrics {
    fn default() -> Self {
        Self { passes: Histogram::new(PASS_BUCKETS), figures: Arc::default() }
    }
}

impl ControllerMetrics {
    /// Adds the metrics of this replica.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Time that a pass over all sets took";
        registry.register("imagelet_fleet_pass_duration_seconds", help, self.passes.clone());
        registry.register_collector(Box::new(FleetCollector(Arc::clone(&self.figures))));
    }

    /// Records that this replica leads, until the guard is dropped.
    pub(super) fn lead(&self) -> Leading {
        self.figures.lock().leading = Some(LastPass::default());
        Leading(Arc::clone(&self.figures))
    }

    /// Records a pass.
    pub(super) fn passed(&self, took: Duration, nodes: usize, sets: Vec<SetFigures>) {
        self.passes.observe(took.as_secs_f64());
        if let Some(leading) = &mut self.figures.lock().leading {
            *leading = LastPass { nodes, sets };
        }
    }

    /// Counts a write that failed. A conflict is none: the next pass starts from the newer object.
    pub(super) fn write_failed(&self, kind: &'static str) {
        *self.figures.lock().failures.entry(kind).or_default() += 1;
    }
}

/// The time in which a replica leads.
#[derive(Debug)]
pub(super) struct Leading(Arc<Mutex<Figures>>);

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.lock().leading = None;
    }
}

#[derive(Debug)]
struct FleetCollector(Arc<Mutex<Figures>>);

impl Collector for FleetCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Figures { leading, failures } = self.0.lock().clone();
        let help = "1 if this replica leads.";
        let metric = encoder.encode_descriptor("imagelet_fleet_leader", help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::from(leading.is_some())).encode(metric)?;
        if let Some(LastPass { nodes, sets }) = leading {
            let help = "Nodes of the cluster.";
            let metric = encoder.encode_descriptor("imagelet_fleet_nodes", help, None, MetricType::Gauge)?;
            ConstGauge::new(nodes as u64).encode(metric)?;
            if !sets.is_empty() {
                encode_sets(&mut encoder, &sets)?;
            }
        }
        if !failures.is_empty() {
            let (name, help) = ("imagelet_fleet_write_failures", "Writes that failed, by the kind of the object.");
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (kind, count) in failures {
                ConstCounter::new(count).encode(metric.encode_family(&[("kind", kind)])?)?;
            }
        }
        Ok(())
    }
}

fn encode_sets(encoder: &mut DescriptorEncoder<'_>, sets: &[SetFigures]) -> fmt::Result {
    let help = "Nodes that each set selects, by their state.";
    let mut metric = encoder.encode_descriptor("imagelet_fleet_set_nodes", help, None, MetricType::Gauge)?;
    for set in sets {
        let NodeCounts { desired: _, waiting, pulling, ready, failed, lost } = set.nodes;
        let states = [("waiting", waiting), ("pulling", pulling), ("ready", ready), ("failed", failed), ("lost", lost)];
        for (state, count) in states {
            let labels = [("set", set.name.as_str()), ("state", state)];
            ConstGauge::new(count).encode(metric.encode_family(&labels)?)?;
        }
    }
    let help = "1 if the condition of the set is true.";
    let mut metric = encoder.encode_descriptor("imagelet_fleet_set_condition", help, None, MetricType::Gauge)?;
    for set in sets {
        for (condition, is_true) in CONDITIONS.into_iter().zip(set.conditions) {
            let labels = [("set", set.name.as_str()), ("type", condition)];
            ConstGauge::new(i64::from(is_true)).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}
