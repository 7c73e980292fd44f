//! [`Route`]: a request, parsed once: its target, and the access to the node that it needs, as the kubelet has it. A target exists only inside of a
//! route, so that what is authorised is what is done. Pure. Called by [`crate::kubelet_api::routes`].

use http::Method;

use crate::kubelet_api::authority::Access;
use crate::kubelet_api::path::path_segments;

/// A target, with the accesses of which one suffices, the narrowest first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) access: Vec<Access>,
    pub(crate) target: Target,
}

/// The answer that a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Health,
    Pods,
    Configuration,
    Metrics,
    ResourceMetrics,
    Summary,
    Logs(ContainerPath),
    Exec(ContainerPath),
    Attach(ContainerPath),
    PortForward(PodPath),
    /// A known path, asked with a method that it does not have.
    OtherMethod,
    /// A path that this node does not serve.
    Unknown,
}

/// The pod that a request names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PodPath {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: Option<String>,
}

/// The container that a request names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ContainerPath {
    pub(crate) pod: PodPath,
    pub(crate) container: String,
}

impl Route {
    /// Parses method and path. Returns `None` for a path that is not well formed. A slash after the only segment is not a segment (`/pods/`, `/logs/`):
    /// clients of the kubelet send it.
    pub(crate) fn parse(method: &Method, path: &str) -> Option<Self> {
        let one = path.strip_suffix('/').filter(|rest| rest.rfind('/') == Some(0) && rest.len() > 1);
        let segments = path_segments(one.unwrap_or(path))?;
        let (first, rest) = segments.split_first().map_or(("", &[][..]), |(first, rest)| (*first, rest));
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let read = |target: Target| if reads { target } else { Target::OtherMethod };
        let known = |found: Option<Target>| found.unwrap_or(Target::Unknown);
        // A WebSocket is opened with GET, and runs commands all the same: these need `create` by any method.
        let streams = matches!(*method, Method::GET | Method::POST);
        let enter = |found: Option<Target>| if streams { known(found) } else { Target::OtherMethod };
        let verb = verb(method);
        let (verb, subresources, target): (_, &[&'static str], _) = match (first, rest) {
            ("healthz", [] | ["ping" | "log" | "syncloop"]) => (verb, &["healthz", "proxy"], read(Target::Health)),
            ("healthz", _) => (verb, &["healthz", "proxy"], read(Target::Unknown)),
            ("pods", []) => (verb, &["pods", "proxy"], read(Target::Pods)),
            ("pods", _) => (verb, &["pods", "proxy"], read(Target::Unknown)),
            ("runningpods", _) => (verb, &["pods", "proxy"], Target::Unknown),
            ("configz", []) => (verb, &["configz", "proxy"], read(Target::Configuration)),
            ("configz", _) => (verb, &["configz", "proxy"], read(Target::Unknown)),
            ("metrics", []) => (verb, &["metrics"], read(Target::Metrics)),
            ("metrics", ["resource"]) => (verb, &["metrics"], read(Target::ResourceMetrics)),
            ("metrics", _) => (verb, &["metrics"], read(Target::Unknown)),
            ("stats", ["summary"]) => (verb, &["stats"], read(Target::Summary)),
            ("stats", _) => (verb, &["stats"], read(Target::Unknown)),
            ("logs", _) => (verb, &["log"], Target::Unknown),
            ("containerLogs", [namespace, name, container]) => {
                let pod = PodPath::new(namespace, name, None);
                let target = Target::Logs(ContainerPath { pod, container: (*container).to_owned() });
                (verb, &["proxy"], read(target))
            }
            ("containerLogs", _) => (verb, &["proxy"], read(Target::Unknown)),
            ("exec", rest) => ("create", &["proxy"], enter(container(rest).map(Target::Exec))),
            ("attach", rest) => ("create", &["proxy"], enter(container(rest).map(Target::Attach))),
            ("portForward", rest) => ("create", &["proxy"], enter(pod(rest).map(Target::PortForward))),
            ("run", _) => ("create", &["proxy"], Target::Unknown),
            ("checkpoint", _) => ("create", &["checkpoint"], Target::Unknown),
            _ => (verb, &["proxy"], Target::Unknown),
        };
        let access = subresources.iter().map(|subresource| Access { verb, subresource }).collect();
        Some(Self { access, target })
    }
}

impl PodPath {
    fn new(namespace: &str, name: &str, uid: Option<&str>) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.map(str::to_owned) }
    }
}

/// Reads `NAMESPACE/POD` or `NAMESPACE/POD/UID`.
fn pod(segments: &[&str]) -> Option<PodPath> {
    match segments {
        [namespace, name] => Some(PodPath::new(namespace, name, None)),
        [namespace, name, uid] => Some(PodPath::new(namespace, name, Some(uid))),
        _ => None,
    }
}

/// Reads the path of a pod and the name of a container.
fn container(segments: &[&str]) -> Option<ContainerPath> {
    let (container, rest) = segments.split_last()?;
    Some(ContainerPath { pod: pod(rest)?, container: (*container).to_owned() })
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

#[cfg(test)]
#[path = "route_tests.rs"]
pub(crate) mod tests;
