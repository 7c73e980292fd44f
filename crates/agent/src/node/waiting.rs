//! [`WaitingContainers`]: a metric of each container that has yet to start, by reason, such as `CrashLoopBackOff`. Read at each scrape from
//! the status of the pods. Registered by [`super::Node`].

use std::fmt;
use std::sync::Arc;

use kuberuntime::workers::PodAgent;
use kuberuntime::{ContainerState, PodStatus};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// Reads the containers at each scrape.
pub(super) struct WaitingContainers(pub(super) Arc<PodAgent>);

impl fmt::Debug for WaitingContainers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WaitingContainers").finish()
    }
}

impl Collector for WaitingContainers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Containers that have yet to start, by the reason of their state.";
        let pods = self.0.pods();
        let mut all = pods.iter().flat_map(|view| waiting(&view.status).map(move |of| (view, of))).peekable();
        if all.peek().is_none() {
            return Ok(());
        }
        let mut metrics = encoder.encode_descriptor("imagelet_container_waiting", help, None, MetricType::Gauge)?;
        for (view, (container, reason)) in all {
            let metadata = &view.pod.metadata;
            let labels = [
                ("namespace", metadata.namespace.as_str()),
                ("pod", metadata.name.as_str()),
                ("container", container),
                ("reason", reason),
            ];
            ConstGauge::new(1_i64).encode(metrics.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Returns the name and the reason of each waiting container.
fn waiting(status: &PodStatus) -> impl Iterator<Item = (&str, &str)> {
    status.all_containers().filter_map(|container| match &container.state {
        ContainerState::Waiting(waiting) => Some((container.name.as_str(), waiting.reason.as_str())),
        _ => None,
    })
}
