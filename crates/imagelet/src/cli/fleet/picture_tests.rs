//! Tests of pictures as text: the whole picture of a rollout with failures, and its width.

use fleet::api::{ImageSet, NodeImages};
use serde_json::json;

use super::*;

fn picture(reports: Option<&[NodeImages]>, nodes: &serde_json::Value) -> RolloutPicture {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let set: ImageSet = serde_json::from_value(json!({
        "apiVersion": "imagelet.dev/v1alpha1", "kind": "ImageSet",
        "metadata": {"name": "web", "uid": "u", "generation": 3},
        "spec": {"images": [{"name": "registry.example/web:2.1"}], "nodeSelector": {}},
        "status": {
            "observedGeneration": 3, "rolloutStartTime": "2026-01-01T00:00:00Z", "nodes": nodes,
            "bytes": {"total": 20_000_000_000_u64, "done": 12_300_000_000_u64, "fromRegistry": 100_000_000, "fromMirrors": 12_200_000_000_u64},
            "resolved": [
                {"name": "registry.example/web:2.1", "digest": format!("sha256:{}", "0123456789abcdef".repeat(4))},
                {"name": "registry.example/proxy:1", "reason": "Unauthorized", "message": "the registry refuses access"},
            ],
            "failures": [{"image": "registry.example/web:2.1", "reason": "InsufficientSpace", "message": "12GB would have to be free",
                          "count": 7, "nodes": ["n1", "n2", "n3", "n4", "n5"]}],
            "conditions": [
                condition("Resolved", "False", "Unresolved", "1 of 2 images cannot be resolved: registry.example/proxy:1: the registry refuses access"),
                condition("Progressing", "True", "RollingOut", "80 of 120 nodes ready"),
            ],
        },
    }))
    .expect("a set");
    RolloutPicture::of(&set, None, reports)
}

#[test]
fn a_rollout_is_one_picture() {
    let report: NodeImages = serde_json::from_value(json!({
        "apiVersion": "imagelet.dev/v1alpha1", "kind": "NodeImages", "metadata": {"name": "n17"},
        "status": {
            "sets": [{"name": "web", "uid": "u", "generation": 3, "phase": "Pulling", "images": 1, "ready": 0,
                      "bytes": {"total": 120_000_000, "done": 45_000_000}}],
            "images": [{"set": "web", "name": "registry.example/web:2.1", "phase": "Pulling"}],
            "conditions": [{"type": "Ready", "status": "False", "reason": "Pulling", "message": "m", "lastTransitionTime": "2026-01-01T00:01:00Z"}],
        },
    }))
    .expect("a report");
    let nodes = json!({"desired": 120, "ready": 80, "pulling": 10, "waiting": 22, "failed": 7, "lost": 1});
    let reports = [report];
    let picture = picture(Some(&reports), &nodes);
    let now = "2026-01-01T00:04:12Z".parse().expect("a time");
    let want = "\
imageset/web  RollingOut  generation 3  started 4m12s ago  120 nodes

ready        [##########################              ]     80
in progress  [###                                     ]     10
waiting      [#######                                 ]     22
failed       [##                                      ]      7
lost         [#                                       ]      1
bytes        12.3GB of 20GB on all nodes
received     100MB from registries, 12.2GB from mirrors

Resolved     False    Unresolved: 1 of 2 images cannot be resolved: registry.ex…
Progressing  True     RollingOut: 80 of 120 nodes ready

IMAGES
  registry.example/web:2.1                  sha256:0123456789ab
  registry.example/proxy:1                  no digest: Unauthorized: the regist…

FAILURES
  InsufficientSpace  7 nodes  registry.example/web:2.1
    12GB would have to be free
    on n1, n2, n3, n4, n5, …

SLOWEST NODES
  n17               45MB of 120MB  not ready for 3m12s  registry.example/web:2.1";
    let lines = render(&picture, now);
    assert_eq!(lines.join("\n"), want);
    assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS));
    let short = "imageset/web RollingOut: 80/120 ready, 10 in progress, 22 waiting, 7 failed, 1 lost";
    assert_eq!(line(&picture), short);
}

#[test]
fn without_the_right_to_reports_the_picture_says_so() {
    let text = |nodes: &serde_json::Value| render(&picture(None, nodes), Timestamp::UNIX_EPOCH).join("\n");
    let note = "the slowest nodes are left out: you may not list nodeimages";
    assert!(
        text(&json!({"desired": 2, "ready": 1, "pulling": 1, "waiting": 0, "failed": 0, "lost": 0})).contains(note)
    );
    assert!(
        !text(&json!({"desired": 2, "ready": 2, "pulling": 0, "waiting": 0, "failed": 0, "lost": 0})).contains(note)
    );
}
