//! Figures of one pod, as both pages show them.

use cri_api::{ContainerAttributes, ContainerMetadata, PodSandboxAttributes, PodSandboxMetadata};

use super::*;

const AT: i64 = 1_795_478_400_000_000_000;

fn summary() -> Summary {
    let cpu = |seconds: u64| CpuUsage {
        timestamp: AT,
        usage_core_nano_seconds: Some(seconds * 1_000_000_000),
        ..CpuUsage::default()
    };
    let memory = |bytes| MemoryUsage { timestamp: AT, working_set_bytes: Some(bytes), ..MemoryUsage::default() };
    let metadata = PodSandboxMetadata { name: "web".into(), namespace: "shop".into(), uid: "u1".into(), attempt: 0 };
    let container = ContainerStats {
        attributes: ContainerAttributes {
            metadata: ContainerMetadata { name: "main".into(), attempt: 0 },
            ..ContainerAttributes::default()
        },
        cpu: Some(cpu(2)),
        memory: Some(memory(1 << 20)),
        ..ContainerStats::default()
    };
    let pod = PodSandboxStats {
        attributes: PodSandboxAttributes { metadata, ..PodSandboxAttributes::default() },
        cpu: Some(cpu(3)),
        containers: vec![container],
        ..PodSandboxStats::default()
    };
    let machine = MachineUsage { cpu: Some(cpu(100)), memory: Some(memory(1 << 30)) };
    let midnight = "2026-11-24T00:00:00Z".parse().expect("a time");
    let running = vec![Started { namespace: "shop".into(), pod: "web".into(), container: "main".into(), at: midnight }];
    Summary { node: "edge".into(), started: midnight, machine, pods: vec![pod], running }
}

#[test]
fn a_summary_has_what_is_known_and_nothing_else() {
    let value = summary().value();
    assert_eq!(value["node"]["nodeName"], "edge");
    assert_eq!(value["node"]["startTime"], "2026-11-24T00:00:00Z");
    assert_eq!(value["node"]["memory"]["workingSetBytes"], 1 << 30);
    let pod = &value["pods"][0];
    assert_eq!(pod["podRef"], json!({"name": "web", "namespace": "shop", "uid": "u1"}));
    assert_eq!(pod["cpu"], json!({"time": "2026-11-24T00:00:00Z", "usageCoreNanoSeconds": 3_000_000_000_u64}));
    assert_eq!(pod.get("memory"), None, "nobody knows");
    assert_eq!(pod["containers"][0]["memory"]["workingSetBytes"], 1 << 20);
}

#[test]
fn metrics_of_resources_have_the_kubelets_names() {
    let text = summary().metrics();
    for line in [
        "# TYPE node_cpu_usage_seconds_total counter",
        "node_cpu_usage_seconds_total 100 1795478400000",
        "node_memory_working_set_bytes 1073741824 1795478400000",
        "container_cpu_usage_seconds_total{container=\"main\",namespace=\"shop\",pod=\"web\"} 2 1795478400000",
        "container_memory_working_set_bytes{container=\"main\",namespace=\"shop\",pod=\"web\"} 1048576 1795478400000",
        "container_start_time_seconds{container=\"main\",namespace=\"shop\",pod=\"web\"} 1795478400",
        "resource_scrape_error 0",
        "pod_cpu_usage_seconds_total{namespace=\"shop\",pod=\"web\"} 3 1795478400000",
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in:\n{text}");
    }
    assert!(!text.contains("pod_memory_working_set_bytes{"), "{text}");
}
