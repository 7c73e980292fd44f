//! [`ContainerPlan`]: the objects to remove and to keep, with the reason for each as a code and as text; and
//! [`ContainerGcReport`], the objects that a round removed. Plain data.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

/// Decisions of `select`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerPlan {
    /// Containers: those that go in their order, then the others.
    pub containers: Vec<GcRow>,
    /// Sandboxes, judged as if the containers to remove had been removed; in the same order.
    pub sandboxes: Vec<GcRow>,
    /// Directories in the pods' log directory; in the same order.
    pub log_directories: Vec<GcRow>,
    /// Links to logs that are not there.
    pub log_links: Vec<GcRow>,
}

impl ContainerPlan {
    /// Everything, with a word for what each is.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, &GcRow)> {
        let parts = [
            ("container", &self.containers),
            ("sandbox", &self.sandboxes),
            ("logs", &self.log_directories),
            ("link", &self.log_links),
        ];
        parts.into_iter().flat_map(|(word, rows)| rows.iter().map(move |row| (word, row)))
    }

    /// Returns the number of objects to remove.
    #[must_use]
    pub fn removals(&self) -> usize {
        self.rows().filter(|(_, row)| row.verdict.removes()).count()
    }
}

/// A container, sandbox, log directory or link, with its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GcRow {
    /// Id, or the name in its directory.
    pub id: String,
    /// The container's name; empty where it is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `NAMESPACE/NAME` of its pod, where it is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// Uid of its pod, where it is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod_uid: String,
    /// Time of its creation, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// The decision, with its reason.
    #[serde(flatten)]
    pub verdict: GcVerdict,
    /// Index in the inventory.
    #[serde(skip)]
    pub index: usize,
}

/// Decision to remove or to keep, with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GcVerdict {
    /// To be removed.
    #[error("{0}")]
    Remove(RemovalReason),
    /// Left as it is.
    #[error("{0}")]
    Keep(KeepReason),
}

/// Reason for a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemovalReason {
    /// The pod is deleted and has ended, or no source has it: [`PodStates::content_removable`](super::PodStates::content_removable).
    #[error("its pod is gone")]
    PodGone,
    /// The pod has ended, deleted or not, and the disk is short.
    #[error("its pod has ended, and space is needed")]
    PodEnded,
    /// The pod has this many newer ones of the same container.
    #[error("of one container of a pod {0} that ended stay, and newer ones are there")]
    PerContainer(usize),
    /// The node has this many newer ones.
    #[error("of all containers that ended {0} stay, and newer ones are there")]
    InAll(usize),
    /// The pod has a newer sandbox.
    #[error("its pod has a newer one")]
    NotNewest,
    /// The target of a link is missing, and its container has ended or was removed.
    #[error("the log that it leads to is not there")]
    Dangling,
}

/// Reason for which an object is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepReason {
    /// A container that runs is never removed.
    #[error("it runs")]
    Running,
    /// Created more recently than the policy allows.
    #[error("made {:#} ago, and containers stay for {:#} at least", seconds(*.age), seconds(*.min_age))]
    TooYoung {
        /// Time since the creation of the container; zero if that lies in the future.
        age: Duration,
        /// The policy's least age (`minimum-container-ttl-duration` of the kubelet).
        min_age: Duration,
    },
    /// A container that has ended, within the limits of the policy.
    #[error("so many may stay")]
    WithinLimits,
    /// A sandbox that is ready is never removed.
    #[error("it is ready")]
    Ready,
    /// A sandbox in which so many containers stay.
    #[error("{}", if *.0 == 1 { "a container is left in it".to_owned() } else { format!("{} containers are left in it", .0) })]
    HasContainers(usize),
    /// The newest sandbox of a pod that still exists.
    #[error("it is the newest of its pod")]
    Newest,
    /// A source of pods is not ready, so the pod may not have been reported yet.
    #[error("which pods there should be is not known, or not yet")]
    SourcesNotReady,
    /// A log directory whose pod still exists, or has running containers.
    #[error("its pod is not gone")]
    PodMayLive,
    /// The log of a running container may be in rotation at this moment.
    #[error("its container has not ended")]
    NotEnded,
    /// A file type that does not match the name.
    #[error("it is no pod's by its name")]
    Foreign,
}

impl GcVerdict {
    /// Returns true if the verdict is to remove.
    #[must_use]
    pub fn removes(&self) -> bool {
        matches!(self, Self::Remove(_))
    }

    /// `remove`, or a word for why it stays.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Remove(_) => "remove",
            Self::Keep(keep) => match keep {
                KeepReason::Running => "running",
                KeepReason::TooYoung { .. } => "too-young",
                KeepReason::WithinLimits => "within-limits",
                KeepReason::Ready => "ready",
                KeepReason::HasContainers(_) => "has-containers",
                KeepReason::Newest => "newest",
                KeepReason::SourcesNotReady => "sources-not-ready",
                KeepReason::PodMayLive => "pod-may-live",
                KeepReason::NotEnded => "not-ended",
                KeepReason::Foreign => "foreign",
            },
        }
    }
}

/// Whole seconds, as people want ages.
fn seconds(time: Duration) -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

impl Serialize for GcVerdict {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct VerdictWords {
            decision: &'static str,
            why: String,
        }
        VerdictWords { decision: self.word(), why: self.to_string() }.serialize(serializer)
    }
}

/// Result of a round, which continues where a part of it fails.
#[derive(Debug, Default)]
pub struct ContainerGcReport {
    /// Containers that were removed.
    pub containers: Vec<GcRow>,
    /// Sandboxes that were removed.
    pub sandboxes: Vec<GcRow>,
    /// Log directories that were removed.
    pub log_directories: Vec<GcRow>,
    /// Links that were removed.
    pub log_links: Vec<GcRow>,
    /// Number of log files that were removed with their containers.
    pub log_files: usize,
    /// Failures, in order; what they are about stays until the next round.
    pub errors: Vec<ContainerGcError>,
}

impl ContainerGcReport {
    /// Returns true if nothing was removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [&self.containers, &self.sandboxes, &self.log_directories, &self.log_links].iter().all(|rows| rows.is_empty())
    }

    /// Returns all failures in one line; `None` if there are none.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let texts: Vec<String> = self.errors.iter().map(chain).collect();
        match texts.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            // As the kubelet prints several errors.
            more => Some(format!("[{}]", more.join(", "))),
        }
    }
}

/// A failure of a round.
#[derive(Debug, thiserror::Error)]
pub enum ContainerGcError {
    /// The runtime did not answer with a list.
    #[error("{what}")]
    List {
        /// The call that failed: `list sandboxes` or `list containers`.
        what: &'static str,
        /// Error of the runtime.
        source: cri_api::Error,
    },
    /// A container or sandbox stays.
    #[error("{what} {id}")]
    Runtime {
        /// The step that failed, for example `remove container`.
        what: &'static str,
        /// Id of the container or sandbox.
        id: String,
        /// The error of the runtime.
        source: cri_api::Error,
    },
    /// Logs were not removed, or their directory cannot be read.
    #[error("{what} {name}")]
    Logs {
        /// The step that failed, for example `remove link`.
        what: &'static str,
        /// Path, name in its directory, or id of the container.
        name: String,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The process ends.
    #[error("the process ends")]
    ShuttingDown,
}

/// Returns an error with its causes, in one line.
fn chain(error: &ContainerGcError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
