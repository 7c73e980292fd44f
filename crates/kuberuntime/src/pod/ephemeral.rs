//! Containers for debugging, whose type in the API repeats all fields of other containers. Called by [`super::convert`] and
//! [`super::unsupported`].

use k8s_openapi::api::core::v1 as api;

/// Converts an ephemeral container to a container, and returns the container whose processes it sees.
pub(super) fn of_ephemeral(ephemeral: api::EphemeralContainer) -> (api::Container, Option<String>) {
    let container = api::Container {
        args: ephemeral.args,
        command: ephemeral.command,
        env: ephemeral.env,
        env_from: ephemeral.env_from,
        image: ephemeral.image,
        image_pull_policy: ephemeral.image_pull_policy,
        lifecycle: ephemeral.lifecycle,
        liveness_probe: ephemeral.liveness_probe,
        name: ephemeral.name,
        ports: ephemeral.ports,
        readiness_probe: ephemeral.readiness_probe,
        resize_policy: ephemeral.resize_policy,
        resources: ephemeral.resources,
        restart_policy: ephemeral.restart_policy,
        restart_policy_rules: ephemeral.restart_policy_rules,
        security_context: ephemeral.security_context,
        startup_probe: ephemeral.startup_probe,
        stdin: ephemeral.stdin,
        stdin_once: ephemeral.stdin_once,
        termination_message_path: ephemeral.termination_message_path,
        termination_message_policy: ephemeral.termination_message_policy,
        tty: ephemeral.tty,
        volume_devices: ephemeral.volume_devices,
        volume_mounts: ephemeral.volume_mounts,
        working_dir: ephemeral.working_dir,
    };
    (container, ephemeral.target_container_name)
}

/// Reverses [`of_ephemeral`].
pub(super) fn to_ephemeral(
    container: api::Container,
    target_container_name: Option<String>,
) -> api::EphemeralContainer {
    api::EphemeralContainer {
        args: container.args,
        command: container.command,
        env: container.env,
        env_from: container.env_from,
        image: container.image,
        image_pull_policy: container.image_pull_policy,
        lifecycle: container.lifecycle,
        liveness_probe: container.liveness_probe,
        name: container.name,
        ports: container.ports,
        readiness_probe: container.readiness_probe,
        resize_policy: container.resize_policy,
        resources: container.resources,
        restart_policy: container.restart_policy,
        restart_policy_rules: container.restart_policy_rules,
        security_context: container.security_context,
        startup_probe: container.startup_probe,
        stdin: container.stdin,
        stdin_once: container.stdin_once,
        target_container_name,
        termination_message_path: container.termination_message_path,
        termination_message_policy: container.termination_message_policy,
        tty: container.tty,
        volume_devices: container.volume_devices,
        volume_mounts: container.volume_mounts,
        working_dir: container.working_dir,
    }
}
