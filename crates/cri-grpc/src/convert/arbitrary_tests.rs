//! Any value of the plain types, for the round trips.

use std::collections::BTreeMap;

use cri_api as api;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Out over bytes and back.
pub(super) fn there_and_back<P: prost::Message + Default + From<A>, A: From<P> + Clone>(value: &A) -> A {
    let bytes = P::from(value.clone()).encode_to_vec();
    A::from(P::decode(bytes.as_slice()).expect("decodes"))
}

pub(super) fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-zé:/@.-]{1,12}"]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    vec(text(), 0..3)
}

pub(super) fn map() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(text(), text(), 0..3)
}

pub(super) fn number() -> impl Strategy<Value = Option<u64>> {
    option::of(any::<u64>())
}

prop_compose! {
    pub(super) fn spec()(
        image in text(), annotations in map(), user_specified_image in text(), runtime_handler in text(),
        image_ref in text(),
    ) -> api::ImageSpec {
        api::ImageSpec { image, annotations, user_specified_image, runtime_handler, image_ref }
    }
}

prop_compose! {
    pub(super) fn usage()(
        timestamp: i64, mountpoint in text(), used_bytes in number(), inodes_used in number(),
    ) -> api::FilesystemUsage {
        api::FilesystemUsage { timestamp, mountpoint, used_bytes, inodes_used }
    }
}

prop_compose! {
    pub(super) fn sandbox_metadata()(name in text(), uid in text(), namespace in text(), attempt: u32)
        -> api::PodSandboxMetadata
    {
        api::PodSandboxMetadata { name, uid, namespace, attempt }
    }
}

prop_compose! {
    pub(super) fn metadata()(name in text(), attempt: u32) -> api::ContainerMetadata {
        api::ContainerMetadata { name, attempt }
    }
}

prop_compose! {
    fn id_mapping()(host_id: u32, container_id: u32, length: u32) -> api::IdMapping {
        api::IdMapping { host_id, container_id, length }
    }
}

fn namespace_mode() -> impl Strategy<Value = api::NamespaceMode> {
    use api::NamespaceMode::{Container, Node, Pod, Target};
    select(vec![Pod, Container, Node, Target])
}

prop_compose! {
    fn user_namespace()(
        mode in namespace_mode(), uids in vec(id_mapping(), 0..2), gids in vec(id_mapping(), 0..2),
    ) -> api::UserNamespace {
        api::UserNamespace { mode, uids, gids }
    }
}

prop_compose! {
    pub(super) fn namespaces()(
        network in namespace_mode(), pid in namespace_mode(), ipc in namespace_mode(), target_id in text(),
        user in option::of(user_namespace()),
    ) -> api::NamespaceOptions {
        api::NamespaceOptions { network, pid, ipc, target_id, user }
    }
}

prop_compose! {
    fn selinux()(user in text(), role in text(), kind in text(), level in text()) -> api::SelinuxOptions {
        api::SelinuxOptions { user, role, kind, level }
    }
}

fn profile() -> impl Strategy<Value = Option<api::SecurityProfile>> {
    use api::SecurityProfile::{Localhost, RuntimeDefault, Unconfined};
    option::of(prop_oneof![Just(RuntimeDefault), Just(Unconfined), text().prop_map(Localhost)])
}

fn groups_policy() -> impl Strategy<Value = api::SupplementalGroupsPolicy> {
    select(vec![api::SupplementalGroupsPolicy::Merge, api::SupplementalGroupsPolicy::Strict])
}

prop_compose! {
    fn capabilities()(add in texts(), drop in texts(), add_ambient in texts()) -> api::Capabilities {
        api::Capabilities { add, drop, add_ambient }
    }
}

prop_compose! {
    fn sandbox_security()(
        namespaces in namespaces(), selinux in option::of(selinux()),
        (run_as_user, run_as_group) in (option::of(any::<i64>()), option::of(any::<i64>())),
        (readonly_rootfs, privileged) in any::<(bool, bool)>(), supplemental_groups in vec(any::<i64>(), 0..3),
        supplemental_groups_policy in groups_policy(), (seccomp, apparmor) in (profile(), profile()),
    ) -> api::LinuxSandboxSecurityContext {
        api::LinuxSandboxSecurityContext {
            namespaces, selinux, run_as_user, run_as_group, readonly_rootfs, supplemental_groups,
            supplemental_groups_policy, privileged, seccomp, apparmor,
        }
    }
}

prop_compose! {
    fn container_security()(
        capabilities in capabilities(), run_as_username in text(), no_new_privs: bool,
        (masked_paths, readonly_paths) in (texts(), texts()), like in sandbox_security(),
    ) -> api::LinuxContainerSecurityContext {
        let api::LinuxSandboxSecurityContext {
            namespaces, selinux, run_as_user, run_as_group, readonly_rootfs, supplemental_groups,
            supplemental_groups_policy, privileged, seccomp, apparmor,
        } = like;
        api::LinuxContainerSecurityContext {
            capabilities, privileged, namespaces, selinux, run_as_user, run_as_group, run_as_username, readonly_rootfs,
            supplemental_groups, supplemental_groups_policy, no_new_privs, masked_paths, readonly_paths, seccomp,
            apparmor,
        }
    }
}

prop_compose! {
    pub(super) fn resources()(
        (cpu_period, cpu_quota, cpu_shares) in any::<(i64, i64, i64)>(),
        (memory_limit_in_bytes, memory_swap_limit_in_bytes, oom_score_adj) in any::<(i64, i64, i64)>(),
        (cpuset_cpus, cpuset_mems) in (text(), text()), limits in vec((text(), any::<u64>()), 0..2), unified in map(),
    ) -> api::LinuxContainerResources {
        let hugepage_limits =
            limits.into_iter().map(|(page_size, limit)| api::HugepageLimit { page_size, limit }).collect();
        api::LinuxContainerResources {
            cpu_period, cpu_quota, cpu_shares, memory_limit_in_bytes, memory_swap_limit_in_bytes, oom_score_adj,
            cpuset_cpus, cpuset_mems, hugepage_limits, unified,
        }
    }
}

prop_compose! {
    fn port()(
        protocol in select(vec![api::Protocol::Tcp, api::Protocol::Udp, api::Protocol::Sctp]), container_port: i32,
        host_port: i32, host_ip in text(),
    ) -> api::PortMapping {
        api::PortMapping { protocol, container_port, host_port, host_ip }
    }
}

prop_compose! {
    fn dns()(servers in texts(), searches in texts(), options in texts()) -> api::DnsConfig {
        api::DnsConfig { servers, searches, options }
    }
}

prop_compose! {
    fn linux_sandbox()(
        cgroup_parent in text(), security in sandbox_security(), sysctls in map(), overhead in resources(),
        resources in resources(),
    ) -> api::LinuxPodSandboxConfig {
        api::LinuxPodSandboxConfig { cgroup_parent, security, sysctls, overhead, resources }
    }
}

prop_compose! {
    pub(super) fn sandbox_config()(
        metadata in sandbox_metadata(), hostname in text(), log_directory in text(), dns in dns(),
        port_mappings in vec(port(), 0..3), labels in map(), annotations in map(), linux in linux_sandbox(),
    ) -> api::PodSandboxConfig {
        api::PodSandboxConfig { metadata, hostname, log_directory, dns, port_mappings, labels, annotations, linux }
    }
}

fn propagation() -> impl Strategy<Value = api::MountPropagation> {
    use api::MountPropagation::{Bidirectional, HostToContainer, Private};
    select(vec![Private, HostToContainer, Bidirectional])
}

prop_compose! {
    pub(super) fn mount()(
        (container_path, host_path, image_sub_path) in (text(), text(), text()),
        (readonly, recursive_read_only, selinux_relabel) in any::<(bool, bool, bool)>(), propagation in propagation(),
        uid_mappings in vec(id_mapping(), 0..2), gid_mappings in vec(id_mapping(), 0..2), image in option::of(spec()),
        mount_options in texts(),
    ) -> api::Mount {
        api::Mount {
            container_path, host_path, readonly, recursive_read_only, selinux_relabel, propagation, uid_mappings,
            gid_mappings, image, image_sub_path, mount_options,
        }
    }
}

prop_compose! {
    fn device()(container_path in text(), host_path in text(), permissions in text()) -> api::Device {
        api::Device { container_path, host_path, permissions }
    }
}

prop_compose! {
    fn env()(key in text(), value in vec(any::<u8>(), 0..8)) -> api::EnvVar {
        api::EnvVar { key, value }
    }
}

pub(super) fn signal() -> impl Strategy<Value = Option<api::Signal>> {
    option::of(select(api::Signal::all().collect::<Vec<_>>()))
}

prop_compose! {
    pub(super) fn container_config()(
        metadata in metadata(), image in spec(), (command, args, cdi_devices) in (texts(), texts(), texts()),
        (working_dir, log_path) in (text(), text()), envs in vec(env(), 0..3), mounts in vec(mount(), 0..2),
        devices in vec(device(), 0..2), (labels, annotations) in (map(), map()),
        (stdin, stdin_once, tty) in any::<(bool, bool, bool)>(), resources in resources(),
        security in container_security(), stop_signal in signal(),
    ) -> api::ContainerConfig {
        api::ContainerConfig {
            metadata, image, command, args, working_dir, envs, mounts, devices, cdi_devices, labels, annotations,
            log_path, stdin, stdin_once, tty, linux: api::LinuxContainerConfig { resources, security }, stop_signal,
        }
    }
}

prop_compose! {
    pub(super) fn sandbox()(
        id in text(), metadata in sandbox_metadata(), ready: bool, created_at: i64, labels in map(),
        annotations in map(), runtime_handler in text(),
    ) -> api::PodSandbox {
        api::PodSandbox { id, metadata, ready, created_at, labels, annotations, runtime_handler }
    }
}

pub(super) fn state() -> impl Strategy<Value = api::ContainerState> {
    use api::ContainerState::{Created, Exited, Running, Unknown};
    select(vec![Created, Running, Exited, Unknown])
}

prop_compose! {
    pub(super) fn container()(
        id in text(), pod_sandbox_id in text(), metadata in metadata(), image in spec(), image_ref in text(),
        image_id in text(), state in state(), created_at: i64, (labels, annotations) in (map(), map()),
    ) -> api::Container {
        api::Container {
            id, pod_sandbox_id, metadata, image, image_ref, image_id, state, created_at, labels, annotations,
        }
    }
}

prop_compose! {
    fn user()(uid: i64, gid: i64, supplemental_groups in vec(any::<i64>(), 0..3)) -> api::ContainerUser {
        api::ContainerUser { uid, gid, supplemental_groups }
    }
}

prop_compose! {
    pub(super) fn container_status()(
        listed in container(), (started_at, finished_at, exit_code) in any::<(i64, i64, i32)>(),
        (reason, message, log_path) in (text(), text(), text()), mounts in vec(mount(), 0..2),
        resources in option::of(resources()), user in option::of(user()), stop_signal in signal(), info in map(),
    ) -> api::ContainerStatus {
        api::ContainerStatus {
            id: listed.id, metadata: listed.metadata, state: listed.state, created_at: listed.created_at, started_at,
            finished_at, exit_code, image: listed.image, image_ref: listed.image_ref, image_id: listed.image_id,
            reason, message, labels: listed.labels, annotations: listed.annotations, mounts, log_path, resources, user,
            stop_signal, info,
        }
    }
}

prop_compose! {
    pub(super) fn sandbox_status()(
        listed in sandbox(), ip in text(), additional_ips in texts(), namespaces in namespaces(),
        containers in vec(container_status(), 0..2), timestamp: i64, info in map(),
    ) -> api::PodSandboxStatus {
        // The verbose information of a container is sent only in its own answer.
        let containers = containers.into_iter().map(|c| api::ContainerStatus { info: BTreeMap::new(), ..c }).collect();
        api::PodSandboxStatus {
            id: listed.id, metadata: listed.metadata, ready: listed.ready, created_at: listed.created_at, ip,
            additional_ips, namespaces, labels: listed.labels, annotations: listed.annotations,
            runtime_handler: listed.runtime_handler, containers, timestamp, info,
        }
    }
}

prop_compose! {
    fn psi_data()(total: u64, avg10 in 0.0..100.0, avg60 in 0.0..100.0, avg300 in 0.0..100.0) -> api::PsiData {
        api::PsiData { total, avg10, avg60, avg300 }
    }
}

fn psi() -> impl Strategy<Value = Option<api::PsiStats>> {
    option::of((psi_data(), psi_data()).prop_map(|(full, some)| api::PsiStats { full, some }))
}

prop_compose! {
    fn cpu()(timestamp: i64, total in number(), rate in number(), psi in psi()) -> api::CpuUsage {
        api::CpuUsage { timestamp, usage_core_nano_seconds: total, usage_nano_cores: rate, psi }
    }
}

prop_compose! {
    fn memory()(
        timestamp: i64, (working_set_bytes, available_bytes, usage_bytes) in (number(), number(), number()),
        (rss_bytes, page_faults, major_page_faults) in (number(), number(), number()), psi in psi(),
    ) -> api::MemoryUsage {
        api::MemoryUsage {
            timestamp, working_set_bytes, available_bytes, usage_bytes, rss_bytes, page_faults, major_page_faults, psi,
        }
    }
}

prop_compose! {
    fn interface()(
        name in text(), (rx_bytes, rx_errors) in (number(), number()), (tx_bytes, tx_errors) in (number(), number()),
    ) -> api::NetworkInterfaceUsage {
        api::NetworkInterfaceUsage { name, rx_bytes, rx_errors, tx_bytes, tx_errors }
    }
}

prop_compose! {
    pub(super) fn container_stats()(
        id in text(), metadata in metadata(), (labels, annotations) in (map(), map()), cpu in option::of(cpu()),
        memory in option::of(memory()), writable_layer in option::of(usage()),
        swap in option::of((any::<i64>(), number(), number())), io in option::of((any::<i64>(), psi())),
    ) -> api::ContainerStats {
        api::ContainerStats {
            attributes: api::ContainerAttributes { id, metadata, labels, annotations }, cpu, memory, writable_layer,
            swap: swap.map(|(timestamp, swap_available_bytes, swap_usage_bytes)| {
                api::SwapUsage { timestamp, swap_available_bytes, swap_usage_bytes }
            }),
            io: io.map(|(timestamp, psi)| api::IoUsage { timestamp, psi }),
        }
    }
}

prop_compose! {
    pub(super) fn sandbox_stats()(
        id in text(), metadata in sandbox_metadata(), (labels, annotations) in (map(), map()), cpu in option::of(cpu()),
        memory in option::of(memory()),
        network in option::of((any::<i64>(), option::of(interface()), vec(interface(), 0..2))),
        process in option::of((any::<i64>(), number())), io in option::of((any::<i64>(), psi())),
        containers in vec(container_stats(), 0..2),
    ) -> api::PodSandboxStats {
        api::PodSandboxStats {
            attributes: api::PodSandboxAttributes { id, metadata, labels, annotations }, cpu, memory,
            network: network.map(|(timestamp, default_interface, interfaces)| {
                api::NetworkUsage { timestamp, default_interface, interfaces }
            }),
            process: process.map(|(timestamp, process_count)| api::ProcessUsage { timestamp, process_count }),
            io: io.map(|(timestamp, psi)| api::IoUsage { timestamp, psi }), containers,
        }
    }
}
