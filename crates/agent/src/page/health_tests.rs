//! The line of nodes in many states.

use std::sync::Arc;

use super::*;
use crate::api::gc::DiskUsage;
use crate::page::attention::troubles;
use crate::page::inventory::Inventory;
use crate::page::report::PodReport;
use crate::page::view::samples::{empty, lively, with_sets};

fn line(report: &Report) -> (String, Level) {
    let health = Health::of(report, &troubles(report));
    (health.line(), health.level())
}

#[test]
fn a_line_says_what_is_wrong_first() {
    let report = lively(3, "");
    let health = Health::of(&report, &troubles(&report));
    assert_eq!(health.line(), "2 of 4 pods not ready · 1 manifest refused · 1 pull retrying · disk OK");
    let levels: Vec<_> = health.0.iter().map(|item| (item.level, item.link)).collect();
    let want = [
        (Level::Bad, "#attention"),
        (Level::Bad, "#attention"),
        (Level::Warning, "#attention"),
        (Level::Good, "#disk"),
    ];
    assert_eq!(levels, want);
}

#[test]
fn a_node_that_is_well_says_so() {
    let disk = |used_percent| Inventory {
        disk: Some(DiskUsage { used_percent, ..DiskUsage::default() }),
        thresholds: (85, 80),
        ..Inventory::default()
    };
    let mut report = lively(3, "");
    report.inventory = Arc::new(disk(40));
    report.backoff = Some(Vec::new());
    let all = report.pods.take().expect("pods");
    let pods: Vec<_> = all.pods.into_iter().filter(|pod| pod.metadata.name.starts_with("web")).collect();
    report.pods = Some(PodReport { pods, ..PodReport::default() });
    assert_eq!(line(&report), ("2 pods ready · disk OK".to_owned(), Level::Good));
    report.pods = None;
    for (used, want) in
        [(84, ("disk OK", Level::Good)), (85, ("disk 85% full", Level::Warning)), (97, ("disk 97% full", Level::Bad))]
    {
        report.inventory = Arc::new(disk(used));
        assert_eq!(line(&report), (want.0.to_owned(), want.1));
    }
    assert_eq!(line(&empty()), ("no pods · disk not measured".to_owned(), Level::Warning));
}

#[test]
fn a_pod_that_starts_is_no_failure() {
    let mut report = lively(3, "");
    report.backoff = Some(Vec::new());
    let all = report.pods.take().expect("pods");
    let pods: Vec<_> = all.pods.into_iter().filter(|pod| pod.metadata.name != "worker-7").collect();
    report.pods = Some(PodReport { pods, ..PodReport::default() });
    assert_eq!(line(&report), ("1 of 3 pods not ready · disk OK".to_owned(), Level::Warning));
}

#[test]
fn failed_images_of_sets_are_counted_as_pulls() {
    let want = "2 of 4 pods not ready · 1 manifest refused · 2 pulls retrying · disk OK";
    assert_eq!(line(&with_sets(lively(3, ""), 3, "")).0, want);
    let mut report = Report { backoff: None, pods: None, ..with_sets(lively(3, ""), 3, "") };
    assert_eq!(line(&report).0, "1 pull retrying · disk OK", "sets are retried in a process without back-off, too");
    report.ended.last_mut().expect("pulls").outcome = image_manager::PullOutcome::Failed;
    assert_eq!(line(&report).0, "2 pulls failed · disk OK", "a client decides about one of them");
}
