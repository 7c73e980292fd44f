//! A runtime that is wrong in one way: proof that the suite of RuntimeService can fail.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use cri_api::testing::FakeRuntimeService;
use cri_api::{
    AttachRequest, Container, ContainerConfig, ContainerEvents, ContainerFilter, ContainerState, ContainerStats,
    ContainerStatsFilter, ContainerStatus, Error, ExecRequest, ExecSyncOutput, Kind, LinuxContainerResources,
    PodSandbox, PodSandboxConfig, PodSandboxFilter, PodSandboxStats, PodSandboxStatsFilter, PodSandboxStatus, Result,
    RuntimeConfig, RuntimeService, RuntimeStatus, VersionInfo,
};

/// In which way it is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    StoppedSandboxesStayReady,
    AbsentIsAnErrorToStop,
    AbsentIsAnErrorToRemove,
    ExitCodesAreLost,
    FiltersAreIgnored,
    ContainersStartAgain,
    LabelsAreLost,
    StopsDoNotWait,
    StopsNeverKill,
    CommandsNeedNoContainer,
    SandboxesLeaveTheirContainers,
    AbsentHasAStatus,
    ErrorsOfAbsenceAreInternal,
    StatsAreOfEverybody,
}

/// The fake, but for one thing.
pub(crate) struct Wrecker {
    pub(crate) fake: FakeRuntimeService,
    pub(crate) wrong: Wrong,
}

impl Wrecker {
    fn is(&self, wrong: Wrong) -> bool {
        self.wrong == wrong
    }

    fn absence<T>(&self, result: Result<T>) -> Result<T> {
        match result {
            Err(error) if error.kind() == Kind::NotFound && self.is(Wrong::ErrorsOfAbsenceAreInternal) => {
                Err(Error::new(Kind::Internal, error.message()))
            }
            result => result,
        }
    }

    async fn knows(&self, id: &str) -> bool {
        self.fake.container_status(id, false).await.is_ok() || self.fake.pod_sandbox_status(id, false).await.is_ok()
    }

    async fn must_be_there(&self, wrong: Wrong, id: &str) -> Result<()> {
        if self.is(wrong) && !self.knows(id).await {
            return Err(Error::new(Kind::NotFound, format!("{id} is not there")));
        }
        Ok(())
    }
}

#[async_trait]
impl RuntimeService for Wrecker {
    async fn version(&self) -> Result<VersionInfo> {
        self.fake.version().await
    }

    async fn status(&self, verbose: bool) -> Result<RuntimeStatus> {
        self.fake.status(verbose).await
    }

    async fn run_pod_sandbox(&self, config: &PodSandboxConfig, runtime_handler: &str) -> Result<String> {
        let mut config = config.clone();
        if self.is(Wrong::LabelsAreLost) {
            config.labels.remove("pod");
        }
        self.fake.run_pod_sandbox(&config, runtime_handler).await
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        self.must_be_there(Wrong::AbsentIsAnErrorToStop, id).await?;
        if self.is(Wrong::StoppedSandboxesStayReady) {
            return Ok(());
        }
        self.fake.stop_pod_sandbox(id).await
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        self.must_be_there(Wrong::AbsentIsAnErrorToRemove, id).await?;
        let containers = self.fake.list_containers(None).await?;
        self.fake.remove_pod_sandbox(id).await?;
        if self.is(Wrong::SandboxesLeaveTheirContainers) {
            containers.into_iter().filter(|c| c.pod_sandbox_id == id).for_each(|c| self.fake.put_container(c));
        }
        Ok(())
    }

    async fn pod_sandbox_status(&self, id: &str, verbose: bool) -> Result<PodSandboxStatus> {
        match self.fake.pod_sandbox_status(id, verbose).await {
            Err(_) if self.is(Wrong::AbsentHasAStatus) => Ok(PodSandboxStatus::default()),
            result => self.absence(result),
        }
    }

    async fn list_pod_sandboxes(&self, filter: Option<&PodSandboxFilter>) -> Result<Vec<PodSandbox>> {
        self.fake.list_pod_sandboxes(filter.filter(|_| !self.is(Wrong::FiltersAreIgnored))).await
    }

    async fn create_container(
        &self,
        sandbox_id: &str,
        config: &ContainerConfig,
        sandbox_config: &PodSandboxConfig,
    ) -> Result<String> {
        self.absence(self.fake.create_container(sandbox_id, config, sandbox_config).await)
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        match self.fake.start_container(id).await {
            Err(error) if error.kind() == Kind::FailedPrecondition && self.is(Wrong::ContainersStartAgain) => Ok(()),
            result => self.absence(result),
        }
    }

    async fn stop_container(&self, id: &str, timeout: Duration) -> Result<()> {
        self.must_be_there(Wrong::AbsentIsAnErrorToStop, id).await?;
        match self.wrong {
            Wrong::StopsDoNotWait => self.fake.exit(id, 137),
            Wrong::StopsNeverKill if timeout < Duration::from_secs(5) => {}
            _ => self.fake.stop_container(id, timeout).await?,
        }
        Ok(())
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        self.must_be_there(Wrong::AbsentIsAnErrorToRemove, id).await?;
        self.fake.remove_container(id).await
    }

    async fn container_status(&self, id: &str, verbose: bool) -> Result<ContainerStatus> {
        match self.fake.container_status(id, verbose).await {
            Err(_) if self.is(Wrong::AbsentHasAStatus) => Ok(ContainerStatus::default()),
            Ok(status) if self.is(Wrong::ExitCodesAreLost) => Ok(ContainerStatus { exit_code: 0, ..status }),
            result => self.absence(result),
        }
    }

    async fn list_containers(&self, filter: Option<&ContainerFilter>) -> Result<Vec<Container>> {
        self.fake.list_containers(filter.filter(|_| !self.is(Wrong::FiltersAreIgnored))).await
    }

    async fn exec_sync(&self, id: &str, command: &[String], timeout: Duration) -> Result<ExecSyncOutput> {
        let running = self.fake.container_status(id, false).await.is_ok_and(|s| s.state == ContainerState::Running);
        if self.is(Wrong::CommandsNeedNoContainer) && !running {
            return Ok(ExecSyncOutput::default());
        }
        self.absence(self.fake.exec_sync(id, command, timeout).await)
    }

    async fn update_container_resources(
        &self,
        id: &str,
        resources: &LinuxContainerResources,
        annotations: &BTreeMap<String, String>,
    ) -> Result<()> {
        self.absence(self.fake.update_container_resources(id, resources, annotations).await)
    }

    async fn reopen_container_log(&self, id: &str) -> Result<()> {
        self.fake.reopen_container_log(id).await
    }

    async fn exec(&self, request: &ExecRequest) -> Result<String> {
        self.absence(self.fake.exec(request).await)
    }

    async fn attach(&self, request: &AttachRequest) -> Result<String> {
        self.fake.attach(request).await
    }

    async fn port_forward(&self, sandbox_id: &str, ports: &[u16]) -> Result<String> {
        self.fake.port_forward(sandbox_id, ports).await
    }

    async fn container_stats(&self, id: &str) -> Result<ContainerStats> {
        self.absence(self.fake.container_stats(id).await)
    }

    async fn list_container_stats(&self, filter: Option<&ContainerStatsFilter>) -> Result<Vec<ContainerStats>> {
        self.fake.list_container_stats(filter.filter(|_| !self.is(Wrong::StatsAreOfEverybody))).await
    }

    async fn pod_sandbox_stats(&self, id: &str) -> Result<PodSandboxStats> {
        self.fake.pod_sandbox_stats(id).await
    }

    async fn list_pod_sandbox_stats(&self, filter: Option<&PodSandboxStatsFilter>) -> Result<Vec<PodSandboxStats>> {
        self.fake.list_pod_sandbox_stats(filter).await
    }

    fn container_events(&self) -> ContainerEvents {
        self.fake.container_events()
    }

    async fn runtime_config(&self) -> Result<RuntimeConfig> {
        self.fake.runtime_config().await
    }
}
