//! Shared by the count of allocations and the bench of EnsureImageExists: a service in which every image is
//! present, a directory of pull records, and the request of a pod.

use std::sync::Arc;

use async_trait::async_trait;
use cri_api::{FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, PullImageRequest, Result};
use imagelet_image_manager::{
    EnsureImageRequest, ObjectRef, PodRef, PullPolicy, PullRecords, RecordsOptions, VerificationPolicy,
};

pub(crate) const ID: &str = "sha256:9b871de323e37aa0eb6dc2ca6f8b8ff2f1df2e5a0e6a2e1b0d6d28c0a1f3d7f1";
pub(crate) const IMAGE: &str = "registry.k8s.io/kube-apiserver:v1.36.2";

/// An image service in which every image is present. It costs as little as one can: the fake of the tests writes every
/// call down.
pub(crate) struct Everything;

#[async_trait]
impl ImageService for Everything {
    async fn list_images(&self, _: Option<&ImageFilter>) -> Result<Vec<Image>> {
        Ok(Vec::new())
    }

    async fn image_status(&self, _: &ImageSpec, _: bool) -> Result<ImageStatus> {
        let image = Image { id: ID.to_owned(), size: 1, ..Image::default() };
        Ok(ImageStatus { image: Some(image), ..ImageStatus::default() })
    }

    async fn pull_image(&self, _: PullImageRequest) -> Result<String> {
        Ok(ID.to_owned())
    }

    async fn remove_image(&self, _: &ImageSpec) -> Result<()> {
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        Ok(FsInfo::default())
    }
}

/// The request of a pod as a node has it.
pub(crate) fn request() -> EnsureImageRequest {
    let annotations = [("kubernetes.io/config.source", "api"), ("kubernetes.io/config.seen", "2026-07-01")];
    let pod = PodRef {
        namespace: "kube-system".into(),
        name: "kube-apiserver-node-1".into(),
        uid: "0f3ee0d6-2a8b-4a9f-8f0e-7a4b4d1f2c11".into(),
        annotations: annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
    };
    EnsureImageRequest {
        object: Some(ObjectRef::container(&pod, "kube-apiserver")),
        pod,
        policy: PullPolicy::IfNotPresent,
        ..EnsureImageRequest::new(IMAGE)
    }
}

/// Records in a directory.
pub(crate) async fn records(directory: &tempfile::TempDir, policy: VerificationPolicy) -> PullRecords {
    let options =
        RecordsOptions { policy, ..RecordsOptions::new(directory.path(), Arc::new(|| jiff::Timestamp::UNIX_EPOCH)) };
    PullRecords::open(options).await.expect("a directory of records")
}
