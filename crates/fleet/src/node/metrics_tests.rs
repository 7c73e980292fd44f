//! The metrics of a node: series follow the sets, and the page of metrics names each one.

use std::sync::Arc;

use jiff::Timestamp;

use super::*;
use crate::api::{ImageReport, SetReport};
use crate::metric_page::{self, documented, exported, samples};

fn text(board: &SetBoard) -> String {
    metric_page::text(|registry| board.register(registry))
}

fn status(sets: &[(&str, SetPhase, &[ImagePhase])]) -> Arc<NodeImagesStatus> {
    let images = sets.iter().flat_map(|(set, _, phases)| {
        phases.iter().map(|phase| ImageReport { set: (*set).to_owned(), phase: *phase, ..ImageReport::default() })
    });
    let images = images.collect();
    let set = |(name, phase, _): &(&str, SetPhase, &[ImagePhase])| SetReport {
        name: (*name).to_owned(),
        phase: *phase,
        ..SetReport::default()
    };
    Arc::new(NodeImagesStatus { sets: sets.iter().map(set).collect(), images, ..NodeImagesStatus::default() })
}

#[test]
fn series_of_sets_that_no_longer_select_the_node_disappear() {
    let board = SetBoard::default();
    let quiet =
        ["imagelet_node_images_last_report_timestamp_seconds 0", "imagelet_node_images_report_failures_total 0"];
    assert_eq!(samples(&text(&board)), quiet);
    let phases = [ImagePhase::Failed, ImagePhase::Ready, ImagePhase::Ready, ImagePhase::Pulling];
    board.publish(status(&[("web", SetPhase::Pulling, &phases), ("db", SetPhase::Ready, &[])]));
    let want = [
        r#"imagelet_image_set_phase{set="web",phase="pulling"} 1"#,
        r#"imagelet_image_set_phase{set="db",phase="ready"} 1"#,
        r#"imagelet_image_set_images{set="web",phase="failed"} 1"#,
        r#"imagelet_image_set_images{set="web",phase="pulling"} 1"#,
        r#"imagelet_image_set_images{set="web",phase="ready"} 2"#,
    ];
    assert_eq!(samples(&text(&board))[..5], want);
    board.publish(status(&[]));
    assert_eq!(samples(&text(&board)), quiet);
}

#[test]
fn failures_and_reports_are_counted() {
    let board = SetBoard::default();
    ["ImageNotFound", "Unauthorized", "ImageNotFound"].iter().for_each(|reason| board.pull_failed(reason));
    board.report_failed();
    board.report_written(Timestamp::from_second(1_800_000_000).expect("in range"));
    let want = [
        r#"imagelet_image_set_pull_failures_total{reason="ImageNotFound"} 2"#,
        r#"imagelet_image_set_pull_failures_total{reason="Unauthorized"} 1"#,
        "imagelet_node_images_last_report_timestamp_seconds 1800000000",
        "imagelet_node_images_report_failures_total 1",
    ];
    assert_eq!(samples(&text(&board)), want);
}

#[test]
fn page_of_metrics_names_every_metric_of_a_node() {
    let board = SetBoard::default();
    board.publish(status(&[("web", SetPhase::Ready, &[ImagePhase::Ready])]));
    board.pull_failed("ImageNotFound");
    assert_eq!(exported(&text(&board)), documented("### Image sets of a node"));
}
