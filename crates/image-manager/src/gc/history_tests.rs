//! Tests of the usage history.

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

#[test]
fn keys_are_those_of_the_kubelet() {
    assert_eq!(key("sha256:1", ""), "sha256:1");
    assert_eq!(key("sha256:1", "kata"), "sha256:1,kata");
}

#[test]
fn a_protection_ends_in_steps_so_that_soon_there_is_nothing_new() {
    let ends = |now: &str, seconds| {
        let until = protected_until(now.parse().expect("a time"), Duration::from_secs(seconds));
        until.to_string()
    };
    assert_eq!(ends("2026-01-01T10:00:30Z", 3600), "2026-01-01T11:01:00Z");
    assert_eq!(ends("2026-01-01T10:00:00.5Z", 3600), "2026-01-01T11:01:00Z");
    assert_eq!(ends("2026-01-01T10:00:59.999999999Z", 3600), "2026-01-01T11:01:00Z");
    assert_eq!(ends("2026-01-01T10:00:30.25Z", 59), "2026-01-01T10:01:29.25Z");
    assert_eq!(protected_until(Timestamp::MAX, Duration::from_secs(3600)), Timestamp::MAX);

    let mut history = UsageHistory::default();
    assert!(history.protect("a", "", at(5), at(100)));
    assert!(!history.protect("a", "", at(6), at(100)));
    assert!(history.protect("a", "", at(6), at(160)));
}

#[test]
fn protection_is_only_prolonged() {
    let mut history = UsageHistory::default();
    history.protect("a", "", at(5), at(100));
    history.protect("a", "", at(6), at(50));
    let record = history.get("a", "").expect("made");
    assert_eq!((record.first_detected, record.protected_until), (at(5), Some(at(100))));
    assert_eq!(history.remove("a", "").map(|r| r.first_detected), Some(at(5)));
    assert!(history.is_empty());
}

#[test]
fn idle_time_begins_with_the_last_use_or_with_the_image() {
    let record = |used: Option<i64>| UsageRecord { last_used: used.map(at), ..UsageRecord::new(at(10)) };
    assert_eq!(record(None).idle_since(), at(10));
    assert_eq!(record(Some(20)).idle_since(), at(20));
    assert_eq!(record(Some(5)).idle_since(), at(10));
}

#[test]
fn what_two_processes_saw_is_joined() {
    let mut ours = UsageHistory::default();
    let used = |first, used: Option<i64>, by: &str| UsageRecord {
        last_used: used.map(at),
        used_by: by.into(),
        ..UsageRecord::new(at(first))
    };
    ours.insert("both", used(100, Some(200), "a"));
    ours.insert("ours", used(100, None, ""));
    let mut theirs = UsageHistory::default();
    theirs.insert("both", UsageRecord { protected_until: Some(at(900)), ..used(50, Some(300), "b") });
    theirs.insert("theirs", used(70, None, ""));
    ours.merge(theirs);
    let both = ours.get("both", "").expect("joined");
    assert_eq!((both.first_detected, both.last_used, &*both.used_by), (at(50), Some(at(300)), "b"));
    assert_eq!(both.protected_until, Some(at(900)));
    assert_eq!(ours.len(), 3);
}

/// An image pulled by the new clock is not moved by the pass that sees the change: it would be kept for years.
#[test]
fn a_protection_after_a_clock_was_set_ends_when_it_says() {
    use crate::gc::node_time::Boot;
    let moment = |wall, up| Moment { wall: at(wall), boot: Some(Boot { id: "a".into(), up: Duration::from_secs(up) }) };
    let years = 68 * 365 * 24 * 3600;
    for step in [years, -years] {
        let mut history = UsageHistory::default();
        history.begin_pass(moment(1000, 100));
        assert!(history.protect("before", "", at(1000), at(4600)));
        let now = moment(1060 + step, 160);
        history.follow_clock(now.clone());
        assert!(history.protect("after", "", now.wall, at(4660 + step)));
        history.begin_pass(moment(1090 + step, 190));
        for (id, until) in [("before", 4600 + step), ("after", 4660 + step)] {
            let record = history.get(id, "").expect("known");
            assert_eq!(record.protected_until, Some(at(until)), "{id}, the clock set by {step} s");
        }
    }
}
