//! Version, status, configuration and events of a runtime.

use cri_api as api;

use super::{all, filled, or_default};
use crate::pb;

same_fields! {
    ExecSyncResponse = ExecSyncOutput { stdout, stderr, exit_code }
    VersionResponse = VersionInfo { version, runtime_name, runtime_version, runtime_api_version }
    RuntimeHandlerFeatures = RuntimeHandlerFeatures { recursive_read_only_mounts, user_namespaces }
    RuntimeFeatures = RuntimeFeatures { supplemental_groups_policy, user_namespaces_host_network, mount_options }
}

fields! {
    RuntimeCondition = Condition { same r#type kind, same status status, same reason reason, same message message }
    RuntimeHandler = RuntimeHandler { same name name, message features features }
}

impl From<pb::StatusResponse> for api::RuntimeStatus {
    fn from(response: pb::StatusResponse) -> Self {
        let pb::StatusResponse { status, info, runtime_handlers, features } = response;
        let conditions = status.map(|status| all(status.conditions)).unwrap_or_default();
        Self { conditions, info, handlers: all(runtime_handlers), features: or_default(features) }
    }
}

impl From<api::RuntimeStatus> for pb::StatusResponse {
    fn from(status: api::RuntimeStatus) -> Self {
        let api::RuntimeStatus { conditions, info, handlers, features } = status;
        let status = pb::RuntimeStatus { conditions: all(conditions) };
        Self { status: Some(status), info, runtime_handlers: all(handlers), features: filled(features) }
    }
}

impl From<pb::RuntimeConfigResponse> for api::RuntimeConfig {
    fn from(response: pb::RuntimeConfigResponse) -> Self {
        let driver = |number| match pb::CgroupDriver::try_from(number) {
            Ok(pb::CgroupDriver::Systemd) => Some(api::CgroupDriver::Systemd),
            Ok(pb::CgroupDriver::Cgroupfs) => Some(api::CgroupDriver::Cgroupfs),
            Err(_) => None,
        };
        Self { cgroup_driver: response.linux.and_then(|linux| driver(linux.cgroup_driver)) }
    }
}

impl From<pb::ContainerEventResponse> for api::ContainerEvent {
    fn from(event: pb::ContainerEventResponse) -> Self {
        let pb::ContainerEventResponse {
            container_id,
            container_event_type,
            created_at,
            pod_sandbox_status,
            containers_statuses,
        } = event;
        let kind = match pb::ContainerEventType::try_from(container_event_type) {
            Ok(pb::ContainerEventType::ContainerCreatedEvent) => api::ContainerEventKind::Created,
            Ok(pb::ContainerEventType::ContainerStartedEvent) => api::ContainerEventKind::Started,
            Ok(pb::ContainerEventType::ContainerStoppedEvent) => api::ContainerEventKind::Stopped,
            Ok(pb::ContainerEventType::ContainerDeletedEvent) => api::ContainerEventKind::Deleted,
            Err(_) => api::ContainerEventKind::Unknown,
        };
        Self {
            container_id,
            kind,
            created_at,
            sandbox: pod_sandbox_status.map(Into::into),
            containers: all(containers_statuses),
        }
    }
}
