//! [`RuntimeBench`]: the tools of a case: sandboxes and containers that are removed after the case, and calls that fail the case
//! with a descriptive text.

use base::lock::Mutex;
use std::sync::Arc;
use std::time::Duration;

use super::super::bench::{Checked, Outcome};
use super::{Program, READY, RuntimeDeviation, RuntimeHarness, Stop};
use crate::{
    Container, ContainerConfig, ContainerMetadata, ContainerState, ContainerStatus, Error, Kind, PodSandbox,
    PodSandboxConfig, PodSandboxMetadata, Result, RuntimeService,
};

/// Interval between checks for an expected state.
const POLL: Duration = Duration::from_millis(20);

/// The surroundings of one case.
pub struct RuntimeBench<'h> {
    harness: &'h dyn RuntimeHarness,
    service: Arc<dyn RuntimeService>,
    case: &'static str,
    /// Guards the sandboxes that were made, for the sweep.
    made: Mutex<Vec<String>>,
}

/// A sandbox of a case.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) id: String,
    pub(super) config: PodSandboxConfig,
}

pub(super) fn failed(what: &str, error: &Error) -> Stop {
    match error.kind() {
        Kind::Unimplemented => Stop::NotApplicable(format!("{what}: {error}")),
        kind => Stop::Failed(format!("{what}: {kind}: {error}")),
    }
}

impl<'h> RuntimeBench<'h> {
    pub(super) fn new(harness: &'h dyn RuntimeHarness, case: &'static str) -> Self {
        Self { harness, service: harness.service(), case, made: Mutex::default() }
    }

    pub(super) fn harness(&self) -> &'h dyn RuntimeHarness {
        self.harness
    }

    pub(super) fn service(&self) -> &dyn RuntimeService {
        &*self.service
    }

    pub(super) fn deviates(&self, deviation: RuntimeDeviation) -> bool {
        self.harness.deviations().contains(&deviation)
    }

    /// Returns the config of a sandbox of this case.
    pub(super) fn sandbox_config(&self, name: &str) -> PodSandboxConfig {
        let pod = format!("{}-{name}", self.case.replace('_', "-"));
        let mut config = PodSandboxConfig {
            metadata: PodSandboxMetadata {
                uid: format!("uid-{pod}"),
                name: pod,
                namespace: "conformance".into(),
                attempt: 0,
            },
            labels: [("case", self.case), ("pod", name)].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            annotations: [("conformance/note".to_owned(), format!("of {name}"))].into(),
            ..PodSandboxConfig::default()
        };
        self.harness.fit(&mut config);
        config
    }

    /// Runs a sandbox, and remembers it for the sweep.
    pub(super) async fn try_run(&self, config: &PodSandboxConfig, handler: &str) -> Result<String> {
        let id = self.service.run_pod_sandbox(config, handler).await?;
        self.made.lock().push(id.clone());
        Ok(id)
    }

    pub(super) async fn pod(&self, name: &str) -> Checked<Pod> {
        let config = self.sandbox_config(name);
        let id = self.try_run(&config, "").await.map_err(|e| failed("run a sandbox", &e))?;
        Ok(Pod { id, config })
    }

    pub(super) fn container_config(&self, name: &str, program: Program) -> ContainerConfig {
        let mut config = ContainerConfig {
            metadata: ContainerMetadata { name: name.into(), attempt: 0 },
            image: self.harness.image(),
            command: self.harness.program(name, program),
            labels: [("case".to_owned(), self.case.to_owned()), ("container".to_owned(), name.to_owned())].into(),
            annotations: [("conformance/note".to_owned(), format!("of {name}"))].into(),
            log_path: format!("{name}.log"),
            ..ContainerConfig::default()
        };
        // Containers share what their sandbox has.
        let mut sandbox = PodSandboxConfig::default();
        self.harness.fit(&mut sandbox);
        config.linux.security.namespaces = sandbox.linux.security.namespaces;
        config
    }

    pub(super) async fn try_create(&self, pod: &Pod, config: &ContainerConfig) -> Result<String> {
        self.service.create_container(&pod.id, config, &pod.config).await
    }

    pub(super) async fn created(&self, pod: &Pod, name: &str, program: Program) -> Checked<String> {
        let config = self.container_config(name, program);
        self.try_create(pod, &config).await.map_err(|e| failed("create a container", &e))
    }

    pub(super) async fn started(&self, pod: &Pod, name: &str, program: Program) -> Checked<String> {
        let id = self.created(pod, name, program).await?;
        self.service.start_container(&id).await.map_err(|e| failed("start a container", &e))?;
        if matches!(program, Program::Sleeps | Program::IgnoresSignals) {
            self.ready(&id).await?;
        }
        Ok(id)
    }

    /// Waits until the program has reported that its signal handlers are set: a stop before that ends it like any other. A runtime
    /// without logs starts no real programs.
    async fn ready(&self, id: &str) -> Checked<()> {
        let path = self.status(id).await?.log_path;
        while self.harness.log(&path).is_some_and(|log| !log.contains(READY)) {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    pub(super) async fn status(&self, id: &str) -> Checked<ContainerStatus> {
        self.service.container_status(id, false).await.map_err(|e| failed("status of a container", &e))
    }

    /// Waits until the container has ended; the time of the case is the limit.
    pub(super) async fn ended(&self, id: &str) -> Checked<ContainerStatus> {
        loop {
            let status = self.status(id).await?;
            if status.state == ContainerState::Exited {
                return Ok(status);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns the sandboxes of this case.
    pub(super) async fn sandboxes(&self) -> Checked<Vec<PodSandbox>> {
        let mut all = self.service.list_pod_sandboxes(None).await.map_err(|e| failed("list sandboxes", &e))?;
        all.retain(|sandbox| sandbox.labels.get("case").is_some_and(|case| case == self.case));
        Ok(all)
    }

    /// Returns the containers of this case.
    pub(super) async fn containers(&self) -> Checked<Vec<Container>> {
        let mut all = self.service.list_containers(None).await.map_err(|e| failed("list containers", &e))?;
        all.retain(|container| container.labels.get("case").is_some_and(|case| case == self.case));
        Ok(all)
    }

    /// Checks that a call was refused, with one of these kinds.
    pub(super) fn refused<T: std::fmt::Debug>(&self, what: &str, result: Result<T>, kinds: &[Kind]) -> Outcome {
        // Every runtime has codes for an absent object and for a timeout.
        let by_state = kinds.iter().all(|kind| matches!(kind, Kind::InvalidArgument | Kind::FailedPrecondition));
        if by_state {
            return self.refused_but_for(RuntimeDeviation::RefusalsAreUnknown, what, result, kinds);
        }
        refused_with(what, result, kinds)
    }

    /// Checks that a call was refused, with code `Unknown` from a peer with this deviation.
    pub(super) fn refused_but_for<T: std::fmt::Debug>(
        &self,
        deviation: RuntimeDeviation,
        what: &str,
        result: Result<T>,
        kinds: &[Kind],
    ) -> Outcome {
        refused_with(what, result, if self.deviates(deviation) { &[Kind::Unknown] } else { kinds })
    }

    /// Removes a sandbox whose container has just ended.
    pub(super) async fn remove_after_exit(&self, sandbox: &str) -> Outcome {
        let mut removed = self.service.remove_pod_sandbox(sandbox).await;
        while self.deviates(RuntimeDeviation::RemovalsRaceWithExits)
            && removed.as_ref().is_err_and(|e| e.kind() == Kind::Unknown)
        {
            tokio::time::sleep(POLL).await;
            removed = self.service.remove_pod_sandbox(sandbox).await;
        }
        removed.map_err(|e| failed("remove the sandbox", &e))
    }

    /// Takes away what the case made.
    pub(super) async fn sweep(&self) -> Outcome {
        let made = std::mem::take(&mut *self.made.lock());
        for id in made {
            self.service.stop_pod_sandbox(&id).await.map_err(|e| failed("stop a sandbox", &e))?;
            self.service.remove_pod_sandbox(&id).await.map_err(|e| failed("remove a sandbox", &e))?;
        }
        let left = (self.sandboxes().await?.len(), self.containers().await?.len());
        if left == (0, 0) { Ok(()) } else { Err(Stop::Failed(format!("sandboxes and containers are left: {left:?}"))) }
    }
}

fn refused_with<T: std::fmt::Debug>(what: &str, result: Result<T>, kinds: &[Kind]) -> Outcome {
    match result {
        Ok(answer) => Err(Stop::Failed(format!("{what}: it should be refused, and answers {answer:?}"))),
        Err(error) if kinds.contains(&error.kind()) => Ok(()),
        Err(error) => Err(Stop::Failed(format!("{what}: refused with {}, want {kinds:?}: {error}", error.kind()))),
    }
}
