//! Protobuf ↔ the plain types of `cri-api`, pure and total: what a peer leaves out becomes the default, what it adds is
//! passed over, and an enum value that we do not know becomes the cautious one. A message that is absent and one whose
//! fields are all empty mean the same.

use cri_api as api;
use oci::{RegistryAuth, Secret};

use crate::pb;

/// `Some`, unless there is nothing in it.
fn filled<T: Default + PartialEq, U: From<T>>(value: T) -> Option<U> {
    (value != T::default()).then(|| U::from(value))
}

/// The plain value of a message that may be absent.
fn or_default<T, U: Default + From<T>>(value: Option<T>) -> U {
    value.map(U::from).unwrap_or_default()
}

/// `Some`, unless it is empty.
fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

pub(crate) fn all<T, U: From<T>>(values: Vec<T>) -> Vec<U> {
    values.into_iter().map(U::from).collect()
}

/// Two structs with the same field names, moved field by field in both directions.
macro_rules! same_fields {
    ($($pb:ident = $api:ident { $($field:ident),* $(,)? })*) => {$(
        impl From<pb::$pb> for api::$api {
            fn from(pb::$pb { $($field),* }: pb::$pb) -> Self {
                Self { $($field),* }
            }
        }
        impl From<api::$api> for pb::$pb {
            fn from(api::$api { $($field),* }: api::$api) -> Self {
                Self { $($field),* }
            }
        }
    )*};
}

same_fields! {
    ImageSpec = ImageSpec { image, annotations, user_specified_image, runtime_handler, image_ref }
    VersionResponse = VersionInfo { version, runtime_name, runtime_version, runtime_api_version }
    PodSandboxMetadata = PodSandboxMetadata { name, uid, namespace, attempt }
    ContainerMetadata = ContainerMetadata { name, attempt }
}

impl From<pb::Image> for api::Image {
    fn from(image: pb::Image) -> Self {
        let pb::Image { id, repo_tags, repo_digests, size, uid, username, spec, pinned } = image;
        let uid = uid.map(|uid| uid.value);
        let spec = spec.map(Into::into);
        // CRI does not say when an image came.
        Self { id, repo_tags, repo_digests, size, uid, username, spec, pinned, pulled_at: None }
    }
}

impl From<api::Image> for pb::Image {
    fn from(image: api::Image) -> Self {
        let api::Image { id, repo_tags, repo_digests, size, uid, username, spec, pinned, pulled_at: _ } = image;
        let uid = uid.map(|value| pb::Int64Value { value });
        Self { id, repo_tags, repo_digests, size, uid, username, spec: spec.map(Into::into), pinned }
    }
}

impl From<pb::ImageFilter> for api::ImageFilter {
    fn from(filter: pb::ImageFilter) -> Self {
        Self { image: filter.image.map(Into::into) }
    }
}

impl From<api::ImageFilter> for pb::ImageFilter {
    fn from(filter: api::ImageFilter) -> Self {
        Self { image: filter.image.map(Into::into) }
    }
}

impl From<pb::ImageStatusResponse> for api::ImageStatus {
    fn from(response: pb::ImageStatusResponse) -> Self {
        Self { image: response.image.map(Into::into), info: response.info }
    }
}

impl From<api::ImageStatus> for pb::ImageStatusResponse {
    fn from(status: api::ImageStatus) -> Self {
        Self { image: status.image.map(Into::into), info: status.info }
    }
}

impl From<pb::AuthConfig> for RegistryAuth {
    fn from(mut auth: pb::AuthConfig) -> Self {
        // Moved out, not copied: what is left in `auth` is wiped with it.
        let mut take = |field: fn(&mut pb::AuthConfig) -> &mut String| std::mem::take(field(&mut auth));
        Self {
            username: take(|a| &mut a.username),
            password: Secret::new(take(|a| &mut a.password)),
            auth: Secret::new(take(|a| &mut a.auth)),
            server_address: take(|a| &mut a.server_address),
            identity_token: Secret::new(take(|a| &mut a.identity_token)),
            registry_token: Secret::new(take(|a| &mut a.registry_token)),
        }
    }
}

impl From<RegistryAuth> for pb::AuthConfig {
    fn from(auth: RegistryAuth) -> Self {
        let RegistryAuth { username, password, auth, server_address, identity_token, registry_token } = auth;
        Self {
            username,
            password: password.expose().to_owned(),
            auth: auth.expose().to_owned(),
            server_address,
            identity_token: identity_token.expose().to_owned(),
            registry_token: registry_token.expose().to_owned(),
        }
    }
}

impl From<pb::PullImageRequest> for api::PullImageRequest {
    fn from(request: pb::PullImageRequest) -> Self {
        Self {
            image: or_default(request.image),
            auth: request.auth.map(Into::into),
            sandbox: request.sandbox_config.map(Into::into),
            progress: api::ProgressSink::default(),
        }
    }
}

impl From<api::PullImageRequest> for pb::PullImageRequest {
    fn from(request: api::PullImageRequest) -> Self {
        let api::PullImageRequest { image, auth, sandbox, progress: _ } = request;
        Self { image: Some(image.into()), auth: auth.map(Into::into), sandbox_config: sandbox.map(Into::into) }
    }
}

impl From<pb::PodSandboxConfig> for api::PodSandboxConfig {
    fn from(config: pb::PodSandboxConfig) -> Self {
        // Ports, DNS and what is special to an operating system mean nothing to a pull.
        let pb::PodSandboxConfig { metadata, hostname, log_directory, labels, annotations, .. } = config;
        Self { metadata: or_default(metadata), hostname, log_directory, labels, annotations }
    }
}

impl From<api::PodSandboxConfig> for pb::PodSandboxConfig {
    fn from(config: api::PodSandboxConfig) -> Self {
        let api::PodSandboxConfig { metadata, hostname, log_directory, labels, annotations } = config;
        Self { metadata: filled(metadata), hostname, log_directory, labels, annotations, ..Self::default() }
    }
}

impl From<pb::FilesystemUsage> for api::FilesystemUsage {
    fn from(usage: pb::FilesystemUsage) -> Self {
        let pb::FilesystemUsage { timestamp, fs_id, used_bytes, inodes_used } = usage;
        Self {
            timestamp,
            mountpoint: fs_id.map(|id| id.mountpoint).unwrap_or_default(),
            used_bytes: used_bytes.map(|v| v.value),
            inodes_used: inodes_used.map(|v| v.value),
        }
    }
}

impl From<api::FilesystemUsage> for pb::FilesystemUsage {
    fn from(usage: api::FilesystemUsage) -> Self {
        let api::FilesystemUsage { timestamp, mountpoint, used_bytes, inodes_used } = usage;
        let number = |value| pb::UInt64Value { value };
        Self {
            timestamp,
            fs_id: non_empty(mountpoint).map(|mountpoint| pb::FilesystemIdentifier { mountpoint }),
            used_bytes: used_bytes.map(number),
            inodes_used: inodes_used.map(number),
        }
    }
}

impl From<pb::ImageFsInfoResponse> for api::FsInfo {
    fn from(response: pb::ImageFsInfoResponse) -> Self {
        Self {
            image_filesystems: all(response.image_filesystems),
            container_filesystems: all(response.container_filesystems),
        }
    }
}

impl From<api::FsInfo> for pb::ImageFsInfoResponse {
    fn from(info: api::FsInfo) -> Self {
        Self { image_filesystems: all(info.image_filesystems), container_filesystems: all(info.container_filesystems) }
    }
}

impl From<pb::RuntimeCondition> for api::Condition {
    fn from(condition: pb::RuntimeCondition) -> Self {
        let pb::RuntimeCondition { r#type: kind, status, reason, message } = condition;
        Self { kind, status, reason, message }
    }
}

impl From<api::Condition> for pb::RuntimeCondition {
    fn from(condition: api::Condition) -> Self {
        let api::Condition { kind, status, reason, message } = condition;
        Self { r#type: kind, status, reason, message }
    }
}

impl From<pb::RuntimeHandler> for api::RuntimeHandler {
    fn from(handler: pb::RuntimeHandler) -> Self {
        Self { name: handler.name }
    }
}

impl From<api::RuntimeHandler> for pb::RuntimeHandler {
    fn from(handler: api::RuntimeHandler) -> Self {
        Self { name: handler.name, features: None }
    }
}

impl From<pb::StatusResponse> for api::RuntimeStatus {
    fn from(response: pb::StatusResponse) -> Self {
        let conditions = response.status.map(|status| all(status.conditions)).unwrap_or_default();
        Self { conditions, info: response.info, handlers: all(response.runtime_handlers) }
    }
}

impl From<api::RuntimeStatus> for pb::StatusResponse {
    fn from(status: api::RuntimeStatus) -> Self {
        let api::RuntimeStatus { conditions, info, handlers } = status;
        let status = pb::RuntimeStatus { conditions: all(conditions) };
        Self { status: Some(status), info, runtime_handlers: all(handlers), features: None }
    }
}

impl From<pb::PodSandbox> for api::PodSandbox {
    fn from(sandbox: pb::PodSandbox) -> Self {
        let ready = is_ready(sandbox.state);
        let pb::PodSandbox { id, metadata, state: _, created_at, labels, annotations, runtime_handler } = sandbox;
        Self { id, metadata: or_default(metadata), ready, created_at, labels, annotations, runtime_handler }
    }
}

impl From<api::PodSandbox> for pb::PodSandbox {
    fn from(sandbox: api::PodSandbox) -> Self {
        let api::PodSandbox { id, metadata, ready, created_at, labels, annotations, runtime_handler } = sandbox;
        let state = sandbox_state(ready);
        Self { id, metadata: filled(metadata), state, created_at, labels, annotations, runtime_handler }
    }
}

impl From<pb::PodSandboxFilter> for api::PodSandboxFilter {
    fn from(filter: pb::PodSandboxFilter) -> Self {
        Self {
            id: non_empty(filter.id),
            ready: filter.state.map(|value| is_ready(value.state)),
            labels: filter.label_selector,
        }
    }
}

impl From<api::PodSandboxFilter> for pb::PodSandboxFilter {
    fn from(filter: api::PodSandboxFilter) -> Self {
        let api::PodSandboxFilter { id, ready, labels } = filter;
        let state = ready.map(|ready| pb::PodSandboxStateValue { state: sandbox_state(ready) });
        Self { id: id.unwrap_or_default(), state, label_selector: labels }
    }
}

fn is_ready(state: i32) -> bool {
    state == pb::PodSandboxState::SandboxReady as i32
}

fn sandbox_state(ready: bool) -> i32 {
    let state = if ready { pb::PodSandboxState::SandboxReady } else { pb::PodSandboxState::SandboxNotready };
    state as i32
}

impl From<pb::Container> for api::Container {
    fn from(container: pb::Container) -> Self {
        let state = container_state(container.state);
        let pb::Container { id, pod_sandbox_id, metadata, image, image_ref, image_id, .. } = container;
        Self {
            id,
            pod_sandbox_id,
            metadata: or_default(metadata),
            image: or_default(image),
            image_ref,
            image_id,
            state,
            created_at: container.created_at,
            labels: container.labels,
            annotations: container.annotations,
        }
    }
}

impl From<api::Container> for pb::Container {
    fn from(container: api::Container) -> Self {
        let state = container_state_number(container.state);
        let api::Container { id, pod_sandbox_id, metadata, image, image_ref, image_id, .. } = container;
        Self {
            id,
            pod_sandbox_id,
            metadata: filled(metadata),
            image: filled(image),
            image_ref,
            state,
            created_at: container.created_at,
            labels: container.labels,
            annotations: container.annotations,
            image_id,
        }
    }
}

impl From<pb::ContainerFilter> for api::ContainerFilter {
    fn from(filter: pb::ContainerFilter) -> Self {
        Self {
            id: non_empty(filter.id),
            state: filter.state.map(|value| container_state(value.state)),
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
            state: state.map(|state| pb::ContainerStateValue { state: container_state_number(state) }),
            pod_sandbox_id: pod_sandbox_id.unwrap_or_default(),
            label_selector: labels,
        }
    }
}

fn container_state(number: i32) -> api::ContainerState {
    match pb::ContainerState::try_from(number) {
        Ok(pb::ContainerState::ContainerCreated) => api::ContainerState::Created,
        Ok(pb::ContainerState::ContainerRunning) => api::ContainerState::Running,
        Ok(pb::ContainerState::ContainerExited) => api::ContainerState::Exited,
        Ok(pb::ContainerState::ContainerUnknown) | Err(_) => api::ContainerState::Unknown,
    }
}

fn container_state_number(state: api::ContainerState) -> i32 {
    let state = match state {
        api::ContainerState::Created => pb::ContainerState::ContainerCreated,
        api::ContainerState::Running => pb::ContainerState::ContainerRunning,
        api::ContainerState::Exited => pb::ContainerState::ContainerExited,
        api::ContainerState::Unknown => pb::ContainerState::ContainerUnknown,
    };
    state as i32
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
