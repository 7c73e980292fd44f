//! Identity and rights of a container: user, groups, namespaces, capabilities, profiles.

use serde::{Deserialize, Serialize};

use super::IdMapping;

/// Security of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LinuxContainerSecurityContext {
    /// Capabilities beyond and below the runtime's own set.
    pub capabilities: Capabilities,
    /// Everything is allowed. The sandbox must be privileged as well.
    pub privileged: bool,
    /// Namespaces.
    pub namespaces: NamespaceOptions,
    /// SELinux label; the runtime chooses one where it is `None`.
    pub selinux: Option<SelinuxOptions>,
    /// User id. `None`, with an empty `run_as_username`: the image's user, or root.
    pub run_as_user: Option<i64>,
    /// Group id. Only together with a user.
    pub run_as_group: Option<i64>,
    /// User name, resolved in the image; only if `run_as_user` is `None`.
    pub run_as_username: String,
    /// The root file system is read-only.
    pub readonly_rootfs: bool,
    /// Groups in addition to the first one.
    pub supplemental_groups: Vec<i64>,
    /// Policy for the groups that the image gives its user.
    pub supplemental_groups_policy: SupplementalGroupsPolicy,
    /// No program can gain privileges.
    pub no_new_privs: bool,
    /// Paths that show nothing.
    pub masked_paths: Vec<String>,
    /// Paths that cannot be written.
    pub readonly_paths: Vec<String>,
    /// seccomp; `None` is the runtime's choice: no filter.
    pub seccomp: Option<SecurityProfile>,
    /// AppArmor; `None` is the runtime's choice: its default profile, where the host has AppArmor.
    pub apparmor: Option<SecurityProfile>,
}

/// Security of a sandbox: of its own process, and of the namespaces that its containers share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LinuxSandboxSecurityContext {
    /// Namespaces.
    pub namespaces: NamespaceOptions,
    /// SELinux label.
    pub selinux: Option<SelinuxOptions>,
    /// User id of the sandbox's process.
    pub run_as_user: Option<i64>,
    /// Group id of the sandbox's process.
    pub run_as_group: Option<i64>,
    /// The sandbox's root file system is read-only.
    pub readonly_rootfs: bool,
    /// Groups in addition to the first one.
    pub supplemental_groups: Vec<i64>,
    /// Policy for the groups that the image gives its user.
    pub supplemental_groups_policy: SupplementalGroupsPolicy,
    /// Privileged containers may run in the sandbox.
    pub privileged: bool,
    /// seccomp.
    pub seccomp: Option<SecurityProfile>,
    /// AppArmor.
    pub apparmor: Option<SecurityProfile>,
}

/// Capabilities with the runtime's own set as the beginning; names without `CAP_`, `ALL` for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capabilities {
    /// Added.
    pub add: Vec<String>,
    /// Taken away.
    pub drop: Vec<String>,
    /// Added to the ambient set as well.
    pub add_ambient: Vec<String>,
}

/// Sharing of each kind of namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamespaceOptions {
    /// Network.
    pub network: NamespaceMode,
    /// Process ids.
    pub pid: NamespaceMode,
    /// Inter-process communication.
    pub ipc: NamespaceMode,
    /// Id of the container that [`NamespaceMode::Target`] means.
    pub target_id: String,
    /// User namespace; `None` is the node's.
    pub user: Option<UserNamespace>,
}

/// The scope in which a namespace is shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamespaceMode {
    /// With the containers of the pod.
    #[default]
    Pod,
    /// With no other container.
    Container,
    /// With the node.
    Node,
    /// With one other container.
    Target,
}

/// A user namespace and its ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UserNamespace {
    /// `Pod` or `Node`.
    pub mode: NamespaceMode,
    /// User ids.
    pub uids: Vec<IdMapping>,
    /// Group ids.
    pub gids: Vec<IdMapping>,
}

/// Which supplemental groups a process has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupplementalGroupsPolicy {
    /// The requested groups, and those that the image gives its user.
    #[default]
    Merge,
    /// Only those that are asked for.
    Strict,
}

/// A profile of seccomp or AppArmor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SecurityProfile {
    /// The runtime's own.
    #[default]
    RuntimeDefault,
    /// None.
    Unconfined,
    /// A profile of the node: an absolute path for seccomp, a loaded profile's name for AppArmor.
    Localhost(String),
}

/// An SELinux label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SelinuxOptions {
    /// User.
    pub user: String,
    /// Role.
    pub role: String,
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Level.
    pub level: String,
}
