//! The conditions that a node reports of itself, by the kubelet's rules: which status, reason and message, and since when. Foreign
//! conditions stay as and where they are. Pure. Called by [`super::status`].

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::machine::Load;
use super::observed::Observed;

/// Memory that must be free: the kubelet's default for `memory.available`.
pub const MIN_FREE_MEMORY: u64 = 100 << 20;
/// Share of all process ids that must be free, in percent: the kubelet has no default for `pid.available`.
const MIN_FREE_PIDS: u64 = 5;

/// Pressures by kind; `None` if it was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pressures {
    pub(super) memory: Option<bool>,
    pub(super) disk: Option<bool>,
    pub(super) pids: Option<bool>,
}

/// A condition that stays for a while after its cause has ended, so that it does not flap.
#[derive(Clone, Copy, Debug, Default)]
struct Lasting {
    crossed: Option<Timestamp>,
}

impl Lasting {
    fn observe(&mut self, crossed: bool, now: Timestamp, transition: Duration) -> bool {
        if crossed {
            self.crossed = Some(now);
        }
        // A clock that was set back does not make the condition last longer than from now on.
        self.crossed = self.crossed.map(|at| at.min(now));
        self.crossed.is_some_and(|at| Duration::try_from(now.duration_since(at)).is_ok_and(|past| past <= transition))
    }
}

/// The memory of pressures that are observed here; disk pressure has its own where it is measured.
#[derive(Debug, Default)]
pub(super) struct PressureMonitor {
    memory: Lasting,
    pids: Lasting,
}

impl PressureMonitor {
    /// Returns the current pressures.
    pub(super) fn observe(&mut self, load: Load, seen: &Observed, now: Timestamp, transition: Duration) -> Pressures {
        let few = |(used, most): (u64, u64)| most.saturating_sub(used) * 100 < most * MIN_FREE_PIDS;
        let memory = load.memory_available.map(|available| available < MIN_FREE_MEMORY);
        Pressures {
            memory: memory.map(|crossed| self.memory.observe(crossed, now, transition)),
            disk: seen.disk_pressure,
            pids: load.pids.map(|pids| self.pids.observe(few(pids), now, transition)),
        }
    }
}

/// Type, reason and message of a pressure, present and absent.
struct Words {
    kind: &'static str,
    present: (&'static str, &'static str),
    absent: (&'static str, &'static str),
}

const MEMORY: Words = Words {
    kind: "MemoryPressure",
    present: ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    absent: ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
};
const DISK: Words = Words {
    kind: "DiskPressure",
    present: ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    absent: ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
};
const PIDS: Words = Words {
    kind: "PIDPressure",
    present: ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    absent: ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
};

/// Puts the conditions of this node into `conditions`, and keeps foreign ones. `problems`: why the node is not ready.
pub(super) fn set(conditions: &mut Vec<NodeCondition>, pressures: Pressures, problems: &[String], now: Timestamp) {
    for (words, pressure) in [(MEMORY, pressures.memory), (DISK, pressures.disk), (PIDS, pressures.pids)] {
        let (status, (reason, message)) = match pressure {
            Some(true) => ("True", words.present),
            Some(false) => ("False", words.absent),
            None => ("Unknown", ("NodeStatusUnknown", "not measured yet")),
        };
        put(conditions, words.kind, status, reason, message, now);
    }
    match problems {
        [] => put(conditions, "Ready", "True", "KubeletReady", "kubelet is posting ready status", now),
        [one] => put(conditions, "Ready", "False", "KubeletNotReady", one, now),
        all => put(conditions, "Ready", "False", "KubeletNotReady", &format!("[{}]", all.join(", ")), now),
    }
}

/// Sets a condition. The time of the last change is kept while the status is the same.
fn put(conditions: &mut Vec<NodeCondition>, kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) {
    let known = conditions.iter_mut().find(|condition| condition.type_ == kind);
    let since =
        known.as_ref().filter(|known| known.status == status).and_then(|known| known.last_transition_time.clone());
    let made = NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: since.or(Some(Time(now))),
    };
    match known {
        Some(known) => *known = made,
        None => conditions.push(made),
    }
}

/// Returns the kubelet's events for changed conditions.
pub(super) fn changes(old: &[NodeCondition], new: &[NodeCondition]) -> Vec<&'static str> {
    let status = |conditions: &'_ [NodeCondition], kind: &str| {
        conditions.iter().find(|condition| condition.type_ == kind).map(|condition| condition.status.clone())
    };
    let events = [
        ("MemoryPressure", "True", "NodeHasInsufficientMemory"),
        ("MemoryPressure", "False", "NodeHasSufficientMemory"),
        ("DiskPressure", "True", "NodeHasDiskPressure"),
        ("DiskPressure", "False", "NodeHasNoDiskPressure"),
        ("PIDPressure", "True", "NodeHasInsufficientPID"),
        ("PIDPressure", "False", "NodeHasSufficientPID"),
        ("Ready", "True", "NodeReady"),
        ("Ready", "False", "NodeNotReady"),
    ];
    let changed = events
        .into_iter()
        .filter(|(kind, to, _)| status(new, kind).as_deref() == Some(*to) && status(old, kind).as_deref() != Some(*to));
    changed.map(|(_, _, event)| event).collect()
}

#[cfg(test)]
#[path = "conditions_tests.rs"]
mod tests;
