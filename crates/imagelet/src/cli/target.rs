//! Finds the pod and the container that a user names, among those of the runtime: a pod by its name with or without the node as a suffix,
//! `namespace/name` or uid; a container by its name, or the default one if none is named. Starts and stops nothing, asks no agent for pods.
//! Called by the commands that read or enter containers.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent::api::client::{self, Method};
use agent::node::board::NodeInfo;
use cri_api::{Container, ContainerState, PodSandbox, RuntimeService};
use kuberuntime::labels::{CONTAINERS, ContainerInfo, NODE, PodOwner};
use kuberuntime::pod::ContainerKind;

use crate::app::App;
use crate::endpoint::{admin_socket, connect_runtime, parse_endpoint};
use crate::exit::{Failure, Outcome};

/// Annotation that names the default container, as in kubectl.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Connects to the configured runtime.
pub(crate) async fn runtime(app: &App) -> Outcome<Arc<dyn RuntimeService>> {
    let config = &app.config;
    let text = config.container_runtime_endpoint.as_ref().or(config.image_service_endpoint.as_ref());
    let endpoint = match text {
        Some(text) => parse_endpoint(text)?,
        None => parse_endpoint(&default_endpoint(app).await)?,
    };
    connect_runtime(config, &endpoint).await
}

/// Returns the default endpoint of pods: that of the process that keeps them, otherwise the default of `imagelet run`.
async fn default_endpoint(app: &App) -> String {
    let about = client::ask_json::<NodeInfo>(&admin_socket(&app.config), Method::GET, "/v1/node").await;
    let reported = about.ok().map(|about| about.runtime_endpoint).filter(|endpoint| !endpoint.is_empty());
    reported.unwrap_or_else(crate::endpoint::usual_endpoint)
}

/// The name of a pod as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodName {
    /// Text as written, for messages.
    text: String,
    namespace: Option<String>,
    name: String,
}

/// The identity of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodIdentity {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The node, if the pod's name ends in it; otherwise empty.
    pub(crate) node: String,
}

impl PodIdentity {
    /// Returns `namespace/name`.
    pub(crate) fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the name in the pod's manifest.
    fn plain_name(&self) -> Option<&str> {
        let suffix = self.name.len().checked_sub(self.node.len()).filter(|_| !self.node.is_empty())?;
        let (plain, node) = (self.name.get(..suffix)?, self.name.get(suffix..)?);
        node.eq_ignore_ascii_case(&self.node).then(|| plain.strip_suffix('-'))?.filter(|plain| !plain.is_empty())
    }
}

impl PodName {
    /// Parses `NAME`, `pod/NAME`, `NAMESPACE/NAME` or a uid; `namespace` is the value of the command's flag.
    pub(crate) fn parse(text: &str, namespace: Option<&str>) -> Outcome<Self> {
        let plain = ["pod/", "pods/", "po/"].iter().find_map(|kind| text.strip_prefix(kind)).unwrap_or(text);
        let (before, name) = match plain.split_once('/') {
            Some((before, name)) => (Some(before), name),
            None => (None, plain),
        };
        if name.is_empty() || name.contains('/') || before == Some("") {
            return Err(Failure::usage(format!("pod {text:?}: a name, namespace/name or a uid was expected")));
        }
        if let (Some(before), Some(option)) = (before, namespace)
            && before != option
        {
            return Err(Failure::usage(format!("pod {text:?} is not in namespace {option:?}")));
        }
        let namespace = before.or(namespace).map(str::to_owned);
        Ok(Self { text: text.to_owned(), namespace, name: name.to_owned() })
    }

    /// Selects one of `pods`. Of several with the same namespace and name, the first is selected: callers sort the newest first.
    pub(crate) fn choose(&self, pods: &[PodIdentity]) -> Outcome<usize> {
        let here = |pod: &PodIdentity| self.namespace.as_ref().is_none_or(|namespace| *namespace == pod.namespace);
        let first = |fits: &dyn Fn(&PodIdentity) -> bool| -> Vec<usize> {
            let mut titles = std::collections::BTreeSet::new();
            let fitting = pods.iter().enumerate().filter(|(_, pod)| here(pod) && fits(pod));
            fitting.filter(|(_, pod)| titles.insert(pod.title())).map(|(index, _)| index).collect()
        };
        // An exact match has precedence over a short name.
        let ways: [&dyn Fn(&PodIdentity) -> bool; 3] =
            [&|pod| pod.uid == self.name, &|pod| pod.name == self.name, &|pod| pod.plain_name() == Some(&self.name)];
        for way in ways {
            match &first(way)[..] {
                [] => {}
                [one] => return Ok(*one),
                several => return Err(self.ambiguous(several.iter().map(|index| &pods[*index]))),
            }
        }
        Err(self.absent(pods))
    }

    fn ambiguous<'a>(&self, pods: impl Iterator<Item = &'a PodIdentity>) -> Failure {
        let mut titles: Vec<String> = pods.map(PodIdentity::title).collect();
        titles.sort();
        Failure::failed(format!("pod {:?} may be any of {}: say which", self.text, titles.join(", ")))
    }

    fn absent(&self, pods: &[PodIdentity]) -> Failure {
        let mut close: Vec<String> =
            pods.iter().filter(|pod| pod.name.contains(&self.name)).map(PodIdentity::title).take(5).collect();
        close.sort();
        close.dedup();
        let hint = match &close[..] {
            [] if pods.is_empty() => "; the runtime has no pod".to_owned(),
            [] => String::new(),
            close => format!("; there is {}", close.join(", ")),
        };
        Failure::failed(format!("pod {:?} not found{hint}", self.text))
    }
}

/// A pod as the runtime reports it.
#[derive(Clone, Debug, Default)]
pub(crate) struct FoundPod {
    pub(crate) known: PodIdentity,
    /// The newest first.
    pub(crate) sandboxes: Vec<PodSandbox>,
    /// The newest first: earlier runs of a container follow its latest one.
    pub(crate) containers: Vec<Container>,
}

/// The selected container.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) name: String,
    /// A note for stderr that the container was selected by default.
    pub(crate) note: Option<String>,
}

impl FoundPod {
    /// Finds the selected pod.
    pub(crate) async fn find(runtime: &dyn RuntimeService, name: &PodName) -> Outcome<Self> {
        let failed = |error: cri_api::Error| Failure::call(format!("find pod {:?}", name.text), &error);
        let sandboxes = runtime.list_pod_sandboxes(None).await.map_err(failed)?;
        let containers = runtime.list_containers(None).await.map_err(failed)?;
        let mut pods = group(sandboxes, containers);
        let known: Vec<PodIdentity> = pods.iter().map(|pod| pod.known.clone()).collect();
        Ok(pods.swap_remove(name.choose(&known)?))
    }

    /// Returns the sandbox of the pod, if it is ready.
    pub(crate) fn ready_sandbox(&self) -> Outcome<&PodSandbox> {
        let ready = self.sandboxes.iter().find(|sandbox| sandbox.ready);
        ready.ok_or_else(|| Failure::failed(format!("pod {} does not run", self.known.title())))
    }

    /// Returns the runs of a container, the latest first.
    pub(crate) fn runs(&self, name: &str) -> Vec<&Container> {
        self.containers.iter().filter(|container| info(container).name == name).collect()
    }

    /// Returns the current run of a container.
    pub(crate) fn running(&self, name: &str) -> Outcome<&Container> {
        let runs = self.runs(name);
        if let Some(run) = runs.iter().find(|run| run.state == ContainerState::Running) {
            return Ok(run);
        }
        let state = match runs.first().map(|run| run.state) {
            Some(ContainerState::Exited) => "it has ended",
            Some(ContainerState::Created) => "it was not started yet",
            Some(_) => "the runtime cannot tell its state",
            None => "it was not made yet",
        };
        Err(Failure::failed(format!("container {name:?} of pod {} does not run: {state}", self.known.title())))
    }

    /// Returns the container of this name; without a name, the one in the pod's annotation, or the first.
    pub(crate) fn container(&self, name: Option<&str>) -> Outcome<Chosen> {
        let (normal, others) = self.names();
        let all: Vec<String> = normal.iter().cloned().chain(others.iter().map(|(n, kind)| shown(n, *kind))).collect();
        let title = self.known.title();
        if let Some(name) = name {
            return match normal.iter().any(|n| n == name) || others.iter().any(|(n, _)| n == name) {
                true => Ok(Chosen { name: name.to_owned(), note: None }),
                false => Err(Failure::failed(format!(
                    "container {name:?} is not in pod {title}, which has {}",
                    if all.is_empty() { "none yet".to_owned() } else { all.join(", ") }
                ))),
            };
        }
        let annotated = self.annotation(DEFAULT_CONTAINER).filter(|name| normal.iter().any(|n| n == name));
        if let Some(name) = annotated {
            return Ok(Chosen { name: name.to_owned(), note: None });
        }
        let Some(first) = normal.first() else {
            return Err(Failure::failed(format!("pod {title} has no containers yet")));
        };
        let note = (all.len() > 1).then(|| format!("Defaulted container {first:?} out of: {}", all.join(", ")));
        Ok(Chosen { name: first.clone(), note })
    }

    /// Returns the names of all containers: init containers first, as in the pod.
    pub(crate) fn all_names(&self) -> Vec<String> {
        let (normal, others) = self.names();
        let init = |kind: Option<ContainerKind>| kind == Some(ContainerKind::Init);
        let (first, last): (Vec<_>, Vec<_>) = others.into_iter().partition(|(_, kind)| init(*kind));
        let names = |list: Vec<(String, Option<ContainerKind>)>| list.into_iter().map(|(name, _)| name);
        names(first).chain(normal).chain(names(last)).collect()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.sandboxes.first()?.annotations.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns names of the normal containers in the pod's order, and of the others. Containers that the runtime reports and the sandbox
    /// does not list are appended.
    fn names(&self) -> (Vec<String>, Vec<(String, Option<ContainerKind>)>) {
        let said = self.annotation(CONTAINERS).unwrap_or_default();
        let mut normal: Vec<String> = said.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let mut others: Vec<(String, Option<ContainerKind>)> = Vec::new();
        for container in self.containers.iter().rev() {
            let info = info(container);
            match info.kind {
                None | Some(ContainerKind::Normal) if !normal.contains(&info.name) => normal.push(info.name),
                None | Some(ContainerKind::Normal) => {}
                kind if others.iter().all(|(name, _)| *name != info.name) => others.push((info.name, kind)),
                Some(_) => {}
            }
        }
        (normal, others)
    }
}

fn shown(name: &str, kind: Option<ContainerKind>) -> String {
    match kind {
        Some(ContainerKind::Init) => format!("{name} (init)"),
        Some(ContainerKind::Ephemeral) => format!("{name} (ephem)"),
        _ => name.to_owned(),
    }
}

fn info(container: &Container) -> ContainerInfo {
    let mut info = ContainerInfo::read(&container.labels, &container.annotations);
    if info.name.is_empty() {
        info.name.clone_from(&container.metadata.name);
    }
    info
}

/// Groups the sandboxes and containers of a runtime into pods: running ones first, then the newest. Those without a pod are ignored.
fn group(sandboxes: Vec<PodSandbox>, containers: Vec<Container>) -> Vec<FoundPod> {
    let mut pods: BTreeMap<PodOwner, FoundPod> = BTreeMap::new();
    for sandbox in sandboxes {
        let Some(owner) = PodOwner::from_labels(&sandbox.labels) else { continue };
        pods.entry(owner).or_default().sandboxes.push(sandbox);
    }
    for container in containers {
        let Some(owner) = PodOwner::from_labels(&container.labels) else { continue };
        pods.entry(owner).or_default().containers.push(container);
    }
    let mut pods: Vec<FoundPod> = pods
        .into_iter()
        .map(|(PodOwner { uid, name, namespace }, mut pod)| {
            pod.sandboxes.sort_by_key(|sandbox| std::cmp::Reverse((sandbox.created_at, sandbox.metadata.attempt)));
            pod.containers
                .sort_by_key(|container| std::cmp::Reverse((container.created_at, container.metadata.attempt)));
            let node = pod.annotation(NODE).unwrap_or_default().to_owned();
            pod.known = PodIdentity { namespace, name, uid, node };
            pod
        })
        .collect();
    pods.sort_by_key(|pod| {
        let ready = pod.sandboxes.iter().any(|sandbox| sandbox.ready);
        std::cmp::Reverse((ready, pod.sandboxes.first().map(|sandbox| sandbox.created_at)))
    });
    pods
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
