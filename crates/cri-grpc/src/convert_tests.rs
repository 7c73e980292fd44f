//! Round trips: what goes out and comes back is what it was, for every plain type, and for the messages of ImageService
//! in the other direction as well.

use cri_api as api;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-zé:/@.-]{1,12}"]
}

fn map() -> impl Strategy<Value = std::collections::BTreeMap<String, String>> {
    btree_map(text(), text(), 0..3)
}

prop_compose! {
    fn spec()(
        image in text(), annotations in map(), user_specified_image in text(), runtime_handler in text(),
        image_ref in text(),
    ) -> api::ImageSpec {
        api::ImageSpec { image, annotations, user_specified_image, runtime_handler, image_ref }
    }
}

prop_compose! {
    fn image()(
        id in text(), repo_tags in vec(text(), 0..3), repo_digests in vec(text(), 0..3), size: u64,
        uid in option::of(any::<i64>()), username in text(), spec in option::of(spec()), pinned: bool,
    ) -> api::Image {
        api::Image { id, repo_tags, repo_digests, size, uid, username, spec, pinned, pulled_at: None }
    }
}

prop_compose! {
    fn auth()(
        username in text(), password in text(), auth in text(), server_address in text(), identity_token in text(),
        registry_token in text(),
    ) -> RegistryAuth {
        RegistryAuth {
            username,
            password: Secret::new(password),
            auth: Secret::new(auth),
            server_address,
            identity_token: Secret::new(identity_token),
            registry_token: Secret::new(registry_token),
        }
    }
}

prop_compose! {
    fn sandbox_metadata()(name in text(), uid in text(), namespace in text(), attempt: u32)
        -> api::PodSandboxMetadata
    {
        api::PodSandboxMetadata { name, uid, namespace, attempt }
    }
}

prop_compose! {
    fn sandbox_config()(
        metadata in sandbox_metadata(), hostname in text(), log_directory in text(), labels in map(),
        annotations in map(),
    ) -> api::PodSandboxConfig {
        api::PodSandboxConfig { metadata, hostname, log_directory, labels, annotations }
    }
}

prop_compose! {
    fn usage()(
        timestamp: i64, mountpoint in text(), used_bytes in option::of(any::<u64>()),
        inodes_used in option::of(any::<u64>()),
    ) -> api::FilesystemUsage {
        api::FilesystemUsage { timestamp, mountpoint, used_bytes, inodes_used }
    }
}

prop_compose! {
    fn sandbox()(
        id in text(), metadata in sandbox_metadata(), ready: bool, created_at: i64, labels in map(),
        annotations in map(), runtime_handler in text(),
    ) -> api::PodSandbox {
        api::PodSandbox { id, metadata, ready, created_at, labels, annotations, runtime_handler }
    }
}

fn state() -> impl Strategy<Value = api::ContainerState> {
    use api::ContainerState::{Created, Exited, Running, Unknown};
    prop_oneof![Just(Created), Just(Running), Just(Exited), Just(Unknown)]
}

prop_compose! {
    fn container()(
        id in text(), pod_sandbox_id in text(), name in text(), attempt: u32, image in spec(), image_ref in text(),
        image_id in text(), state in state(), created_at: i64, (labels, annotations) in (map(), map()),
    ) -> api::Container {
        let metadata = api::ContainerMetadata { name, attempt };
        api::Container {
            id, pod_sandbox_id, metadata, image, image_ref, image_id, state, created_at, labels, annotations,
        }
    }
}

prop_compose! {
    fn condition()(kind in text(), status: bool, reason in text(), message in text()) -> api::Condition {
        api::Condition { kind, status, reason, message }
    }
}

/// Out over bytes and back.
fn there_and_back<P: prost::Message + Default + From<A>, A: From<P> + Clone>(value: &A) -> A {
    let bytes = P::from(value.clone()).encode_to_vec();
    A::from(P::decode(bytes.as_slice()).expect("decodes"))
}

proptest! {
    // upstream: kuberuntime/TestListImagesPinnedField
    #[test]
    fn images(
        image in image(), filter in option::of(spec()), info in map(), spec in spec(),
    ) {
        prop_assert_eq!(&there_and_back::<pb::ImageSpec, _>(&spec), &spec);
        prop_assert_eq!(&there_and_back::<pb::Image, _>(&image), &image);
        let filter = api::ImageFilter { image: filter };
        prop_assert_eq!(&there_and_back::<pb::ImageFilter, _>(&filter), &filter);
        let status = api::ImageStatus { image: Some(image), info };
        prop_assert_eq!(&there_and_back::<pb::ImageStatusResponse, _>(&status), &status);
    }

    #[test]
    fn pulls(image in spec(), auth in option::of(auth()), sandbox in option::of(sandbox_config())) {
        let request = api::PullImageRequest { image, auth, sandbox, ..Default::default() };
        let back = there_and_back::<pb::PullImageRequest, _>(&request);
        prop_assert_eq!(back.image, request.image);
        prop_assert_eq!(back.sandbox, request.sandbox);
        prop_assert!(back.auth == request.auth);
    }

    #[test]
    fn file_systems(images in vec(usage(), 0..3), containers in vec(usage(), 0..3)) {
        let info = api::FsInfo { image_filesystems: images, container_filesystems: containers };
        prop_assert_eq!(&there_and_back::<pb::ImageFsInfoResponse, _>(&info), &info);
    }

    #[test]
    fn runtimes(
        conditions in vec(condition(), 0..3), info in map(), names in vec(text(), 0..3),
        fields in (text(), text(), text(), text()),
    ) {
        let handlers = names.into_iter().map(|name| api::RuntimeHandler { name }).collect();
        let status = api::RuntimeStatus { conditions, info, handlers };
        prop_assert_eq!(&there_and_back::<pb::StatusResponse, _>(&status), &status);
        let (version, runtime_name, runtime_version, runtime_api_version) = fields;
        let version = api::VersionInfo { version, runtime_name, runtime_version, runtime_api_version };
        prop_assert_eq!(&there_and_back::<pb::VersionResponse, _>(&version), &version);
    }

    #[test]
    fn pods(sandbox in sandbox(), container in container(), ready in option::of(any::<bool>()), labels in map()) {
        prop_assert_eq!(&there_and_back::<pb::PodSandbox, _>(&sandbox), &sandbox);
        prop_assert_eq!(&there_and_back::<pb::Container, _>(&container), &container);
        // An empty id selects nothing on the wire: it is no id.
        let id = (!sandbox.id.is_empty()).then(|| sandbox.id.clone());
        let filter = api::PodSandboxFilter { id: id.clone(), ready, labels: labels.clone() };
        prop_assert_eq!(&there_and_back::<pb::PodSandboxFilter, _>(&filter), &filter);
        let state = ready.map(|_| container.state);
        let filter = api::ContainerFilter { id: id.clone(), state, pod_sandbox_id: id, labels };
        prop_assert_eq!(&there_and_back::<pb::ContainerFilter, _>(&filter), &filter);
    }

    /// A message of a peer, through the plain types and out again, as a proxy does.
    #[test]
    fn a_message_passes_through(image in image(), usage in usage(), auth in auth()) {
        let image = pb::Image::from(image);
        prop_assert_eq!(pb::Image::from(api::Image::from(image.clone())), image);
        let usage = pb::FilesystemUsage::from(usage);
        prop_assert_eq!(pb::FilesystemUsage::from(api::FilesystemUsage::from(usage.clone())), usage);
        let auth = pb::AuthConfig::from(auth);
        prop_assert!(pb::AuthConfig::from(RegistryAuth::from(auth.clone())) == auth);
    }
}

#[test]
fn what_a_peer_leaves_out_is_the_default() {
    assert_eq!(api::Image::from(pb::Image::default()), api::Image::default());
    assert_eq!(api::Container::from(pb::Container::default()).state, api::ContainerState::Created);
    assert!(api::PodSandbox::from(pb::PodSandbox::default()).ready, "state 0 is ready");
    assert_eq!(api::FilesystemUsage::from(pb::FilesystemUsage::default()), api::FilesystemUsage::default());
    assert_eq!(api::RuntimeStatus::from(pb::StatusResponse::default()), api::RuntimeStatus::default());
    assert_eq!(api::PullImageRequest::from(pb::PullImageRequest::default()).image, api::ImageSpec::default());
}

#[test]
fn unknown_states_are_the_cautious_ones() {
    let container = pb::Container { state: 77, ..Default::default() };
    assert_eq!(api::Container::from(container).state, api::ContainerState::Unknown);
    let sandbox = pb::PodSandbox { state: 77, ..Default::default() };
    assert!(!api::PodSandbox::from(sandbox).ready);
}

#[test]
fn absent_and_empty_are_the_same_on_the_wire() {
    let absent = pb::PodSandbox::from(api::PodSandbox::default());
    assert_eq!(absent.metadata, None);
    let empty = pb::PodSandbox { metadata: Some(pb::PodSandboxMetadata::default()), ..Default::default() };
    assert_eq!(api::PodSandbox::from(empty), api::PodSandbox::from(pb::PodSandbox::default()));
}
