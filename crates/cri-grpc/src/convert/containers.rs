//! Containers.

use cri_api as api;

use super::or_default;
use crate::pb;

same_fields! {
    ContainerMetadata = ContainerMetadata { name, attempt }
    KeyValue = EnvVar { key, value }
}

choices! {
    pb::ContainerState = ContainerState or Unknown {
        ContainerCreated Created,
        ContainerRunning Running,
        ContainerExited Exited,
        ContainerUnknown Unknown,
    }
}

fields! {
    LinuxContainerConfig = LinuxContainerConfig { always resources resources, always security_context security }
    ContainerConfig = ContainerConfig {
        message metadata metadata,
        message image image,
        same command command,
        same args args,
        same working_dir working_dir,
        list envs envs,
        list mounts mounts,
        list devices devices,
        same labels labels,
        same annotations annotations,
        same log_path log_path,
        same stdin stdin,
        same stdin_once stdin_once,
        same tty tty,
        always linux linux,
        devices cdi_devices cdi_devices,
        signal stop_signal stop_signal,
        | windows
    }
    Container = Container {
        same id id,
        same pod_sandbox_id pod_sandbox_id,
        message metadata metadata,
        message image image,
        same image_ref image_ref,
        choice state state,
        same created_at created_at,
        same labels labels,
        same annotations annotations,
        same image_id image_id,
    }
    ContainerFilter = ContainerFilter {
        text id id,
        state state state,
        text pod_sandbox_id pod_sandbox_id,
        same label_selector labels,
    }
    ContainerStatus = ContainerStatus {
        same id id,
        message metadata metadata,
        choice state state,
        same created_at created_at,
        same started_at started_at,
        same finished_at finished_at,
        same exit_code exit_code,
        message image image,
        same image_ref image_ref,
        same image_id image_id,
        same reason reason,
        same message message,
        same labels labels,
        same annotations annotations,
        list mounts mounts,
        same log_path log_path,
        resources resources resources,
        user user user,
        signal stop_signal stop_signal,
        + info
    }
}

impl From<pb::ContainerStatusResponse> for api::ContainerStatus {
    fn from(pb::ContainerStatusResponse { status, info }: pb::ContainerStatusResponse) -> Self {
        Self { info, ..or_default(status) }
    }
}

impl From<api::ContainerStatus> for pb::ContainerStatusResponse {
    fn from(mut status: api::ContainerStatus) -> Self {
        let info = std::mem::take(&mut status.info);
        Self { status: Some(status.into()), info }
    }
}
