//! [`ObservedPod`]: one pod as the runtime reports it. Everything that decides about a pod reads this type and not CRI. Made from
//! CRI's answers, purely; used by actions, status, probes and sync.

use cri_api::{ContainerState, NamespaceMode, PodSandboxStatus};

use crate::labels::{ContainerInfo, PodOwner};

/// A pod as the runtime shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedPod {
    /// Whose sandboxes and containers these are.
    pub owner: PodOwner,
    /// Sandboxes, the newest first.
    pub sandboxes: Vec<ObservedSandbox>,
    /// Containers of all runs, those of one name with the newest first.
    pub containers: Vec<ObservedContainer>,
}

/// A sandbox as the runtime shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedSandbox {
    /// Id of the sandbox in the runtime.
    pub id: String,
    /// Which attempt at creating it.
    pub attempt: u32,
    /// True in CRI's state `SANDBOX_READY`.
    pub ready: bool,
    /// Creation, nanoseconds since the epoch.
    pub created_at: i64,
    /// True if the sandbox has the node's network.
    pub host_network: bool,
    /// Addresses, the primary one first.
    pub ips: Vec<String>,
    /// The handler that it runs with.
    pub runtime_handler: String,
}

/// A container as the runtime shows it. Times are nanoseconds since the epoch, 0 for "not yet".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedContainer {
    /// Id of the container in the runtime.
    pub id: String,
    /// Name within the pod.
    pub name: String,
    /// The sandbox of the container; empty: not known. Lists have it, a status does not.
    pub sandbox_id: String,
    /// State in CRI's words.
    pub state: ContainerState,
    /// Time of creation.
    pub created_at: i64,
    /// Time of the start.
    pub started_at: i64,
    /// Time of the end.
    pub finished_at: i64,
    /// Exit code; of meaning only once the container has ended.
    pub exit_code: i32,
    /// Image as the runtime names it.
    pub image: String,
    /// Image ref: id or digest, as the runtime likes.
    pub image_ref: String,
    /// Image id; empty from older runtimes.
    pub image_id: String,
    /// Reason of the state in one word.
    pub reason: String,
    /// Message of the state; the last message of an ended container.
    pub message: String,
    /// Path of the log, as the runtime knows it.
    pub log_path: String,
    /// Facts from the labels and annotations of the container.
    pub info: ContainerInfo,
}

impl ObservedContainer {
    /// Returns the number of earlier runs.
    #[must_use]
    pub fn restart_count(&self) -> u32 {
        self.info.restart_count
    }

    /// Returns true if the container ended with success.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.state == ContainerState::Exited && self.exit_code == 0
    }
}

impl From<cri_api::ContainerStatus> for ObservedContainer {
    fn from(status: cri_api::ContainerStatus) -> Self {
        let mut info = ContainerInfo::read(&status.labels, &status.annotations);
        if info.restart_count == 0 {
            info.restart_count = status.metadata.attempt;
        }
        // What others made has no label; the runtime has a name for it all the same.
        let name = if info.name.is_empty() { status.metadata.name } else { info.name.clone() };
        // What the user wrote; the id is what the container was made from.
        let image = match status.image.user_specified_image.as_str() {
            "" => status.image.image,
            written => written.to_owned(),
        };
        Self {
            id: status.id,
            name,
            sandbox_id: String::new(),
            state: status.state,
            created_at: status.created_at,
            started_at: status.started_at,
            finished_at: status.finished_at,
            exit_code: status.exit_code,
            image,
            image_ref: status.image_ref,
            image_id: status.image_id,
            reason: status.reason,
            message: status.message,
            log_path: status.log_path,
            info,
        }
    }
}

impl From<PodSandboxStatus> for ObservedSandbox {
    fn from(status: PodSandboxStatus) -> Self {
        Self {
            ips: status.ips().map(str::to_owned).collect(),
            id: status.id,
            attempt: status.metadata.attempt,
            ready: status.ready,
            created_at: status.created_at,
            host_network: status.namespaces.network == NamespaceMode::Node,
            runtime_handler: status.runtime_handler,
        }
    }
}

impl ObservedPod {
    /// Puts what the runtime answered in order. Attempts decide before times do, because clocks are set back.
    pub fn new(
        owner: PodOwner,
        sandboxes: impl IntoIterator<Item = ObservedSandbox>,
        containers: impl IntoIterator<Item = ObservedContainer>,
    ) -> Self {
        let mut sandboxes: Vec<ObservedSandbox> = sandboxes.into_iter().collect();
        let mut containers: Vec<ObservedContainer> = containers.into_iter().collect();
        sandboxes.sort_by(|a, b| (b.attempt, b.created_at, &b.id).cmp(&(a.attempt, a.created_at, &a.id)));
        containers.sort_by(|a, b| {
            let newest = (b.restart_count(), b.created_at, &b.id).cmp(&(a.restart_count(), a.created_at, &a.id));
            a.name.cmp(&b.name).then(newest)
        });
        Self { owner, sandboxes, containers }
    }

    /// Returns every run of the container of this name, the newest first.
    pub fn runs(&self, name: &str) -> impl Iterator<Item = &ObservedContainer> {
        self.containers.iter().filter(move |container| container.name == name)
    }

    /// Returns the newest run of the container of this name.
    #[must_use]
    pub fn latest(&self, name: &str) -> Option<&ObservedContainer> {
        self.runs(name).next()
    }

    /// Returns the newest run of the container of this name, unless it is known to be of an earlier sandbox. Runs of an earlier
    /// sandbox do not count for the progress of the pod in this one.
    #[must_use]
    pub fn latest_in_sandbox(&self, name: &str) -> Option<&ObservedContainer> {
        let newest = self.sandboxes.first().map(|sandbox| sandbox.id.as_str());
        self.latest(name)
            .filter(|run| run.sandbox_id.is_empty() || newest.is_none_or(|newest| run.sandbox_id == newest))
    }

    /// Returns the addresses of the pod: those of its newest sandbox, while that is ready.
    #[must_use]
    pub fn ips(&self) -> &[String] {
        match self.sandboxes.first() {
            Some(sandbox) if sandbox.ready && !sandbox.host_network => &sandbox.ips,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, id: &str, restart_count: u32, created_at: i64) -> ObservedContainer {
        let info = ContainerInfo { restart_count, ..ContainerInfo::default() };
        ObservedContainer { name: name.into(), id: id.into(), created_at, info, ..ObservedContainer::default() }
    }

    #[test]
    fn the_newest_run_is_found_though_the_clock_was_set_back() {
        let runs = [run("b", "b0", 0, 5), run("a", "a0", 0, 90), run("a", "a2", 2, 10), run("a", "a1", 1, 100)];
        let sandbox = |id: &str, attempt, ready, ip: &str| ObservedSandbox {
            id: id.into(),
            attempt,
            ready,
            ips: vec![ip.into()],
            ..ObservedSandbox::default()
        };
        let old = sandbox("s0", 0, true, "10.0.0.1");
        let pod = ObservedPod::new(PodOwner::default(), [old.clone(), sandbox("s1", 1, true, "10.0.0.2")], runs);
        assert_eq!(pod.latest("a").map(|c| &*c.id), Some("a2"));
        assert_eq!(pod.runs("a").map(|c| &*c.id).collect::<Vec<_>>(), ["a2", "a1", "a0"]);
        assert_eq!((pod.latest("b").map(|c| &*c.id), pod.latest("c")), (Some("b0"), None));
        assert_eq!(pod.ips(), ["10.0.0.2"]);
        let gone = ObservedPod::new(PodOwner::default(), [old, sandbox("s1", 1, false, "10.0.0.2")], []);
        assert_eq!(gone.ips(), [""; 0]);
    }

    #[test]
    fn what_others_made_has_a_name_as_well() {
        let status = cri_api::ContainerStatus {
            metadata: cri_api::ContainerMetadata { name: "theirs".into(), attempt: 4 },
            image: cri_api::ImageSpec { image: "sha256:1".into(), ..cri_api::ImageSpec::default() },
            ..cri_api::ContainerStatus::default()
        };
        let observed = ObservedContainer::from(status);
        assert_eq!((&*observed.name, &*observed.image, observed.info.hash), ("theirs", "sha256:1", None));
        assert_eq!(observed.restart_count(), 4);
    }
}
