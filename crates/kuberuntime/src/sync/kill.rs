//! Ends of pods. Each container is ended within its grace period: the event `Killing`, the preStop hook, its turn among
//! the containers of the pod, then the runtime's stop with the remaining time. Of a pod, all containers are ended and
//! then its sandboxes. Then the resources of the pod are removed: volumes, logs and the links to them. Absent objects
//! are no error. A failure is reported and the rest continues, but nothing is removed that remaining objects may use. Called
//! by the syncs and by the ends of pods.

use std::collections::BTreeMap;
use std::time::Duration;

use cri_api::{ContainerState, Error, Kind};
use futures::future::join_all;
use image_manager::BackoffSelector;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::failure::{PodRuntimeError, first_of, ignore_not_found};
use super::runtime::PodRuntime;
use crate::actions::KillReason;
use crate::events::PodEvent;
use crate::handlers::HandlerTarget;
use crate::labels::PodOwner;
use crate::observed::{ObservedContainer, ObservedPod};
use crate::pod::{Container, ContainerKind, ContainerPort, LifecycleHandler, Pod};
use crate::termination::{after_hook, grace_period, orphan_grace_period, termination_order};

/// A container that is to be ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoppingContainer<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) kind: ContainerKind,
    /// Hook to run before the stop.
    pub(super) hook: Option<&'a LifecycleHandler>,
    /// The ports that the hook may name.
    pub(super) ports: &'a [ContainerPort],
    /// Seconds for all of it.
    pub(super) grace: i64,
    /// Message of the event; empty if the pod ends.
    pub(super) message: &'a str,
    /// Turn: those of lower steps are stopped before.
    pub(super) step: usize,
}

impl<'a> StoppingContainer<'a> {
    /// Creates the description of a container in the runtime. If `pod` is `None` or lacks the container, because it is no
    /// longer known, the values recorded on the container are used.
    pub(super) fn new(pod: Option<&'a Pod>, run: &'a ObservedContainer, reason: Option<KillReason>) -> Self {
        match pod.and_then(|pod| pod.container(&run.name).map(|found| (pod, found))) {
            Some((pod, (kind, container))) => Self::known(pod, kind, container, &run.id, reason),
            None => Self {
                id: &run.id,
                name: &run.name,
                kind: run.info.kind.unwrap_or(ContainerKind::Normal),
                hook: run.info.pre_stop.as_ref(),
                ports: &run.info.ports,
                grace: orphan_grace_period(&run.info),
                message: "",
                step: 0,
            },
        }
    }

    pub(super) fn known(
        pod: &Pod,
        kind: ContainerKind,
        container: &'a Container,
        id: &'a str,
        reason: Option<KillReason>,
    ) -> Self {
        Self {
            id,
            name: &container.name,
            kind,
            hook: container.lifecycle.pre_stop.as_ref(),
            ports: &container.ports,
            grace: grace_period(pod, container, reason),
            message: "",
            step: 0,
        }
    }
}

/// Whose turn it is.
struct TerminationTurns(BTreeMap<usize, watch::Sender<usize>>);

impl TerminationTurns {
    fn new(victims: &[StoppingContainer<'_>]) -> Self {
        let mut steps = BTreeMap::<usize, usize>::new();
        for victim in victims {
            *steps.entry(victim.step).or_default() += 1;
        }
        Self(steps.into_iter().map(|(step, count)| (step, watch::Sender::new(count))).collect())
    }

    /// Waits until all of the steps before are done.
    async fn before(&self, step: usize) {
        for left in self.0.range(..step).map(|(_, left)| left) {
            let _ = left.subscribe().wait_for(|left| *left == 0).await.expect("the sender is in self");
        }
    }

    fn done(&self, step: usize) {
        if let Some(left) = self.0.get(&step) {
            left.send_modify(|left| *left = left.saturating_sub(1));
        }
    }
}

/// Ends containers, all at once as far as their steps let them. What could not be ended is answered.
pub(super) async fn kill_containers(
    pod_runtime: &PodRuntime,
    owner: &PodOwner,
    ip: Option<&str>,
    victims: &[StoppingContainer<'_>],
) -> Vec<PodRuntimeError> {
    let turns = TerminationTurns::new(victims);
    let ends = victims.iter().map(|victim| async {
        let ended = kill(pod_runtime, owner, ip, victim, &turns).await;
        turns.done(victim.step);
        ended.err()
    });
    join_all(ends).await.into_iter().flatten().collect()
}

async fn kill(
    pod_runtime: &PodRuntime,
    owner: &PodOwner,
    ip: Option<&str>,
    victim: &StoppingContainer<'_>,
    turns: &TerminationTurns,
) -> Result<(), PodRuntimeError> {
    let (begun, grace) = (Instant::now(), seconds(victim.grace));
    let part = Some((victim.kind, victim.name));
    let first = pod_runtime.ending.lock().entry(owner.uid.clone()).or_default().insert(victim.id.to_owned());
    if first {
        pod_runtime.record_event(owner, part, &PodEvent::Killing { container: victim.name, message: victim.message });
    }
    if let Some(hook) = victim.hook.filter(|_| first && !grace.is_zero()) {
        let (container_id, name, ports) = (victim.id, victim.name, victim.ports);
        let target = HandlerTarget { container_id, name, ports, env: &[], ip, pod: &owner.name };
        match timeout(grace, pod_runtime.parts.handlers.run_hook(hook, &target, Some(grace))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(pod = owner.name, container = victim.name, %error, "preStop hook failed");
                pod_runtime.record_event(owner, part, &PodEvent::FailedPreStopHook);
            }
            Err(_) => {
                tracing::warn!(pod = owner.name, container = victim.name, "preStop hook timed out");
            }
        }
    }
    // After the grace period all containers end at once.
    let _ = timeout(grace.saturating_sub(begun.elapsed()), turns.before(victim.step)).await;
    let took = i64::try_from(begun.elapsed().as_secs()).unwrap_or(i64::MAX);
    let left = after_hook(victim.grace, took);
    let stopped = pod_runtime.parts.runtime.stop_container(victim.id, seconds(left)).await;
    ignore_not_found(stopped).map_err(|source| PodRuntimeError {
        what: format!("stop container {} ({})", victim.name, victim.id),
        source,
    })?;
    if let Some(ids) = pod_runtime.ending.lock().get_mut(&owner.uid) {
        ids.remove(victim.id);
    }
    Ok(())
}

/// Ends everything of a pod that runs, or may.
pub(super) async fn kill_pod(
    pod_runtime: &PodRuntime,
    pod: Option<&Pod>,
    observed: &ObservedPod,
    grace: Option<i64>,
) -> Result<(), PodRuntimeError> {
    let owner = pod.map_or_else(|| observed.owner.clone(), PodOwner::of);
    let runs = |run: &&ObservedContainer| matches!(run.state, ContainerState::Running | ContainerState::Unknown);
    let mut victims: Vec<StoppingContainer<'_>> =
        observed.containers.iter().filter(runs).map(|run| StoppingContainer::new(pod, run, None)).collect();
    for victim in &mut victims {
        victim.grace = grace.map_or(victim.grace, |grace| grace.min(victim.grace));
    }
    match pod {
        Some(pod) => {
            let order = termination_order(pod);
            for victim in &mut victims {
                victim.step = order.iter().position(|step| step.contains(&victim.name)).unwrap_or(0);
            }
        }
        None => orphans_in_order(observed, &mut victims),
    }
    // Those whose time is over all at once still go in their order.
    victims.sort_by_key(|victim| victim.step);
    let mut failures = kill_containers(pod_runtime, &owner, pod_runtime.ip_of(observed), &victims).await;
    let sandboxes = observed.sandboxes.iter().map(|sandbox| async {
        let stopped = pod_runtime.parts.runtime.stop_pod_sandbox(&sandbox.id).await;
        let what = || format!("stop sandbox {}", sandbox.id);
        ignore_not_found(stopped).map_err(|source| PodRuntimeError { what: what(), source }).err()
    });
    failures.extend(join_all(sandboxes).await.into_iter().flatten());
    first_of(failures)
}

/// Init containers that run at the same time as others are sidecars: they are stopped last, in the reverse order of
/// their creation.
fn orphans_in_order(observed: &ObservedPod, victims: &mut [StoppingContainer<'_>]) {
    let created = |id: &str| observed.containers.iter().find(|run| run.id == id).map_or(0, |run| run.created_at);
    let mut sidecars: Vec<&mut StoppingContainer<'_>> =
        victims.iter_mut().filter(|victim| victim.kind == ContainerKind::Init).collect();
    sidecars.sort_by_key(|victim| std::cmp::Reverse(created(victim.id)));
    for (index, victim) in sidecars.into_iter().enumerate() {
        victim.step = index + 1;
    }
}

impl PodRuntime {
    /// Returns the address for requests to a pod: its own, or that of the node for a pod on the node's network.
    pub(super) fn ip_of<'a>(&'a self, observed: &'a ObservedPod) -> Option<&'a str> {
        let shares = observed.sandboxes.first().is_some_and(|sandbox| sandbox.host_network);
        let ips = if shares { &self.parts.node.context.host_ips[..] } else { observed.ips() };
        ips.first().map(String::as_str)
    }
}

fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

impl PodRuntime {
    /// Removes everything of a pod that was ended: containers, sandboxes, volumes, logs. Idempotent. If an object
    /// cannot be removed, the rest is removed all the same, except for what that object may still use.
    ///
    /// # Errors
    /// The objects that are still there.
    pub(crate) async fn remove_pod(&self, observed: &ObservedPod) -> Result<(), PodRuntimeError> {
        let (runtime, uid) = (&self.parts.runtime, &observed.owner.uid);
        self.forget(uid);
        self.parts.images.reset_backoff(&BackoffSelector::Uid(uid.clone()));
        let failed = |what: String| move |source| PodRuntimeError { what, source };
        let containers = observed.containers.iter().map(|container| async {
            let what = format!("remove container {} ({})", container.name, container.id);
            ignore_not_found(runtime.remove_container(&container.id).await).map_err(failed(what)).err()
        });
        let mut failures: Vec<PodRuntimeError> = join_all(containers).await.into_iter().flatten().collect();
        let sandboxes = observed.sandboxes.iter().map(|sandbox| async {
            // The end of the pod stopped the sandbox, but may have been cut short: this stop releases the network in
            // any case.
            let stopped = runtime.stop_pod_sandbox(&sandbox.id).await;
            ignore_not_found(stopped).map_err(failed(format!("stop sandbox {}", sandbox.id)))?;
            let removed = runtime.remove_pod_sandbox(&sandbox.id).await;
            ignore_not_found(removed).map_err(failed(format!("remove sandbox {}", sandbox.id)))
        });
        failures.extend(join_all(sandboxes).await.into_iter().filter_map(Result::err));
        if !failures.is_empty() || uid.is_empty() {
            return first_of(failures);
        }
        failures.extend(self.release_volumes(uid).await.err());
        let (logs, of) = (self.logs(), uid.clone());
        match base::blocking(move || logs.remove_pod(&of)).await {
            None | Some(Ok(())) => {}
            Some(Err(error)) => failures.push(on_node(format!("remove the logs of pod {uid}"), &error)),
        }
        first_of(failures)
    }

    /// Removes the directory of a pod, with its volumes. Nothing of the pod runs any more. Idempotent.
    ///
    /// # Errors
    /// Names a mount or a file that is still there.
    pub(crate) async fn release_volumes(&self, uid: &str) -> Result<(), PodRuntimeError> {
        if uid.is_empty() {
            return Ok(());
        }
        let removed = self.parts.volumes.tear_down(uid).await;
        removed.map_err(|error| on_node(format!("remove the directory of pod {uid}"), &error))
    }
}

/// Returns a failure of the node, not of the runtime.
fn on_node(what: String, error: &(dyn std::error::Error + 'static)) -> PodRuntimeError {
    PodRuntimeError { what, source: Error::from_source(Kind::Internal, error) }
}
