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
        /// No profile.
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
        /// Kind of the profile; `None` does not pass validation.
        pub kind: Option<ProfileKind> = "type",
        /// Name of one of the node's.
        pub localhost_profile: Option<String> = "localhostProfile",
    }
}

object! {
    /// Labels of SELinux.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct SeLinuxOptions {
        /// User part of the label `user:role:type:level`.
        pub user: String = "user",
        /// Role part of the label.
        pub role: String = "role",
        /// Type part of the label, for example `container_t`.
        pub kind: String = "type",
        /// Level part of the label, with its categories: `s0:c1,c2`.
        pub level: String = "level",
    }
}

object! {
    /// A parameter of the kernel, in the pod's namespaces.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Sysctl {
        /// Name, for example `net.ipv4.ip_local_port_range`.
        pub name: String = "name",
        /// Value, as written to `/proc/sys`.
        pub value: String = "value",
    }
}

object! {
    /// Rights of a pod.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct PodSecurityContext (unsupported_in_pod) {
        /// SELinux label; the runtime's choice unless said.
        pub se_linux_options: Option<SeLinuxOptions> = "seLinuxOptions",
        /// Uid of processes, instead of the image's.
        pub run_as_user: Option<i64> = "runAsUser",
        /// Gid of processes, instead of the image's.
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
        /// AppArmor profile of all containers.
        pub app_armor_profile: Option<Profile> = "appArmorProfile",
    }
}

object! {
    /// Changes to the capabilities that the runtime gives.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Capabilities {
        /// Capabilities to add, without `CAP_`; `ALL` for all.
        pub add: Vec<String> = "add",
        /// Capabilities to drop, without `CAP_`; `ALL` for all.
        pub drop: Vec<String> = "drop",
    }
}

object! {
    /// Rights of a container.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct SecurityContext (unsupported_in_container) {
        /// Changes to the runtime's set of capabilities.
        pub capabilities: Option<Capabilities> = "capabilities",
        /// True if the container has all rights of the node's root.
        pub privileged: Option<bool> = "privileged",
        /// SELinux label, instead of the pod's.
        pub se_linux_options: Option<SeLinuxOptions> = "seLinuxOptions",
        /// Uid of the process, instead of the pod's and the image's.
        pub run_as_user: Option<i64> = "runAsUser",
        /// Gid of the process, instead of the pod's.
        pub run_as_group: Option<i64> = "runAsGroup",
        /// True if the container is refused as root.
        pub run_as_non_root: Option<bool> = "runAsNonRoot",
        /// True if the root file system is read-only.
        pub read_only_root_filesystem: Option<bool> = "readOnlyRootFilesystem",
        /// False if no program can gain more rights than its parent.
        pub allow_privilege_escalation: Option<bool> = "allowPrivilegeEscalation",
        /// Masking of `/proc`.
        pub proc_mount: Option<ProcMount> = "procMount",
        /// System calls.
        pub seccomp_profile: Option<Profile> = "seccompProfile",
        /// AppArmor profile, instead of the pod's.
        pub app_armor_profile: Option<Profile> = "appArmorProfile",
    }
}

impl Plain for PodSecurityContext {}

fn unsupported_in_pod(fields: &mut ManifestFields<'_>) {
    // How ownership is changed does not matter, because volumes are created for each pod.
    fields.ignored(&["fsGroupChangePolicy", "seLinuxChangePolicy"]);
    unsupported_in_container(fields);
}

fn unsupported_in_container(fields: &mut ManifestFields<'_>) {
    fields.not_supported("windowsOptions", "this node runs Linux");
}
