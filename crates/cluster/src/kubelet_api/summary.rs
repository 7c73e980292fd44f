//! The figures of `/stats/summary` and `/metrics/resource`, from the runtime's statistics of its pods and the kernel's of the
//! machine. Pure; unknown figures are left out, as in the kubelet.

use std::fmt::Write as _;

use cri_api::{ContainerStats, CpuUsage, FilesystemUsage, MemoryUsage, PodSandboxStats};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::kubelet_api::machine::MachineUsage;
use crate::kubelet_api::pods::Started;

/// Figures of the node and its pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Summary {
    pub(crate) node: String,
    pub(crate) started: Timestamp,
    pub(crate) machine: MachineUsage,
    pub(crate) pods: Vec<PodSandboxStats>,
    /// Containers that run, with the times at which they were started.
    pub(crate) running: Vec<Started>,
}

/// Formats a time like Kubernetes.
fn time(nanoseconds: i64) -> Value {
    let time = Timestamp::from_nanosecond(i128::from(nanoseconds)).unwrap_or_default();
    json!(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

fn object(fields: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Value {
    Value::Object(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<Map<_, _>>())
}

fn cpu(usage: &CpuUsage) -> Value {
    object([
        ("time", Some(time(usage.timestamp))),
        ("usageNanoCores", usage.usage_nano_cores.map(Value::from)),
        ("usageCoreNanoSeconds", usage.usage_core_nano_seconds.map(Value::from)),
    ])
}

fn memory(usage: &MemoryUsage) -> Value {
    object([
        ("time", Some(time(usage.timestamp))),
        ("availableBytes", usage.available_bytes.map(Value::from)),
        ("usageBytes", usage.usage_bytes.map(Value::from)),
        ("workingSetBytes", usage.working_set_bytes.map(Value::from)),
        ("rssBytes", usage.rss_bytes.map(Value::from)),
        ("pageFaults", usage.page_faults.map(Value::from)),
        ("majorPageFaults", usage.major_page_faults.map(Value::from)),
    ])
}

fn file_system(usage: &FilesystemUsage) -> Value {
    object([
        ("time", Some(time(usage.timestamp))),
        ("usedBytes", usage.used_bytes.map(Value::from)),
        ("inodesUsed", usage.inodes_used.map(Value::from)),
    ])
}

fn container(stats: &ContainerStats) -> Value {
    object([
        ("name", Some(json!(stats.attributes.metadata.name))),
        ("cpu", stats.cpu.as_ref().map(cpu)),
        ("memory", stats.memory.as_ref().map(memory)),
        ("rootfs", stats.writable_layer.as_ref().map(file_system)),
    ])
}

fn pod(stats: &PodSandboxStats) -> Value {
    let of = &stats.attributes.metadata;
    let network = stats.network.as_ref().map(|network| {
        let mut value = json!({"time": time(network.timestamp)});
        if let Some(usage) = &network.default_interface {
            for (name, number) in [
                ("rxBytes", usage.rx_bytes),
                ("rxErrors", usage.rx_errors),
                ("txBytes", usage.tx_bytes),
                ("txErrors", usage.tx_errors),
            ] {
                if let Some(number) = number {
                    value[name] = number.into();
                }
            }
            value["name"] = json!(usage.name);
        }
        value
    });
    object([
        ("podRef", Some(json!({"name": of.name, "namespace": of.namespace, "uid": of.uid}))),
        ("containers", Some(stats.containers.iter().map(container).collect())),
        ("cpu", stats.cpu.as_ref().map(cpu)),
        ("memory", stats.memory.as_ref().map(memory)),
        ("network", network),
        (
            "process_stats",
            stats.process.and_then(|process| process.process_count).map(|count| json!({"process_count": count})),
        ),
    ])
}

impl Summary {
    /// Returns the value of `/stats/summary`.
    pub(crate) fn value(&self) -> Value {
        let node = object([
            ("nodeName", Some(json!(self.node))),
            ("startTime", Some(json!(self.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()))),
            ("cpu", self.machine.cpu.as_ref().map(cpu)),
            ("memory", self.machine.memory.as_ref().map(memory)),
        ]);
        json!({"node": node, "pods": self.pods.iter().map(pod).collect::<Value>()})
    }

    /// Returns the text of `/metrics/resource`, which metrics-server reads.
    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, samples: Vec<(String, f64, i64)>| {
            let _ = writeln!(text, "# HELP {name} [STABLE] {help}\n# TYPE {name} {kind}");
            for (labels, value, at) in samples {
                let _ = writeln!(text, "{name}{labels} {value} {}", at / 1_000_000);
            }
        };
        let seconds = |usage: &CpuUsage| usage.usage_core_nano_seconds.map(|n| (as_float(n) / 1e9, usage.timestamp));
        let bytes = |usage: &MemoryUsage| usage.working_set_bytes.map(|n| (as_float(n), usage.timestamp));
        let sample = |labels: String, value: Option<(f64, i64)>| value.map(|(value, at)| (labels, value, at));
        let of_pod = |pod: &PodSandboxStats| {
            let of = &pod.attributes.metadata;
            format!("{{namespace=\"{}\",pod=\"{}\"}}", of.namespace, of.name)
        };
        let containers =
            || self.pods.iter().flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)));
        let of_container = |(pod, container): (&PodSandboxStats, &ContainerStats)| {
            let of = &pod.attributes.metadata;
            let name = &container.attributes.metadata.name;
            format!("{{container=\"{name}\",namespace=\"{}\",pod=\"{}\"}}", of.namespace, of.name)
        };
        let node = |value: Option<(f64, i64)>| sample(String::new(), value).into_iter().collect();
        family(
            "node_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the node in core-seconds",
            node(self.machine.cpu.as_ref().and_then(seconds)),
        );
        family(
            "node_memory_working_set_bytes",
            "gauge",
            "Current working set of the node in bytes",
            node(self.machine.memory.as_ref().and_then(bytes)),
        );
        let cpu = |(pod, container)| sample(of_container((pod, container)), container.cpu.as_ref().and_then(seconds));
        family(
            "container_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the container in core-seconds",
            containers().filter_map(cpu).collect(),
        );
        let memory =
            |(pod, container)| sample(of_container((pod, container)), container.memory.as_ref().and_then(bytes));
        family(
            "container_memory_working_set_bytes",
            "gauge",
            "Current working set of the container in bytes",
            containers().filter_map(memory).collect(),
        );
        let cpu = |pod: &PodSandboxStats| sample(of_pod(pod), pod.cpu.as_ref().and_then(seconds));
        family(
            "pod_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the pod in core-seconds",
            self.pods.iter().filter_map(cpu).collect(),
        );
        let memory = |pod: &PodSandboxStats| sample(of_pod(pod), pod.memory.as_ref().and_then(bytes));
        family(
            "pod_memory_working_set_bytes",
            "gauge",
            "Current working set of the pod in bytes",
            self.pods.iter().filter_map(memory).collect(),
        );
        // A start is no sample of now: it has no time of its own.
        text.push_str(
            "# HELP container_start_time_seconds [STABLE] Start time of the container since unix epoch in seconds\n\
             # TYPE container_start_time_seconds gauge\n",
        );
        for Started { namespace, pod, container, at } in &self.running {
            let labels = format!("{{container=\"{container}\",namespace=\"{namespace}\",pod=\"{pod}\"}}");
            let _ = writeln!(text, "container_start_time_seconds{labels} {}", at.as_second());
        }
        // A scrape that fails is answered with the failure.
        text.push_str(
            "# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise\n\
             # TYPE resource_scrape_error gauge\nresource_scrape_error 0\n",
        );
        text
    }
}

/// Returns the nearest float, which is the precision of the text format.
fn as_float(number: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
    {
        number as f64
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
