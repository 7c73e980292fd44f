//! Tables of the times of reports.

use std::sync::Arc;

use super::*;
use crate::api::ImageReport;

fn status(phase: SetPhase, ready: u32) -> NodeImagesStatus {
    let set = SetReport { name: "a".into(), uid: "u".into(), generation: 1, phase, ready, ..SetReport::default() };
    NodeImagesStatus { sets: vec![set], images: vec![ImageReport::default()], ..NodeImagesStatus::default() }
}

#[test]
fn ends_of_sets_are_news_and_progress_is_not() {
    use SetPhase::{Failed, Pulling, Ready, Waiting};
    for (before, now, want) in [
        (status(Waiting, 0), status(Waiting, 0), Change::None),
        (status(Waiting, 0), status(Pulling, 0), Change::Progress),
        (status(Pulling, 0), status(Pulling, 1), Change::Progress),
        (status(Pulling, 1), status(Ready, 2), Change::Settled),
        (status(Pulling, 1), status(Failed, 1), Change::Settled),
        (status(Failed, 1), status(Pulling, 1), Change::Progress),
        (status(Ready, 2), status(Pulling, 1), Change::Progress),
        (status(Ready, 2), NodeImagesStatus::default(), Change::Settled),
        (NodeImagesStatus::default(), status(Waiting, 0), Change::Settled),
    ] {
        assert_eq!(change(&before, &now), want, "{before:?} {now:?}");
    }
    let time =
        NodeImagesStatus { report_time: None, disk: Some(crate::api::DiskReport::default()), ..status(Ready, 2) };
    assert_eq!(change(&status(Ready, 2), &time), Change::None);
}

#[test]
fn interval_of_progress_grows_with_the_cluster() {
    let now = Instant::now();
    let middle: Random = Arc::new(|| 0.5);
    let mut cadence = Cadence::new();
    assert_eq!(cadence.due(Change::None, now), now, "the first report");
    cadence.written(now, &middle);
    for (nodes, change, want) in [
        (0, Change::Progress, 20),
        (1000, Change::Progress, 20),
        (5000, Change::Progress, 100),
        (5000, Change::Settled, 1),
        (5000, Change::None, 1800),
    ] {
        cadence.nodes = nodes;
        assert_eq!((cadence.due(change, now) - now).as_secs(), want, "{nodes} {change:?}");
    }
}
