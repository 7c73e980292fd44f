//! [`PodSecurityContext`] and [`SecurityContext`]: rights of a pod and of a container; the container's go before the
//! pod's. Read by [`super::PodSpec`] and [`super::Container`].

use super::macros::{object, words};
use super::read::{ManifestFields, Plain};

words! {
    /// Rule for the groups that an image gives the user of a container.
    SupplementalGroupsPolicy {
        /// The groups of the image count as well.
        Merge = "Merge",
        /// Only the groups of the pod count.
        Strict = "Strict",
    }
}

words! {
    /// Which profile of seccomp or AppArmor is in force.
    ProfileKind {
        Unconfined = "Unconfined",
        /// The runtime's own.
        RuntimeDefault = "RuntimeDefault",
        /// A profile of the node.
        Localhost = "Localhost",
    }
}

words! {
    /// How much of `/proc` a container sees.
    ProcMount {
        /// The usual masking of the runtime.
        Default = "Default",
        /// All of it.
        Unmasked = "Unmasked",
    }
}

object! {
    /// A profile of seccomp or AppArmor.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Profile {
        pub kind: Option<ProfileKind> = "type",
        /// Name of one of the node's.
        pub localhost_profile: Option<String> = "localhostProfile",
    }
}

object! {
    /// Labels of SELinux.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct SeLinuxOptions {
        pub user: String = "user",
        pub role: String = "role",
        pub kind: String = "type",
        pub level: String = "level",
    }
}

object! {
    /// A parameter of the kernel, in the pod's namespaces.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Sysctl {
        pub name: String = "name",
        pub value: String = "value",
    }
}

object! {
    /// Rights of a pod.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct PodSecurityContext (unsupported_in_pod) {
        pub se_linux_options: Option<SeLinuxOptions> = "seLinuxOptions",
        pub run_as_user: Option<i64> = "runAsUser",
        pub run_as_group: Option<i64> = "runAsGroup",
        /// True if containers that run as root are refused.
        pub run_as_non_root: Option<bool> = "runAsNonRoot",
        /// Further groups.
        pub supplemental_groups: Vec<i64> = "supplementalGroups",
        /// Rule for the groups of the image.
        pub supplemental_groups_policy: Option<SupplementalGroupsPolicy> = "supplementalGroupsPolicy",
        /// Group to which volumes belong.
        pub fs_group: Option<i64> = "fsGroup",
        /// Parameters of the kernel.
        pub sysctls: Vec<Sysctl> = "sysctls",
        /// System calls.
        pub seccomp_profile: Option<Profile> = "seccompProfile",
        pub app_armor_profile: Option<Profile> = "appArmorProfile",
    }
}

object! {
    /// Capabilities beside those that the runtime gives.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Capabilities {
        pub add: Vec<String> = "add",
        pub drop: Vec<String> = "drop",
    }
}

object! {
    /// Rights of a container.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct SecurityContext (unsupported_in_container) {
        pub capabilities: Option<Capabilities> = "capabilities",
        /// True if the container has all rights of the node's root.
        pub privileged: Option<bool> = "privileged",
        pub se_linux_options: Option<SeLinuxOptions> = "seLinuxOptions",
        pub run_as_user: Option<i64> = "runAsUser",
        pub run_as_group: Option<i64> = "runAsGroup",
        /// True if the container is refused as root.
        pub run_as_non_root: Option<bool> = "runAsNonRoot",
        /// True if the root file system is read-only.
        pub read_only_root_filesystem: Option<bool> = "readOnlyRootFilesystem",
        /// False if no program can gain more rights than its parent.
        pub allow_privilege_escalation: Option<bool> = "allowPrivilegeEscalation",
        pub proc_mount: Option<ProcMount> = "procMount",
        /// System calls.
        pub seccomp_profile: Option<Profile> = "seccompProfile",
        pub app_armor_profile: Option<Profile> = "appArmorProfile",
    }
}

impl Plain for PodSecurityContext {}

fn unsupported_in_pod(fields: &mut ManifestFields<'_>) {
    // How ownership is changed is of no concern where volumes are made anew for each pod.
    fields.ignored(&["fsGroupChangePolicy", "seLinuxChangePolicy"]);
    unsupported_in_container(fields);
}

fn unsupported_in_container(fields: &mut ManifestFields<'_>) {
    fields.not_supported("windowsOptions", "this node runs Linux");
}
