//! [`PodSecurityContext`] and [`SecurityContext`]: rights of a pod and of a container; the container's go before the
//! pod's. Read by [`super::PodSpec`] and [`super::Container`].

use super::read::{Fields, Read};
use super::words::words;

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
        /// None.
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

/// A profile of seccomp or AppArmor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    pub kind: Option<ProfileKind>,
    /// Name of one of the node's.
    pub localhost_profile: Option<String>,
}

/// Labels of SELinux.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeLinuxOptions {
    pub user: String,
    pub role: String,
    /// Type.
    pub kind: String,
    pub level: String,
}

/// A parameter of the kernel, in the pod's namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sysctl {
    pub name: String,
    pub value: String,
}

/// Rights of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSecurityContext {
    /// Labels.
    pub se_linux_options: Option<SeLinuxOptions>,
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    /// True if containers that run as root are refused.
    pub run_as_non_root: Option<bool>,
    /// Further groups.
    pub supplemental_groups: Vec<i64>,
    /// Rule for the groups of the image.
    pub supplemental_groups_policy: Option<SupplementalGroupsPolicy>,
    /// Group to which volumes belong.
    pub fs_group: Option<i64>,
    /// Parameters of the kernel.
    pub sysctls: Vec<Sysctl>,
    /// System calls.
    pub seccomp_profile: Option<Profile>,
    pub app_armor_profile: Option<Profile>,
}

/// Capabilities beside those that the runtime gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// More.
    pub add: Vec<String>,
    /// Fewer.
    pub drop: Vec<String>,
}

/// Rights of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecurityContext {
    pub capabilities: Option<Capabilities>,
    /// True if the container has all rights of the node's root.
    pub privileged: Option<bool>,
    /// Labels.
    pub se_linux_options: Option<SeLinuxOptions>,
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    /// True if the container is refused as root.
    pub run_as_non_root: Option<bool>,
    /// True if the root file system is read-only.
    pub read_only_root_filesystem: Option<bool>,
    /// False if no program can gain more rights than its parent.
    pub allow_privilege_escalation: Option<bool>,
    pub proc_mount: Option<ProcMount>,
    /// System calls.
    pub seccomp_profile: Option<Profile>,
    pub app_armor_profile: Option<Profile>,
}

impl Read for Profile {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self { kind: fields.word("type"), localhost_profile: fields.text("localhostProfile") }
    }
}

impl Read for SeLinuxOptions {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            user: fields.string("user"),
            role: fields.string("role"),
            kind: fields.string("type"),
            level: fields.string("level"),
        }
    }
}

impl Read for Sysctl {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self { name: fields.string("name"), value: fields.string("value") }
    }
}

impl Read for PodSecurityContext {
    fn read(fields: &mut Fields<'_>) -> Self {
        // How ownership is changed is of no concern where volumes are made anew for each pod.
        fields.ignored(&["fsGroupChangePolicy", "seLinuxChangePolicy"]);
        fields.not_supported("windowsOptions", "this node runs Linux");
        Self {
            se_linux_options: fields.object("seLinuxOptions"),
            run_as_user: fields.long("runAsUser"),
            run_as_group: fields.long("runAsGroup"),
            run_as_non_root: fields.boolean("runAsNonRoot"),
            supplemental_groups: fields.longs("supplementalGroups"),
            supplemental_groups_policy: fields.word("supplementalGroupsPolicy"),
            fs_group: fields.long("fsGroup"),
            sysctls: fields.list("sysctls"),
            seccomp_profile: fields.object("seccompProfile"),
            app_armor_profile: fields.object("appArmorProfile"),
        }
    }
}

impl Read for Capabilities {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self { add: fields.texts("add"), drop: fields.texts("drop") }
    }
}

impl Read for SecurityContext {
    fn read(fields: &mut Fields<'_>) -> Self {
        fields.not_supported("windowsOptions", "this node runs Linux");
        Self {
            capabilities: fields.object("capabilities"),
            privileged: fields.boolean("privileged"),
            se_linux_options: fields.object("seLinuxOptions"),
            run_as_user: fields.long("runAsUser"),
            run_as_group: fields.long("runAsGroup"),
            run_as_non_root: fields.boolean("runAsNonRoot"),
            read_only_root_filesystem: fields.boolean("readOnlyRootFilesystem"),
            allow_privilege_escalation: fields.boolean("allowPrivilegeEscalation"),
            proc_mount: fields.word("procMount"),
            seccomp_profile: fields.object("seccompProfile"),
            app_armor_profile: fields.object("appArmorProfile"),
        }
    }
}
