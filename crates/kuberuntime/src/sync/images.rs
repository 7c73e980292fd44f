//! The images of a pod: which of them are made sure of ahead of their turn, and the request that is made for each. Called by
//! [`super::steps`] and [`super::start`].

use std::collections::BTreeSet;

use cri_api::PodSandboxConfig;
use image_manager::{EnsureImageRequest, ObjectRef, PodRef};
use tokio::time::Instant;

use super::failure::SyncStep;
use super::pod_sync::PodSync;
use super::prefetch::{EnsureResult, ImageKey};
use crate::actions::{LeaveReason, PodActions, RestartVerdict, restart_verdict};
use crate::pod::{Container, ContainerKind, ImageRole, PodImage};

/// Result of a request. An image that was requested ahead may have been removed since.
pub(super) struct EnsureOutcome {
    pub(super) answer: EnsureResult,
    pub(super) ahead: bool,
}

impl PodSync<'_> {
    /// Requests all images that the pod still needs, first those of the containers that this sync starts.
    pub(super) fn begin_images(&self, actions: &PodActions, sandbox: Option<&PodSandboxConfig>) {
        let needed = self.needed(actions).into_iter().map(|image| self.request(&image, sandbox)).collect();
        self.pod_runtime.prefetch.want(&self.owner.uid, needed);
    }

    /// Ensures that an image is present, or takes the answer to a request that was made ahead.
    pub(super) async fn ensure(
        &self,
        image: &PodImage<'_>,
        sandbox: Option<&PodSandboxConfig>,
    ) -> SyncStep<EnsureOutcome> {
        let key = ImageKey::new(image.image, image.policy);
        self.waiting_for_image(async {
            match self.pod_runtime.prefetch.take(&self.owner.uid, &key).await {
                Some(answer) => EnsureOutcome { answer, ahead: true },
                None => self.ask(image, sandbox).await,
            }
        })
        .await
    }

    /// Ensures that an image is present, without the answer to a request that was made ahead.
    pub(super) async fn ensure_again(
        &self,
        image: &PodImage<'_>,
        sandbox: Option<&PodSandboxConfig>,
    ) -> SyncStep<EnsureOutcome> {
        self.waiting_for_image(self.ask(image, sandbox)).await
    }

    /// Waits for an image, and counts for how long.
    async fn waiting_for_image(&self, image: impl Future<Output = EnsureOutcome>) -> SyncStep<EnsureOutcome> {
        let begun = Instant::now();
        let ensured = self.until_stopped(image).await;
        *self.waited_for_images.lock() += begun.elapsed();
        ensured
    }

    async fn ask(&self, image: &PodImage<'_>, sandbox: Option<&PodSandboxConfig>) -> EnsureOutcome {
        let answer = self.pod_runtime.parts().images.ensure_image_exists(self.request(image, sandbox)).await;
        EnsureOutcome { answer, ahead: false }
    }

    fn request(&self, image: &PodImage<'_>, sandbox: Option<&PodSandboxConfig>) -> EnsureImageRequest {
        let (metadata, spec) = (&self.pod.metadata, &self.pod.spec);
        let pod = PodRef {
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            annotations: metadata.annotations.clone(),
        };
        let mut object = ObjectRef::pod(&pod);
        if let ImageRole::Container(_) = image.role {
            object.field_path = image.field_path();
        }
        let credentials = &self.credentials;
        EnsureImageRequest {
            pod,
            object: Some(object),
            policy: image.policy,
            secrets: credentials.secrets.clone(),
            service_account: credentials.account.clone(),
            missing_secrets: credentials.missing.clone(),
            priority: spec.priority.unwrap_or_default(),
            runtime_handler: spec.runtime_class_name.clone(),
            sandbox: sandbox.cloned(),
            ..EnsureImageRequest::new(image.image)
        }
    }

    fn needed(&self, actions: &PodActions) -> Vec<PodImage<'_>> {
        let now: Vec<&str> = actions
            .ephemeral_to_start
            .iter()
            .chain(&actions.init_to_start)
            .chain(&actions.containers_to_start)
            .map(|start| start.name.as_str())
            .collect();
        let later = self.later(actions);
        let turn = |name: &str| match now.iter().position(|other| *other == name) {
            // One that waits out its back-off asks for its image when that is over.
            Some(_) if self.waits_for_restart(name) => None,
            Some(place) => Some(place),
            None => later.contains(name).then_some(usize::MAX),
        };
        let images = self.pod.images();
        let mut needed: Vec<(usize, PodImage<'_>)> = Vec::new();
        for image in images {
            let place = match image.role {
                ImageRole::Container(_) => turn(image.name),
                ImageRole::Volume => {
                    let mounts =
                        |container: &Container| container.volume_mounts.iter().any(|mount| mount.name == image.name);
                    let users = self.pod.all_containers().filter(|(_, container)| mounts(container));
                    users.filter_map(|(_, container)| turn(&container.name)).min()
                }
            };
            needed.extend(place.map(|place| (place, image)));
        }
        needed.sort_by_key(|(place, _)| *place);
        needed.into_iter().map(|(_, image)| image).collect()
    }

    /// Returns the containers that start later.
    fn later(&self, actions: &PodActions) -> BTreeSet<&str> {
        let (pod, spec) = (self.pod, &self.pod.spec);
        let anew = actions.create_sandbox;
        let is_here = |container: &Container| !anew && self.observed.latest_in_sandbox(&container.name).is_some();
        let has_begun = spec.containers.iter().any(is_here);
        let reached = spec.init_containers.iter().rposition(is_here);
        let init = spec.init_containers.iter().enumerate();
        let init = init.filter(|(index, _)| !has_begun && reached.is_none_or(|reached| *index > reached));
        let normal = spec.containers.iter().filter(|container| {
            !is_here(container)
                && match restart_verdict(pod, container, self.observed) {
                    RestartVerdict::Start(_) => true,
                    RestartVerdict::Leave(LeaveReason::Running) => anew,
                    RestartVerdict::Leave(_) => false,
                }
        });
        init.map(|(_, container)| container).chain(normal).map(|container| container.name.as_str()).collect()
    }

    fn waits_for_restart(&self, name: &str) -> bool {
        let Some((kind, container)) = self.pod.container(name) else { return false };
        let now = (self.pod_runtime.parts().node.wall_clock)();
        kind != ContainerKind::Ephemeral
            && self
                .pod_runtime
                .backoff
                .lock()
                .get(&self.owner.uid)
                .is_some_and(|backoff| backoff.waits(self.pod, container, self.observed, now))
    }
}
