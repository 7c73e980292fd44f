//! `imagelet pods`: the pods of this node, as reported by the process that keeps them.

use agent::api::client::{self, AskError, Method};
use agent::node::board::{PodList, RefusedPod};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::target::{PodIdentity, PodName};
use crate::app::App;
use crate::args::{Pods, Scope};
use crate::endpoint::admin_socket;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Format, Report, Table};
use crate::pods::age;
use crate::pods::columns::columns;
use crate::pods::shape::Pod;

/// Poll interval of a watched list.
const WATCH: std::time::Duration = std::time::Duration::from_millis(500);

/// A pod as returned by the agent, and its displayed fields.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) value: Value,
    pub(super) pod: Pod,
}

impl Listed {
    /// Returns the identity by which a command finds the pod.
    pub(super) fn known(&self) -> PodIdentity {
        let (metadata, node) = (&self.pod.metadata, self.pod.spec.node_name.clone());
        let (namespace, name, uid) = (metadata.namespace.clone(), metadata.name.clone(), metadata.uid.clone());
        PodIdentity { namespace, name, uid, node }
    }
}

struct PodReport {
    pods: Vec<Listed>,
    now: Timestamp,
}

impl Serialize for PodReport {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let items: Vec<&Value> = self.pods.iter().map(|listed| &listed.value).collect();
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items}).serialize(serializer)
    }
}

impl Report for PodReport {
    fn table(&self, wide: bool, _: bool) -> Table {
        let titles = ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "+IP", "+NODE", "+IMAGES"];
        let mut table = Table::with_wide(wide, &titles);
        for Listed { pod, .. } in &self.pods {
            let columns = columns(pod);
            let metadata = &pod.metadata;
            let images: Vec<&str> = pod.spec.containers.iter().map(|container| container.image.as_str()).collect();
            table.row([
                metadata.namespace.clone(),
                metadata.name.clone(),
                columns.ready(),
                columns.status.clone(),
                columns.restarts(self.now),
                age::since(metadata.creation_timestamp, self.now),
                pod.status.pod_ip.clone(),
                pod.spec.node_name.clone(),
                images.join(","),
            ]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.pods.iter().map(|listed| format!("pod/{}", listed.pod.metadata.name)).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.pods.iter().map(|listed| listed.pod.metadata.uid.clone()).collect()
    }
}

pub(super) async fn run(app: &App, args: &Pods) -> Outcome {
    let mut last = None;
    loop {
        let pods = listed(app, &args.scope, &args.pods, last.is_none()).await?;
        let shown = PodReport { pods, now: Timestamp::now() };
        let text = serde_json::to_string(&shown).unwrap_or_default();
        if last.as_ref() != Some(&text) {
            if shown.pods.is_empty() && args.pods.is_empty() && matches!(app.printer.format, None | Some(Format::Table))
            {
                tracing::info!("no pods");
            }
            match (args.pods.as_slice(), shown.pods.as_slice(), app.printer.format) {
                // A pod requested by name is printed as itself, and not as a list of one.
                ([_], [one], Some(format)) if format.is_document() => app.printer.document(Format::Json, &one.value)?,
                _ => app.printer.report(&shown)?,
            }
        }
        if !args.watch {
            return Ok(());
        }
        last = Some(text);
        tokio::time::sleep(WATCH).await;
    }
}

/// Returns the selected pods, by namespace and name. `is_first`: reports refused manifests as well.
async fn listed(app: &App, scope: &Scope, names: &[String], is_first: bool) -> Outcome<Vec<Listed>> {
    let (pods, refused) = ask(app).await?;
    if is_first {
        let (skipped, refused): (Vec<_>, Vec<_>) = refused.into_iter().partition(|refused| refused.skipped);
        if let Some(line) = summary(&refused, "refused") {
            tracing::warn!("{line}");
        }
        if let Some(line) = summary(&skipped, "skipped, since only pods run on a node") {
            tracing::info!("{line}");
        }
    }
    if !names.is_empty() {
        return choose(pods, names, scope.namespace.as_deref());
    }
    let here = |listed: &Listed| scope.namespace.as_ref().is_none_or(|n| *n == listed.pod.metadata.namespace);
    Ok(pods.into_iter().filter(here).collect())
}

/// The most manifests that a summary names.
const MAX_NAMED: usize = 3;

/// Returns a line that counts manifests, and says how the reasons are shown.
fn summary(refused: &[RefusedPod], state: &str) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for refused in refused {
        let name = refused.pod.as_ref().unwrap_or(&refused.origin);
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let first = names.first()?;
    let count = names.len();
    let (s, verb) = if count == 1 { ("", "is") } else { ("s", "are") };
    let shown = names[..count.min(MAX_NAMED)].join(", ");
    let more = if count > MAX_NAMED { format!(" and {} more", count - MAX_NAMED) } else { String::new() };
    Some(format!("{count} manifest{s} {verb} {state}: {shown}{more}; see `imagelet describe {first}`"))
}

/// Returns the pods of these names, in their order.
pub(super) fn choose(pods: Vec<Listed>, names: &[String], namespace: Option<&str>) -> Outcome<Vec<Listed>> {
    let known: Vec<PodIdentity> = pods.iter().map(Listed::known).collect();
    let mut chosen = Vec::with_capacity(names.len());
    for name in names {
        chosen.push(pods[PodName::parse(name, namespace)?.choose(&known)?].clone());
    }
    Ok(chosen)
}

/// Returns all pods of the agent, and the manifests that it refused.
pub(super) async fn ask(app: &App) -> Outcome<(Vec<Listed>, Vec<RefusedPod>)> {
    let list: PodList = agent(app, "/v1/pods").await?;
    let mut pods = Vec::with_capacity(list.items.len());
    for value in list.items {
        let pod = Pod::of(&value).map_err(|e| Failure::caused(Code::Failed, "understand a pod of the agent", &e))?;
        pods.push(Listed { value, pod });
    }
    // A wanted pod is sorted before a terminating one of the same name.
    pods.sort_by(|a, b| {
        let key = |listed: &Listed| {
            let metadata = &listed.pod.metadata;
            (metadata.namespace.clone(), metadata.name.clone(), metadata.deletion_timestamp.is_some())
        };
        key(a).cmp(&key(b))
    });
    Ok((pods, list.refused))
}

/// Asks the process that keeps the pods. If there is none, that is an error; no other source is used.
pub(super) async fn agent<T: serde::de::DeserializeOwned>(app: &App, target: &str) -> Outcome<T> {
    let asked = client::ask_at_length(&admin_socket(&app.config), Method::GET, target).await;
    asked.map_err(|error| match error {
        AskError::NotListening(socket) => Failure::new(
            Code::Unreachable,
            format!(
                "no agent answers on {}: start `imagelet run`, or name its socket with --root or --admin-socket. Containers \
                 continue without an agent: `imagelet logs` and `exec` find them",
                socket.display()
            ),
        ),
        error => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, uid: &str) -> Listed {
        let value = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "shop", "name": name, "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "edge", "containers": [{"name": "a", "image": "r.example/a:1"}, {"name": "b", "image": "b"}]},
            "status": {"phase": "Running", "podIP": "10.0.0.9", "containerStatuses": [
                {"name": "a", "ready": true, "restartCount": 0, "state": {"running": {"startedAt": null}}},
                {"name": "b", "ready": false, "restartCount": 2, "lastState": {"terminated": {"exitCode": 1,
                    "finishedAt": "2026-01-01T00:02:00Z"}}, "state": {"running": {"startedAt": "2026-01-01T00:02:10Z"}}}]},
        });
        Listed { pod: Pod::of(&value).expect("a pod"), value }
    }

    #[test]
    fn tables() {
        let now = "2026-01-01T00:05:00Z".parse().expect("a time");
        let shown = PodReport { pods: vec![listed("web-edge", "u-1")], now };
        assert_eq!(
            shown.table(false, false).render(),
            "NAMESPACE   NAME       READY   STATUS    RESTARTS     AGE\n\
             shop        web-edge   1/2     Running   2 (3m ago)   5m\n"
        );
        assert_eq!(
            shown.table(true, false).render().lines().nth(1),
            Some("shop        web-edge   1/2     Running   2 (3m ago)   5m    10.0.0.9   edge   r.example/a:1,b")
        );
        assert_eq!((shown.names(), shown.ids()), (vec!["pod/web-edge".to_owned()], vec!["u-1".to_owned()]));
        let json = serde_json::to_value(&shown).expect("JSON");
        assert_eq!((&json["kind"], &json["items"][0]["metadata"]["name"]), (&json!("PodList"), &json!("web-edge")));
    }

    #[test]
    fn refusals_are_one_line() {
        let refused = |origin: &str, pod: Option<&str>| RefusedPod {
            origin: origin.to_owned(),
            pod: pod.map(str::to_owned),
            ..RefusedPod::default()
        };
        assert_eq!(summary(&[], "refused"), None);
        // Two problems of one manifest count once.
        let one = [refused("/m/a.yaml", None), refused("/m/a.yaml", None)];
        let line = "1 manifest is refused: /m/a.yaml; see `imagelet describe /m/a.yaml`";
        assert_eq!(summary(&one, "refused").as_deref(), Some(line));
        let pods = ["shop/a", "shop/b", "shop/c", "shop/d", "shop/e"].map(|pod| refused("/m/x.yaml", Some(pod)));
        let line = "5 manifests are refused: shop/a, shop/b, shop/c and 2 more; see `imagelet describe shop/a`";
        assert_eq!(summary(&pods, "refused").as_deref(), Some(line));
    }

    #[test]
    fn pods_are_found_by_what_people_call_them() {
        let pods = || vec![listed("web-edge", "u-1"), listed("web-2-edge", "u-2")];
        for (text, want) in
            [("web", "u-1"), ("web-edge", "u-1"), ("shop/web-2", "u-2"), ("u-2", "u-2"), ("pod/web", "u-1")]
        {
            let chosen = choose(pods(), &[text.to_owned()], None).expect(text);
            assert_eq!(chosen[0].pod.metadata.uid, want, "{text}");
        }
        let failure = choose(pods(), &["db".to_owned()], None).expect_err("none");
        assert_eq!(failure.lines(), ["pod \"db\" not found"]);
        assert!(choose(pods(), &["web".to_owned()], Some("other")).is_err());
    }
}
