//! Finds a pod and its containers in this node's list of pods (`/pods`, Kubernetes' JSON). Pure. The refusals have the kubelet's texts.

use http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;

use crate::kubelet_api::access::Refusal;
use crate::kubelet_api::route::PodPath;

/// Lists of statuses of containers.
const STATUSES: [&str; 3] = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];

/// Returns the pod of a path from a list.
pub(crate) fn find<'a>(list: &'a Value, path: &PodPath) -> Result<&'a Value, Refusal> {
    let here = |pod: &&Value| {
        let metadata = &pod["metadata"];
        metadata["namespace"] == path.namespace && metadata["name"] == path.name
    };
    let is_of_uid = |pod: &&Value| path.uid.as_deref().is_none_or(|wanted| uid(pod) == wanted);
    let pods = || list["items"].as_array().into_iter().flatten().filter(here).filter(is_of_uid);
    // While an earlier pod of the name is being ended, the one that is wanted is the one that is meant.
    let wanted = pods().find(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    wanted.or_else(|| pods().next()).ok_or_else(|| Refusal(StatusCode::NOT_FOUND, "pod does not exist".to_owned()))
}

/// Returns the uid of a pod.
pub(crate) fn uid(pod: &Value) -> &str {
    pod["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Returns the ID of a container's latest run, or of the run before with `previous`.
pub(crate) fn logged(pod: &Value, container: &str, previous: bool) -> Result<String, Refusal> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let refused = |text: String| Err(Refusal(StatusCode::BAD_REQUEST, text));
    if !is_in_spec(pod, container) {
        return Err(Refusal(StatusCode::NOT_FOUND, format!("container {container:?} not found in pod {name:?}")));
    }
    let Some(status) = status(pod, container) else {
        return refused(format!("container {container:?} in pod {name:?} is not available"));
    };
    let id = |state: &Value| state["terminated"]["containerID"].as_str().and_then(bare).map(str::to_owned);
    let earlier = id(&status["lastState"]);
    if previous {
        return match earlier {
            Some(id) => Ok(id),
            None => refused(format!("previous terminated container {container:?} in pod {name:?} not found")),
        };
    }
    let state = &status["state"];
    if state["running"].is_object()
        && let Some(id) = status["containerID"].as_str().and_then(bare)
    {
        return Ok(id.to_owned());
    }
    if let Some(id) = id(state).or(earlier) {
        return Ok(id);
    }
    match state["waiting"]["reason"].as_str() {
        Some(reason @ ("ErrImagePull" | "ImagePullBackOff")) => {
            let why =
                if reason == "ErrImagePull" { "image can't be pulled" } else { "trying and failing to pull image" };
            refused(format!("container {container:?} in pod {name:?} is waiting to start: {why}"))
        }
        Some(reason) => refused(format!("container {container:?} in pod {name:?} is waiting to start: {reason}")),
        None => refused(format!("container {container:?} in pod {name:?} is not available")),
    }
}

/// Returns the ID of a running container.
pub(crate) fn running(pod: &Value, container: &str) -> Result<String, Refusal> {
    let found = status(pod, container).filter(|status| status["state"]["running"].is_object());
    let id = found.and_then(|status| status["containerID"].as_str()).and_then(bare).map(str::to_owned);
    id.ok_or_else(|| Refusal(StatusCode::NOT_FOUND, format!("container not found ({container:?})")))
}

/// A container that runs, and when it was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Started {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
    pub(crate) at: Timestamp,
}

/// Returns the running containers, pod by pod.
pub(crate) fn started(list: &Value) -> Vec<Started> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut all = Vec::new();
    for pod in list["items"].as_array().into_iter().flatten() {
        for status in STATUSES.iter().filter_map(|kind| pod["status"][kind].as_array()).flatten() {
            if let Some(at) = status["state"]["running"]["startedAt"].as_str().and_then(|at| at.parse().ok()) {
                let (namespace, pod) = (text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
                all.push(Started { namespace, pod, container: text(&status["name"]), at });
            }
        }
    }
    all
}

fn is_in_spec(pod: &Value, container: &str) -> bool {
    let kinds = ["containers", "initContainers", "ephemeralContainers"];
    let all = kinds.iter().filter_map(|kind| pod["spec"][kind].as_array()).flatten();
    all.into_iter().any(|found| found["name"] == container)
}

fn status<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    STATUSES
        .iter()
        .filter_map(|kind| pod["status"][kind].as_array())
        .flatten()
        .find(|status| status["name"] == container)
}

/// Returns the ID without the name of its runtime: `containerd://ID`.
fn bare(id: &str) -> Option<&str> {
    let bare = id.split_once("://").map_or(id, |(_, id)| id);
    (!bare.is_empty()).then_some(bare)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, ending: bool, status: Value) -> Value {
        let mut pod = json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": uid},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"containerStatuses": [status]},
        });
        if ending {
            pod["metadata"]["deletionTimestamp"] = json!("2026-11-24T00:00:00Z");
        }
        pod
    }

    #[test]
    fn the_pod_that_is_meant() {
        let list = json!({"items": [pod("old", true, json!({})), pod("new", false, json!({}))]});
        let path = |namespace: &str, name: &str, uid: Option<&str>| PodPath {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.map(str::to_owned),
        };
        let of = |namespace, name, wanted| {
            find(&list, &path(namespace, name, wanted)).map(uid).map_err(|refusal| refusal.0.as_u16())
        };
        assert_eq!(of("shop", "web", None), Ok("new"));
        assert_eq!(of("shop", "web", Some("old")), Ok("old"));
        assert_eq!(of("shop", "web", Some("other")), Err(404));
        assert_eq!(of("shop", "api", None), Err(404));
        assert_eq!(of("other", "web", None), Err(404));
        assert_eq!(
            find(&json!({}), &path("", "", None)).map(uid).map_err(|r| r.1),
            Err("pod does not exist".to_owned())
        );
    }

    #[test]
    fn the_run_whose_log_is_shown() {
        let terminated = |id: &str| json!({"terminated": {"containerID": id}});
        let cases = [
            (json!({"state": {"running": {}}, "containerID": "containerd://2"}), false, Ok("2")),
            (
                json!({"state": {"running": {}}, "containerID": "containerd://2", "lastState": terminated("containerd://1")}),
                true,
                Ok("1"),
            ),
            (
                json!({"state": {"running": {}}, "containerID": "containerd://2"}),
                true,
                Err("previous terminated container \"main\" in pod \"web\" not found"),
            ),
            (json!({"state": terminated("cri-o://3")}), false, Ok("3")),
            (
                json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": terminated("x://4")}),
                false,
                Ok("4"),
            ),
            (json!({"state": terminated(""), "lastState": terminated("x://5")}), false, Ok("5")),
            (
                json!({"state": {"waiting": {"reason": "ContainerCreating"}}}),
                false,
                Err("is waiting to start: ContainerCreating"),
            ),
            (
                json!({"state": {"waiting": {"reason": "ImagePullBackOff"}}}),
                false,
                Err("trying and failing to pull image"),
            ),
            (json!({"state": {}}), false, Err("is not available")),
        ];
        for (mut status, previous, want) in cases {
            status["name"] = json!("main");
            let pod = pod("u", false, status);
            match (logged(&pod, "main", previous), want) {
                (Ok(id), Ok(want)) => assert_eq!(id, want),
                (Err(refusal), Err(want)) => {
                    assert!(refusal.0 == StatusCode::BAD_REQUEST && refusal.1.contains(want), "{refusal:?}")
                }
                (other, want) => panic!("{other:?} instead of {want:?}"),
            }
        }
        let none = logged(&pod("u", false, json!({})), "other", false).expect_err("there is none");
        assert_eq!(none, Refusal(StatusCode::NOT_FOUND, "container \"other\" not found in pod \"web\"".to_owned()));
    }

    #[test]
    fn containers_that_run_were_started() {
        let at = "2026-11-24T00:00:05Z";
        let mut both = pod("u", false, json!({"name": "main", "state": {"running": {"startedAt": at}}}));
        both["status"]["initContainerStatuses"] = json!([{"name": "side", "state": {"terminated": {"startedAt": at}}}, {"name": "odd", "state": {"running": {}}}]);
        let want = Started {
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            container: "main".to_owned(),
            at: at.parse().expect("a time"),
        };
        assert_eq!(started(&json!({"items": [both]})), [want]);
        assert_eq!(started(&json!({})), []);
    }

    #[test]
    fn only_a_container_that_runs_is_entered() {
        let with =
            |state: Value| pod("u", false, json!({"name": "main", "state": state, "containerID": "containerd://7"}));
        assert_eq!(running(&with(json!({"running": {}})), "main").as_deref(), Ok("7"));
        for state in [json!({"waiting": {}}), json!({"terminated": {}}), json!({})] {
            let refusal = running(&with(state), "main").expect_err("it does not run");
            assert_eq!(refusal.1, "container not found (\"main\")");
        }
    }
}
