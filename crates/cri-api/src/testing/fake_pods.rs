//! The pods of [`FakeRuntimeService`](super::FakeRuntimeService): sandboxes and containers with their states, as plain
//! data. It knows no faults and waits for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::{
    Container, ContainerConfig, ContainerEvent, ContainerEventKind, ContainerFilter, ContainerState, ContainerStatus,
    Error, ExecSyncOutput, Kind, PodSandbox, PodSandboxConfig, PodSandboxFilter, PodSandboxStatus, Result,
};

/// Start of the clock of a fake: nanoseconds since the epoch.
const BEGIN: i64 = 1_700_000_000_000_000_000;
/// Exit code of what SIGKILL ended.
pub(super) const KILLED: i32 = 137;
/// Exit code of what SIGTERM ended.
pub(super) const TERMINATED: i32 = 143;

/// Behaviour of the process of a container.
#[derive(Clone, Debug, Default)]
pub struct FakeProcess {
    /// The container ends as soon as it is started, with this code. `None`: it runs until it is stopped.
    pub ends: Option<i32>,
    /// The container does not end when it is asked to: a stop takes its whole timeout, and kills it.
    pub ignores_stop: bool,
    /// Answers of commands in the container. A command that is not here ends at once with code 0 and no output.
    pub commands: BTreeMap<Vec<String>, FakeExec>,
}

/// End of a command in a container.
#[derive(Clone, Debug)]
pub enum FakeExec {
    /// With this output and code.
    Ends(ExecSyncOutput),
    /// The command does not end: its caller's timeout passes.
    Hangs,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Sandbox {
    pub(super) listed: PodSandbox,
    pub(super) config: PodSandboxConfig,
    pub(super) ip: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FakeContainer {
    pub(super) listed: Container,
    pub(super) config: ContainerConfig,
    pub(super) log_path: String,
    pub(super) started_at: i64,
    pub(super) finished_at: i64,
    pub(super) exit_code: i32,
    pub(super) reason: String,
    pub(super) log_reopened: usize,
}

/// Returns the time, in nanoseconds since the epoch.
#[derive(Clone)]
pub(super) struct Clock(pub(super) Arc<dyn Fn() -> i64 + Send + Sync>);

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// All pods.
#[derive(Debug)]
pub(super) struct Pods {
    now: i64,
    /// Replaces `now`.
    pub(super) clock: Option<Clock>,
    made: u64,
    pub(super) sandboxes: BTreeMap<String, Sandbox>,
    pub(super) containers: BTreeMap<String, FakeContainer>,
    /// Processes by container name.
    pub(super) processes: BTreeMap<String, FakeProcess>,
    /// Handlers in addition to the default one.
    pub(super) handlers: BTreeSet<String>,
    /// Mounts of images are passed over, as by a runtime without them.
    pub(super) passes_images_over: bool,
    pub(super) listeners: Vec<mpsc::UnboundedSender<Result<ContainerEvent>>>,
    /// Listeners receive no events.
    pub(super) is_silent: bool,
}

impl Default for Pods {
    fn default() -> Self {
        Self {
            now: BEGIN,
            clock: None,
            made: 0,
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
            processes: BTreeMap::new(),
            handlers: BTreeSet::new(),
            passes_images_over: false,
            listeners: Vec::new(),
            is_silent: false,
        }
    }
}

fn absent(what: &str, id: &str) -> Error {
    Error::new(Kind::NotFound, format!("{what} {id:?} does not exist"))
}

fn has_labels(labels: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl Pods {
    pub(super) fn set_now(&mut self, now: i64) {
        self.now = now;
    }

    /// Reads the clock, which advances a little with every reading.
    pub(super) fn now(&mut self) -> i64 {
        if let Some(Clock(clock)) = &self.clock {
            return clock();
        }
        self.now += 1;
        self.now
    }

    fn id(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{:04}", self.made)
    }

    pub(super) fn sandbox(&mut self, id: &str) -> Result<&mut Sandbox> {
        self.sandboxes.get_mut(id).ok_or_else(|| absent("sandbox", id))
    }

    pub(super) fn container(&mut self, id: &str) -> Result<&mut FakeContainer> {
        self.containers.get_mut(id).ok_or_else(|| absent("container", id))
    }

    /// Returns a running container.
    pub(super) fn running(&mut self, id: &str) -> Result<&mut FakeContainer> {
        let entry = self.container(id)?;
        if entry.listed.state == ContainerState::Running {
            return Ok(entry);
        }
        Err(Error::new(Kind::FailedPrecondition, format!("container {id:?} is not running")))
    }

    pub(super) fn process(&self, id: &str) -> FakeProcess {
        let name = self.containers.get(id).map(|entry| entry.listed.metadata.name.as_str());
        name.and_then(|name| self.processes.get(name)).cloned().unwrap_or_default()
    }

    pub(super) fn run_sandbox(&mut self, config: &PodSandboxConfig, handler: &str) -> Result<String> {
        let metadata = &config.metadata;
        if [&metadata.name, &metadata.uid, &metadata.namespace].iter().any(|text| text.is_empty()) {
            return Err(Error::new(Kind::InvalidArgument, "a sandbox needs a name, a uid and a namespace"));
        }
        if !handler.is_empty() && !self.handlers.contains(handler) {
            return Err(Error::new(Kind::InvalidArgument, format!("no runtime for {handler:?} is configured")));
        }
        if let Some(other) = self.sandboxes.values().find(|other| other.listed.metadata == *metadata) {
            let text = format!("the name of the sandbox is reserved for {:?}", other.listed.id);
            return Err(Error::new(Kind::FailedPrecondition, text));
        }
        let id = self.id("sandbox");
        let listed = PodSandbox {
            id: id.clone(),
            metadata: metadata.clone(),
            ready: true,
            created_at: self.now(),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            runtime_handler: handler.to_owned(),
        };
        let host = config.linux.security.namespaces.network == crate::NamespaceMode::Node;
        let ip = if host { String::new() } else { format!("10.99.{}.{}", self.made / 250, self.made % 250 + 2) };
        self.sandboxes.insert(id.clone(), Sandbox { listed, config: config.clone(), ip });
        self.report(&id, &id, ContainerEventKind::Created);
        self.report(&id, &id, ContainerEventKind::Started);
        Ok(id)
    }

    /// Ends the containers of a sandbox, which is not ready any more.
    pub(super) fn stop_sandbox(&mut self, id: &str) {
        for container in self.containers_of(id) {
            self.end(&container, KILLED);
        }
        if let Some(sandbox) = self.sandboxes.get_mut(id)
            && sandbox.listed.ready
        {
            sandbox.listed.ready = false;
            sandbox.ip.clear();
            self.report(id, id, ContainerEventKind::Stopped);
        }
    }

    pub(super) fn remove_sandbox(&mut self, id: &str) {
        self.stop_sandbox(id);
        for container in self.containers_of(id) {
            self.remove(&container);
        }
        if self.sandboxes.contains_key(id) {
            self.report(id, id, ContainerEventKind::Deleted);
            self.sandboxes.remove(id);
        }
    }

    fn containers_of(&self, sandbox: &str) -> Vec<String> {
        let of = |entry: &&FakeContainer| entry.listed.pod_sandbox_id == sandbox;
        self.containers.values().filter(of).map(|entry| entry.listed.id.clone()).collect()
    }

    /// `image_id` is what the image resolved to.
    pub(super) fn create(&mut self, sandbox: &str, config: &ContainerConfig, image_id: &str) -> Result<String> {
        let parent = self.sandbox(sandbox)?;
        if !parent.listed.ready {
            let text = format!("sandbox {sandbox:?} is not ready");
            return Err(Error::new(Kind::FailedPrecondition, text));
        }
        let log_path = match (parent.config.log_directory.as_str(), config.log_path.as_str()) {
            ("", _) | (_, "") => String::new(),
            (directory, path) => format!("{}/{path}", directory.trim_end_matches('/')),
        };
        if config.metadata.name.is_empty() {
            return Err(Error::new(Kind::InvalidArgument, "a container needs a name"));
        }
        let same =
            |entry: &&FakeContainer| entry.listed.pod_sandbox_id == sandbox && entry.listed.metadata == config.metadata;
        if let Some(other) = self.containers.values().find(same) {
            let text = format!("the name of the container is reserved for {:?}", other.listed.id);
            return Err(Error::new(Kind::FailedPrecondition, text));
        }
        let id = self.id("container");
        let listed = Container {
            id: id.clone(),
            pod_sandbox_id: sandbox.to_owned(),
            metadata: config.metadata.clone(),
            image: config.image.clone(),
            image_ref: image_id.to_owned(),
            image_id: image_id.to_owned(),
            state: ContainerState::Created,
            created_at: self.now(),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
        };
        self.containers
            .insert(id.clone(), FakeContainer { listed, config: config.clone(), log_path, ..FakeContainer::default() });
        self.report(sandbox, &id, ContainerEventKind::Created);
        Ok(id)
    }

    pub(super) fn start(&mut self, id: &str) -> Result<()> {
        let listed = &self.container(id)?.listed;
        let (state, sandbox) = (listed.state, listed.pod_sandbox_id.clone());
        if state != ContainerState::Created {
            let text = format!("container {id:?} is in state {state:?}, not Created");
            return Err(Error::new(Kind::FailedPrecondition, text));
        }
        if !self.sandbox(&sandbox)?.listed.ready {
            return Err(Error::new(Kind::FailedPrecondition, format!("sandbox {sandbox:?} is not ready")));
        }
        let now = self.now();
        let entry = self.container(id)?;
        entry.started_at = now;
        entry.listed.state = ContainerState::Running;
        self.report(&sandbox, id, ContainerEventKind::Started);
        if let Some(code) = self.process(id).ends {
            self.end(id, code);
        }
        Ok(())
    }

    /// Ends the process of a container, if it runs, or may run.
    pub(super) fn end(&mut self, id: &str, code: i32) {
        let now = self.now();
        let runs = |entry: &&mut FakeContainer| {
            matches!(entry.listed.state, ContainerState::Running | ContainerState::Unknown)
        };
        let Some(entry) = self.containers.get_mut(id).filter(runs) else { return };
        entry.listed.state = ContainerState::Exited;
        entry.finished_at = now;
        entry.exit_code = code;
        entry.reason = if code == 0 { "Completed" } else { "Error" }.into();
        let sandbox = entry.listed.pod_sandbox_id.clone();
        self.report(&sandbox, id, ContainerEventKind::Stopped);
    }

    pub(super) fn remove(&mut self, id: &str) {
        if let Some(entry) = self.containers.get(id) {
            let (sandbox, runs) = (entry.listed.pod_sandbox_id.clone(), entry.listed.state == ContainerState::Running);
            if runs {
                self.end(id, KILLED);
            }
            self.containers.remove(id);
            self.report(&sandbox, id, ContainerEventKind::Deleted);
        }
    }

    pub(super) fn sandboxes(&self, filter: Option<&PodSandboxFilter>) -> Vec<PodSandbox> {
        let fits = |sandbox: &&PodSandbox| {
            filter.is_none_or(|filter| {
                filter.id.as_ref().is_none_or(|id| sandbox.id.starts_with(id))
                    && filter.ready.is_none_or(|ready| sandbox.ready == ready)
                    && has_labels(&sandbox.labels, &filter.labels)
            })
        };
        self.sandboxes.values().map(|sandbox| &sandbox.listed).filter(fits).cloned().collect()
    }

    pub(super) fn containers(&self, filter: Option<&ContainerFilter>) -> Vec<Container> {
        let fits = |container: &&Container| {
            filter.is_none_or(|filter| {
                filter.id.as_ref().is_none_or(|id| container.id.starts_with(id))
                    && filter.state.is_none_or(|state| container.state == state)
                    && filter.pod_sandbox_id.as_ref().is_none_or(|id| container.pod_sandbox_id.starts_with(id))
                    && has_labels(&container.labels, &filter.labels)
            })
        };
        self.containers.values().map(|entry| &entry.listed).filter(fits).cloned().collect()
    }

    pub(super) fn sandbox_status(&mut self, id: &str) -> Result<PodSandboxStatus> {
        let Sandbox { listed, config, ip } = self.sandbox(id)?.clone();
        Ok(PodSandboxStatus {
            id: listed.id,
            metadata: listed.metadata,
            ready: listed.ready,
            created_at: listed.created_at,
            ip,
            namespaces: config.linux.security.namespaces,
            labels: listed.labels,
            annotations: listed.annotations,
            runtime_handler: listed.runtime_handler,
            timestamp: self.now(),
            ..PodSandboxStatus::default()
        })
    }

    pub(super) fn container_status(&mut self, id: &str) -> Result<ContainerStatus> {
        let mut entry = self.container(id)?.clone();
        let passes_over = self.passes_images_over;
        entry.config.mounts.retain(|mount| mount.image.is_none() || !passes_over);
        let FakeContainer { listed, config, log_path, started_at, finished_at, exit_code, reason, log_reopened: _ } =
            entry;
        Ok(ContainerStatus {
            id: listed.id,
            metadata: listed.metadata,
            state: listed.state,
            created_at: listed.created_at,
            started_at,
            finished_at,
            exit_code,
            image: listed.image,
            image_ref: listed.image_ref,
            image_id: listed.image_id,
            reason,
            labels: listed.labels,
            annotations: listed.annotations,
            mounts: config.mounts,
            log_path,
            resources: Some(config.linux.resources),
            stop_signal: config.stop_signal,
            ..ContainerStatus::default()
        })
    }

    fn report(&mut self, sandbox: &str, id: &str, kind: ContainerEventKind) {
        if self.listeners.is_empty() || self.is_silent {
            return;
        }
        let created_at = self.now();
        let status = self.sandbox_status(sandbox).ok();
        let containers =
            self.containers_of(sandbox).iter().filter_map(|id| self.container_status(id).ok()).collect::<Vec<_>>();
        let event = ContainerEvent { container_id: id.to_owned(), kind, created_at, sandbox: status, containers };
        self.listeners.retain(|listener| listener.send(Ok(event.clone())).is_ok());
    }
}
