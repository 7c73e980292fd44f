//! Stats of containers and pods.

use cri_api as api;

use super::{all, filled, or_default};
use crate::pb;

same_fields! {
    PsiData = PsiData { total, avg10, avg60, avg300 }
}

fields! {
    PsiStats = PsiStats { message full full, message some some }
    CpuUsage = CpuUsage {
        same timestamp timestamp,
        number usage_core_nano_seconds usage_core_nano_seconds,
        number usage_nano_cores usage_nano_cores,
        maybe psi psi,
    }
    MemoryUsage = MemoryUsage {
        same timestamp timestamp,
        number working_set_bytes working_set_bytes,
        number available_bytes available_bytes,
        number usage_bytes usage_bytes,
        number rss_bytes rss_bytes,
        number page_faults page_faults,
        number major_page_faults major_page_faults,
        maybe psi psi,
    }
    SwapUsage = SwapUsage {
        same timestamp timestamp,
        number swap_available_bytes swap_available_bytes,
        number swap_usage_bytes swap_usage_bytes,
    }
    IoUsage = IoUsage { same timestamp timestamp, maybe psi psi }
    NetworkInterfaceUsage = NetworkInterfaceUsage {
        same name name,
        number rx_bytes rx_bytes,
        number rx_errors rx_errors,
        number tx_bytes tx_bytes,
        number tx_errors tx_errors,
    }
    NetworkUsage = NetworkUsage {
        same timestamp timestamp,
        maybe default_interface default_interface,
        list interfaces interfaces,
    }
    ProcessUsage = ProcessUsage { same timestamp timestamp, number process_count process_count }
    ContainerAttributes = ContainerAttributes {
        same id id,
        message metadata metadata,
        same labels labels,
        same annotations annotations,
    }
    PodSandboxAttributes = PodSandboxAttributes {
        same id id,
        message metadata metadata,
        same labels labels,
        same annotations annotations,
    }
    ContainerStats = ContainerStats {
        message attributes attributes,
        maybe cpu cpu,
        maybe memory memory,
        maybe writable_layer writable_layer,
        maybe swap swap,
        maybe io io,
    }
    ContainerStatsFilter = ContainerStatsFilter {
        text id id,
        text pod_sandbox_id pod_sandbox_id,
        same label_selector labels,
    }
    PodSandboxStatsFilter = PodSandboxStatsFilter { text id id, same label_selector labels }
}

impl From<pb::PodSandboxStats> for api::PodSandboxStats {
    fn from(stats: pb::PodSandboxStats) -> Self {
        let pb::PodSandboxStats { attributes, linux, windows: _ } = stats;
        let pb::LinuxPodSandboxStats { cpu, memory, network, process, containers, io } = linux.unwrap_or_default();
        Self {
            attributes: or_default(attributes),
            cpu: cpu.map(Into::into),
            memory: memory.map(Into::into),
            network: network.map(Into::into),
            process: process.map(Into::into),
            io: io.map(Into::into),
            containers: all(containers),
        }
    }
}

impl From<api::PodSandboxStats> for pb::PodSandboxStats {
    fn from(stats: api::PodSandboxStats) -> Self {
        let api::PodSandboxStats { attributes, cpu, memory, network, process, io, containers } = stats;
        let linux = pb::LinuxPodSandboxStats {
            cpu: cpu.map(Into::into),
            memory: memory.map(Into::into),
            network: network.map(Into::into),
            process: process.map(Into::into),
            containers: all(containers),
            io: io.map(Into::into),
        };
        Self { attributes: filled(attributes), linux: Some(linux), windows: None }
    }
}
