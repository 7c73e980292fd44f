//! How a pod that was ended goes: its containers, its sandboxes, then what they used: volumes, logs and the links to them. What
//! is gone already is no error; what fails is told, and the rest goes on, but nothing goes that something left may use.
//! Called by [`super::PodRuntime`].

use cri_api::{Error, Kind};
use futures::future::join_all;
use image_manager::BackoffSelector;

use super::error::{PodRuntimeError, first_of, gone_is_done};
use super::runtime::PodRuntime;
use crate::status::ObservedPod;

/// Takes everything of a pod away.
pub(super) async fn remove_pod(hands: &PodRuntime, observed: &ObservedPod) -> Result<(), PodRuntimeError> {
    let (runtime, uid) = (&hands.parts.runtime, &observed.owner.uid);
    hands.forget(uid);
    hands.parts.images.reset_backoff(&BackoffSelector::Uid(uid.clone()));
    let failed = |what: String| move |source| PodRuntimeError { what, source };
    let containers = observed.containers.iter().map(|container| async {
        let what = format!("remove container {} ({})", container.name, container.id);
        gone_is_done(runtime.remove_container(&container.id).await).map_err(failed(what)).err()
    });
    let mut failures: Vec<PodRuntimeError> = join_all(containers).await.into_iter().flatten().collect();
    let sandboxes = observed.sandboxes.iter().map(|sandbox| async {
        // Whoever ended the pod stopped it, and may have been ended itself before: its network is given back here at last.
        let stopped = runtime.stop_pod_sandbox(&sandbox.id).await;
        gone_is_done(stopped).map_err(failed(format!("stop sandbox {}", sandbox.id)))?;
        let removed = runtime.remove_pod_sandbox(&sandbox.id).await;
        gone_is_done(removed).map_err(failed(format!("remove sandbox {}", sandbox.id)))
    });
    failures.extend(join_all(sandboxes).await.into_iter().filter_map(Result::err));
    if !failures.is_empty() || uid.is_empty() {
        return first_of(failures);
    }
    if let Err(error) = hands.parts.volumes.tear_down(uid).await {
        failures.push(on_node(format!("remove the directory of pod {uid}"), &error));
    }
    let (logs, of) = (hands.logs(), uid.clone());
    match base::blocking(move || logs.remove_pod(&of)).await {
        None | Some(Ok(())) => {}
        Some(Err(error)) => failures.push(on_node(format!("remove the logs of pod {uid}"), &error)),
    }
    first_of(failures)
}

/// A failure on the node and not in the runtime.
fn on_node(what: String, error: &(dyn std::error::Error + 'static)) -> PodRuntimeError {
    PodRuntimeError { what, source: Error::from_source(Kind::Internal, error) }
}
