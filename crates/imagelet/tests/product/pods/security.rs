//! User, capabilities, limits and namespaces of a container's process: read from the
//! process itself and from its cgroups.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::network::NODE_IP;
use crate::support::node::{FOREVER, Node};

fn with(mut container: Value, more: Value) -> Value {
    container.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    container
}

/// A line `NAME:<tab>value` of the first process's status.
fn status(node: &Node, of: &str, name: &str) -> String {
    let text = node.in_container(of, "cat /proc/1/status");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).trim().to_owned()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_process_has_the_rights_that_its_pod_says() {
    let node = Node::new();
    let strict = with(
        node.container("strict", FOREVER),
        json!({"securityContext": {
            "runAsUser": 1234, "runAsGroup": 2345, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}, "seccompProfile": {"type": "RuntimeDefault"},
        }, "volumeMounts": [{"name": "disk", "mountPath": "/disk"}]}),
    );
    let plain =
        with(node.container("plain", FOREVER), json!({"volumeMounts": [{"name": "disk", "mountPath": "/disk"}]}));
    let all = with(node.container("all", FOREVER), json!({"securityContext": {"privileged": true}}));
    let spec = json!({
        "terminationGracePeriodSeconds": 1, "containers": [strict, plain, all],
        "volumes": [{"name": "disk", "emptyDir": {}}],
        "securityContext": {"fsGroup": 3456, "supplementalGroups": [4567]},
    });
    node.write("rights.json", &node.pod("rights", spec));
    node.ready("rights");
    let ids = node.in_container("rights/strict", "id -u; id -g; id -G");
    assert_eq!(ids, "1234\n2345\n2345 3456 4567\n");
    let touched = node.in_container("rights/strict", "touch /disk/f && stat -c '%u %g' /disk/f; touch /no 2>&1; true");
    assert!(touched.starts_with("1234 3456\n"), "the volume's group is the pod's: {touched}");
    assert!(touched.contains("Read-only file system"), "{touched}");
    let of = |container: &str, name: &str| status(&node, &format!("rights/{container}"), name);
    let bounding = |container: &str| u64::from_str_radix(&of(container, "CapBnd"), 16).expect("a set of bits");
    assert_eq!(bounding("strict"), 1 << 10, "only to bind low ports");
    assert_eq!(of("strict", "CapEff"), "0000000000000000", "and not being root, it has none");
    assert_eq!((of("strict", "NoNewPrivs"), of("strict", "Seccomp")), ("1".to_owned(), "2".to_owned()));
    // The runtime's usual ones, and no filter where none is asked for.
    assert_eq!((of("plain", "NoNewPrivs"), of("plain", "Seccomp")), ("0".to_owned(), "0".to_owned()));
    assert_eq!((bounding("plain") >> 21) & 1, 0, "no SYS_ADMIN");
    assert_eq!((bounding("all") >> 21) & 1, 1, "all of them");
    node.in_container("rights/all", "mount -t tmpfs none /tmp");
    node.clear();
}

/// A file of the cgroup of a container's process.
#[track_caller]
fn limit(node: &Node, id: &str, version_1: (&str, &str), version_2: &str) -> String {
    let tasks = node.ctr(&["tasks", "list"]);
    let row = tasks.lines().find(|row| row.starts_with(id)).unwrap_or_else(|| panic!("no {id} in\n{tasks}"));
    let pid = row.split_whitespace().nth(1).expect("a process");
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("read the cgroups of a process");
    let root = Path::new("/sys/fs/cgroup");
    let (controller, file) = version_1;
    let first = cgroups.lines().find_map(|line| {
        let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>().try_into().ok()?;
        controllers
            .split(',')
            .any(|name| name == controller)
            .then(|| root.join(controllers).join(&path[1..]).join(file))
    });
    let unified = || cgroups.lines().find_map(|line| Some(root.join(line.strip_prefix("0::/")?).join(version_2)));
    let path = first.or_else(unified).expect("a process has a cgroup");
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).trim().to_owned()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn limits_reach_the_cgroups_and_a_container_over_its_limit_is_killed() {
    let node = Node::with(&json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}}));
    let resources = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "memory": "32Mi"}});
    let limited = with(node.container("limited", FOREVER), json!({"resources": resources}));
    let hungry = "sleep 1; head -c 100000000 /dev/zero | tail -c 100000000 > /dev/null";
    let hungry = with(node.container("hungry", hungry), json!({"resources": {"limits": {"memory": "16Mi"}}}));
    let spec = json!({"terminationGracePeriodSeconds": 1, "restartPolicy": "Never", "containers": [limited, hungry]});
    node.write("limits.json", &node.pod("limits", spec));
    let pod = node.until("limits", "the hungry one was killed", |pod| {
        let status = crate::support::node::container_status(pod, "hungry")?;
        status["state"]["terminated"].is_object().then(|| pod.clone())
    });
    let ended = &crate::support::node::container_status(&pod, "hungry").expect("a status")["state"]["terminated"];
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("OOMKilled"), &json!(137)), "{ended}");
    assert_eq!(pod["status"]["qosClass"], "Burstable");
    let id = node.running("limits/limited").id;
    assert_eq!(limit(&node, &id, ("memory", "memory.limit_in_bytes"), "memory.max"), (32 << 20).to_string());
    let quota = limit(&node, &id, ("cpu", "cpu.cfs_quota_us"), "cpu.max");
    assert!(quota == "20000" || quota == "20000 100000", "{quota}");
    let weight = limit(&node, &id, ("cpu", "cpu.shares"), "cpu.weight");
    assert!(weight == "102" || weight == "4", "{weight}");
    node.clear();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pod_may_have_the_nodes_namespaces() {
    let node = Node::new();
    let spec = |more: Value| {
        with(json!({"terminationGracePeriodSeconds": 1, "containers": [node.container("main", FOREVER)]}), more)
    };
    node.write("host.json", &node.pod("host", spec(json!({"hostNetwork": true, "hostPID": true, "hostIPC": true}))));
    node.write("own.json", &node.pod("own", spec(json!({}))));
    let shared = json!({"shareProcessNamespace": true, "containers": [node.container("main", FOREVER), node.container("other", "exec sleep 4321")]});
    node.write("shared.json", &node.pod("shared", spec(shared)));
    node.ready("host");
    node.ready("own");
    node.ready("shared");
    let of = |pod: &str, what: &str| {
        node.in_container(&format!("{pod}/main"), &format!("readlink /proc/self/ns/{what}")).trim().to_owned()
    };
    let ours =
        |what: &str| fs::read_link(format!("/proc/thread-self/ns/{what}")).expect("a namespace").display().to_string();
    for what in ["net", "pid", "ipc"] {
        assert_eq!(of("host", what), ours(what), "{what} is the node's");
        assert_ne!(of("own", what), ours(what), "{what} is the pod's own");
    }
    assert_eq!(node.pods()["host"]["status"]["podIP"], NODE_IP);
    let processes = node.in_container("shared/main", "ps");
    assert!(processes.contains("sleep 4321"), "{processes}");
    assert!(!node.in_container("own/main", "ps").contains("sleep 4321"));
    node.clear();
}
