//! [`RuntimePods`]: the runtime's two lists, by pods; and [`Differ`], which finds the pods about which two lists in a
//! row differ. Pure. A list without changes costs one lookup per entry and copies nothing. Called by the relist.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use cri_api::{Container, ContainerState, PodSandbox};

use crate::identity::CONFIG_SOURCE_ANNOTATION;
use crate::labels::{POD_UID, PodOwner};
use crate::observed::ObservedPod;
use crate::sources::CONFIG_ORIGIN_ANNOTATION;

/// A pod as the lists show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RuntimePod {
    /// Whose sandboxes and containers these are.
    pub(super) owner: PodOwner,
    /// Origin of the manifest, on pods that this program made; `None`: the pod belongs to another program.
    pub(super) origin: Option<String>,
    /// Sandboxes by id, and whether they are ready.
    pub(super) sandboxes: BTreeMap<String, bool>,
    /// Containers by id.
    pub(super) containers: BTreeMap<String, ContainerState>,
}

impl RuntimePod {
    /// Returns true if `observed` shows the same state.
    pub(super) fn is_seen(&self, observed: &ObservedPod) -> bool {
        let sandbox = |id: &str| self.sandboxes.get(id).copied();
        let container = |id: &str| self.containers.get(id).copied();
        observed.sandboxes.len() == self.sandboxes.len()
            && observed.containers.len() == self.containers.len()
            && observed.sandboxes.iter().all(|seen| sandbox(&seen.id) == Some(seen.ready))
            && observed.containers.iter().all(|seen| container(&seen.id) == Some(seen.state))
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct RuntimePods {
    /// Pods by uid.
    pub(super) pods: HashMap<String, Arc<RuntimePod>>,
}

/// State of a sandbox or container in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListedState {
    Sandbox(bool),
    Container(ContainerState),
}

struct ListedItem {
    uid: Arc<str>,
    state: ListedState,
    /// The lists in which it was last.
    round: u64,
}

/// Remembers the last lists.
#[derive(Default)]
pub(super) struct Differ {
    known: HashMap<String, ListedItem>,
    round: u64,
}

impl Differ {
    /// Returns the uids of pods that differ from the lists before.
    pub(super) fn differ(&mut self, sandboxes: &[PodSandbox], containers: &[Container]) -> HashSet<Arc<str>> {
        self.round += 1;
        let mut changed = HashSet::new();
        let mut listed = 0;
        let sandboxes =
            sandboxes.iter().map(|sandbox| (&sandbox.id, &sandbox.labels, ListedState::Sandbox(sandbox.ready)));
        let containers = containers
            .iter()
            .map(|container| (&container.id, &container.labels, ListedState::Container(container.state)));
        for (id, labels, state) in sandboxes.chain(containers) {
            if let Some(known) = self.known.get_mut(id.as_str()) {
                if known.state != state {
                    known.state = state;
                    changed.insert(Arc::clone(&known.uid));
                }
                listed += usize::from(known.round != self.round);
                known.round = self.round;
            } else if let Some(uid) = labels.get(POD_UID).filter(|uid| !uid.is_empty()) {
                let uid: Arc<str> = uid.as_str().into();
                changed.insert(Arc::clone(&uid));
                self.known.insert(id.clone(), ListedItem { uid, state, round: self.round });
                listed += 1;
            }
        }
        if listed < self.known.len() {
            let round = self.round;
            self.known.retain(|_, known| {
                if known.round != round {
                    changed.insert(Arc::clone(&known.uid));
                }
                known.round == round
            });
        }
        changed
    }
}

impl RuntimePods {
    /// Returns these pods after the lists in which the pods of `changed` differ.
    pub(super) fn after(
        &self,
        changed: &HashSet<Arc<str>>,
        sandboxes: &[PodSandbox],
        containers: &[Container],
    ) -> Self {
        let mut pods = self.pods.clone();
        pods.retain(|uid, _| !changed.contains(uid.as_str()));
        let mut anew: HashMap<&str, RuntimePod> = HashMap::new();
        let is_changed =
            |labels: &BTreeMap<String, String>| labels.get(POD_UID).is_some_and(|uid| changed.contains(uid.as_str()));
        for sandbox in sandboxes.iter().filter(|sandbox| is_changed(&sandbox.labels)) {
            let Some(owner) = PodOwner::from_labels(&sandbox.labels) else { continue };
            let pod = anew.entry(&sandbox.labels[POD_UID]).or_default();
            pod.owner = owner;
            pod.sandboxes.insert(sandbox.id.clone(), sandbox.ready);
            if sandbox.annotations.contains_key(CONFIG_SOURCE_ANNOTATION)
                && let Some(origin) = sandbox.annotations.get(CONFIG_ORIGIN_ANNOTATION)
            {
                pod.origin = Some(origin.clone());
            }
        }
        for container in containers.iter().filter(|container| is_changed(&container.labels)) {
            let Some(owner) = PodOwner::from_labels(&container.labels) else { continue };
            let pod = anew.entry(&container.labels[POD_UID]).or_default();
            pod.owner = owner;
            pod.containers.insert(container.id.clone(), container.state);
        }
        pods.extend(anew.into_iter().map(|(uid, pod)| (uid.to_owned(), Arc::new(pod))));
        Self { pods }
    }
}

#[cfg(test)]
mod tests {
    use cri_api::ContainerMetadata;

    use super::*;
    use crate::labels::{POD_NAME, POD_NAMESPACE};

    fn labels(uid: &str) -> BTreeMap<String, String> {
        [(POD_UID, uid), (POD_NAME, "web"), (POD_NAMESPACE, "default")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    fn sandbox(id: &str, uid: &str, ready: bool, ours: bool) -> PodSandbox {
        let mut annotations = BTreeMap::from([(CONFIG_SOURCE_ANNOTATION.to_owned(), "file".to_owned())]);
        if ours {
            annotations.insert(CONFIG_ORIGIN_ANNOTATION.to_owned(), "/etc/pods/web.yaml".to_owned());
        }
        PodSandbox { id: id.into(), ready, labels: labels(uid), annotations, ..PodSandbox::default() }
    }

    fn container(id: &str, uid: &str, state: ContainerState) -> Container {
        let metadata = ContainerMetadata { name: "a".into(), attempt: 0 };
        Container { id: id.into(), metadata, state, labels: labels(uid), ..Container::default() }
    }

    fn sorted(mut changed: Vec<Arc<str>>) -> Vec<Arc<str>> {
        changed.sort();
        changed
    }

    #[test]
    fn only_changed_pods_are_named_and_rebuilt() {
        let mut differ = Differ::default();
        let mut sandboxes = vec![sandbox("s1", "u1", true, true), sandbox("s2", "u2", true, false)];
        let mut containers = vec![container("c1", "u1", ContainerState::Running)];
        // A container without a pod is ignored.
        containers.push(Container { id: "x".into(), ..Container::default() });
        let mut look = |sandboxes: &[PodSandbox], containers: &[Container]| {
            let changed = differ.differ(sandboxes, containers);
            (sorted(changed.iter().cloned().collect()), changed)
        };
        let (names, changed) = look(&sandboxes, &containers);
        assert_eq!(names, ["u1".into(), "u2".into()]);
        let first = RuntimePods::default().after(&changed, &sandboxes, &containers);
        assert_eq!(first.pods["u1"].origin.as_deref(), Some("/etc/pods/web.yaml"));
        assert_eq!((first.pods.len(), first.pods["u2"].origin.as_deref()), (2, None));
        assert_eq!(look(&sandboxes, &containers).0, []);

        containers[0].state = ContainerState::Exited;
        let (names, changed) = look(&sandboxes, &containers);
        assert_eq!(names, ["u1".into()]);
        let second = first.after(&changed, &sandboxes, &containers);
        assert_eq!(second.pods["u1"].containers["c1"], ContainerState::Exited);
        assert!(Arc::ptr_eq(&first.pods["u2"], &second.pods["u2"]));

        sandboxes.remove(1);
        let (names, changed) = look(&sandboxes, &containers);
        assert_eq!(names, ["u2".into()]);
        assert!(!second.after(&changed, &sandboxes, &containers).pods.contains_key("u2"));
        // One container is removed while another is created.
        containers[0].id = "c2".into();
        assert_eq!(look(&sandboxes, &containers).0, ["u1".into()]);
    }

    #[test]
    fn a_list_that_shows_nothing_new_costs_no_memory() {
        let mut differ = Differ::default();
        let sandboxes: Vec<_> = (0..30).map(|n| sandbox(&format!("s{n}"), &format!("u{n}"), true, true)).collect();
        let containers: Vec<_> =
            (0..60).map(|n| container(&format!("c{n}"), &format!("u{}", n % 30), ContainerState::Running)).collect();
        assert_eq!(differ.differ(&sandboxes, &containers).len(), 30);
        let cost = allocation_counter::measure(|| assert!(differ.differ(&sandboxes, &containers).is_empty()));
        assert_eq!(cost.count_total, 0);
    }

    #[test]
    fn an_observation_of_the_same_state_is_recognised() {
        let pod = RuntimePod {
            sandboxes: BTreeMap::from([("s".to_owned(), true)]),
            containers: BTreeMap::from([("c".to_owned(), ContainerState::Running)]),
            ..RuntimePod::default()
        };
        let mut observed = ObservedPod::default();
        assert!(!pod.is_seen(&observed));
        observed.sandboxes.push(crate::ObservedSandbox { id: "s".into(), ready: true, ..Default::default() });
        let mut run = crate::ObservedContainer { id: "c".into(), state: ContainerState::Running, ..Default::default() };
        observed.containers.push(run.clone());
        assert!(pod.is_seen(&observed));
        run.state = ContainerState::Exited;
        observed.containers[0] = run;
        assert!(!pod.is_seen(&observed));
    }
}
