//! [`select`]: the containers, sandboxes and logs to remove, in the kubelet's order and by its formula. Pure: the
//! inputs are the inventory, the states of pods, the policy and the time; the output is a plan with a reason for each
//! object, whatever the order of the input.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use cri_api::{Container, ContainerState, PodSandbox};
use jiff::Timestamp;

use super::logs::LogInventory;
use super::plan::{ContainerPlan, GcRow, GcVerdict, KeepReason, RemovalReason};
use super::policy::ContainerGcPolicy;
use super::policy::PodStates;
use crate::labels::{POD_NAME, POD_NAMESPACE, POD_UID};

/// Everything on the node that can be collected.
#[derive(Clone, Debug, Default)]
pub(crate) struct GcInventory {
    pub containers: Vec<Container>,
    pub sandboxes: Vec<PodSandbox>,
    pub logs: LogInventory,
}

/// Scope of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GcScope {
    /// All beyond the limits of the policy, and the remains of removed pods.
    #[default]
    Policy,
    /// Also what is left of pods that have ended and are still there: there is disk pressure.
    Pressure,
}

/// Reason for which all containers and sandboxes of a pod are removed; `None` if they are not.
fn pod_removal_reason(pods: &dyn PodStates, scope: GcScope, uid: &str) -> Option<RemovalReason> {
    if pods.content_removable(uid) {
        return Some(RemovalReason::PodGone);
    }
    (scope == GcScope::Pressure && pods.runtime_removable(uid)).then_some(RemovalReason::PodEnded)
}

/// Makes the whole plan: sandboxes are judged as if the containers were removed already.
#[must_use]
pub(crate) fn select(
    inventory: &GcInventory,
    policy: &ContainerGcPolicy,
    pods: &dyn PodStates,
    scope: GcScope,
    now: Timestamp,
) -> ContainerPlan {
    let GcInventory { containers, sandboxes, logs } = inventory;
    let of_containers = select_containers(inventory, policy, pods, scope, now);
    let left = of_containers.iter().filter(|row| !row.verdict.removes()).map(|row| &containers[row.index]);
    let (log_directories, log_links) = select_logs(logs, containers, pods);
    ContainerPlan {
        sandboxes: select_sandboxes(sandboxes, left, pods, scope),
        containers: of_containers,
        log_directories,
        log_links,
    }
}

/// Sorts rows to be removed before those to be kept, the newest kept ones first; equal ones by id, so that the input's
/// order does not matter.
fn sorted(mut rows: Vec<GcRow>) -> Vec<GcRow> {
    rows.sort_by(|a, b| {
        let removed = b.verdict.removes().cmp(&a.verdict.removes());
        let age = a.created_at.cmp(&b.created_at);
        let age = if a.verdict.removes() { age } else { age.reverse() };
        removed.then(age).then_with(|| a.id.cmp(&b.id))
    });
    rows
}

pub(super) fn select_containers(
    inventory: &GcInventory,
    policy: &ContainerGcPolicy,
    pods: &dyn PodStates,
    scope: GcScope,
    now: Timestamp,
) -> Vec<GcRow> {
    let containers = &inventory.containers;
    let of_sandbox: HashMap<&str, &PodSandbox> =
        inventory.sandboxes.iter().map(|sandbox| (sandbox.id.as_str(), sandbox)).collect();
    let uids: Vec<&str> = containers.iter().map(|container| pod_uid(container, &of_sandbox)).collect();
    let mut verdicts = vec![GcVerdict::Keep(KeepReason::WithinLimits); containers.len()];
    // Numbers by pod and name, of those that have ended for long enough.
    let mut units: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (number, container) in containers.iter().enumerate() {
        if container.state == ContainerState::Running {
            verdicts[number] = GcVerdict::Keep(KeepReason::Running);
            continue;
        }
        let age = age(container.created_at, now);
        if age.is_none_or(|age| age < policy.min_age) {
            let age = age.unwrap_or_default();
            verdicts[number] = GcVerdict::Keep(KeepReason::TooYoung { age, min_age: policy.min_age });
            continue;
        }
        units.entry((uids[number], &container.metadata.name)).or_default().push(number);
    }
    for unit in units.values_mut() {
        newest_first(unit, containers);
    }
    let mut remove = |numbers: &[usize], why: RemovalReason| {
        for &number in numbers {
            verdicts[number] = GcVerdict::Remove(why);
        }
    };

    if pods.sources_ready() {
        units.retain(|(uid, _), unit| {
            let Some(why) = pod_removal_reason(pods, scope, uid) else { return true };
            remove(unit, why);
            false
        });
    }
    if let Some(limit) = policy.max_per_pod_container {
        keep_newest(&mut units, limit, |numbers| remove(numbers, RemovalReason::PerContainer(limit)));
    }
    if let Some(limit) = policy.max_containers
        && number_of(&units) > limit
    {
        // As many of each, one at least; then the oldest of all.
        let each = (limit / units.len()).max(1);
        keep_newest(&mut units, each, |numbers| remove(numbers, RemovalReason::InAll(limit)));
        let mut left: Vec<usize> = units.into_values().flatten().collect();
        newest_first(&mut left, containers);
        if left.len() > limit {
            remove(&left[limit..], RemovalReason::InAll(limit));
        }
    }

    let rows = containers.iter().zip(verdicts).enumerate().map(|(index, (container, verdict))| {
        let label = |key: &str| container.labels.get(key).map(String::as_str).unwrap_or_default();
        let (namespace, name) = (label(POD_NAMESPACE), label(POD_NAME));
        let pod = match (name, of_sandbox.get(container.pod_sandbox_id.as_str())) {
            ("", Some(sandbox)) => pod_of(sandbox),
            ("", None) => String::new(),
            _ => format!("{namespace}/{name}"),
        };
        GcRow {
            id: container.id.clone(),
            name: container.metadata.name.clone(),
            pod,
            pod_uid: uids[index].to_owned(),
            created_at: timestamp(container.created_at),
            verdict,
            index,
        }
    });
    sorted(rows.collect())
}

/// Returns the pod's uid from the container's label or, without that label, from its sandbox.
fn pod_uid<'a>(container: &'a Container, sandboxes: &HashMap<&str, &'a PodSandbox>) -> &'a str {
    let label = container.labels.get(POD_UID).map(String::as_str);
    let sandbox = || sandboxes.get(container.pod_sandbox_id.as_str()).map(|sandbox| sandbox.metadata.uid.as_str());
    label.or_else(sandbox).unwrap_or_default()
}

fn pod_of(sandbox: &PodSandbox) -> String {
    format!("{}/{}", sandbox.metadata.namespace, sandbox.metadata.name)
}

fn newest_first(numbers: &mut [usize], containers: &[Container]) {
    numbers.sort_by(|&a, &b| {
        let (a, b) = (&containers[a], &containers[b]);
        b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id))
    });
}

fn number_of(units: &BTreeMap<(&str, &str), Vec<usize>>) -> usize {
    units.values().map(Vec::len).sum()
}

/// Leaves the newest `limit` of each unit.
fn keep_newest(units: &mut BTreeMap<(&str, &str), Vec<usize>>, limit: usize, mut remove: impl FnMut(&[usize])) {
    units.retain(|_, unit| {
        remove(&unit[limit.min(unit.len())..]);
        unit.truncate(limit);
        !unit.is_empty()
    });
}

pub(super) fn select_sandboxes<'a>(
    sandboxes: &[PodSandbox],
    containers: impl Iterator<Item = &'a Container>,
    pods: &dyn PodStates,
    scope: GcScope,
) -> Vec<GcRow> {
    let mut inhabitants: HashMap<&str, usize> = HashMap::new();
    for container in containers {
        *inhabitants.entry(&container.pod_sandbox_id).or_default() += 1;
    }
    let mut newest: HashMap<&str, &PodSandbox> = HashMap::new();
    for sandbox in sandboxes {
        let best = newest.entry(&sandbox.metadata.uid).or_insert(sandbox);
        let is_newer =
            (sandbox.created_at, std::cmp::Reverse(&sandbox.id)) > (best.created_at, std::cmp::Reverse(&best.id));
        if is_newer {
            *best = sandbox;
        }
    }
    let goes: HashMap<&str, Option<RemovalReason>> =
        newest.keys().map(|uid| (*uid, pod_removal_reason(pods, scope, uid))).collect();
    let verdict = |sandbox: &PodSandbox| {
        if sandbox.ready {
            return GcVerdict::Keep(KeepReason::Ready);
        }
        if let Some(&number) = inhabitants.get(sandbox.id.as_str()) {
            return GcVerdict::Keep(KeepReason::HasContainers(number));
        }
        let uid = sandbox.metadata.uid.as_str();
        match goes[uid] {
            Some(why) => GcVerdict::Remove(why),
            None if newest[uid].id == sandbox.id => GcVerdict::Keep(KeepReason::Newest),
            None => GcVerdict::Remove(RemovalReason::NotNewest),
        }
    };
    let rows = sandboxes.iter().enumerate().map(|(index, sandbox)| GcRow {
        id: sandbox.id.clone(),
        name: String::new(),
        pod: pod_of(sandbox),
        pod_uid: sandbox.metadata.uid.clone(),
        created_at: timestamp(sandbox.created_at),
        verdict: verdict(sandbox),
        index,
    });
    sorted(rows.collect())
}

/// Directories, and links.
pub(super) fn select_logs(
    logs: &LogInventory,
    containers: &[Container],
    pods: &dyn PodStates,
) -> (Vec<GcRow>, Vec<GcRow>) {
    let running: HashSet<&str> = containers
        .iter()
        .filter(|container| container.state == ContainerState::Running)
        .filter_map(|container| container.labels.get(POD_UID).map(String::as_str))
        .collect();
    let by_id: BTreeMap<&str, &Container> =
        containers.iter().map(|container| (container.id.as_str(), container)).collect();
    // The id on a link may be the beginning of one.
    let owner = |id: &str| {
        let (whole, container) = by_id.range(id..).next().filter(|_| !id.is_empty())?;
        whole.starts_with(id).then_some(*container)
    };
    let ready = pods.sources_ready();
    let directories = logs.directories.iter().enumerate().map(|(index, directory)| {
        let verdict = match &directory.pod {
            None => GcVerdict::Keep(KeepReason::Foreign),
            Some(_) if !ready => GcVerdict::Keep(KeepReason::SourcesNotReady),
            // A pod with a running container may belong to another program: its logs are kept, whatever the sources
            // report.
            Some(pod) if !pods.content_removable(&pod.uid) || running.contains(pod.uid.as_str()) => {
                GcVerdict::Keep(KeepReason::PodMayLive)
            }
            Some(_) => GcVerdict::Remove(RemovalReason::PodGone),
        };
        let (pod, pod_uid) = match &directory.pod {
            Some(pod) => (format!("{}/{}", pod.namespace, pod.name), pod.uid.clone()),
            None => Default::default(),
        };
        let id = directory.name.clone();
        GcRow { id, name: String::new(), pod, pod_uid, created_at: None, verdict, index }
    });
    let links = logs.dangling.iter().enumerate().map(|(index, link)| {
        let verdict = match owner(&link.container_id) {
            Some(container) if container.state != ContainerState::Exited => GcVerdict::Keep(KeepReason::NotEnded),
            _ => GcVerdict::Remove(RemovalReason::Dangling),
        };
        let id = link.name.clone();
        GcRow { id, name: String::new(), pod: String::new(), pod_uid: String::new(), created_at: None, verdict, index }
    });
    (sorted(directories.collect()), sorted(links.collect()))
}

fn timestamp(nanoseconds: i64) -> Option<Timestamp> {
    Timestamp::from_nanosecond(nanoseconds.into()).ok()
}

/// Returns the age of an object; `None` for a time in the future.
fn age(created_at: i64, now: Timestamp) -> Option<Duration> {
    Duration::try_from(now.duration_since(timestamp(created_at)?)).ok()
}

#[cfg(test)]
#[path = "select_tests.rs"]
pub(super) mod tests;
