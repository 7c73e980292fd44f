//! State of one pod in the runtime, requested by its uid. An object that is removed between the list and the request
//! for its status is left out. Decides nothing.

use std::collections::BTreeMap;

use cri_api::{ContainerFilter, ContainerState, Error, Kind, PodSandboxFilter};
use futures::{StreamExt as _, TryStreamExt as _};

use super::failure::PodRuntimeError;
use super::messages;
use super::runtime::PodRuntime;
use crate::labels::{POD_UID, PodOwner};
use crate::observed::{ObservedContainer, ObservedPod, ObservedSandbox};

/// Number of statuses of a pod that are requested at the same time.
const AT_ONCE: usize = 16;

impl PodRuntime {
    /// Asks the runtime for the state of the pod of this uid.
    ///
    /// # Errors
    /// The runtime does not answer.
    pub(crate) async fn observe(&self, uid: &str) -> Result<ObservedPod, PodRuntimeError> {
        let runtime = &*self.parts.runtime;
        let labels = BTreeMap::from([(POD_UID.to_owned(), uid.to_owned())]);
        let sandboxes = PodSandboxFilter { labels: labels.clone(), ..PodSandboxFilter::default() };
        let containers = ContainerFilter { labels, ..ContainerFilter::default() };
        let failed = |what: &str| {
            let what = format!("{what} of pod {uid}");
            move |source| PodRuntimeError { what, source }
        };
        let (sandboxes, containers) =
            futures::join!(runtime.list_pod_sandboxes(Some(&sandboxes)), runtime.list_containers(Some(&containers)),);
        let sandboxes = sandboxes.map_err(failed("list sandboxes"))?;
        let containers = containers.map_err(failed("list containers"))?;
        let owner = sandboxes
            .iter()
            .map(|sandbox| &sandbox.labels)
            .chain(containers.iter().map(|container| &container.labels))
            .find_map(PodOwner::from_labels)
            .unwrap_or_else(|| PodOwner { uid: uid.to_owned(), ..PodOwner::default() });
        let statuses_of_sandboxes = futures::stream::iter(sandboxes)
            .map(|sandbox| async move {
                let status = if_present(runtime.pod_sandbox_status(&sandbox.id, false).await);
                status.map_err(|source| PodRuntimeError { what: format!("ask for sandbox {}", sandbox.id), source })
            })
            .buffered(AT_ONCE)
            .try_filter_map(|status| async move { Ok(status.map(ObservedSandbox::from)) })
            .try_collect::<Vec<_>>();
        let statuses_of_containers = futures::stream::iter(containers)
            .map(|container| async move {
                let status = if_present(runtime.container_status(&container.id, false).await);
                let what = || format!("ask for container {} ({})", container.metadata.name, container.id);
                let status = status.map_err(|source| PodRuntimeError { what: what(), source })?;
                Ok::<_, PodRuntimeError>(match status {
                    Some(status) => {
                        Some(ObservedContainer { sandbox_id: container.pod_sandbox_id, ..with_message(status).await })
                    }
                    None => None,
                })
            })
            .buffered(AT_ONCE)
            .try_filter_map(|status| async move { Ok(status) })
            .try_collect::<Vec<_>>();
        let (sandboxes, containers) = futures::try_join!(statuses_of_sandboxes, statuses_of_containers)?;
        Ok(ObservedPod::new(owner, sandboxes, containers))
    }
}

/// Returns the status, or `None` if the object no longer exists.
fn if_present<T>(status: Result<T, Error>) -> Result<Option<T>, Error> {
    match status {
        Ok(status) => Ok(Some(status)),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Converts a container status, with the termination message of an ended container.
async fn with_message(status: cri_api::ContainerStatus) -> ObservedContainer {
    let ended = status.state == ContainerState::Exited;
    if !ended {
        return ObservedContainer::from(status);
    }
    let mut observed = ObservedContainer::from(status.clone());
    let Some(source) = messages::MessageSource::of(&observed, &status) else { return observed };
    let last = base::blocking(move || source.read()).await.unwrap_or_default();
    if !last.is_empty() {
        if !observed.message.is_empty() {
            observed.message.push_str(": ");
        }
        observed.message.push_str(&last);
    }
    observed
}
