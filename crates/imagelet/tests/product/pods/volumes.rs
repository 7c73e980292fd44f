//! Environment variables from every source, and volumes of every kind, as the container's own
//! process sees them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::network::NODE_IP;
use crate::support::node::{FOREVER, NAMESPACE, Node, full};

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data})
}

fn secret(name: &str, key: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE},
           "data": {key: STANDARD.encode(value)}})
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn variables_come_from_literals_documents_and_the_pod_itself() {
    let node = Node::idle(&json!({}));
    node.document("all.json", &config_map("all", json!({"COLOUR": "green"})));
    node.document("one.json", &config_map("one", json!({"key": "from one"})));
    node.document("token.json", &secret("token", "token", "an-unlikely-secret"));
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let mut container = node.container("main", FOREVER);
    container["workingDir"] = json!("/tmp/made/for/it");
    container["envFrom"] = json!([{"configMapRef": {"name": "all"}, "prefix": "ALL_"}]);
    container["resources"] = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "500m", "memory": "64Mi"}});
    container["env"] = json!([
        {"name": "PLAIN", "value": "plain"},
        {"name": "MADE", "value": "$(PLAIN) and $(ALL_COLOUR), not $$(PLAIN) nor $(NOBODY)"},
        {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "one", "key": "key"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "token"}}},
        {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "nobody", "key": "key", "optional": true}}},
        {"name": "NAME", "valueFrom": field("metadata.name")},
        {"name": "SPACE", "valueFrom": field("metadata.namespace")},
        {"name": "LABEL", "valueFrom": field("metadata.labels['app']")},
        {"name": "NODE", "valueFrom": field("spec.nodeName")},
        {"name": "IP", "valueFrom": field("status.podIP")},
        {"name": "HOST", "valueFrom": field("status.hostIP")},
        {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
    ]);
    let mut pod = node.pod("env", json!({"terminationGracePeriodSeconds": 1, "containers": [container]}));
    pod["metadata"]["labels"] = json!({"app": "shop"});
    node.write("env.json", &pod);
    let mut node = node;
    node.start();
    let status = node.ready("env");
    let environment =
        node.in_container("env/main", "tr '\\0' '\\n' < /proc/1/environ; echo \"IN=$(readlink /proc/1/cwd)\"");
    let name = full("env");
    let ip = status["status"]["podIP"].as_str().expect("an address");
    for (variable, value) in [
        ("PLAIN", "plain"),
        ("MADE", "plain and green, not $(PLAIN) nor $(NOBODY)"),
        ("ALL_COLOUR", "green"),
        ("ONE", "from one"),
        ("TOKEN", "an-unlikely-secret"),
        ("NAME", &name),
        ("SPACE", NAMESPACE),
        ("LABEL", "shop"),
        ("NODE", "edge"),
        ("IP", ip),
        ("HOST", NODE_IP),
        ("MEMORY", "64"),
        ("HOSTNAME", &name),
        ("IN", "/tmp/made/for/it"),
    ] {
        let line = format!("{variable}={value}");
        assert!(environment.lines().any(|l| l == line), "no {line} in\n{environment}");
    }
    assert!(!environment.contains("NONE="), "what is optional and missing is not set:\n{environment}");
    let hosts = node.in_container("env/main", "cat /etc/hosts /etc/hostname /etc/resolv.conf");
    assert!(hosts.contains(&format!("{ip}\t{name}")), "{hosts}");
    assert!(!node.log().join("\n").contains("an-unlikely-secret"), "a secret stands in the log");
    node.clear();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn volumes_of_every_kind_are_there_and_go_with_the_pod() {
    let node = Node::new();
    let host = node.out().join("host");
    fs::create_dir(&host).expect("create a directory");
    fs::write(host.join("theirs"), "the node's\n").expect("write a file");
    node.document("settings.json", &config_map("settings", json!({"colour": "green", "size": "7"})));
    node.document("keys.json", &secret("keys", "key", "an-unlikely-secret"));
    let mounts = json!([
        {"name": "host", "mountPath": "/host"},
        {"name": "host", "mountPath": "/host-ro", "readOnly": true},
        {"name": "disk", "mountPath": "/disk"},
        {"name": "disk", "mountPath": "/sub", "subPath": "below/it"},
        {"name": "disk", "mountPath": "/named", "subPathExpr": "of-$(NAME)"},
        {"name": "memory", "mountPath": "/memory"},
        {"name": "settings", "mountPath": "/settings"},
        {"name": "one", "mountPath": "/one", "readOnly": true},
        {"name": "settings", "mountPath": "/etc/colour", "subPath": "colour"},
        {"name": "keys", "mountPath": "/keys"},
        {"name": "self", "mountPath": "/self"},
        {"name": "all", "mountPath": "/all"},
    ]);
    let mut container = node.container("main", FOREVER);
    container["env"] = json!([{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    container["volumeMounts"] = mounts;
    let mut second = node.container("second", FOREVER);
    second["volumeMounts"] =
        json!([{"name": "disk", "mountPath": "/disk"}, {"name": "memory", "mountPath": "/memory"}]);
    let name = json!({"path": "name", "fieldRef": {"fieldPath": "metadata.name"}});
    let labels = json!({"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}});
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [container, second], "volumes": [
        {"name": "host", "hostPath": {"path": host, "type": "Directory"}},
        {"name": "disk", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "one", "configMap": {"name": "settings", "items": [{"key": "size", "path": "deep/size", "mode": 0o440}]}},
        {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400}},
        {"name": "self", "downwardAPI": {"items": [name, labels]}},
        {"name": "all", "projected": {"sources": [
            {"configMap": {"name": "settings", "items": [{"key": "colour", "path": "colour"}]}},
            {"secret": {"name": "keys", "items": [{"key": "key", "path": "key"}]}},
            {"downwardAPI": {"items": [name]}},
        ]}},
    ]});
    let mut pod = node.pod("volumes", spec);
    pod["metadata"]["labels"] = json!({"app": "shop"});
    node.write("volumes.json", &pod);
    node.ready("volumes");
    let sees = |script: &str| node.in_container("volumes/main", script).trim_end().to_owned();
    assert_eq!(sees("cat /host/theirs /host-ro/theirs"), "the node's\nthe node's");
    assert_eq!(sees("echo ours > /host/ours; echo ours 2>/dev/null > /host-ro/no; echo $?"), "1");
    assert_eq!(fs::read_to_string(host.join("ours")).expect("the pod's file"), "ours\n");
    assert_eq!(
        sees("echo shared > /disk/file; echo fast > /memory/file; echo sub > /sub/f; cat /disk/below/it/f"),
        "sub"
    );
    assert_eq!(sees("touch /named/x; ls /disk"), format!("below\nfile\nof-{}", full("volumes")));
    let second = node.in_container("volumes/second", "cat /disk/file /memory/file");
    assert_eq!(second, "shared\nfast\n");
    assert_eq!(sees("grep ' /memory ' /proc/mounts | cut -d' ' -f3"), "tmpfs");
    assert_eq!(sees("df -m /memory | tail -1 | awk '{print $2}'"), "8");
    assert_eq!(sees("cat /settings/colour; echo; cat /settings/size; echo; cat /etc/colour"), "green\n7\ngreen");
    assert_eq!(sees("cat /one/deep/size; echo; stat -Lc %a /one/deep/size; ls /one"), "7\n440\ndeep");
    assert_eq!(sees("cat /keys/key; echo; stat -Lc %a /keys/key"), "an-unlikely-secret\n400");
    assert_eq!(sees("cat /self/name; echo; cat /self/labels"), format!("{}\napp=\"shop\"", full("volumes")));
    assert_eq!(sees("cat /all/colour /all/key /all/name"), format!("greenan-unlikely-secret{}", full("volumes")));
    assert_eq!(sees("echo x 2>/dev/null > /settings/new; echo $?"), "1", "documents are only to be read");
    // On the node the secret is for root alone, and not on a disk.
    let uid = node.pods()["volumes"]["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let directory = node.scene.scratch.join("root/pods").join(&uid);
    let meta = fs::metadata(&directory).expect("the pod's directory");
    assert_eq!((meta.uid(), meta.permissions().mode() & 0o027), (0, 0), "others cannot enter it");
    let table = fs::read_to_string("/proc/self/mountinfo").expect("read the mounts");
    let of_keys = table.lines().find(|l| l.contains(&uid) && l.contains("keys"));
    assert!(of_keys.is_some_and(|l| l.contains(" tmpfs ")), "{of_keys:?}");

    // A document changes: files follow, one that was mounted alone does not, and nothing starts again.
    let before = node.running("volumes/main");
    node.document("settings.json", &config_map("settings", json!({"colour": "blue", "size": "7", "new": "here"})));
    node.eventually("the pod sees the change", || sees("cat /settings/colour") == "blue");
    assert_eq!(sees("cat /settings/new; echo; ls /settings; cat /etc/colour"), "here\ncolour\nnew\nsize\ngreen");
    node.eventually("and so does what is made of several", || sees("cat /all/colour") == "blue");
    assert_eq!(node.running("volumes/main"), before);
    node.clear();
    assert_eq!(fs::read_to_string(host.join("ours")).expect("the node's own stays"), "ours\n");
}
