//! Rights and namespaces in CRI's terms: a container's settings take precedence over its pod's, and the kubelet's
//! defaults fill the rest. Called by the makers of configurations.

use cri_api::{
    Capabilities, LinuxContainerSecurityContext, LinuxSandboxSecurityContext, NamespaceMode, NamespaceOptions,
    SecurityProfile, SelinuxOptions, SupplementalGroupsPolicy,
};
use k8s_openapi::api::core::v1 as api;

use crate::pod::{self, Container, Pod, ProfileKind, SecurityContext, Word as _};

/// Paths that a container sees empty, unless it may see all.
const MASKED_PATHS: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
/// Paths that a container cannot write to, unless it may.
const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// User that an image sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageUser {
    pub uid: Option<i64>,
    pub username: String,
}

/// Reason for which a container that must not run as root is not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NonRootError(String);

/// Checks that a container keeps to `runAsNonRoot`, where that is requested.
///
/// # Errors
/// The user would be root, or cannot be determined.
pub(crate) fn verify_run_as_non_root(pod: &Pod, container: &Container, image: &ImageUser) -> Result<(), NonRootError> {
    let own = container.security_context.as_ref();
    if own.and_then(|own| own.run_as_non_root).or(pod.spec.security_context.run_as_non_root) != Some(true) {
        return Ok(());
    }
    let reason = match (user(pod, container), image.uid, image.username.as_str()) {
        (Some(0), ..) => "container's runAsUser breaks non-root policy".to_owned(),
        (None, Some(0), _) | (None, None, "") => "container has runAsNonRoot and image will run as root".to_owned(),
        (Some(_), ..) | (None, Some(_), _) => return Ok(()),
        (None, None, user) => {
            format!(
                "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root"
            )
        }
    };
    Err(NonRootError(format!("{reason} (pod: {:?}, container: {})", pod.title(), container.name)))
}

fn user(pod: &Pod, container: &Container) -> Option<i64> {
    let own = container.security_context.as_ref().and_then(|own| own.run_as_user);
    own.or(pod.spec.security_context.run_as_user)
}

/// Which namespaces the pod shares with the node, and its containers with each other.
pub(super) fn namespaces(pod: &Pod) -> NamespaceOptions {
    let spec = &pod.spec;
    let node = |shared: bool| if shared { NamespaceMode::Node } else { NamespaceMode::Pod };
    NamespaceOptions {
        network: node(spec.host_network),
        ipc: node(spec.host_ipc),
        pid: match (spec.host_pid, spec.share_process_namespace) {
            (true, _) => NamespaceMode::Node,
            (false, Some(true)) => NamespaceMode::Pod,
            (false, _) => NamespaceMode::Container,
        },
        ..NamespaceOptions::default()
    }
}

/// Rights of a sandbox. It must be privileged where any of its containers is.
pub(super) fn of_sandbox(pod: &Pod) -> LinuxSandboxSecurityContext {
    let rights = &pod.spec.security_context;
    LinuxSandboxSecurityContext {
        namespaces: namespaces(pod),
        selinux: rights.se_linux_options.as_ref().map(selinux),
        run_as_user: rights.run_as_user,
        // CRI knows a group only of a user.
        run_as_group: rights.run_as_user.and(rights.run_as_group),
        readonly_rootfs: false,
        supplemental_groups: groups(pod),
        supplemental_groups_policy: groups_policy(pod),
        privileged: pod.all_containers().any(|(_, container)| is_privileged(container)),
        // Its own process does nothing that a filter would stop.
        seccomp: Some(SecurityProfile::RuntimeDefault),
        apparmor: None,
    }
}

/// Rights of a container; `target` is the container whose processes it sees.
pub(super) fn of_container(
    pod: &Pod,
    container: &Container,
    image: &ImageUser,
    target: Option<&str>,
) -> LinuxContainerSecurityContext {
    let nothing = SecurityContext::default();
    let (own, of_pod) = (container.security_context.as_ref().unwrap_or(&nothing), &pod.spec.security_context);
    let privileged = is_privileged(container);
    let mut namespaces = namespaces(pod);
    if let Some(target) = target {
        namespaces.pid = NamespaceMode::Target;
        target.clone_into(&mut namespaces.target_id);
    }
    let run_as_user = user(pod, container);
    let run_as_username = match (run_as_user, image.uid) {
        (None, None) => image.username.clone(),
        _ => String::new(),
    };
    // An image without a user runs as root. The id is set explicitly, because CRI accepts a group only together with a
    // user.
    let run_as_user = run_as_user.or(image.uid).or(run_as_username.is_empty().then_some(0));
    let lists = |paths: &[&str]| if privileged { Vec::new() } else { paths.iter().map(|p| (*p).to_owned()).collect() };
    let capabilities = own.capabilities.clone().unwrap_or_default();
    LinuxContainerSecurityContext {
        capabilities: Capabilities {
            add: capabilities.add.unwrap_or_default(),
            drop: capabilities.drop.unwrap_or_default(),
            add_ambient: Vec::new(),
        },
        privileged,
        namespaces,
        selinux: own.se_linux_options.as_ref().or(of_pod.se_linux_options.as_ref()).map(selinux),
        run_as_user,
        run_as_group: own.run_as_group.or(of_pod.run_as_group),
        run_as_username,
        readonly_rootfs: own.read_only_root_filesystem.unwrap_or_default(),
        supplemental_groups: groups(pod),
        supplemental_groups_policy: groups_policy(pod),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: lists(&MASKED_PATHS),
        readonly_paths: lists(&READONLY_PATHS),
        seccomp: Some(match own.seccomp_profile.as_ref().or(of_pod.seccomp_profile.as_ref()) {
            Some(chosen) if !privileged => profile(&chosen.type_, chosen.localhost_profile.as_ref()),
            _ => SecurityProfile::Unconfined,
        }),
        apparmor: own
            .app_armor_profile
            .as_ref()
            .or(of_pod.app_armor_profile.as_ref())
            .filter(|_| !privileged)
            .map(|chosen| profile(&chosen.type_, chosen.localhost_profile.as_ref())),
    }
}

fn is_privileged(container: &Container) -> bool {
    container.security_context.as_ref().is_some_and(|rights| rights.privileged == Some(true))
}

/// Returns the groups of the pod, with that of its volumes.
fn groups(pod: &Pod) -> Vec<i64> {
    let rights = &pod.spec.security_context;
    rights.fs_group.iter().chain(rights.supplemental_groups.iter().flatten()).copied().collect()
}

fn groups_policy(pod: &Pod) -> SupplementalGroupsPolicy {
    let policy = pod.spec.security_context.supplemental_groups_policy.as_deref();
    match pod::SupplementalGroupsPolicy::of(policy) {
        Some(pod::SupplementalGroupsPolicy::Strict) => SupplementalGroupsPolicy::Strict,
        Some(pod::SupplementalGroupsPolicy::Merge) | None => SupplementalGroupsPolicy::Merge,
    }
}

fn selinux(options: &api::SELinuxOptions) -> SelinuxOptions {
    let api::SELinuxOptions { user, role, type_, level } = options.clone();
    SelinuxOptions {
        user: user.unwrap_or_default(),
        role: role.unwrap_or_default(),
        kind: type_.unwrap_or_default(),
        level: level.unwrap_or_default(),
    }
}

fn profile(kind: &str, localhost_profile: Option<&String>) -> SecurityProfile {
    match (ProfileKind::of(Some(kind)), localhost_profile) {
        (Some(ProfileKind::Unconfined), _) => SecurityProfile::Unconfined,
        (Some(ProfileKind::Localhost), Some(name)) => SecurityProfile::Localhost(name.clone()),
        // Validation refused what has neither kind nor name; doubt is the safer one.
        (Some(ProfileKind::RuntimeDefault | ProfileKind::Localhost) | None, _) => SecurityProfile::RuntimeDefault,
    }
}
