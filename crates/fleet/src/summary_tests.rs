//! Tests of the figures of a set.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

fn report(phase: SetPhase) -> SetReport {
    let bytes = TransferredBytes { total: 100, done: 40, from_registry: 30, from_mirrors: 10 };
    SetReport { name: "set".into(), phase, bytes, ..SetReport::default() }
}

fn failed(image: &str, reason: &str, message: &str) -> ImageReport {
    ImageReport {
        name: image.into(),
        phase: ImagePhase::Failed,
        reason: Some(reason.into()),
        message: Some(message.into()),
        ..ImageReport::default()
    }
}

fn view<'a>(name: &str, set: Option<&'a SetReport>, images: Vec<&'a ImageReport>, is_silent: bool) -> NodeView<'a> {
    let node = NodeCursor { creation_time: Time(Timestamp::UNIX_EPOCH), name: name.into() };
    NodeView { node, set, images, is_silent }
}

#[test]
fn every_node_is_counted_once() {
    let [waiting, pulling, ready, bad] =
        [SetPhase::Waiting, SetPhase::Pulling, SetPhase::Ready, SetPhase::Failed].map(report);
    let views = [
        view("a", None, Vec::new(), false),
        view("b", Some(&waiting), Vec::new(), false),
        view("c", Some(&pulling), Vec::new(), false),
        view("d", Some(&ready), Vec::new(), true),
        view("e", Some(&bad), Vec::new(), true),
        view("f", Some(&pulling), Vec::new(), true),
        view("g", None, Vec::new(), true),
    ];
    let summary = summarise(&views);
    let want = NodeCounts { desired: 7, waiting: 2, pulling: 1, ready: 1, failed: 1, lost: 2 };
    assert_eq!(summary.nodes, want);
    assert_eq!(summary.bytes, TransferredBytes { total: 500, done: 200, from_registry: 150, from_mirrors: 50 });
    let [group] = summary.failures.as_slice() else { panic!("one group: {:?}", summary.failures) };
    assert_eq!((group.reason.as_str(), group.count, group.image.as_str()), ("NotReporting", 2, ""));
}

#[test]
fn failures_are_grouped_and_bounded() {
    let (missing, full) = (failed("a:1", "NotFound", "no such tag"), failed("b:1", "InsufficientSpace", "1 GiB short"));
    let long = failed("c:1", "Other", &"é".repeat(1000));
    let rare: Vec<ImageReport> = (0..30).map(|index| failed(&format!("z{index:02}"), "Rare", "")).collect();
    let names: Vec<String> = (0..9).map(|index| format!("n{index}")).collect();
    let mut views: Vec<NodeView<'_>> =
        names.iter().map(|name| view(name, None, vec![&missing, &long], false)).collect();
    views[3].images.push(&full);
    views[4].images.push(&full);
    views[5].images.extend(&rare);
    let failures = summarise(&views).failures;
    assert_eq!(failures.len(), MAX_FAILURES);
    let heads: Vec<(&str, u32)> = failures.iter().take(3).map(|group| (group.reason.as_str(), group.count)).collect();
    assert_eq!(heads, [("NotFound", 9), ("Other", 9), ("InsufficientSpace", 2)]);
    assert_eq!(failures[0].nodes, ["n0", "n1", "n2", "n3", "n4"]);
    assert_eq!(failures[1].message.chars().count(), MAX_MESSAGE);
    assert_eq!(failures[2].message, "1 GiB short");
}

#[test]
fn an_image_that_disappeared_is_no_failure() {
    let gone = ImageReport { name: "a:1".into(), phase: ImagePhase::Gone, ..ImageReport::default() };
    let pulling = report(SetPhase::Pulling);
    let summary = summarise(&[view("a", Some(&pulling), vec![&gone], false)]);
    assert_eq!((summary.failures.len(), summary.nodes.pulling), (0, 1));
}
