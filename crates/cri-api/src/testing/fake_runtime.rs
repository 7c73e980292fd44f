//! [`FakeRuntimeService`]: sandboxes and containers that a test puts there. It runs nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::faults::{CallKind, Faults, lock};
use crate::{
    Condition, Container, ContainerFilter, PodSandbox, PodSandboxFilter, Result, RuntimeHandler, RuntimeService,
    RuntimeStatus, VersionInfo,
};

/// A runtime in memory. Clones are the same runtime.
#[derive(Clone, Debug, Default)]
pub struct FakeRuntimeService(Arc<State>);

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    /// Guards the sandboxes, by id.
    sandboxes: Mutex<BTreeMap<String, PodSandbox>>,
    /// Guards the containers, by id.
    containers: Mutex<BTreeMap<String, Container>>,
}

impl FakeRuntimeService {
    /// A runtime without pods.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Faults of its calls.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// Puts a sandbox there, or replaces the one of that id.
    pub fn put_sandbox(&self, sandbox: PodSandbox) {
        lock(&self.0.sandboxes).insert(sandbox.id.clone(), sandbox);
    }

    /// Puts a container there, or replaces the one of that id.
    pub fn put_container(&self, container: Container) {
        lock(&self.0.containers).insert(container.id.clone(), container);
    }

    /// Takes a sandbox and its containers away.
    pub fn take_sandbox(&self, id: &str) {
        lock(&self.0.sandboxes).remove(id);
        lock(&self.0.containers).retain(|_, container| container.pod_sandbox_id != id);
    }

    /// Takes a container away.
    pub fn take_container(&self, id: &str) {
        lock(&self.0.containers).remove(id);
    }
}

fn has_labels(labels: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[async_trait]
impl RuntimeService for FakeRuntimeService {
    async fn version(&self) -> Result<VersionInfo> {
        self.0.faults.pass(CallKind::Version).await?;
        Ok(VersionInfo {
            version: "0.1.0".into(),
            runtime_name: "fake".into(),
            runtime_version: "1.0.0".into(),
            runtime_api_version: "v1".into(),
        })
    }

    async fn status(&self, verbose: bool) -> Result<RuntimeStatus> {
        self.0.faults.pass(CallKind::RuntimeStatus).await?;
        let ready =
            |kind: &str| Condition { kind: kind.into(), status: true, reason: String::new(), message: String::new() };
        let mut info = BTreeMap::new();
        if verbose {
            info.insert("info".to_owned(), "{}".to_owned());
        }
        Ok(RuntimeStatus {
            conditions: vec![ready("RuntimeReady"), ready("NetworkReady")],
            info,
            handlers: vec![RuntimeHandler::default()],
        })
    }

    async fn list_pod_sandboxes(&self, filter: Option<&PodSandboxFilter>) -> Result<Vec<PodSandbox>> {
        self.0.faults.pass(CallKind::ListPodSandboxes).await?;
        let fits = |sandbox: &&PodSandbox| {
            filter.is_none_or(|filter| {
                filter.id.as_ref().is_none_or(|id| sandbox.id.starts_with(id))
                    && filter.ready.is_none_or(|ready| sandbox.ready == ready)
                    && has_labels(&sandbox.labels, &filter.labels)
            })
        };
        Ok(lock(&self.0.sandboxes).values().filter(fits).cloned().collect())
    }

    async fn list_containers(&self, filter: Option<&ContainerFilter>) -> Result<Vec<Container>> {
        self.0.faults.pass(CallKind::ListContainers).await?;
        let fits = |container: &&Container| {
            filter.is_none_or(|filter| {
                filter.id.as_ref().is_none_or(|id| container.id.starts_with(id))
                    && filter.state.is_none_or(|state| container.state == state)
                    && filter.pod_sandbox_id.as_ref().is_none_or(|id| container.pod_sandbox_id.starts_with(id))
                    && has_labels(&container.labels, &filter.labels)
            })
        };
        Ok(lock(&self.0.containers).values().filter(fits).cloned().collect())
    }
}
