//! Pod sandboxes.

use cri_api as api;

use super::{all, filled, or_default, to_api, to_pb};
use crate::pb;

same_fields! {
    PodSandboxMetadata = PodSandboxMetadata { name, uid, namespace, attempt }
    DnsConfig = DnsConfig { servers, searches, options }
}

choices! {
    pb::Protocol = Protocol or Tcp { Tcp Tcp, Udp Udp, Sctp Sctp }
}

fields! {
    PortMapping = PortMapping {
        choice protocol protocol,
        same container_port container_port,
        same host_port host_port,
        same host_ip host_ip,
    }
    LinuxPodSandboxConfig = LinuxPodSandboxConfig {
        same cgroup_parent cgroup_parent,
        always security_context security,
        same sysctls sysctls,
        message overhead overhead,
        message resources resources,
    }
    PodSandboxConfig = PodSandboxConfig {
        message metadata metadata,
        same hostname hostname,
        same log_directory log_directory,
        message dns_config dns,
        list port_mappings port_mappings,
        same labels labels,
        same annotations annotations,
        always linux linux,
        | windows
    }
    PodSandbox = PodSandbox {
        same id id,
        message metadata metadata,
        ready state ready,
        same created_at created_at,
        same labels labels,
        same annotations annotations,
        same runtime_handler runtime_handler,
    }
    PodSandboxFilter = PodSandboxFilter { text id id, is_ready state ready, same label_selector labels }
}

impl From<pb::PodSandboxStatus> for api::PodSandboxStatus {
    fn from(status: pb::PodSandboxStatus) -> Self {
        let pb::PodSandboxStatus {
            id,
            metadata,
            state,
            created_at,
            network,
            linux,
            labels,
            annotations,
            runtime_handler,
        } = status;
        let network = network.unwrap_or_default();
        Self {
            id,
            metadata: or_default(metadata),
            ready: to_api::ready(state),
            created_at,
            ip: network.ip,
            additional_ips: network.additional_ips.into_iter().map(|ip| ip.ip).collect(),
            namespaces: or_default(linux.and_then(|linux| linux.namespaces).and_then(|namespaces| namespaces.options)),
            labels,
            annotations,
            runtime_handler,
            ..Self::default()
        }
    }
}

impl From<pb::PodSandboxStatusResponse> for api::PodSandboxStatus {
    fn from(response: pb::PodSandboxStatusResponse) -> Self {
        let pb::PodSandboxStatusResponse { status, info, containers_statuses, timestamp } = response;
        Self { info, containers: all(containers_statuses), timestamp, ..or_default(status) }
    }
}

impl From<api::PodSandboxStatus> for pb::PodSandboxStatusResponse {
    fn from(status: api::PodSandboxStatus) -> Self {
        let api::PodSandboxStatus {
            id,
            metadata,
            ready,
            created_at,
            ip,
            additional_ips,
            namespaces,
            labels,
            annotations,
            runtime_handler,
            containers,
            timestamp,
            info,
        } = status;
        let additional_ips = additional_ips.into_iter().map(|ip| pb::PodIp { ip }).collect();
        let status = pb::PodSandboxStatus {
            id,
            metadata: filled(metadata),
            state: to_pb::ready(ready),
            created_at,
            network: Some(pb::PodSandboxNetworkStatus { ip, additional_ips }),
            linux: Some(pb::LinuxPodSandboxStatus {
                namespaces: Some(pb::Namespace { options: Some(namespaces.into()) }),
            }),
            labels,
            annotations,
            runtime_handler,
        };
        Self { status: Some(status), info, containers_statuses: all(containers), timestamp }
    }
}
