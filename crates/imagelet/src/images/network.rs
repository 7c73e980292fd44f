//! [`PullNetwork`]: the parts of the network that all pulls of the process share: the limit of bytes a second, and the count of bytes by
//! source, which is a metric. Opened once with the program, and given to every engine.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use registry::{Bandwidth, Traffic};

/// The limit and the count of the bytes that pulls receive.
#[derive(Clone, Debug)]
pub(crate) struct PullNetwork {
    pub(crate) bandwidth: Bandwidth,
    pub(crate) traffic: Traffic,
}

impl PullNetwork {
    /// A limit of `rate` bytes a second (0: none), and nothing counted yet.
    pub(crate) fn new(rate: u64) -> Self {
        Self { bandwidth: Bandwidth::new(rate), traffic: Traffic::default() }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(TrafficCollector(self.traffic.clone())));
    }
}

/// The bytes by source, as a metric. Registries have no names in it, because images name them; mirrors are those of the configuration.
#[derive(Debug)]
struct TrafficCollector(Traffic);

impl Collector for TrafficCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Bytes of manifests, configs and layers that pulls received from registries and from each mirror";
        let mut metric = encoder.encode_descriptor("imagelet_pull_bytes", help, None, MetricType::Counter)?;
        let registries = [("source", "registry"), ("mirror", "")];
        ConstCounter::new(self.0.registries()).encode(metric.encode_family(&registries)?)?;
        for (mirror, bytes) in self.0.mirrors() {
            let labels = [("source", "mirror"), ("mirror", mirror.as_str())];
            ConstCounter::new(bytes).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
