//! Security contexts, namespaces, mounts, devices and resources.

use cri_api as api;

use super::non_empty;
use crate::pb;
use pb::security_profile::ProfileType;

choices! {
    pb::NamespaceMode = NamespaceMode or Pod { Pod Pod, Container Container, Node Node, Target Target }
    pb::SupplementalGroupsPolicy = SupplementalGroupsPolicy or Strict { Merge Merge, Strict Strict }
    pb::MountPropagation = MountPropagation or Private {
        PropagationPrivate Private,
        PropagationHostToContainer HostToContainer,
        PropagationBidirectional Bidirectional,
    }
}

same_fields! {
    IdMapping = IdMapping { host_id, container_id, length }
    Device = Device { container_path, host_path, permissions }
    HugepageLimit = HugepageLimit { page_size, limit }
    LinuxContainerUser = ContainerUser { uid, gid, supplemental_groups }
}

fields! {
    Capability = Capabilities {
        same add_capabilities add,
        same drop_capabilities drop,
        same add_ambient_capabilities add_ambient,
    }
    SeLinuxOption = SelinuxOptions { same user user, same role role, same r#type kind, same level level }
    UserNamespace = UserNamespace { choice mode mode, list uids uids, list gids gids }
    NamespaceOption = NamespaceOptions {
        choice network network,
        choice pid pid,
        choice ipc ipc,
        same target_id target_id,
        maybe userns_options user,
    }
    Mount = Mount {
        same container_path container_path,
        same host_path host_path,
        same readonly readonly,
        same selinux_relabel selinux_relabel,
        choice propagation propagation,
        list uid_mappings uid_mappings,
        list gid_mappings gid_mappings,
        same recursive_read_only recursive_read_only,
        maybe image image,
        same image_sub_path image_sub_path,
        same mount_options mount_options,
    }
    LinuxContainerResources = LinuxContainerResources {
        same cpu_period cpu_period,
        same cpu_quota cpu_quota,
        same cpu_shares cpu_shares,
        same memory_limit_in_bytes memory_limit_in_bytes,
        same oom_score_adj oom_score_adj,
        same cpuset_cpus cpuset_cpus,
        same cpuset_mems cpuset_mems,
        list hugepage_limits hugepage_limits,
        same unified unified,
        same memory_swap_limit_in_bytes memory_swap_limit_in_bytes,
    }
    LinuxSandboxSecurityContext = LinuxSandboxSecurityContext {
        always namespace_options namespaces,
        maybe selinux_options selinux,
        signed run_as_user run_as_user,
        signed run_as_group run_as_group,
        same readonly_rootfs readonly_rootfs,
        same supplemental_groups supplemental_groups,
        choice supplemental_groups_policy supplemental_groups_policy,
        same privileged privileged,
        maybe seccomp seccomp,
        maybe apparmor apparmor,
        | seccomp_profile_path
    }
    LinuxContainerSecurityContext = LinuxContainerSecurityContext {
        message capabilities capabilities,
        same privileged privileged,
        always namespace_options namespaces,
        maybe selinux_options selinux,
        signed run_as_user run_as_user,
        signed run_as_group run_as_group,
        same run_as_username run_as_username,
        same readonly_rootfs readonly_rootfs,
        same supplemental_groups supplemental_groups,
        choice supplemental_groups_policy supplemental_groups_policy,
        same no_new_privs no_new_privs,
        same masked_paths masked_paths,
        same readonly_paths readonly_paths,
        maybe seccomp seccomp,
        maybe apparmor apparmor,
        | apparmor_profile, seccomp_profile_path
    }
}

impl From<pb::SecurityProfile> for api::SecurityProfile {
    fn from(pb::SecurityProfile { profile_type, localhost_ref }: pb::SecurityProfile) -> Self {
        match ProfileType::try_from(profile_type) {
            Ok(ProfileType::Unconfined) => Self::Unconfined,
            Ok(ProfileType::Localhost) => Self::Localhost(localhost_ref),
            Ok(ProfileType::RuntimeDefault) | Err(_) => Self::RuntimeDefault,
        }
    }
}

impl From<api::SecurityProfile> for pb::SecurityProfile {
    fn from(profile: api::SecurityProfile) -> Self {
        let (kind, name) = match profile {
            api::SecurityProfile::RuntimeDefault => (ProfileType::RuntimeDefault, None),
            api::SecurityProfile::Unconfined => (ProfileType::Unconfined, None),
            api::SecurityProfile::Localhost(name) => (ProfileType::Localhost, non_empty(name)),
        };
        Self { profile_type: kind as i32, localhost_ref: name.unwrap_or_default() }
    }
}
