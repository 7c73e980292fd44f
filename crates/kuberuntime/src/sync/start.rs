//! The start of one container, in the kubelet's steps: back-off, image, what it is made of, create, start, hook; and in which
//! words each of them fails. Called by [`super::steps`].

use std::path::PathBuf;

use cri_api::{ContainerConfig, ContainerState, ImageSpec};
use image_manager::EnsuredImage;

use super::failure::{Halt, IMAGE_VOLUME_MOUNT_FAILED, StartError, StartFailure, StartResult, SyncStep};
use super::image_volumes;
use super::images::EnsureOutcome;
use super::kill::StoppingContainer;
use super::pod_sync::{PodSync, ReadySandbox};
use super::sandbox::{is_reserved, make_directory};
use crate::config::{self, ContainerInput, ImageUser};
use crate::container_gc::link_name;
use crate::events::PodEvent;
use crate::handlers::HandlerTarget;
use crate::pod::{Container, ContainerKind, ImageRole, RecursiveReadOnly, Word as _};
use crate::restart_backoff::RestartBackoff;
use crate::status::api::Waiting;
use crate::volumes::MountInput;

/// The container that is started, and the sandbox in which it is to run.
#[derive(Clone, Copy)]
struct ContainerStart<'a> {
    sandbox: &'a ReadySandbox,
    kind: ContainerKind,
    container: &'a Container,
}

impl PodSync<'_> {
    /// Starts a container and reports the outcome. Returns false if it was not started.
    pub(super) async fn start(
        &mut self,
        sandbox: &ReadySandbox,
        kind: ContainerKind,
        container: &Container,
        target: Option<&str>,
    ) -> SyncStep<bool> {
        self.go_on()?;
        let (name, part) = (&container.name, Some((kind, container.name.as_str())));
        if self.waits(kind, container) {
            return Ok(false);
        }
        let metrics = self.pod_runtime.metrics().clone();
        metrics.container_starts(kind);
        let result = self.start_now(ContainerStart { sandbox, kind, container }, target).await;
        let volumes = image_volumes::of_container(self.pod, container).len() as u64;
        match result {
            Ok(()) => {
                metrics.volumes(volumes, Some(true));
                self.set_outcome(name, None);
                Ok(true)
            }
            Err(StartError::Halted(halt)) => Err(halt),
            Err(StartError::Started(StartFailure { reason, message, event })) => {
                match event {
                    Some(event) => self.pod_runtime.record_event(&self.owner, part, &PodEvent::Failed(&event)),
                    None => self.report.has_unrecorded_error = true,
                }
                metrics.volumes(volumes, message.starts_with(IMAGE_VOLUME_MOUNT_FAILED).then_some(false));
                metrics.container_failed(kind, reason);
                self.report.errors.push(format!("start container {name}: {reason}: {message}"));
                self.set_outcome(name, Some(Waiting { reason: reason.to_owned(), message }));
                Ok(false)
            }
        }
    }

    /// Returns true if the container is in back-off after repeated ends.
    fn waits(&mut self, kind: ContainerKind, container: &Container) -> bool {
        let node = &self.pod_runtime.parts().node;
        let now = (node.wall_clock)();
        let waits = {
            let mut pods = self.pod_runtime.backoff.lock();
            let backoff =
                pods.entry(self.owner.uid.clone()).or_insert_with(|| RestartBackoff::new(node.longest_restart_delay));
            backoff.check(self.pod, container, self.observed, now)
        };
        let Some(wait) = waits else { return false };
        self.pod_runtime.record_event(&self.owner, Some((kind, &container.name)), &PodEvent::BackOff(&wait.event));
        let waiting = Waiting { reason: "CrashLoopBackOff".to_owned(), message: wait.message };
        self.set_outcome(&container.name, Some(waiting));
        let first = self.report.retry_at.map_or(wait.until, |other| other.min(wait.until));
        self.report.retry_at = Some(first);
        true
    }

    async fn start_now(&mut self, start: ContainerStart<'_>, target: Option<&str>) -> StartResult {
        self.ensure_image_volumes(start.sandbox, start.container).await?;
        let (image, user) = self.image(start).await?;
        let target_id = target.map(|name| self.running(name)).transpose()?;
        let input = self.input(start, (image, user, target_id))?;
        let number = self.number(start.container).await?;
        self.go_on()?;
        let (id, number) = self.create(start, input, number).await?;
        self.go_on()?;
        self.begin(start, &id, number).await?;
        self.post_start(start, &id).await
    }

    /// Returns the container's image and the user that it sets. An image that was ensured ahead may have been removed
    /// since, and is then ensured again.
    async fn image(&self, start: ContainerStart<'_>) -> StartResult<(EnsuredImage, ImageUser)> {
        let ContainerStart { sandbox, kind, container } = start;
        let images = self.pod.images();
        let role = ImageRole::Container(kind);
        let wanted = images.iter().find(|image| image.role == role && image.name == container.name);
        let wanted = wanted.ok_or_else(|| StartFailure::config("the container is not one of its pod"))?;
        let EnsureOutcome { answer, mut ahead } = self.ensure(wanted, Some(&sandbox.config)).await?;
        let mut image = answer.map_err(|error| StartFailure::from(&error))?;
        loop {
            let spec = ImageSpec {
                runtime_handler: self.pod.spec.runtime_class_name.clone(),
                ..ImageSpec::new(image.image_ref.clone())
            };
            let present = self.pod_runtime.parts().images.image(&spec).await;
            match present.map_err(|error| StartFailure::config(error.message()))? {
                Some(present) => return Ok((image, ImageUser { uid: present.uid, username: present.username })),
                None if ahead => {
                    let again = self.ensure_again(wanted, Some(&sandbox.config)).await?;
                    ahead = again.ahead;
                    image = again.answer.map_err(|error| StartFailure::from(&error))?;
                }
                // As in the kubelet, a missing image is taken for root's; creating the container will report that it is
                // missing.
                None => return Ok((image, ImageUser::default())),
            }
        }
    }

    /// Returns the ID of a running container, whose processes an ephemeral container sees.
    fn running(&self, name: &str) -> Result<String, StartFailure> {
        let run = self.observed.latest(name).filter(|run| run.state == ContainerState::Running);
        run.map(|run| run.id.clone())
            .ok_or_else(|| StartFailure::config(format!("unable to find target container {name}")))
    }

    /// Returns the input of the container's config, without its number and mounts.
    fn input(
        &self,
        start: ContainerStart<'_>,
        (image, image_user, target_id): (EnsuredImage, ImageUser, Option<String>),
    ) -> Result<ContainerInput, StartFailure> {
        let ContainerStart { sandbox, kind, container } = start;
        let node = &self.pod_runtime.parts().node;
        let mut context = node.context.clone();
        context.pod_ips.clone_from(&sandbox.ips);
        let environment = crate::resolve_environment(self.pod, container, &self.documents, &context);
        let environment = environment.map_err(|error| StartFailure::config(error.to_string()))?;
        for skipped in &environment.skipped {
            let text = skipped.to_string();
            let event = PodEvent::InvalidEnvironmentVariableNames(&text);
            self.pod_runtime.record_event(&self.owner, Some((kind, &container.name)), &event);
        }
        config::verify_run_as_non_root(self.pod, container, &image_user)
            .map_err(|error| StartFailure::config(error.to_string()))?;
        Ok(ContainerInput {
            image_ref: image.image_ref,
            runtime_handler: self.pod.spec.runtime_class_name.clone(),
            image_user,
            environment,
            target_id,
            node: node.resources,
            ..ContainerInput::default()
        })
    }

    /// Returns the number of earlier runs. A run that was created and never started is removed, and its
    /// number is used again. If the runtime lists no runs, the numbers of logs show the earlier ones.
    async fn number(&self, container: &Container) -> StartResult<u32> {
        match self.observed.latest(&container.name) {
            Some(run) if run.state == ContainerState::Created => match self.remove(&run.name, &run.id).await {
                Ok(()) => Ok(run.restart_count()),
                Err(Halt::Failed(error) | Halt::Recorded(error)) => {
                    Err(StartFailure::new("CreateContainerError", error).into())
                }
                Err(halt) => Err(halt.into()),
            },
            Some(run) => Ok(run.restart_count().saturating_add(1)),
            None => {
                let (logs, directory) = (self.pod_runtime.logs(), self.log_directory_of(&container.name));
                let numbers = base::blocking(move || logs.numbers(&directory)).await.unwrap_or_default();
                Ok(numbers.last().map_or(0, |highest| highest.saturating_add(1)))
            }
        }
    }

    pub(super) fn log_directory_of(&self, container: &str) -> PathBuf {
        let pods = &self.pod_runtime.parts().node.pod_logs;
        PathBuf::from(config::pod_log_directory(pods, self.pod)).join(container)
    }

    /// Creates the container. A name that the runtime has reserved without listing its container is skipped once, because the
    /// reservation may never end.
    async fn create(
        &self,
        start: ContainerStart<'_>,
        input: ContainerInput,
        number: u32,
    ) -> StartResult<(String, u32)> {
        let ContainerStart { sandbox, kind, container } = start;
        let mut last = number;
        loop {
            let config = self.config(start, input.clone(), last).await?;
            let created =
                self.pod_runtime.parts().runtime.create_container(&sandbox.id, &config, &sandbox.config).await;
            match created {
                Ok(id) => {
                    self.pod_runtime.record_event(&self.owner, Some((kind, &container.name)), &PodEvent::Created);
                    self.check_image_volumes(&config, &id).await?;
                    return Ok((id, last));
                }
                Err(error) if is_reserved(&error) && last == number => last = number.saturating_add(1),
                Err(error) => return Err(StartFailure::new("CreateContainerError", error.message()).into()),
            }
        }
    }

    async fn config(
        &self,
        start: ContainerStart<'_>,
        input: ContainerInput,
        number: u32,
    ) -> Result<ContainerConfig, StartFailure> {
        let ContainerStart { sandbox, kind, container } = start;
        let parts = self.pod_runtime.parts();
        let hosts = match self.pod.host_network() {
            true => config::managed_hosts_file(self.pod, &parts.node.hosts_file),
            false => config::hosts_file(self.pod, &sandbox.ips, &sandbox.hostname),
        };
        let image_refs = self.image_volumes.iter();
        let image_refs =
            image_refs.filter_map(|(volume, image)| Some((volume.clone(), image.as_ref().ok()?.clone()))).collect();
        let mounts = parts.volumes.mounts(MountInput {
            pod: self.pod.clone(),
            container: container.clone(),
            restart_count: number,
            environment: input.environment.clone(),
            hosts: Some(hosts),
            image_refs,
            recursive_read_only: self.recursive_read_only(container).await?,
        });
        let mounts = mounts.await.map_err(|error| StartFailure::config(error.to_string()))?;
        make_directory(self.log_directory_of(&container.name)).await.map_err(StartFailure::config)?;
        let input = ContainerInput { restart_count: number, mounts, ..input };
        Ok(config::container_config(self.pod, kind, container, input))
    }

    /// Returns true if the pod's handler can make mounts read-only all the way down; asked only where the container
    /// wants it.
    async fn recursive_read_only(&self, container: &Container) -> Result<bool, StartFailure> {
        let wants = |wish| matches!(wish, RecursiveReadOnly::IfPossible | RecursiveReadOnly::Enabled);
        let mut wishes = container.volume_mounts.iter().map(|mount| mount.recursive_read_only.as_deref());
        if !wishes.any(|wish| RecursiveReadOnly::of(wish).is_some_and(wants)) {
            return Ok(false);
        }
        let status = self.pod_runtime.parts().runtime.status(false).await;
        let status = status.map_err(|error| StartFailure::config(error.message()))?;
        let name = &self.pod.spec.runtime_class_name;
        let handler = status.handlers.iter().find(|handler| handler.name == *name);
        Ok(handler.is_some_and(|handler| handler.features.recursive_read_only_mounts))
    }

    /// Starts the container. If only the answer was lost, the container runs nevertheless.
    async fn begin(&self, start: ContainerStart<'_>, id: &str, number: u32) -> StartResult {
        let ContainerStart { kind, container, .. } = start;
        let runtime = &self.pod_runtime.parts().runtime;
        if let Err(error) = runtime.start_container(id).await {
            let status = runtime.container_status(id, false).await;
            let ran = |state, started_at| match state {
                ContainerState::Running => true,
                ContainerState::Exited => started_at > 0,
                ContainerState::Created | ContainerState::Unknown => false,
            };
            if !status.is_ok_and(|status| ran(status.state, status.started_at)) {
                return Err(StartFailure::new("RunContainerError", error.message()).into());
            }
            tracing::warn!(
                pod = self.owner.name,
                container = container.name,
                %error, "container runs although its start failed"
            );
        }
        self.pod_runtime.record_event(&self.owner, Some((kind, &container.name)), &PodEvent::Started);
        self.link_log(start, id, number).await;
        Ok(())
    }

    /// Creates the link by which log collectors find the log. A failure does not affect the pod.
    async fn link_log(&self, ContainerStart { sandbox, container, .. }: ContainerStart<'_>, id: &str, number: u32) {
        let logs = self.pod_runtime.logs();
        if logs.links.is_none() {
            return;
        }
        let log = format!("{}/{}", sandbox.config.log_directory, config::container_log_path(&container.name, number));
        let link = link_name(&self.owner.name, &self.owner.namespace, &container.name, id);
        let linked = base::blocking(move || logs.link(&link, log.as_ref())).await;
        if let Some(Err(error)) = linked {
            tracing::warn!(pod = self.owner.title(), container = container.name, %error, "cannot link the log");
        }
    }

    /// Runs the postStart hook; a container whose hook fails is ended.
    async fn post_start(&self, start: ContainerStart<'_>, id: &str) -> StartResult {
        let ContainerStart { sandbox, kind, container } = start;
        let Some(hook) = &container.lifecycle.post_start else { return Ok(()) };
        let ip = sandbox.ips.first().map(String::as_str);
        let target = HandlerTarget::new(container, id, ip, &self.owner.name);
        // As in the kubelet, the container does not count as running before its hook has ended.
        self.report_running(&container.name, true);
        let ran = self.until_stopped(self.pod_runtime.parts().handlers.run_hook(hook, &target, None)).await;
        if ran.is_err() {
            self.report_running(&container.name, false);
        }
        let ran = ran?;
        let Err(error) = ran else { return Ok(()) };
        self.pod_runtime.record_event(&self.owner, Some((kind, &container.name)), &PodEvent::FailedPostStartHook);
        let victim = StoppingContainer {
            message: "FailedPostStartHook",
            ..StoppingContainer::known(self.pod, kind, container, id, None)
        };
        match self.stop_containers(&[victim]).await {
            Err(Halt::Stopped) => return Err(Halt::Stopped.into()),
            Err(Halt::Failed(error) | Halt::Recorded(error)) => {
                tracing::error!(pod = self.owner.title(), container = container.name, %error, "cannot stop a container")
            }
            Ok(()) => {}
        }
        Err(StartFailure { reason: "PostStartHookError", message: error.to_string(), event: None }.into())
    }
}
