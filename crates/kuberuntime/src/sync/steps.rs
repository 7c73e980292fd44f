//! [`PodSync`]: one sync of a pod, in the kubelet's steps: stops containers, then sets up volumes and a sandbox, and starts
//! containers. [`compute_pod_actions`] makes all decisions. Called by [`super::PodRuntime`].

use cri_api::ContainerState;

use super::failure::{Halt, SyncStep};
use super::failure::{first_of, ignore_not_found};
use super::kill::{StoppingContainer, kill_containers, kill_pod};
use super::pod_sync::SyncReport;
use super::pod_sync::{PodSync, ReadySandbox};
use crate::actions::{ContainerKill, ContainerReset, PodActions, ProbeResults, compute_pod_actions};
use crate::container_gc::link_name;
use crate::events::PodEvent;
use crate::observed::ObservedContainer;
use crate::pod::ContainerKind;

impl PodSync<'_> {
    /// Performs the sync.
    pub(super) async fn run(mut self, probes: &ProbeResults) -> SyncReport {
        let actions = compute_pod_actions(self.pod, self.observed, probes);
        if !actions.is_empty() {
            tracing::debug!(pod = self.pod.title(), %actions, "syncing pod");
        }
        match self.steps(&actions).await {
            Ok(()) => {}
            Err(Halt::Stopped) => self.report.cancelled = true,
            Err(Halt::Recorded(what)) => self.report.errors.push(what),
            Err(Halt::Failed(what)) => {
                self.report.has_unrecorded_error = true;
                self.report.errors.push(what);
            }
        }
        self.report.actions = actions;
        self.report.waited_for_images = *self.waited_for_images.lock();
        self.report
    }

    async fn steps(&mut self, actions: &PodActions) -> SyncStep {
        self.go_on()?;
        let is_over = actions.kill_pod.is_some() && !actions.create_sandbox;
        if is_over {
            self.pod_runtime.prefetch.forget(&self.owner.uid);
        } else {
            // Documents first, since they include pull secrets.
            self.documents = self.until_stopped((self.pod_runtime.parts.documents)(self.pod)).await?;
            self.credentials = (self.pod_runtime.parts.credentials)(self.pod);
            let sandbox = self.sandbox_config(actions.attempt).ok();
            self.begin_images(actions, sandbox.as_ref().map(|(config, _)| config));
        }
        if actions.kill_pod.is_some() {
            self.kill_pod(actions).await?;
        } else {
            self.kill_containers(&actions.containers_to_kill).await?;
        }
        if is_over {
            return Ok(());
        }
        if !actions.containers_to_reset.is_empty() {
            return self.reset(&actions.containers_to_reset).await;
        }
        self.prune(actions).await?;
        self.set_up_volumes().await?;
        self.go_on()?;
        let starts = !(actions.ephemeral_to_start.is_empty()
            && actions.init_to_start.is_empty()
            && actions.containers_to_start.is_empty());
        let sandbox = match &actions.sandbox_id {
            _ if actions.create_sandbox => self.create_sandbox(actions.attempt).await?,
            Some(id) if starts => self.present_sandbox(id, actions.attempt)?,
            _ => return Ok(()),
        };
        self.start_all(actions, &sandbox).await
    }

    /// Starts ephemeral containers, even if some fail; then init containers up to the first that does not start, sidecars
    /// excepted; then normal containers, independently of each other.
    async fn start_all(&mut self, actions: &PodActions, sandbox: &ReadySandbox) -> SyncStep {
        let spec = &self.pod.spec;
        for start in &actions.ephemeral_to_start {
            let Some(ephemeral) = spec.ephemeral_containers.get(start.index) else { continue };
            let target = Some(ephemeral.target_container_name.as_str()).filter(|name| !name.is_empty());
            self.start(sandbox, ContainerKind::Ephemeral, &ephemeral.container, target).await?;
        }
        for start in &actions.init_to_start {
            let Some(container) = spec.init_containers.get(start.index) else { continue };
            let started = self.start(sandbox, ContainerKind::Init, container, None).await?;
            if !started && !container.is_sidecar() {
                return Ok(());
            }
        }
        for start in &actions.containers_to_start {
            let Some(container) = spec.containers.get(start.index) else { continue };
            self.start(sandbox, ContainerKind::Normal, container, None).await?;
        }
        Ok(())
    }

    /// Stops everything of the pod, because its sandbox cannot be used any more, or because the pod has ended.
    async fn kill_pod(&self, actions: &PodActions) -> SyncStep {
        if actions.create_sandbox && actions.sandbox_id.is_some() {
            self.record_pod_event(&PodEvent::SandboxChanged);
        }
        let killed = self.until_stopped(kill_pod(self.pod_runtime, Some(self.pod), self.observed, None)).await?;
        killed.map_err(|error| Halt::Failed(format!("{error}: {}", error.source)))
    }

    async fn kill_containers(&self, kills: &[ContainerKill]) -> SyncStep {
        let victims: Vec<StoppingContainer<'_>> = kills
            .iter()
            .filter_map(|kill| {
                let run = self.observed.containers.iter().find(|run| run.id == kill.id)?;
                Some(StoppingContainer {
                    message: &kill.message,
                    ..StoppingContainer::new(Some(self.pod), run, Some(kill.reason))
                })
            })
            .collect();
        self.stop_containers(&victims).await
    }

    /// Stops containers, unless a stop of the sync is requested: then the end of the pod stops them.
    pub(super) async fn stop_containers(&self, victims: &[StoppingContainer<'_>]) -> SyncStep {
        if victims.is_empty() {
            return Ok(());
        }
        let ip = self.pod_runtime.ip_of(self.observed);
        let failures = self.until_stopped(kill_containers(self.pod_runtime, &self.owner, ip, victims)).await?;
        first_of(failures).map_err(|error| Halt::Failed(format!("{error}: {}", error.source)))
    }

    /// Restarts all containers: running ones are stopped, then all are removed in their order. The container that requires the restart is
    /// removed last, and requires it again if this is interrupted.
    async fn reset(&self, resets: &[ContainerReset]) -> SyncStep {
        let victims: Vec<StoppingContainer<'_>> = resets
            .iter()
            .filter(|reset| reset.kill)
            .filter_map(|reset| self.observed.containers.iter().find(|run| run.id == reset.id))
            .map(|run| StoppingContainer::new(Some(self.pod), run, None))
            .collect();
        self.stop_containers(&victims).await?;
        for reset in resets {
            self.go_on()?;
            self.remove(&reset.name, &reset.id).await?;
            if let Some(run) = self.observed.containers.iter().find(|run| run.id == reset.id) {
                self.remove_logs(run).await;
            }
        }
        Ok(())
    }

    /// Removes old runs of init containers, except for the newest one of each; all of them, where the pod gets another
    /// sandbox and they run again. Containers that were created and never started are removed as well, unless they are
    /// the newest of their name. A run that could not be removed is removed by a later sync.
    async fn prune(&self, actions: &PodActions) -> SyncStep {
        let pod = self.pod;
        let is_init = |name: &str| pod.spec.init_containers.iter().any(|container| container.name == name);
        let is_newest =
            |run: &ObservedContainer| self.observed.latest(&run.name).is_some_and(|newest| newest.id == run.id);
        for run in &self.observed.containers {
            let is_old = match run.state {
                ContainerState::Created => !is_newest(run),
                ContainerState::Exited if is_init(&run.name) => actions.create_sandbox || !is_newest(run),
                ContainerState::Running | ContainerState::Unknown if is_init(&run.name) => actions.create_sandbox,
                _ => false,
            };
            if is_old {
                self.go_on()?;
                match self.remove(&run.name, &run.id).await {
                    Ok(()) => self.remove_logs(run).await,
                    Err(Halt::Failed(error) | Halt::Recorded(error)) => {
                        tracing::warn!(pod = pod.title(), container = run.name, %error, "cannot remove a container")
                    }
                    Err(halt) => return Err(halt),
                }
            }
        }
        Ok(())
    }

    /// Removes a container.
    pub(super) async fn remove(&self, name: &str, id: &str) -> SyncStep {
        let removed = self.pod_runtime.parts.runtime.remove_container(id).await;
        ignore_not_found(removed).map_err(|error| Halt::Failed(format!("remove container {name} ({id}): {error}")))
    }

    /// Removes the logs of a removed run, and those of the runs before it. The log of the newest run stays: a user may
    /// request it, and the next run's number follows from it.
    async fn remove_logs(&self, run: &ObservedContainer) {
        if run.state == ContainerState::Created {
            // It never had one, and those before it may still be there.
            return;
        }
        let is_newest = self.observed.latest(&run.name).is_some_and(|newest| newest.id == run.id);
        let last = if is_newest { run.restart_count().checked_sub(1) } else { Some(run.restart_count()) };
        let (logs, directory) = (self.pod_runtime.logs(), self.log_directory_of(&run.name));
        let link = link_name(&self.owner.name, &self.owner.namespace, &run.name, &run.id);
        let removed = base::blocking(move || {
            logs.remove_link(&link)?;
            let mut old =
                logs.numbers(&directory).into_iter().filter(|number| last.is_some_and(|last| *number <= last));
            old.try_for_each(|number| logs.remove_log(&directory.join(format!("{number}.log"))).map(drop))
        });
        let removed: Option<std::io::Result<()>> = removed.await;
        if let Some(Err(error)) = removed {
            tracing::warn!(pod = self.pod.title(), container = run.name, %error, "cannot remove logs");
        }
    }

    async fn set_up_volumes(&self) -> SyncStep {
        let parts = &self.pod_runtime.parts;
        let set_up = parts.volumes.set_up(self.pod, &self.documents, &parts.node.context).await;
        set_up.map_err(|error| {
            let text = error.to_string();
            self.record_pod_event(&PodEvent::FailedMount(&text));
            Halt::Recorded(text)
        })
    }
}
