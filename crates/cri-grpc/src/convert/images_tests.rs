//! Round trips of ImageService's messages: a message that is sent and received is unchanged, in both directions.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::convert::arbitrary::{map, sandbox_config, spec, text, there_and_back, usage};

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

    /// A message of a peer, through the plain types and out again, as a proxy does.
    #[test]
    fn messages_are_passed_through(image in image(), usage in usage(), auth in auth()) {
        let image = pb::Image::from(image);
        prop_assert_eq!(pb::Image::from(api::Image::from(image.clone())), image);
        let usage = pb::FilesystemUsage::from(usage);
        prop_assert_eq!(pb::FilesystemUsage::from(api::FilesystemUsage::from(usage.clone())), usage);
        let auth = pb::AuthConfig::from(auth);
        prop_assert!(pb::AuthConfig::from(RegistryAuth::from(auth.clone())) == auth);
    }
}

#[test]
fn omitted_fields_are_defaults() {
    assert_eq!(api::Image::from(pb::Image::default()), api::Image::default());
    assert_eq!(api::FilesystemUsage::from(pb::FilesystemUsage::default()), api::FilesystemUsage::default());
    assert_eq!(api::PullImageRequest::from(pb::PullImageRequest::default()).image, api::ImageSpec::default());
}
