//! [`PodActions`]: what a pod needs done, as a value with a reason for each action.

use std::fmt;

use cri_api::ContainerState;

use super::reason::{KillReason, PodReason, StartReason};
use crate::observed::{ObservedContainer, ObservedPod};
use crate::pod::{Container, ContainerKind};

/// A container that is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerStart {
    /// Index among the containers of the same kind.
    pub index: usize,
    pub name: String,
    pub reason: StartReason,
}

/// A container that is to be stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerKill {
    pub id: String,
    pub name: String,
    pub kind: ContainerKind,
    pub reason: KillReason,
    /// Why, for the event `Killing`.
    pub message: String,
}

/// A container that is to be removed, so that its pod starts over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerReset {
    pub id: String,
    pub name: String,
    /// True if the container has to be stopped first.
    pub kill: bool,
}

/// Everything that a pod needs done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodActions {
    /// Everything of the pod is stopped, with its sandboxes, and why.
    pub kill_pod: Option<PodReason>,
    /// A sandbox is made.
    pub create_sandbox: bool,
    /// The newest sandbox that there is.
    pub sandbox_id: Option<String>,
    /// The number of the sandbox that is, or will be, the newest.
    pub attempt: u32,
    pub ephemeral_to_start: Vec<ContainerStart>,
    /// Init containers to start, in this order.
    pub init_to_start: Vec<ContainerStart>,
    /// Normal containers to start.
    pub containers_to_start: Vec<ContainerStart>,
    /// Containers to stop first.
    pub containers_to_kill: Vec<ContainerKill>,
    /// Containers to remove, in this order, because a restart rule asks to restart all of them.
    pub containers_to_reset: Vec<ContainerReset>,
}

impl PodActions {
    /// Returns true if there is nothing to do.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        let Self { kill_pod, create_sandbox, sandbox_id: _, attempt: _, .. } = self;
        let lists = self.ephemeral_to_start.len()
            + self.init_to_start.len()
            + self.containers_to_start.len()
            + self.containers_to_kill.len()
            + self.containers_to_reset.len();
        kill_pod.is_none() && !create_sandbox && lists == 0
    }

    /// Kills all but the newest run: after a restart, a runtime may list a container again that was taken for removed.
    pub(super) fn kill_doubles(&mut self, container: &Container, kind: ContainerKind, observed: &ObservedPod) {
        for older in observed.runs(&container.name).skip(1).filter(|run| run.state == ContainerState::Running) {
            let message = format!("Container {} runs more than once", container.name);
            self.kill(older, kind, KillReason::Unknown, message);
        }
    }

    pub(super) fn kill(&mut self, run: &ObservedContainer, kind: ContainerKind, reason: KillReason, message: String) {
        self.containers_to_kill.push(ContainerKill {
            id: run.id.clone(),
            name: run.name.clone(),
            kind,
            reason,
            message,
        });
    }
}

pub(super) fn start(index: usize, container: &Container, reason: StartReason) -> ContainerStart {
    ContainerStart { index, name: container.name.clone(), reason }
}

/// Returns true if a container was made from another spec than the present one. A container without the mark is taken
/// as it is.
pub(super) fn changed(container: &Container, run: &ObservedContainer) -> bool {
    run.info.hash.is_some_and(|hash| hash != crate::labels::container_hash(container))
}

/// Prints a line for each action.
impl fmt::Display for PodActions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing to do");
        }
        let mut lines = Vec::new();
        if let Some(reason) = &self.kill_pod {
            lines.push(format!("stop the pod: {reason}"));
        }
        if self.create_sandbox {
            lines.push(format!("create a sandbox, attempt {}", self.attempt));
        }
        for ContainerReset { id, name, kill } in &self.containers_to_reset {
            lines.push(format!("{} container {name} ({id})", if *kill { "stop and remove" } else { "remove" }));
        }
        for ContainerKill { id, name, message, .. } in &self.containers_to_kill {
            lines.push(format!("stop container {name} ({id}): {message}"));
        }
        let starts = [
            ("ephemeral container", &self.ephemeral_to_start),
            ("init container", &self.init_to_start),
            ("container", &self.containers_to_start),
        ];
        for (kind, starts) in starts {
            lines.extend(starts.iter().map(|start| format!("start {kind} {}: {}", start.name, start.reason)));
        }
        f.write_str(&lines.join("\n"))
    }
}
