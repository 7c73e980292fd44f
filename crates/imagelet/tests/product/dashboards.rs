//! The dashboard and the alerts of the packages: promtool accepts them, and every metric that they name is exported by a live agent, or
//! is documented as one that appears with its first event.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::node::{FOREVER, Node};
use crate::support::process::{run, tool};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(file: &str) -> String {
    fs::read_to_string(repository().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// The metrics that a text names, without the suffix of a bucket.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = words.filter(|word| ["imagelet_", "kubelet_", "process_"].iter().any(|start| word.starts_with(start)));
    ours.filter(|word| !word.ends_with('_'))
        .map(|word| word.strip_suffix("_bucket").unwrap_or(word).to_owned())
        .collect()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn dashboard_and_alerts_name_metrics_that_are_there() {
    let node = Node::new();
    let container = node.container("main", FOREVER);
    node.write("web.json", &node.pod("web", json!({"terminationGracePeriodSeconds": 1, "containers": [container]})));
    node.ready("web");
    let live = node.imagelet.ok(&["metrics"]);
    let types: BTreeSet<&str> =
        live.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).map(|(name, _)| name).collect();
    let page = text("docs/admin.md") + &text("docs/observability.md");
    // A series with labels exists from its first use on: the page lists the labels of these.
    let later = |name: &str| {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        row.and_then(|row| row.split('|').nth(3)).is_some_and(|labels| labels.contains('`'))
    };
    for file in ["packaging/grafana/imagelet.json", "packaging/prometheus/imagelet.rules.yaml"] {
        let named = metrics(&text(file));
        assert!(named.len() >= 8, "{file}: {named:?}");
        for name in named {
            assert!(types.contains(name.as_str()) || later(&name), "{file}: no metric {name}");
        }
    }
    assert!(!later("imagelet_no_such_metric"));

    let promtool = run(tool("bash").arg(repository().join("scripts/promtool.sh")));
    let check = |args: &[&str]| run(tool("env").arg(promtool.trim()).args(args).current_dir(repository()));
    check(&["check", "rules", "packaging/prometheus/imagelet.rules.yaml"]);
    check(&["test", "rules", "packaging/prometheus/imagelet.rules.test.yaml"]);
    let exposed = node.scene.scratch.join("metrics.txt");
    fs::write(&exposed, &live).expect("written");
    let lint = format!("exec '{}' check metrics <'{}' 2>&1 || true", promtool.trim(), exposed.display());
    let said = run(tool("bash").args(["-c", &lint]));
    let findings: Vec<&str> =
        said.lines().filter(|line| line.starts_with("imagelet_") || line.contains("error")).collect();
    assert_eq!(findings, Vec::<&str>::new(), "of our own metrics nothing is amiss");
    let dashboard: serde_json::Value = serde_json::from_str(&text("packaging/grafana/imagelet.json")).expect("JSON");
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 15));
    node.clear();
}
