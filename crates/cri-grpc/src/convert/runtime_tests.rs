//! Round trips of RuntimeService's messages: every plain type is unchanged after it was sent and received; and messages in
//! which peers leave fields out, or send values that we do not know.

use cri_api as api;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::arbitrary::{
    container, container_config, container_stats, container_status, map, mount, sandbox, sandbox_config, sandbox_stats,
    sandbox_status, text, there_and_back,
};
use crate::pb;

prop_compose! {
    fn condition()(kind in text(), status: bool, reason in text(), message in text()) -> api::Condition {
        api::Condition { kind, status, reason, message }
    }
}

prop_compose! {
    fn handler()(name in text(), recursive_read_only_mounts: bool, user_namespaces: bool) -> api::RuntimeHandler {
        api::RuntimeHandler {
            name,
            features: api::RuntimeHandlerFeatures { recursive_read_only_mounts, user_namespaces },
        }
    }
}

proptest! {
    #[test]
    fn runtimes(
        conditions in vec(condition(), 0..3), info in map(), handlers in vec(handler(), 0..3),
        features in any::<(bool, bool, bool)>(), fields in (text(), text(), text(), text()),
    ) {
        let features = api::RuntimeFeatures {
            supplemental_groups_policy: features.0, user_namespaces_host_network: features.1, mount_options: features.2,
        };
        let status = api::RuntimeStatus { conditions, info, handlers, features };
        prop_assert_eq!(&there_and_back::<pb::StatusResponse, _>(&status), &status);
        let (version, runtime_name, runtime_version, runtime_api_version) = fields;
        let version = api::VersionInfo { version, runtime_name, runtime_version, runtime_api_version };
        prop_assert_eq!(&there_and_back::<pb::VersionResponse, _>(&version), &version);
    }

    #[test]
    fn lists(sandbox in sandbox(), container in container(), ready in option::of(any::<bool>()), labels in map()) {
        prop_assert_eq!(&there_and_back::<pb::PodSandbox, _>(&sandbox), &sandbox);
        prop_assert_eq!(&there_and_back::<pb::Container, _>(&container), &container);
        // An empty id selects nothing on the wire: it is no id.
        let id = (!sandbox.id.is_empty()).then(|| sandbox.id.clone());
        let filter = api::PodSandboxFilter { id: id.clone(), ready, labels: labels.clone() };
        prop_assert_eq!(&there_and_back::<pb::PodSandboxFilter, _>(&filter), &filter);
        let state = ready.map(|_| container.state);
        let filter = api::ContainerFilter { id: id.clone(), state, pod_sandbox_id: id.clone(), labels: labels.clone() };
        prop_assert_eq!(&there_and_back::<pb::ContainerFilter, _>(&filter), &filter);
        let filter =
            api::ContainerStatsFilter { id: id.clone(), pod_sandbox_id: filter.pod_sandbox_id, labels: labels.clone() };
        prop_assert_eq!(&there_and_back::<pb::ContainerStatsFilter, _>(&filter), &filter);
        let filter = api::PodSandboxStatsFilter { id, labels };
        prop_assert_eq!(&there_and_back::<pb::PodSandboxStatsFilter, _>(&filter), &filter);
    }

    #[test]
    fn configs(sandbox in sandbox_config(), container in container_config(), mount in mount()) {
        prop_assert_eq!(&there_and_back::<pb::PodSandboxConfig, _>(&sandbox), &sandbox);
        prop_assert_eq!(&there_and_back::<pb::ContainerConfig, _>(&container), &container);
        prop_assert_eq!(&there_and_back::<pb::Mount, _>(&mount), &mount);
    }

    #[test]
    fn statuses(sandbox in sandbox_status(), container in container_status()) {
        prop_assert_eq!(&there_and_back::<pb::PodSandboxStatusResponse, _>(&sandbox), &sandbox);
        prop_assert_eq!(&there_and_back::<pb::ContainerStatusResponse, _>(&container), &container);
    }

    #[test]
    fn stats(sandbox in sandbox_stats(), container in container_stats()) {
        prop_assert_eq!(&there_and_back::<pb::PodSandboxStats, _>(&sandbox), &sandbox);
        prop_assert_eq!(&there_and_back::<pb::ContainerStats, _>(&container), &container);
    }
}

#[test]
fn omitted_fields_are_defaults() {
    assert_eq!(api::Container::from(pb::Container::default()).state, api::ContainerState::Created);
    assert!(api::PodSandbox::from(pb::PodSandbox::default()).ready, "state 0 is ready");
    assert_eq!(api::RuntimeStatus::from(pb::StatusResponse::default()), api::RuntimeStatus::default());
    assert_eq!(api::RuntimeConfig::from(pb::RuntimeConfigResponse::default()), api::RuntimeConfig::default());
    // Without a status the states are those of an unknown object, not those of number 0.
    let sandbox = api::PodSandboxStatus::from(pb::PodSandboxStatusResponse::default());
    assert_eq!(sandbox, api::PodSandboxStatus::default());
    assert!(!sandbox.ready);
    let container = api::ContainerStatus::from(pb::ContainerStatusResponse::default());
    assert_eq!(container, api::ContainerStatus::default());
    assert_eq!(container.state, api::ContainerState::Unknown);
    let event = api::ContainerEvent::from(pb::ContainerEventResponse::default());
    assert_eq!((event.kind, event.sandbox), (api::ContainerEventKind::Created, None));
    assert_eq!(api::ContainerStats::from(pb::ContainerStats::default()), api::ContainerStats::default());
    assert_eq!(api::PodSandboxStats::from(pb::PodSandboxStats::default()), api::PodSandboxStats::default());
}

#[test]
fn unknown_values_map_to_the_safe_default() {
    let container = pb::Container { state: 77, ..Default::default() };
    assert_eq!(api::Container::from(container).state, api::ContainerState::Unknown);
    let sandbox = pb::PodSandbox { state: 77, ..Default::default() };
    assert!(!api::PodSandbox::from(sandbox).ready);
    let options = pb::NamespaceOption { network: 77, pid: -1, ipc: 4, ..Default::default() };
    assert_eq!(api::NamespaceOptions::from(options), api::NamespaceOptions::default(), "not the node's");
    let profile = pb::SecurityProfile { profile_type: 77, localhost_ref: "x".into() };
    assert_eq!(api::SecurityProfile::from(profile), api::SecurityProfile::RuntimeDefault, "not unconfined");
    let security = pb::LinuxContainerSecurityContext { supplemental_groups_policy: 77, ..Default::default() };
    let policy = api::LinuxContainerSecurityContext::from(security).supplemental_groups_policy;
    assert_eq!(policy, api::SupplementalGroupsPolicy::Strict);
    let mount = pb::Mount { propagation: 77, ..Default::default() };
    assert_eq!(api::Mount::from(mount).propagation, api::MountPropagation::Private);
    let status = pb::ContainerStatus { stop_signal: 77, ..Default::default() };
    assert_eq!(api::ContainerStatus::from(status).stop_signal, None);
    let event = pb::ContainerEventResponse { container_event_type: 77, ..Default::default() };
    assert_eq!(api::ContainerEvent::from(event).kind, api::ContainerEventKind::Unknown);
    let linux = Some(pb::LinuxRuntimeConfiguration { cgroup_driver: 77 });
    assert_eq!(api::RuntimeConfig::from(pb::RuntimeConfigResponse { linux }).cgroup_driver, None);
}

#[test]
fn runtime_only_fields_are_read() {
    for (number, driver) in [(0, api::CgroupDriver::Systemd), (1, api::CgroupDriver::Cgroupfs)] {
        let linux = Some(pb::LinuxRuntimeConfiguration { cgroup_driver: number });
        assert_eq!(api::RuntimeConfig::from(pb::RuntimeConfigResponse { linux }).cgroup_driver, Some(driver));
    }
    use api::ContainerEventKind::{Created, Deleted, Started, Stopped};
    for (number, kind) in (0..).zip([Created, Started, Stopped, Deleted]) {
        let event = pb::ContainerEventResponse {
            container_id: "c".into(),
            container_event_type: number,
            created_at: 5,
            pod_sandbox_status: Some(pb::PodSandboxStatus { id: "s".into(), ..Default::default() }),
            containers_statuses: vec![pb::ContainerStatus { id: "c".into(), exit_code: 3, ..Default::default() }],
        };
        let event = api::ContainerEvent::from(event);
        assert_eq!((event.container_id.as_str(), event.kind, event.created_at), ("c", kind, 5));
        assert_eq!(event.sandbox.map(|sandbox| sandbox.id), Some("s".into()));
        assert_eq!(event.containers[0].exit_code, 3);
    }
    let output = pb::ExecSyncResponse { stdout: vec![1], stderr: vec![2], exit_code: 3 };
    let want = api::ExecSyncOutput { stdout: vec![1], stderr: vec![2], exit_code: 3 };
    assert_eq!(api::ExecSyncOutput::from(output), want);
}

#[test]
fn absent_and_empty_are_the_same_on_the_wire() {
    let absent = pb::PodSandbox::from(api::PodSandbox::default());
    assert_eq!(absent.metadata, None);
    let empty = pb::PodSandbox { metadata: Some(pb::PodSandboxMetadata::default()), ..Default::default() };
    assert_eq!(api::PodSandbox::from(empty), api::PodSandbox::from(pb::PodSandbox::default()));
}

/// Runtimes read these fields without a check that they are present.
#[test]
fn required_request_fields_are_always_sent() {
    let linux = pb::PodSandboxConfig::from(api::PodSandboxConfig::default()).linux.expect("sent");
    assert!(linux.security_context.expect("sent").namespace_options.is_some());
    let linux = pb::ContainerConfig::from(api::ContainerConfig::default()).linux.expect("sent");
    assert!(linux.resources.is_some() && linux.security_context.expect("sent").namespace_options.is_some());
}

/// Every signal has its own number, and it is the one that CRI gives its name.
#[test]
fn signal_numbers_match_the_api() {
    for (signal, number) in api::Signal::all().zip(1..) {
        assert_eq!(super::to_pb::signal(Some(signal)), number, "{signal}");
        assert_eq!(super::to_api::signal(number), Some(signal));
    }
    assert_eq!(super::to_api::signal(pb::Signal::Sigrtminplus3 as i32).map(api::Signal::as_str), Some("SIGRTMIN+3"));
    assert_eq!(super::to_pb::signal(None), 0);
    assert_eq!(super::to_api::signal(0), None);
}
