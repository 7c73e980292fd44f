//! The runtime service as far as images need it: who runs what, from which image.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{ImageSpec, Result};

/// Where containers run. For now only what tells which images are in use.
#[async_trait]
pub trait RuntimeService: Send + Sync + 'static {
    /// Name and versions of the runtime.
    async fn version(&self) -> Result<VersionInfo>;

    /// Conditions and handlers of the runtime.
    async fn status(&self, verbose: bool) -> Result<RuntimeStatus>;

    /// Pod sandboxes.
    async fn list_pod_sandboxes(&self, filter: Option<&PodSandboxFilter>) -> Result<Vec<PodSandbox>>;

    /// Containers.
    async fn list_containers(&self, filter: Option<&ContainerFilter>) -> Result<Vec<Container>>;
}

/// Answer of [`RuntimeService::version`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionInfo {
    /// Version of the kubelet runtime API: `0.1.0`.
    pub version: String,
    /// Name of the runtime.
    pub runtime_name: String,
    /// Version of the runtime.
    pub runtime_version: String,
    /// Version of CRI: `v1`.
    pub runtime_api_version: String,
}

/// One condition of a runtime, for example `RuntimeReady`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: bool,
    /// CamelCase reason.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// A runtime handler that the runtime offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeHandler {
    /// Its name; empty is the default one.
    pub name: String,
}

/// Answer of [`RuntimeService::status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeStatus {
    /// Conditions.
    pub conditions: Vec<Condition>,
    /// Only with `verbose`: whatever the runtime says of itself.
    pub info: BTreeMap<String, String>,
    /// Handlers.
    pub handlers: Vec<RuntimeHandler>,
}

/// Name, uid, namespace and attempt of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSandboxMetadata {
    /// Pod name.
    pub name: String,
    /// Pod uid.
    pub uid: String,
    /// Pod namespace.
    pub namespace: String,
    /// Which attempt at creating it.
    pub attempt: u32,
}

/// What a pull is told of the sandbox it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSandboxConfig {
    /// Metadata.
    pub metadata: PodSandboxMetadata,
    /// Host name of the pod.
    pub hostname: String,
    /// Directory of the pod's logs.
    pub log_directory: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

/// A pod sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSandbox {
    /// Id.
    pub id: String,
    /// Metadata.
    pub metadata: PodSandboxMetadata,
    /// Whether it is ready.
    pub ready: bool,
    /// Creation, nanoseconds since the epoch.
    pub created_at: i64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Handler it runs with.
    pub runtime_handler: String,
}

/// Restricts a list of sandboxes; every part that is set must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSandboxFilter {
    /// Id.
    pub id: Option<String>,
    /// Readiness.
    pub ready: Option<bool>,
    /// Labels that must be there.
    pub labels: BTreeMap<String, String>,
}

/// State of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    /// Created, never started.
    Created,
    /// Running.
    Running,
    /// Ended.
    Exited,
    /// The runtime cannot tell.
    #[default]
    Unknown,
}

/// Name and attempt of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerMetadata {
    /// Name within the pod.
    pub name: String,
    /// Which attempt at creating it.
    pub attempt: u32,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// Id.
    pub id: String,
    /// Sandbox it runs in.
    pub pod_sandbox_id: String,
    /// Metadata.
    pub metadata: ContainerMetadata,
    /// Image as specified.
    pub image: ImageSpec,
    /// Image ref: id or digest, as the runtime likes.
    pub image_ref: String,
    /// Image id; empty from runtimes of before CRI 0.33.
    pub image_id: String,
    /// State.
    pub state: ContainerState,
    /// Creation, nanoseconds since the epoch.
    pub created_at: i64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

/// Restricts a list of containers; every part that is set must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerFilter {
    /// Id.
    pub id: Option<String>,
    /// State.
    pub state: Option<ContainerState>,
    /// Sandbox.
    pub pod_sandbox_id: Option<String>,
    /// Labels that must be there.
    pub labels: BTreeMap<String, String>,
}
