//! Messages of ImageService.

use cri_api as api;
use oci::{RegistryAuth, Secret};

use super::or_default;
use crate::pb;

same_fields! {
    ImageSpec = ImageSpec { image, annotations, user_specified_image, runtime_handler, image_ref }
}

fields! {
    Image = Image {
        same id id,
        same repo_tags repo_tags,
        same repo_digests repo_digests,
        same size size,
        signed uid uid,
        same username username,
        maybe spec spec,
        same pinned pinned,
        + pulled_at
    }
    ImageFilter = ImageFilter { maybe image image }
    ImageStatusResponse = ImageStatus { maybe image image, same info info }
    FilesystemUsage = FilesystemUsage {
        same timestamp timestamp,
        mountpoint fs_id mountpoint,
        number used_bytes used_bytes,
        number inodes_used inodes_used,
    }
    ImageFsInfoResponse = FsInfo {
        list image_filesystems image_filesystems,
        list container_filesystems container_filesystems,
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

#[cfg(test)]
#[path = "images_tests.rs"]
mod tests;
