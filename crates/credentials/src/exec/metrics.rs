//! [`Metrics`]: the kubelet's metrics of credential providers, under its names and labels. Filled by the providers,
//! registered by the program.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Default buckets of Prometheus, in seconds.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

type Labels = [(&'static str, String); 1];

/// Durations and failures by provider, and the configuration's hash.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    duration: Family<Labels, Histogram>,
    errors: Family<Labels, Counter>,
    config: Family<Labels, Gauge>,
}

impl Metrics {
    pub(super) fn new(config_hash: &str) -> Self {
        let config = Family::<Labels, Gauge>::default();
        config.get_or_create(&[("hash", config_hash.to_owned())]).set(1);
        Self { duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)), errors: Family::default(), config }
    }

    /// Records the duration of a provider's run, successful or not.
    pub(super) fn ran(&self, provider: &str, took: Duration) {
        self.duration.get_or_create(&[("plugin_name", provider.to_owned())]).observe(took.as_secs_f64());
    }

    /// A provider failed, or gave an answer that is none.
    pub(super) fn failed(&self, provider: &str) {
        self.errors.get_or_create(&[("plugin_name", provider.to_owned())]).inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "kubelet_credential_provider_plugin_duration",
            "Duration of execution in seconds for credential provider plugin",
            self.duration.clone(),
        );
        registry.register(
            "kubelet_credential_provider_plugin_errors",
            "Number of errors from credential provider plugin",
            self.errors.clone(),
        );
        registry.register(
            "kubelet_credential_provider_config_info",
            "Information about the last applied credential provider configuration with hash as label",
            self.config.clone(),
        );
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
