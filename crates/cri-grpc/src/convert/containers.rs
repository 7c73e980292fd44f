//! Containers.

use std::collections::BTreeMap;

use cri_api as api;

use super::{Choice as _, all, filled, non_empty, or_default, to_api, to_pb};
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
}

impl From<pb::ContainerFilter> for api::ContainerFilter {
    fn from(filter: pb::ContainerFilter) -> Self {
        Self {
            id: non_empty(filter.id),
            state: filter.state.map(|value| api::ContainerState::of(value.state)),
            pod_sandbox_id: non_empty(filter.pod_sandbox_id),
            labels: filter.label_selector,
        }
    }
}

impl From<api::ContainerFilter> for pb::ContainerFilter {
    fn from(filter: api::ContainerFilter) -> Self {
        let api::ContainerFilter { id, state, pod_sandbox_id, labels } = filter;
        Self {
            id: id.unwrap_or_default(),
            state: state.map(|state| pb::ContainerStateValue { state: state.number() }),
            pod_sandbox_id: pod_sandbox_id.unwrap_or_default(),
            label_selector: labels,
        }
    }
}

impl From<pb::ContainerStatus> for api::ContainerStatus {
    fn from(status: pb::ContainerStatus) -> Self {
        let pb::ContainerStatus {
            id,
            metadata,
            state,
            created_at,
            started_at,
            finished_at,
            exit_code,
            image,
            image_ref,
            reason,
            message,
            labels,
            annotations,
            mounts,
            log_path,
            resources,
            image_id,
            user,
            stop_signal,
        } = status;
        Self {
            id,
            metadata: or_default(metadata),
            state: api::ContainerState::of(state),
            created_at,
            started_at,
            finished_at,
            exit_code,
            image: or_default(image),
            image_ref,
            image_id,
            reason,
            message,
            labels,
            annotations,
            mounts: all(mounts),
            log_path,
            resources: resources.and_then(|resources| resources.linux).map(Into::into),
            user: user.and_then(|user| user.linux).map(Into::into),
            stop_signal: to_api::signal(stop_signal),
            info: BTreeMap::new(),
        }
    }
}

impl From<pb::ContainerStatusResponse> for api::ContainerStatus {
    fn from(pb::ContainerStatusResponse { status, info }: pb::ContainerStatusResponse) -> Self {
        Self { info, ..or_default(status) }
    }
}

impl From<api::ContainerStatus> for pb::ContainerStatus {
    fn from(status: api::ContainerStatus) -> Self {
        let api::ContainerStatus {
            id,
            metadata,
            state,
            created_at,
            started_at,
            finished_at,
            exit_code,
            image,
            image_ref,
            image_id,
            reason,
            message,
            labels,
            annotations,
            mounts,
            log_path,
            resources,
            user,
            stop_signal,
            info: _,
        } = status;
        Self {
            id,
            metadata: filled(metadata),
            state: state.number(),
            created_at,
            started_at,
            finished_at,
            exit_code,
            image: filled(image),
            image_ref,
            reason,
            message,
            labels,
            annotations,
            mounts: all(mounts),
            log_path,
            resources: resources.map(|linux| pb::ContainerResources { linux: Some(linux.into()), windows: None }),
            image_id,
            user: user.map(|linux| pb::ContainerUser { linux: Some(linux.into()) }),
            stop_signal: to_pb::signal(stop_signal),
        }
    }
}

impl From<api::ContainerStatus> for pb::ContainerStatusResponse {
    fn from(mut status: api::ContainerStatus) -> Self {
        let info = std::mem::take(&mut status.info);
        Self { status: Some(status.into()), info }
    }
}
