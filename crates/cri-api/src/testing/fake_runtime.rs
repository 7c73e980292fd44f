//! [`FakeRuntimeService`]: a runtime in memory. Sandboxes and containers live through the states of CRI, by calls or
//! because a test puts them there or ends them; every call can meet faults.

use base::lock::Mutex;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures_core::Stream;
use tokio::sync::mpsc;

use super::fake::FakeImageService;
use super::fake_pods::{Clock, FakeContainer, FakeExec, FakeProcess, KILLED, Pods, Sandbox, TERMINATED};
use super::faults::{CallKind, Faults};
use crate::{
    AttachRequest, CgroupDriver, Condition, Container, ContainerAttributes, ContainerConfig, ContainerEvent,
    ContainerEvents, ContainerFilter, ContainerState, ContainerStats, ContainerStatsFilter, ContainerStatus, CpuUsage,
    Error, ExecRequest, ExecSyncOutput, Kind, LinuxContainerResources, MemoryUsage, PodSandbox, PodSandboxAttributes,
    PodSandboxConfig, PodSandboxFilter, PodSandboxStats, PodSandboxStatsFilter, PodSandboxStatus, Result,
    RuntimeConfig, RuntimeHandler, RuntimeService, RuntimeStatus, VersionInfo,
};

/// A runtime in memory. Clones are the same runtime.
#[derive(Clone, Debug, Default)]
pub struct FakeRuntimeService(Arc<State>);

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    /// Guards the pods.
    pods: Mutex<Pods>,
    /// Guards the log of calls.
    calls: Mutex<Vec<(CallKind, String)>>,
    /// Guards the images that containers are made from; `None`: every image is present.
    images: Mutex<Option<FakeImageService>>,
    /// Guards the conditions that a test has changed.
    conditions: Mutex<BTreeMap<String, Condition>>,
    /// Guards the texts that a test has added to the verbose status.
    info: Mutex<BTreeMap<String, String>>,
    /// Guards the name and the version that a test has given it.
    called: Mutex<Option<(String, String)>>,
}

impl FakeRuntimeService {
    /// Creates a runtime without pods.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Containers are made from the images of this service alone.
    #[must_use]
    pub fn with_images(self, images: &FakeImageService) -> Self {
        *self.0.images.lock() = Some(images.clone());
        self
    }

    /// Faults of its calls.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// Calls so far, in order, with what each was about: an id, or `POD` and `POD/CONTAINER` where something was made.
    #[must_use]
    pub fn calls(&self) -> Vec<(CallKind, String)> {
        self.0.calls.lock().clone()
    }

    /// Forgets the calls so far.
    pub fn forget_calls(&self) {
        self.0.calls.lock().clear();
    }

    /// Sets the behaviour of the processes of all containers of this name.
    pub fn behave(&self, container_name: &str, process: FakeProcess) {
        self.0.pods.lock().processes.insert(container_name.to_owned(), process);
    }

    /// Offers a runtime handler in addition to the default one.
    pub fn offer_handler(&self, name: &str) {
        self.0.pods.lock().handlers.insert(name.to_owned());
    }

    /// Reports this name and version from now on.
    pub fn be_called(&self, name: &str, version: &str) {
        *self.0.called.lock() = Some((name.to_owned(), version.to_owned()));
    }

    /// Makes the fake ignore mounts of images silently, like runtimes that are older than such mounts.
    pub fn pass_images_over(&self) {
        self.0.pods.lock().passes_images_over = true;
    }

    /// Sets a condition of the runtime, for example `NetworkReady`.
    pub fn set_condition(&self, condition: Condition) {
        self.0.conditions.lock().insert(condition.kind.clone(), condition);
    }

    /// Reports this text under this name in the verbose status.
    pub fn report(&self, name: &str, text: &str) {
        self.0.info.lock().insert(name.to_owned(), text.to_owned());
    }

    /// Returns the texts of [`report`](Self::report).
    #[must_use]
    pub fn reported(&self) -> BTreeMap<String, String> {
        self.0.info.lock().clone()
    }

    /// Sets the clock, nanoseconds since the epoch. It moves on only by a nanosecond for each thing that happens.
    pub fn set_now(&self, now: i64) {
        self.0.pods.lock().set_now(now);
    }

    /// Takes the time from `clock` from now on, in nanoseconds since the epoch.
    pub fn follow(&self, clock: impl Fn() -> i64 + Send + Sync + 'static) {
        self.0.pods.lock().clock = Some(Clock(Arc::new(clock)));
    }

    /// Puts a sandbox there, or replaces the one of that id.
    pub fn put_sandbox(&self, sandbox: PodSandbox) {
        let config = PodSandboxConfig {
            metadata: sandbox.metadata.clone(),
            labels: sandbox.labels.clone(),
            annotations: sandbox.annotations.clone(),
            ..PodSandboxConfig::default()
        };
        let sandbox = Sandbox { listed: sandbox, config, ip: String::new() };
        self.0.pods.lock().sandboxes.insert(sandbox.listed.id.clone(), sandbox);
    }

    /// Puts a container there, or replaces the one of that id.
    pub fn put_container(&self, container: Container) {
        let config = ContainerConfig {
            metadata: container.metadata.clone(),
            image: container.image.clone(),
            labels: container.labels.clone(),
            annotations: container.annotations.clone(),
            ..ContainerConfig::default()
        };
        let entry = FakeContainer { listed: container, config, ..FakeContainer::default() };
        self.0.pods.lock().containers.insert(entry.listed.id.clone(), entry);
    }

    /// Takes a sandbox and its containers away, without a call.
    pub fn take_sandbox(&self, id: &str) {
        self.0.pods.lock().remove_sandbox(id);
    }

    /// Takes a container away, without a call.
    pub fn take_container(&self, id: &str) {
        self.0.pods.lock().remove(id);
    }

    /// Ends the process of a container, as if by itself.
    pub fn exit(&self, container_id: &str, code: i32) {
        self.0.pods.lock().end(container_id, code);
    }

    /// Ends a sandbox and its containers, as if by itself.
    pub fn kill_sandbox(&self, id: &str) {
        self.0.pods.lock().stop_sandbox(id);
    }

    /// Configuration that a container was made from.
    #[must_use]
    pub fn container_config(&self, id: &str) -> Option<ContainerConfig> {
        self.0.pods.lock().containers.get(id).map(|entry| entry.config.clone())
    }

    /// Configuration that a sandbox was made from.
    #[must_use]
    pub fn sandbox_config(&self, id: &str) -> Option<PodSandboxConfig> {
        self.0.pods.lock().sandboxes.get(id).map(|sandbox| sandbox.config.clone())
    }

    /// Returns how often the log of a container was reopened.
    #[must_use]
    pub fn log_reopened(&self, id: &str) -> usize {
        self.0.pods.lock().containers.get(id).map_or(0, |entry| entry.log_reopened)
    }

    /// Returns the number of listeners to its events.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.0.pods.lock().listeners.len()
    }

    /// Stops sending events; open streams stay open.
    pub fn be_silent(&self) {
        self.0.pods.lock().is_silent = true;
    }

    /// Ends every stream of events with an error.
    pub fn end_events(&self, error: Error) {
        for listener in std::mem::take(&mut self.0.pods.lock().listeners) {
            // A listener that has ended is not an error.
            let _ = listener.send(Err(error.clone()));
        }
    }

    async fn enter(&self, kind: CallKind, subject: &str) -> Result<()> {
        self.0.calls.lock().push((kind, subject.to_owned()));
        // A call about a container is about its name, its sandbox and its pod as well.
        let names = {
            let pods = self.0.pods.lock();
            let container = pods.containers.get(subject).map(|entry| &entry.listed);
            let sandbox = container.map_or(subject, |container| &container.pod_sandbox_id);
            let mut names: Vec<String> = subject.split('/').map(str::to_owned).collect();
            names.extend(container.map(|container| container.metadata.name.clone()));
            if let Some(sandbox) = pods.sandboxes.get(sandbox) {
                names.extend([sandbox.listed.id.clone(), sandbox.listed.metadata.name.clone()]);
            }
            names.sort();
            names.dedup();
            names
        };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.0.faults.pass_about(kind, &names).await
    }

    fn answer<T>(&self, kind: CallKind, answer: T) -> Result<T> {
        self.0.faults.answer(kind, answer)
    }
}

#[async_trait]
impl RuntimeService for FakeRuntimeService {
    async fn version(&self) -> Result<VersionInfo> {
        self.enter(CallKind::Version, "").await?;
        let called = self.0.called.lock().clone();
        let (runtime_name, runtime_version) = called.unwrap_or_else(|| ("fake".into(), "1.0.0".into()));
        Ok(VersionInfo { version: "0.1.0".into(), runtime_name, runtime_version, runtime_api_version: "v1".into() })
    }

    async fn status(&self, verbose: bool) -> Result<RuntimeStatus> {
        self.enter(CallKind::RuntimeStatus, "").await?;
        let changed = self.0.conditions.lock().clone();
        let condition = |kind: &str| {
            let ready = || Condition { kind: kind.into(), status: true, ..Condition::default() };
            changed.get(kind).cloned().unwrap_or_else(ready)
        };
        let mut info = BTreeMap::new();
        if verbose {
            info.insert("info".to_owned(), "{}".to_owned());
            info.extend(self.0.info.lock().clone());
        }
        let offered = self.0.pods.lock().handlers.clone();
        let others = offered.into_iter().map(|name| RuntimeHandler { name, ..RuntimeHandler::default() });
        Ok(RuntimeStatus {
            conditions: vec![condition("RuntimeReady"), condition("NetworkReady")],
            info,
            handlers: std::iter::once(RuntimeHandler::default()).chain(others).collect(),
            ..RuntimeStatus::default()
        })
    }

    async fn run_pod_sandbox(&self, config: &PodSandboxConfig, runtime_handler: &str) -> Result<String> {
        self.enter(CallKind::RunPodSandbox, &config.metadata.name).await?;
        let id = self.0.pods.lock().run_sandbox(config, runtime_handler)?;
        self.answer(CallKind::RunPodSandbox, id)
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        self.enter(CallKind::StopPodSandbox, id).await?;
        self.0.pods.lock().stop_sandbox(id);
        self.answer(CallKind::StopPodSandbox, ())
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        self.enter(CallKind::RemovePodSandbox, id).await?;
        self.0.pods.lock().remove_sandbox(id);
        self.answer(CallKind::RemovePodSandbox, ())
    }

    async fn pod_sandbox_status(&self, id: &str, verbose: bool) -> Result<PodSandboxStatus> {
        self.enter(CallKind::PodSandboxStatus, id).await?;
        let mut status = self.0.pods.lock().sandbox_status(id)?;
        if verbose {
            status.info.insert("info".into(), "{}".into());
        }
        Ok(status)
    }

    async fn list_pod_sandboxes(&self, filter: Option<&PodSandboxFilter>) -> Result<Vec<PodSandbox>> {
        self.enter(CallKind::ListPodSandboxes, "").await?;
        Ok(self.0.pods.lock().sandboxes(filter))
    }

    async fn create_container(
        &self,
        sandbox_id: &str,
        config: &ContainerConfig,
        sandbox_config: &PodSandboxConfig,
    ) -> Result<String> {
        let subject = format!("{}/{}", sandbox_config.metadata.name, config.metadata.name);
        self.enter(CallKind::CreateContainer, &subject).await?;
        let wanted = &config.image.image;
        let image_id = match &*self.0.images.lock() {
            None => wanted.clone(),
            Some(images) => match images.find(wanted) {
                Some(image) => image.id,
                None => return Err(Error::new(Kind::NotFound, format!("image {wanted:?} does not exist"))),
            },
        };
        let id = self.0.pods.lock().create(sandbox_id, config, &image_id)?;
        self.answer(CallKind::CreateContainer, id)
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        self.enter(CallKind::StartContainer, id).await?;
        self.0.pods.lock().start(id)?;
        self.answer(CallKind::StartContainer, ())
    }

    async fn stop_container(&self, id: &str, timeout: Duration) -> Result<()> {
        self.enter(CallKind::StopContainer, id).await?;
        let (runs, stubborn) = {
            let pods = self.0.pods.lock();
            let runs = pods.containers.get(id).is_some_and(|entry| entry.listed.state == ContainerState::Running);
            (runs, pods.process(id).ignores_stop)
        };
        if runs && stubborn {
            tokio::time::sleep(timeout).await;
        }
        self.0.pods.lock().end(id, if stubborn || timeout.is_zero() { KILLED } else { TERMINATED });
        self.answer(CallKind::StopContainer, ())
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        self.enter(CallKind::RemoveContainer, id).await?;
        self.0.pods.lock().remove(id);
        self.answer(CallKind::RemoveContainer, ())
    }

    async fn container_status(&self, id: &str, verbose: bool) -> Result<ContainerStatus> {
        self.enter(CallKind::ContainerStatus, id).await?;
        let mut status = self.0.pods.lock().container_status(id)?;
        if verbose {
            status.info.insert("info".into(), "{}".into());
        }
        Ok(status)
    }

    async fn list_containers(&self, filter: Option<&ContainerFilter>) -> Result<Vec<Container>> {
        self.enter(CallKind::ListContainers, "").await?;
        Ok(self.0.pods.lock().containers(filter))
    }

    async fn exec_sync(&self, id: &str, command: &[String], timeout: Duration) -> Result<ExecSyncOutput> {
        self.enter(CallKind::ExecSync, id).await?;
        let exec = {
            let mut pods = self.0.pods.lock();
            pods.running(id)?;
            pods.process(id).commands.get(command).cloned()
        };
        match exec {
            None => Ok(ExecSyncOutput::default()),
            Some(FakeExec::Ends(output)) => Ok(output),
            Some(FakeExec::Hangs) if timeout.is_zero() => std::future::pending().await,
            Some(FakeExec::Hangs) => {
                tokio::time::sleep(timeout).await;
                Err(Error::new(Kind::DeadlineExceeded, format!("timeout {timeout:?} exceeded")))
            }
        }
    }

    async fn update_container_resources(
        &self,
        id: &str,
        resources: &LinuxContainerResources,
        annotations: &BTreeMap<String, String>,
    ) -> Result<()> {
        self.enter(CallKind::UpdateContainerResources, id).await?;
        let mut pods = self.0.pods.lock();
        let entry = pods.container(id)?;
        if entry.listed.state == ContainerState::Exited {
            return Err(Error::new(Kind::FailedPrecondition, format!("container {id:?} has ended")));
        }
        entry.config.linux.resources = resources.clone();
        entry.config.annotations.extend(annotations.clone());
        Ok(())
    }

    async fn update_pod_sandbox_resources(
        &self,
        id: &str,
        overhead: &LinuxContainerResources,
        resources: &LinuxContainerResources,
    ) -> Result<()> {
        self.enter(CallKind::UpdatePodSandboxResources, id).await?;
        let mut pods = self.0.pods.lock();
        let linux = &mut pods.sandbox(id)?.config.linux;
        (linux.overhead, linux.resources) = (overhead.clone(), resources.clone());
        Ok(())
    }

    async fn reopen_container_log(&self, id: &str) -> Result<()> {
        self.enter(CallKind::ReopenContainerLog, id).await?;
        self.0.pods.lock().running(id)?.log_reopened += 1;
        Ok(())
    }

    async fn exec(&self, request: &ExecRequest) -> Result<String> {
        self.enter(CallKind::Exec, &request.container_id).await?;
        self.0.pods.lock().running(&request.container_id)?;
        Ok(format!("http://127.0.0.1:1/exec/{}", request.container_id))
    }

    async fn attach(&self, request: &AttachRequest) -> Result<String> {
        self.enter(CallKind::Attach, &request.container_id).await?;
        self.0.pods.lock().running(&request.container_id)?;
        Ok(format!("http://127.0.0.1:1/attach/{}", request.container_id))
    }

    async fn port_forward(&self, sandbox_id: &str, _ports: &[u16]) -> Result<String> {
        self.enter(CallKind::PortForward, sandbox_id).await?;
        if !self.0.pods.lock().sandbox(sandbox_id)?.listed.ready {
            return Err(Error::new(Kind::FailedPrecondition, format!("sandbox {sandbox_id:?} is not ready")));
        }
        Ok(format!("http://127.0.0.1:1/portforward/{sandbox_id}"))
    }

    async fn container_stats(&self, id: &str) -> Result<ContainerStats> {
        self.enter(CallKind::ContainerStats, id).await?;
        let mut pods = self.0.pods.lock();
        let (container, now) = (pods.running(id)?.listed.clone(), pods.now());
        Ok(stats_of(container, now))
    }

    async fn list_container_stats(&self, filter: Option<&ContainerStatsFilter>) -> Result<Vec<ContainerStats>> {
        self.enter(CallKind::ContainerStats, "").await?;
        let filter = filter.cloned().unwrap_or_default();
        let filter = ContainerFilter {
            id: filter.id,
            state: Some(ContainerState::Running),
            pod_sandbox_id: filter.pod_sandbox_id,
            labels: filter.labels,
        };
        let mut pods = self.0.pods.lock();
        let now = pods.now();
        Ok(pods.containers(Some(&filter)).into_iter().map(|container| stats_of(container, now)).collect())
    }

    async fn pod_sandbox_stats(&self, id: &str) -> Result<PodSandboxStats> {
        self.enter(CallKind::PodSandboxStats, id).await?;
        let mut pods = self.0.pods.lock();
        let sandbox = pods.sandbox(id)?.listed.clone();
        Ok(pod_stats_of(&mut pods, sandbox))
    }

    async fn list_pod_sandbox_stats(&self, filter: Option<&PodSandboxStatsFilter>) -> Result<Vec<PodSandboxStats>> {
        self.enter(CallKind::PodSandboxStats, "").await?;
        let filter = filter.cloned().unwrap_or_default();
        let filter = PodSandboxFilter { id: filter.id, ready: Some(true), labels: filter.labels };
        let mut pods = self.0.pods.lock();
        let sandboxes = pods.sandboxes(Some(&filter));
        Ok(sandboxes.into_iter().map(|sandbox| pod_stats_of(&mut pods, sandbox)).collect())
    }

    fn container_events(&self) -> ContainerEvents {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.pods.lock().listeners.push(sender);
        Box::pin(Events(receiver))
    }

    async fn update_runtime_config(&self, pod_cidr: &str) -> Result<()> {
        self.enter(CallKind::UpdateRuntimeConfig, pod_cidr).await
    }

    async fn runtime_config(&self) -> Result<RuntimeConfig> {
        self.enter(CallKind::RuntimeConfig, "").await?;
        Ok(RuntimeConfig { cgroup_driver: Some(CgroupDriver::Cgroupfs) })
    }
}

fn stats_of(container: Container, now: i64) -> ContainerStats {
    let Container { id, metadata, labels, annotations, .. } = container;
    ContainerStats {
        attributes: ContainerAttributes { id, metadata, labels, annotations },
        cpu: Some(CpuUsage { timestamp: now, usage_core_nano_seconds: Some(1_000_000), ..CpuUsage::default() }),
        memory: Some(MemoryUsage { timestamp: now, working_set_bytes: Some(1 << 20), ..MemoryUsage::default() }),
        ..ContainerStats::default()
    }
}

fn pod_stats_of(pods: &mut Pods, sandbox: PodSandbox) -> PodSandboxStats {
    let PodSandbox { id, metadata, labels, annotations, .. } = sandbox;
    let now = pods.now();
    let filter = ContainerFilter {
        state: Some(ContainerState::Running),
        pod_sandbox_id: Some(id.clone()),
        ..ContainerFilter::default()
    };
    let containers = pods.containers(Some(&filter)).into_iter().map(|container| stats_of(container, now)).collect();
    PodSandboxStats {
        attributes: PodSandboxAttributes { id, metadata, labels, annotations },
        cpu: Some(CpuUsage { timestamp: now, ..CpuUsage::default() }),
        memory: Some(MemoryUsage { timestamp: now, ..MemoryUsage::default() }),
        containers,
        ..PodSandboxStats::default()
    }
}

/// The receiving side of a listener.
struct Events(mpsc::UnboundedReceiver<Result<ContainerEvent>>);

impl Stream for Events {
    type Item = Result<ContainerEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}
