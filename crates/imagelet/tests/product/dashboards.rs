//! The dashboard and the alerts of the packages: promtool accepts them, and every metric that they name is exported by a live agent, or
//! is documented as one that appears with its first event. Metrics of fleets are compared in `cluster::fleet_commands`.

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

/// The dashboard, and the rules of the alerts.
const FILES: [&str; 2] = ["packaging/grafana/imagelet.json", "packaging/prometheus/imagelet.rules.yaml"];

/// True for a metric of image sets.
fn is_of_fleet(name: &str) -> bool {
    ["imagelet_fleet_", "imagelet_image_set_", "imagelet_node_images_"].iter().any(|start| name.starts_with(start))
}

/// The metrics of image sets that the dashboard and the alerts name.
pub(crate) fn metrics_of_fleets() -> BTreeSet<String> {
    FILES.iter().flat_map(|file| metrics(&text(file))).filter(|name| is_of_fleet(name)).collect()
}

/// The findings of `promtool check metrics` about metrics of our own.
#[track_caller]
pub(crate) fn lint(scratch: &Path, exposed: &str) -> Vec<String> {
    let file = scratch.join("metrics.txt");
    fs::write(&file, exposed).expect("written");
    let lint = format!("exec '{}' check metrics <'{}' 2>&1 || true", promtool(), file.display());
    let printed = run(tool("bash").args(["-c", &lint]));
    printed.lines().filter(|line| line.starts_with("imagelet_") || line.contains("error")).map(str::to_owned).collect()
}

#[track_caller]
fn promtool() -> String {
    run(tool("bash").arg(repository().join("scripts/promtool.sh"))).trim().to_owned()
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
    for file in FILES {
        let named = metrics(&text(file));
        assert!(named.len() >= 8, "{file}: {named:?}");
        for name in named.into_iter().filter(|name| !is_of_fleet(name)) {
            assert!(types.contains(name.as_str()) || later(&name), "{file}: no metric {name}");
        }
    }
    assert!(!later("imagelet_no_such_metric"));

    let promtool = promtool();
    let check = |args: &[&str]| run(tool("env").arg(&promtool).args(args).current_dir(repository()));
    check(&["check", "rules", "packaging/prometheus/imagelet.rules.yaml"]);
    check(&["test", "rules", "packaging/prometheus/imagelet.rules.test.yaml"]);
    assert_eq!(lint(node.scene.scratch.path(), &live), Vec::<String>::new(), "of our own metrics nothing is amiss");
    let dashboard: serde_json::Value = serde_json::from_str(&text("packaging/grafana/imagelet.json")).expect("JSON");
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 15));
    node.clear();
}
