//! Why something is done to a pod, or is not: closed sets of reasons, each of which prints as a sentence.

use crate::pod::RestartPolicy;

/// Reason for which everything of a pod is stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PodReason {
    /// Deletion of the pod was requested.
    #[error("it is being deleted")]
    Deleted,
    /// There is no sandbox.
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
    InitFailed { name: String, exit_code: i32 },
    /// The exit of an init container is unknown, and the container is not started again.
    #[error("the runtime does not know what became of init container {name}, and it is not started again")]
    InitUnknown { name: String },
    /// No container runs, and none is to be started.
    #[error("no container of it runs or is to be started")]
    NothingRuns,
}

/// Reason for which a container is started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StartReason {
    /// The container was never started.
    #[error("it was not started yet")]
    New,
    /// The pod gets a sandbox.
    #[error("the pod gets a sandbox")]
    NewSandbox,
    /// The init containers before this one are done.
    #[error("the init containers before it are done")]
    Next,
    /// The container was created and never started.
    #[error("it was created, but not started")]
    Created,
    /// The runtime does not know its state.
    #[error("the runtime does not know its state")]
    Unknown,
    /// A sidecar ended; sidecars run as long as their pod.
    #[error("it is a sidecar and ended with exit code {exit_code}")]
    SidecarEnded { exit_code: i32 },
    /// Later init containers show that this sidecar ran, and the runtime shows nothing of it.
    #[error("it is a sidecar, and the runtime shows nothing of it any more")]
    SidecarGone,
    /// The container ended, and its restart policy wants it back.
    #[error("it ended with exit code {exit_code}, and its restart policy is {policy}")]
    Ended { exit_code: i32, policy: RestartPolicy },
    /// The container ended, and a restart rule wants it back.
    #[error("it ended with exit code {exit_code}, for which rule {rule} restarts it")]
    Rule {
        exit_code: i32,
        /// Place of the rule.
        rule: usize,
    },
    /// The spec of the container changed.
    #[error("its definition changed")]
    Changed,
    #[error("it failed its liveness probe")]
    LivenessFailed,
    #[error("it failed its startup probe")]
    StartupFailed,
}

/// Reason for which a container is not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LeaveReason {
    /// The container runs.
    #[error("it runs")]
    Running,
    #[error("its pod is being deleted")]
    PodDeleted,
    /// The container ended, and its restart policy does not restart it.
    #[error("it ended with exit code {exit_code}, and its restart policy is {policy}")]
    Ended { exit_code: i32, policy: RestartPolicy },
}

/// Reason for which a container is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KillReason {
    /// The spec of the container changed.
    Changed,
    LivenessProbe,
    StartupProbe,
    /// The runtime does not know its state.
    Unknown,
}
