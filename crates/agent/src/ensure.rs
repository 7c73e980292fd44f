//! The images that pods of a manifest need, and the outcome of each, in the form in which `imagelet ensure` and the API report it.
//! Plain data, without I/O. Called by the routes of images and by the commands `ensure` and `explain`.

use std::sync::Arc;

use image_manager::{EnsureImageError, EnsureImageRequest, EnsuredImage, ObjectRef, PodRef};
use manifest::{Pod, PodImage, Resolved, Role, SecretStore};
use schemars::JsonSchema;
use serde::Serialize;

/// A need for an image, with the pod that it belongs to.
#[derive(Clone, Debug)]
pub struct ImageNeed {
    /// `pod/web`.
    pub pod: String,
    /// The namespace of the pod.
    pub namespace: String,
    /// The image, and its use in the pod.
    pub image: PodImage,
    reference: PodRef,
    priority: i32,
    /// The secrets and the account that the pod names.
    access: Arc<Resolved>,
}

impl ImageNeed {
    /// Returns the request that the manager is given.
    pub fn request(&self) -> EnsureImageRequest {
        let object = match self.image.role {
            // As in the kubelet: events of an image volume are about the pod.
            Role::Volume => ObjectRef::pod(&self.reference),
            _ => ObjectRef { field_path: self.image.field_path(), ..ObjectRef::pod(&self.reference) },
        };
        EnsureImageRequest {
            pod: self.reference.clone(),
            object: Some(object),
            policy: self.image.policy,
            secrets: self.access.secrets.clone(),
            service_account: self.access.account.clone(),
            missing_secrets: self.access.missing.clone(),
            priority: self.priority,
            ..EnsureImageRequest::new(&self.image.image)
        }
    }
}

/// Returns the needs of a pod, in its order.
pub fn image_needs(pod: Pod, secrets: &SecretStore) -> Vec<ImageNeed> {
    let title = pod.title();
    let access = Arc::new(secrets.resolve(&pod));
    let Pod { namespace, name, uid, annotations, images, priority, .. } = pod;
    let reference = PodRef { namespace: namespace.clone(), name, uid, annotations };
    let need = |image| ImageNeed {
        pod: title.clone(),
        namespace: namespace.clone(),
        image,
        reference: reference.clone(),
        priority,
        access: Arc::clone(&access),
    };
    images.into_iter().map(need).collect()
}

/// Result for one image of a pod.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnsuredRow {
    /// Kind and name of the object that defines the pod: `pod/web`, `deployment/web`.
    pub pod: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the container or image volume.
    pub container: String,
    /// Use of the image in the pod.
    #[serde(rename = "type")]
    #[schemars(with = "String")]
    pub role: Role,
    /// The image as given in the manifest.
    pub image: String,
    /// Pull policy: `Always`, `IfNotPresent` or `Never`; the Kubernetes default if the manifest has none.
    pub policy: &'static str,
    /// `present`, `pulled`, `unfinished`, or the reason of the failure.
    pub result: &'static str,
    /// Image ID as reported by the runtime; empty after a failure.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image_ref: String,
    /// Duration of the pull in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_milliseconds: Option<u64>,
    /// Error message of a failure.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Name of the container, or `volume/NAME`: for tables, in which a volume may be called like a container.
    #[serde(skip)]
    pub title: String,
}

impl EnsuredRow {
    /// Returns the row of a need; without an end it is unfinished.
    pub fn new(need: &ImageNeed, end: Option<Result<EnsuredImage, EnsureImageError>>) -> Self {
        let row = Self {
            pod: need.pod.clone(),
            namespace: need.namespace.clone(),
            container: need.image.name.clone(),
            role: need.image.role,
            image: need.image.image.clone(),
            policy: need.image.policy.as_str(),
            result: "present",
            image_ref: String::new(),
            pull_milliseconds: None,
            message: String::new(),
            title: need.image.title(),
        };
        let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match end {
            Some(Ok(ensured)) => Self {
                result: if ensured.pulled { "pulled" } else { "present" },
                image_ref: ensured.image_ref,
                pull_milliseconds: ensured.timing.map(|timing| millis(timing.with_waiting)),
                ..row
            },
            Some(Err(error)) => Self { result: error.reason(), message: error.message(), ..row },
            None => Self { result: "unfinished", ..row },
        }
    }
}
