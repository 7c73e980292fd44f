//! [`ProbeMetrics`]: counts, results and durations of probes, under the kubelet's names and
//! labels. The series of a pod are removed with it. The owner of a registry calls [`ProbeMetrics::register`].

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::ProbeKind;
use crate::pod::Pod;
use crate::probe::ProbeOutcome;

/// Bounds for the seconds that an answer takes: the defaults of Prometheus' libraries.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const RESULTS: [&str; 3] = ["successful", "failed", "unknown"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    probe_type: &'static str,
    result: &'static str,
    container: String,
    pod: String,
    namespace: String,
    pod_uid: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    probe_type: &'static str,
    container: String,
    pod: String,
    namespace: String,
}

/// Everything that is counted about probes. Cheap to share.
#[derive(Debug)]
pub struct ProbeMetrics {
    total: Family<ResultLabels, Counter>,
    duration: Family<DurationLabels, Histogram>,
}

/// The series of one probe of one container.
pub(super) struct ProbeSeries {
    metrics: Arc<ProbeMetrics>,
    labels: ResultLabels,
}

impl ProbeMetrics {
    pub(super) fn new() -> Arc<Self> {
        let duration = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        Arc::new(Self { total: Family::default(), duration })
    }

    /// Gives every metric its name. The registry appends `_total` to counters.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("prober_probe", "Questions of probes, by what they came to", self.total.clone());
        registry.register("prober_probe_duration_seconds", "Time that answers to probes took", self.duration.clone());
    }

    pub(super) fn series(self: &Arc<Self>, kind: ProbeKind, pod: &Pod, container: &str) -> ProbeSeries {
        ProbeSeries { metrics: Arc::clone(self), labels: labels(kind, pod, container) }
    }

    /// Removes the series of a pod that was removed.
    pub(super) fn forget(&self, pod: &Pod, container: &str) {
        for kind in ProbeKind::ALL {
            let mut labels = labels(kind, pod, container);
            for result in RESULTS {
                labels.result = result;
                self.total.remove(&labels);
            }
            self.duration.remove(&labels.into());
        }
    }
}

fn labels(kind: ProbeKind, pod: &Pod, container: &str) -> ResultLabels {
    let metadata = &pod.metadata;
    ResultLabels {
        probe_type: kind.as_str(),
        result: RESULTS[0],
        container: container.to_owned(),
        pod: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        pod_uid: metadata.uid.clone(),
    }
}

impl From<ResultLabels> for DurationLabels {
    fn from(labels: ResultLabels) -> Self {
        let ResultLabels { probe_type, container, pod, namespace, .. } = labels;
        Self { probe_type, container, pod, namespace }
    }
}

impl ProbeSeries {
    /// Records the outcome and duration of a probe.
    pub(super) fn observe(&self, answer: ProbeOutcome, took: Duration) {
        let result = match answer {
            ProbeOutcome::Success | ProbeOutcome::Warning => RESULTS[0],
            ProbeOutcome::Failure => RESULTS[1],
            ProbeOutcome::Unknown => RESULTS[2],
        };
        let labels = ResultLabels { result, ..self.labels.clone() };
        self.metrics.total.get_or_create(&labels).inc();
        self.metrics.duration.get_or_create(&labels.into()).observe(took.as_secs_f64());
    }
}
