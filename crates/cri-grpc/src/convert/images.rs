//! Messages of ImageService.

use cri_api as api;
use oci::{RegistryAuth, Secret};

use super::{all, non_empty, or_default};
use crate::pb;

same_fields! {
    ImageSpec = ImageSpec { image, annotations, user_specified_image, runtime_handler, image_ref }
}

impl From<pb::Image> for api::Image {
    fn from(image: pb::Image) -> Self {
        let pb::Image { id, repo_tags, repo_digests, size, uid, username, spec, pinned } = image;
        let uid = uid.map(|uid| uid.value);
        let spec = spec.map(Into::into);
        // CRI does not say when an image came.
        Self { id, repo_tags, repo_digests, size, uid, username, spec, pinned, pulled_at: None }
    }
}

impl From<api::Image> for pb::Image {
    fn from(image: api::Image) -> Self {
        let api::Image { id, repo_tags, repo_digests, size, uid, username, spec, pinned, pulled_at: _ } = image;
        let uid = uid.map(|value| pb::Int64Value { value });
        Self { id, repo_tags, repo_digests, size, uid, username, spec: spec.map(Into::into), pinned }
    }
}

impl From<pb::ImageFilter> for api::ImageFilter {
    fn from(filter: pb::ImageFilter) -> Self {
        Self { image: filter.image.map(Into::into) }
    }
}

impl From<api::ImageFilter> for pb::ImageFilter {
    fn from(filter: api::ImageFilter) -> Self {
        Self { image: filter.image.map(Into::into) }
    }
}

impl From<pb::ImageStatusResponse> for api::ImageStatus {
    fn from(response: pb::ImageStatusResponse) -> Self {
        Self { image: response.image.map(Into::into), info: response.info }
    }
}

impl From<api::ImageStatus> for pb::ImageStatusResponse {
    fn from(status: api::ImageStatus) -> Self {
        Self { image: status.image.map(Into::into), info: status.info }
    }
}

impl From<pb::AuthConfig> for RegistryAuth {
    fn from(mut auth: pb::AuthConfig) -> Self {
        // Moved out, not copied: what is left in `auth` is wiped with it.
        let mut take = |field: fn(&mut pb::AuthConfig) -> &mut String| std::mem::take(field(&mut auth));
        Self {
            username: take(|a| &mut a.username),
            password: Secret::new(take(|a| &mut a.password)),
            auth: Secret::new(take(|a| &mut a.auth)),
            server_address: take(|a| &mut a.server_address),
            identity_token: Secret::new(take(|a| &mut a.identity_token)),
            registry_token: Secret::new(take(|a| &mut a.registry_token)),
        }
    }
}

impl From<RegistryAuth> for pb::AuthConfig {
    fn from(auth: RegistryAuth) -> Self {
        let RegistryAuth { username, password, auth, server_address, identity_token, registry_token } = auth;
        Self {
            username,
            password: password.expose().to_owned(),
            auth: auth.expose().to_owned(),
            server_address,
            identity_token: identity_token.expose().to_owned(),
            registry_token: registry_token.expose().to_owned(),
        }
    }
}

impl From<pb::PullImageRequest> for api::PullImageRequest {
    fn from(request: pb::PullImageRequest) -> Self {
        Self {
            image: or_default(request.image),
            auth: request.auth.map(Into::into),
            sandbox: request.sandbox_config.map(Into::into),
            progress: api::ProgressSink::default(),
            before_visible: api::BeforeVisible::default(),
        }
    }
}

impl From<api::PullImageRequest> for pb::PullImageRequest {
    fn from(request: api::PullImageRequest) -> Self {
        let api::PullImageRequest { image, auth, sandbox, progress: _, before_visible: _ } = request;
        Self { image: Some(image.into()), auth: auth.map(Into::into), sandbox_config: sandbox.map(Into::into) }
    }
}

impl From<pb::FilesystemUsage> for api::FilesystemUsage {
    fn from(usage: pb::FilesystemUsage) -> Self {
        let pb::FilesystemUsage { timestamp, fs_id, used_bytes, inodes_used } = usage;
        Self {
            timestamp,
            mountpoint: fs_id.map(|id| id.mountpoint).unwrap_or_default(),
            used_bytes: used_bytes.map(|v| v.value),
            inodes_used: inodes_used.map(|v| v.value),
        }
    }
}

impl From<api::FilesystemUsage> for pb::FilesystemUsage {
    fn from(usage: api::FilesystemUsage) -> Self {
        let api::FilesystemUsage { timestamp, mountpoint, used_bytes, inodes_used } = usage;
        let number = |value| pb::UInt64Value { value };
        Self {
            timestamp,
            fs_id: non_empty(mountpoint).map(|mountpoint| pb::FilesystemIdentifier { mountpoint }),
            used_bytes: used_bytes.map(number),
            inodes_used: inodes_used.map(number),
        }
    }
}

impl From<pb::ImageFsInfoResponse> for api::FsInfo {
    fn from(response: pb::ImageFsInfoResponse) -> Self {
        Self {
            image_filesystems: all(response.image_filesystems),
            container_filesystems: all(response.container_filesystems),
        }
    }
}

impl From<api::FsInfo> for pb::ImageFsInfoResponse {
    fn from(info: api::FsInfo) -> Self {
        Self { image_filesystems: all(info.image_filesystems), container_filesystems: all(info.container_filesystems) }
    }
}

#[cfg(test)]
#[path = "images_tests.rs"]
mod tests;
