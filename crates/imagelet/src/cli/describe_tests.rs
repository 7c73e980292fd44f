//! Tests of a pod's description.

use serde_json::json;

use super::*;

#[test]
fn a_pod_is_described() {
    let value = json!({
        "metadata": {"name": "web-edge", "namespace": "shop", "uid": "u-1", "labels": {"app": "web"},
            "annotations": {"kubernetes.io/config.source": "file"}},
        "spec": {
            "nodeName": "edge", "priority": 7, "terminationGracePeriodSeconds": 30,
            "volumes": [{"name": "data", "hostPath": {"path": "/srv", "type": "Directory"}}, {"name": "tmp", "emptyDir": {}}],
            "containers": [{
                "name": "main", "image": "r.example/web:1", "command": ["serve"],
                "ports": [{"name": "http", "containerPort": 80, "hostPort": 8080, "protocol": "TCP"}],
                "resources": {"limits": {"memory": "1Gi"}},
                "env": [{"name": "A", "value": "b"}, {"name": "K", "valueFrom": {"secretKeyRef": {"name": "login", "key": "k"}}}],
                "envFrom": [{"prefix": "P_", "configMapRef": {"name": "m", "optional": true}}],
                "volumeMounts": [{"name": "data", "mountPath": "/data", "subPath": "a", "readOnly": true}],
                "livenessProbe": {"httpGet": {"port": "http", "path": "/ok", "scheme": "HTTP"}, "timeoutSeconds": 1,
                    "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
            }],
        },
        "status": {
            "phase": "Running", "hostIP": "192.0.2.7", "podIP": "10.0.0.9", "qosClass": "Burstable",
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "main"}],
            "containerStatuses": [{
                "name": "main", "ready": false, "restartCount": 2, "imageID": "sha256:1", "containerID": "containerd://c",
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}},
                "lastState": {"terminated": {"exitCode": 3, "reason": "Error", "message": "bad\u{1b}[31m\n",
                    "startedAt": "2026-01-01T00:01:00Z", "finishedAt": "2026-01-01T00:01:01Z"}},
            }],
        },
    });
    let event = json!({"involvedObject": {"uid": "u-1"}, "type": "Warning", "reason": "BackOff", "message": "Back-off restarting\n",
        "count": 3, "firstTimestamp": "2026-01-01T00:01:00Z", "lastTimestamp": "2026-01-01T00:02:00Z"});
    let event = Event::of(&event).expect("an event");
    let sync =
        SyncState { state: "Syncing".into(), actions: "start main: it has ended".into(), error: Some("no".into()) };
    let pod = Pod::of(&value).expect("a pod");
    let now = "2026-01-01T00:02:10Z".parse().expect("a time");
    let want = "\
Name:                web-edge
Namespace:           shop
UID:                 u-1
Priority:            7
Node:                edge/192.0.2.7
Start Time:          2026-01-01T00:00:00Z
Labels:
  app=web
Annotations:
  kubernetes.io/config.source: file
Status:              CrashLoopBackOff
Phase:               Running
IP:                  10.0.0.9
Containers:
  main:
    Container ID:    containerd://c
    Image:           r.example/web:1
    Image ID:        sha256:1
    Ports:           80/TCP, on the node 8080 (http)
    Command:
      serve
    State:           Waiting
      Reason:        CrashLoopBackOff
      Message:       back-off 20s
    Last State:      Terminated
      Reason:        Error
      Message:       bad?[31m
      Exit Code:     3
      Started:       2026-01-01T00:01:00Z
      Finished:      2026-01-01T00:01:01Z
    Ready:           False
    Restart Count:   2
    Limits:
      memory: 1Gi
    Liveness:        http-get http://:http/ok delay=0s timeout=1s period=10s #success=1 #failure=3
    Environment From:
      m ConfigMap Optional: true with prefix \"P_\"
    Environment:
      A: b
      K: <set to the key 'k' in secret 'login'>  Optional: false
    Mounts:
      /data from data (ro, path=\"a\")
Conditions:
  Ready                        False  ContainersNotReady main
Volumes:
  data: HostPath path=/srv, type=Directory
  tmp: EmptyDir
QoS Class:           Burstable
Grace Period:        30s
Sync:                Syncing
  Last Wanted:       start main: it has ended
  Error:             no
Events:
  TYPE      REASON    AGE                 MESSAGE
  Warning   BackOff   10s (x3 over 70s)   Back-off restarting
";
    assert_eq!(described(&pod, &value, &sync, &[&event], now), want);
}

#[test]
fn a_pod_of_which_nothing_is_known_is_described_too() {
    let value = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "x", "image": "y"}]}, "status": {}});
    let pod = Pod::of(&value).expect("a pod");
    let text = described(&pod, &value, &SyncState::default(), &[], Timestamp::UNIX_EPOCH);
    assert!(
        text.contains("IP:                  <none>\n") && text.ends_with("Events:              <none>\n"),
        "{text}"
    );
}

#[test]
fn descriptions_drive_no_terminal() {
    assert_eq!(clean("a\tb\nc\u{1b}[m\u{9b}m\u{202e}d\u{2066}\u{61c}\u{200e}\u{7f}\n"), "a\tb c?[m?m?d????");
}

#[test]
fn a_refused_manifest_is_found_by_each_of_its_names() {
    let refused = [RefusedPod {
        origin: "/m/web.yaml".to_owned(),
        pod: Some("shop/web-n1".to_owned()),
        reason: "spec.containers: Required value".to_owned(),
        skipped: false,
    }];
    for (text, namespace, want) in [
        ("shop/web-n1", None, 1),
        ("web-n1", Some("shop"), 1),
        ("web-n1", Some("other"), 0),
        ("/m/web.yaml", None, 1),
        ("web.yaml", None, 1),
        ("web", None, 0),
    ] {
        assert_eq!(refused_as(&refused, text, namespace).len(), want, "{text}");
    }
    let text = describe_refusal(&[&refused[0]]);
    assert!(text.contains("Manifest:            /m/web.yaml\nStatus:              Refused\nReason:  "), "{text}");
}
