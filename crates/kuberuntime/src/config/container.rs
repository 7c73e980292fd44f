//! [`container_config`]: what a container is made from. Pure; see [`super`].

use cri_api::{ContainerConfig, ContainerMetadata, Device, EnvVar, ImageSpec, LinuxContainerConfig, Mount, Signal};

use super::resources::{NodeResources, linux_resources};
use super::sandbox::container_log_path;
use super::security::{self, ImageUser};
use crate::environment::Environment;
use crate::labels::{container_annotations, container_labels};
use crate::pod::{Container, ContainerKind, Pod};

/// Everything that the node adds to a container.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerInput {
    /// Number of earlier runs.
    pub restart_count: u32,
    /// The image ref that the image manager answered.
    pub image_ref: String,
    pub runtime_handler: String,
    /// User that the image sets.
    pub image_user: ImageUser,
    pub environment: Environment,
    /// Mounts of volumes, of the hosts file and of the termination message file.
    pub mounts: Vec<Mount>,
    pub devices: Vec<Device>,
    /// ID of the container whose processes an ephemeral container sees.
    pub target_id: Option<String>,
    /// Facts of the node that the sums of resources need.
    pub node: NodeResources,
}

/// Config of a container for CRI. Variables in the command and its arguments are expanded.
#[must_use]
pub(crate) fn container_config(
    pod: &Pod,
    kind: ContainerKind,
    container: &Container,
    input: ContainerInput,
) -> ContainerConfig {
    let environment = &input.environment;
    ContainerConfig {
        metadata: ContainerMetadata { name: container.name.clone(), attempt: input.restart_count },
        image: ImageSpec {
            user_specified_image: container.image.clone(),
            runtime_handler: input.runtime_handler,
            annotations: pod.metadata.annotations.clone(),
            ..ImageSpec::new(input.image_ref)
        },
        command: environment.filled_in(&container.command),
        args: environment.filled_in(&container.args),
        working_dir: container.working_dir.clone(),
        envs: environment.iter().map(|(name, value)| EnvVar::new(name, value.expose())).collect(),
        mounts: input.mounts,
        devices: input.devices,
        cdi_devices: Vec::new(),
        labels: container_labels(pod, container),
        annotations: container_annotations(pod, kind, container, input.restart_count),
        log_path: container_log_path(&container.name, input.restart_count),
        stdin: container.stdin,
        stdin_once: container.stdin_once,
        tty: container.tty,
        linux: LinuxContainerConfig {
            resources: linux_resources(pod, container, input.node),
            security: security::of_container(pod, container, &input.image_user, input.target_id.as_deref()),
        },
        stop_signal: Signal::from_name(container.lifecycle.stop_signal.as_deref().unwrap_or_default()),
    }
}
