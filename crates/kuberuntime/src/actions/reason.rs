//! Why something is done to a pod, or is not: closed sets of reasons, each of which prints as a sentence.

use crate::pod::RestartPolicy;

/// Why everything of a pod is stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodReason {
    /// Its deletion was asked for.
    #[error("it is being deleted")]
    Deleted,
    /// There is no sandbox, so there is nothing that could go on.
    #[error("it has no sandbox")]
    NoSandbox,
    /// More than one sandbox is ready.
    #[error("{0} of its sandboxes are ready")]
    ManyReady(usize),
    /// The newest sandbox is not ready.
    #[error("its sandbox is not ready")]
    NotReady,
    /// The pod should have another network than its sandbox has.
    #[error("its sandbox has another network than it should have")]
    NetworkChanged,
    /// The sandbox has no address.
    #[error("its sandbox has no address")]
    NoIp,
    /// An init container failed, and is not started again.
    #[error("init container {name} failed with exit code {exit_code}, and is not started again")]
    InitFailed {
        /// The container.
        name: String,
        /// What it ended with.
        exit_code: i32,
    },
    /// Nobody knows how an init container ended, and it is not started again.
    #[error("the runtime does not know what became of init container {name}, and it is not started again")]
    InitUnknown {
        /// The container.
        name: String,
    },
    /// No container runs, and none is to be started.
    #[error("no container of it runs or is to be started")]
    NothingRuns,
}

/// Why a container is started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartReason {
    /// It was not started yet.
    #[error("it was not started yet")]
    New,
    /// The pod gets a sandbox.
    #[error("the pod gets a sandbox")]
    NewSandbox,
    /// It is the turn of this init container.
    #[error("the init containers before it are done")]
    Next,
    /// It was created and not started.
    #[error("it was created, but not started")]
    Created,
    /// The runtime does not know its state.
    #[error("the runtime does not know its state")]
    Unknown,
    /// It ended, and a sidecar runs as long as its pod.
    #[error("it is a sidecar and ended with exit code {exit_code}")]
    SidecarEnded {
        /// What it ended with.
        exit_code: i32,
    },
    /// It ran, as later ones show, and the runtime shows nothing of it.
    #[error("it is a sidecar, and the runtime shows nothing of it any more")]
    SidecarGone,
    /// It ended, and its restart policy wants it back.
    #[error("it ended with exit code {exit_code}, and its restart policy is {policy}")]
    Ended {
        /// What it ended with.
        exit_code: i32,
        /// The policy.
        policy: RestartPolicy,
    },
    /// It ended, and a restart rule wants it back.
    #[error("it ended with exit code {exit_code}, for which rule {rule} restarts it")]
    Rule {
        /// What it ended with.
        exit_code: i32,
        /// Place of the rule.
        rule: usize,
    },
    /// It is made of something else than it should be.
    #[error("its definition changed")]
    Changed,
    /// It does not work any more.
    #[error("it failed its liveness probe")]
    LivenessFailed,
    /// It did not come up.
    #[error("it failed its startup probe")]
    StartupFailed,
}

/// Why a container is not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaveReason {
    /// It runs.
    #[error("it runs")]
    Running,
    /// Its pod is being deleted.
    #[error("its pod is being deleted")]
    PodDeleted,
    /// It ended, and its restart policy leaves it there.
    #[error("it ended with exit code {exit_code}, and its restart policy is {policy}")]
    Ended {
        /// What it ended with.
        exit_code: i32,
        /// The policy.
        policy: RestartPolicy,
    },
}

/// Why a container is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KillReason {
    /// It is made of something else than it should be.
    Changed,
    /// It does not work any more.
    LivenessProbe,
    /// It did not come up.
    StartupProbe,
    /// The runtime does not know its state.
    Unknown,
}

impl KillReason {
    /// The word that the kubelet has for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "",
            Self::LivenessProbe => "LivenessProbe",
            Self::StartupProbe => "StartupProbe",
            Self::Unknown => "Unknown",
        }
    }
}
