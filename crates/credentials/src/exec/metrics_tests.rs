//! Tests of the metrics' text, which is what dashboards read.

use super::*;

fn text(metrics: &Metrics) -> String {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("encoded");
    text
}

fn has(text: &str, line: &str) {
    assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
}

// upstream: plugin/TestKubeletCredentialProviderPluginErrors
// upstream: plugin/TestMultiplePluginErrors
#[test]
fn errors() {
    let metrics = Metrics::new("sha256:x");
    metrics.failed("plugin-a");
    metrics.failed("plugin-a");
    metrics.failed("plugin-b");
    let text = text(&metrics);
    has(&text, "# TYPE kubelet_credential_provider_plugin_errors counter");
    has(&text, "kubelet_credential_provider_plugin_errors_total{plugin_name=\"plugin-a\"} 2");
    has(&text, "kubelet_credential_provider_plugin_errors_total{plugin_name=\"plugin-b\"} 1");
}

// upstream: plugin/TestKubeletCredentialProviderPluginDuration
// upstream: plugin/TestMultiplePluginDurations
#[test]
fn durations() {
    let metrics = Metrics::new("sha256:x");
    metrics.ran("fast-plugin", Duration::from_millis(1));
    metrics.ran("test-plugin", Duration::from_millis(300));
    metrics.ran("slow-plugin", Duration::from_secs(2));
    let text = text(&metrics);
    has(&text, "# TYPE kubelet_credential_provider_plugin_duration histogram");
    for (plugin, sum, below) in
        [("fast-plugin", "0.001", 0.001), ("test-plugin", "0.3", 0.3), ("slow-plugin", "2.0", 2.0)]
    {
        let name = "kubelet_credential_provider_plugin_duration";
        has(&text, &format!("{name}_sum{{plugin_name=\"{plugin}\"}} {sum}"));
        has(&text, &format!("{name}_count{{plugin_name=\"{plugin}\"}} 1"));
        for (bucket, shown) in BUCKETS
            .into_iter()
            .zip(["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0"])
        {
            let count = u8::from(below <= bucket);
            has(&text, &format!("{name}_bucket{{le=\"{shown}\",plugin_name=\"{plugin}\"}} {count}"));
        }
        has(&text, &format!("{name}_bucket{{le=\"+Inf\",plugin_name=\"{plugin}\"}} 1"));
    }
}

// upstream: plugin/TestKubeletCredentialProviderConfigInfo
// upstream: plugin/TestCredentialProviderConfigInfoWithDifferentHashes
#[test]
fn effective_configuration_is_reported() {
    let text = [Metrics::new("sha256:config1"), Metrics::new("sha256:config2")].map(|m| text(&m))[1].clone();
    has(&text, "# TYPE kubelet_credential_provider_config_info gauge");
    has(&text, "kubelet_credential_provider_config_info{hash=\"sha256:config2\"} 1");
    assert!(!text.contains("config1"), "{text}");
}
