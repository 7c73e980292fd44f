//! Workloads of a cluster: Deployments that are rolled out and back, Jobs that fail, DaemonSets, StatefulSets, and a node that is
//! drained. The controllers and the scheduler are the real ones. `REPLICAS` for another size of the Deployment.

use std::time::Instant;

use serde_json::{Value, json};

use crate::support::cluster::{Cluster, Namespace, play};
use crate::support::node::{FOREVER, NODE, is};

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn controllers_run_their_pods_here() {
    let cluster = Cluster::start();
    play(
        &cluster,
        &[
            ("deployment", deployment),
            ("job", job),
            ("cron-job", cron_job),
            ("daemon-set", daemon_set),
            ("stateful-set", stateful_set),
            ("drain", drain),
        ],
    );
}

/// An object of `apps/v1` for pods of one container that runs on.
fn workload(scene: &Namespace<'_>, kind: &str, name: &str, more: &Value) -> Value {
    let labels = json!({"app": name});
    let pod = json!({"terminationGracePeriodSeconds": 1, "containers": [scene.cluster.container("main", FOREVER)]});
    let mut spec =
        json!({"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}});
    spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

#[expect(clippy::print_stderr, reason = "the long suite shows the figures")]
fn deployment(scene: &Namespace<'_>) {
    let replicas: usize = std::env::var("REPLICAS").map_or(4, |number| number.parse().expect("a number"));
    scene.apply(workload(scene, "Deployment", "web", &json!({"replicas": replicas})));
    let begin = Instant::now();
    let done = || scene.kubectl(&["rollout", "status", "deployment/web", "--timeout=300s"]);
    done();
    let out = begin.elapsed();
    let uids = |pods: &[Value]| -> Vec<String> { pods.iter().map(|pod| pod["metadata"]["uid"].to_string()).collect() };
    let ready = || -> Vec<Value> {
        scene
            .pods("app=web")
            .into_iter()
            .filter(|pod| is(pod, "Ready") && pod["metadata"]["deletionTimestamp"].is_null())
            .collect()
    };
    let first = ready();
    assert_eq!(first.len(), replicas);
    scene.kubectl(&["set", "env", "deployment/web", "VERSION=two"]);
    done();
    let over = begin.elapsed() - out;
    let second = ready();
    assert_eq!(second.len(), replicas);
    assert!(second.iter().all(|pod| pod["spec"].to_string().contains("VERSION")), "all are new");
    assert!(uids(&second).iter().all(|uid| !uids(&first).contains(uid)));
    scene.kubectl(&["rollout", "undo", "deployment/web"]);
    done();
    let back = begin.elapsed() - out - over;
    assert!(ready().iter().all(|pod| !pod["spec"].to_string().contains("VERSION")), "all are as the first ones");
    scene.kubectl(&["scale", "deployment/web", "--replicas=0"]);
    scene.cluster.plane.until("none is left", || scene.pods("app=web").is_empty());
    eprintln!("{replicas} replicas: out in {out:.1?}, another version in {over:.1?}, back in {back:.1?}");
}

/// A CronJob, in the version that the server has, which runs at the next full minute.
fn cron_job(scene: &Namespace<'_>) {
    let version = if scene.cluster.plane.serves("batch/v1", "cronjobs") { "batch/v1" } else { "batch/v1beta1" };
    let pod = json!({"restartPolicy": "Never", "containers": [scene.cluster.container("main", "echo tick")]});
    scene.apply(json!({"apiVersion": version, "kind": "CronJob", "metadata": {"name": "clock"},
                       "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}}}));
    // Old controllers sync every ten seconds.
    scene.kubectl(&["wait", "cronjob/clock", "--for=jsonpath={.status.lastScheduleTime}", "--timeout=120s"]);
    scene.cluster.plane.until("a pod of it succeeded", || {
        let pods = scene.get(&["pods"])["items"].as_array().cloned().unwrap_or_default();
        pods.iter()
            .any(|pod| pod["status"]["phase"] == "Succeeded" && pod["metadata"]["name"].to_string().contains("clock-"))
    });
}

fn job(scene: &Namespace<'_>) {
    let job = |name: &str, script: &str, limit: u32| {
        let pod = json!({"restartPolicy": "Never", "containers": [scene.cluster.container("main", script)]});
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
               "spec": {"backoffLimit": limit, "template": {"spec": pod}}})
    };
    scene.apply(job("good", "echo done", 0));
    scene.apply(job("bad", "exit 5", 1));
    scene.wait(&["--for=condition=complete", "job/good"]);
    scene.wait(&["--for=condition=failed", "job/bad"]);
    let bad = scene.get(&["job", "bad"]);
    assert!(bad["status"]["failed"].as_u64().is_some_and(|failed| failed >= 1), "{:#}", bad["status"]);
    assert!(bad["status"]["conditions"].to_string().contains("BackoffLimitExceeded"), "{:#}", bad["status"]);
    assert_eq!(scene.get(&["job", "good"])["status"]["succeeded"], 1);
}

fn daemon_set(scene: &Namespace<'_>) {
    scene.apply(workload(scene, "DaemonSet", "agent", &json!({})));
    scene.kubectl(&["rollout", "status", "daemonset/agent", "--timeout=120s"]);
    let pods = scene.pods("app=agent");
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0]["spec"]["nodeName"], NODE);
    // A pod that is deleted is made again.
    let name = pods[0]["metadata"]["name"].as_str().expect("a name").to_owned();
    scene.kubectl(&["delete", "pod", &name, "--timeout=120s"]);
    scene.cluster.plane.until("there is another one", || {
        scene.pods("app=agent").iter().any(|pod| is(pod, "Ready") && pod["metadata"]["name"] != name.as_str())
    });
}

fn stateful_set(scene: &Namespace<'_>) {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "db"},
                         "spec": {"clusterIP": "None", "selector": {"app": "db"}, "ports": [{"port": 80}]}});
    scene.apply(service);
    scene.apply(workload(scene, "StatefulSet", "db", &json!({"replicas": 2, "serviceName": "db"})));
    scene.kubectl(&["rollout", "status", "statefulset/db", "--timeout=180s"]);
    for name in ["db-0", "db-1"] {
        let pod = scene.ready(name);
        let said = scene.cluster.node.in_container(&format!("{name}/main"), "hostname; cat /etc/hosts");
        assert_eq!(said.lines().next(), Some(name));
        let long = format!("{name}.db.{}.svc.", scene.name);
        assert!(said.contains(&long), "no {long} in {said}");
        assert!(said.contains(pod["status"]["podIP"].as_str().expect("an address")), "{said}");
    }
    // The endpoints of the service are the pods, by their names.
    let endpoints = scene.until(&["endpoints", "db"], "both pods are in it", |endpoints| {
        endpoints["subsets"][0]["addresses"].as_array().is_some_and(|addresses| addresses.len() == 2)
    });
    assert!(endpoints["subsets"].to_string().contains("\"hostname\":\"db-1\""), "{endpoints:#}");
    let before = scene.get(&["pod", "db-1"])["metadata"]["uid"].clone();
    scene.kubectl(&["delete", "pod", "db-1", "--timeout=120s"]);
    scene.until(&["pod", "db-1"], "it is another one of the same name", |pod| {
        pod["metadata"]["uid"] != before && is(pod, "Ready")
    });
}

fn drain(scene: &Namespace<'_>) {
    scene.apply(workload(scene, "Deployment", "web", &json!({"replicas": 2})));
    scene.apply(workload(scene, "DaemonSet", "agent", &json!({})));
    scene.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    scene.kubectl(&["rollout", "status", "daemonset/agent", "--timeout=120s"]);
    let plane = &scene.cluster.plane;
    // `kubectl drain` fails if a pod of an earlier scene is still terminating after its DaemonSet was deleted.
    plane.until("the pods of other scenes have ended", || {
        let pods = plane.get(&["pods", "-A", "--field-selector", &format!("spec.nodeName={NODE}")]);
        pods["items"]
            .as_array()
            .is_some_and(|pods| pods.iter().all(|pod| pod["metadata"]["namespace"] == scene.name.as_str()))
    });
    plane.kubectl(&["drain", NODE, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s"]);
    let left: Vec<Value> =
        scene.cluster.plane.get(&["pods", "-A", "--field-selector", &format!("spec.nodeName={NODE}")])["items"]
            .as_array()
            .cloned()
            .unwrap_or_default();
    assert!(left.iter().all(|pod| pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet"), "{left:#?}");
    assert!(
        scene.pods("app=web").iter().all(|pod| pod["status"]["phase"] == "Pending"),
        "nothing comes to a drained node"
    );
    plane.kubectl(&["uncordon", NODE]);
    scene.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
}
