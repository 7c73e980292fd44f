//! Restarts, moved clocks and reboots: old images stay old and young ones young, whatever ended or was lost in between. Ages,
//! protection and pins follow the time that has passed, and not a clock that was set. Every command is a process
//! of its own.

use std::fs;

use crate::support::gc::{decision, going, removed_names};
use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// A scene on a disk of its own.
fn scene() -> (Scene, Imagelet) {
    let s = Scene::on_a_disk();
    let imagelet = s.imagelet.clone();
    (s, imagelet)
}

/// The decision about an image in a collection of everything unused.
#[track_caller]
fn of(imagelet: &Imagelet, name: &str) -> String {
    decision(&imagelet.plan(&["--all-unused"]), name).to_owned()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_restart_does_not_make_old_images_young_nor_young_ones_old() {
    let (s, imagelet) = scene();
    let later = |seconds: i64| imagelet.clone().later(seconds);
    let (old, _) = s.push_file("clock/old:1", "a", "old");
    let (young, _) = s.push_file("clock/young:1", "a", "young");
    imagelet.ok(&["pull", &old]);
    assert_eq!(of(&imagelet, "clock/old:1"), "too-young", "imageMinimumGCAge is two minutes");
    assert_eq!(of(&later(MINUTE), "clock/old:1"), "too-young");
    assert_eq!(of(&later(3 * MINUTE), "clock/old:1"), "remove");

    // An hour later another image is pulled. Its first detection after a restart does not date it to the unknown past.
    later(HOUR).ok(&["pull", &young]);
    assert_eq!(going(&later(HOUR).plan(&["--all-unused"])), ["clock/old:1"]);
    assert_eq!(of(&later(HOUR + MINUTE), "clock/young:1"), "too-young");
    assert_eq!(of(&later(HOUR + 3 * MINUTE), "clock/young:1"), "remove");

    // The usage history is lost: the store still knows when its images were pulled.
    fs::remove_dir_all(s.scratch.join("disk/store/image_gc")).expect("there is something to lose");
    let plan = later(HOUR + MINUTE).plan(&["--all-unused"]);
    assert_eq!(
        (going(&plan).as_slice(), decision(&plan, "clock/young:1")),
        (&["clock/old:1".to_owned()][..], "too-young")
    );
    assert_eq!(removed_names(&later(HOUR + MINUTE).collect(&["--all-unused"])), ["clock/old:1"]);
    assert_eq!(removed_names(&later(HOUR + 5 * MINUTE).collect(&["--all-unused"])), ["clock/young:1"]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn first_detection_finds_old_images_old() {
    let (s, imagelet) = scene();
    let (name, _) = s.push_file("clock/first:1", "a", "first");
    imagelet.ok(&["pull", &name]);
    let _ = fs::remove_dir_all(s.scratch.join("disk/store/image_gc"));
    assert_eq!(removed_names(&imagelet.clone().later(10 * MINUTE).collect(&["--older-than", "5m"])), ["clock/first:1"]);
}

/// The clock of a node that has no battery, and those behind which 32 bits, unsigned ones and 64 bits of nanoseconds end.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn images_come_and_grow_old_at_whatever_time_it_is() {
    let (s, imagelet) = scene();
    let now = std::fs::metadata(s.scratch.path()).and_then(|about| about.modified()).expect("a time");
    let now = now.duration_since(std::time::UNIX_EPOCH).expect("a clock that is set").as_secs().cast_signed();
    for (number, time) in [-300 * DAY, 5, (1 << 31) - 5, (1 << 32) + 5, 9_223_372_000, 5].into_iter().enumerate() {
        let (name, short) = (format!("clock/at{number}:1"), number.to_string());
        let (whole, _) = s.push_file(&name, "a", &short);
        let there = imagelet.clone().clock_set_by(time - now);
        there.ok(&["pull", &whole]);
        for command in [&["images"][..], &["df"], &["status"], &["check"], &["inspect", &whole]] {
            there.ok(command);
        }
        assert_eq!(of(&there, &name), "too-young", "at {time}");
        assert_eq!(of(&there.clone().later(MINUTE), &name), "too-young", "at {time}");
        assert_eq!(of(&there.clone().later(3 * MINUTE), &name), "remove", "at {time}");
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_clock_that_is_set_makes_no_image_older_or_younger() {
    let (s, imagelet) = scene();
    let (name, _) = s.push_file("clock/one:1", "a", "one");
    imagelet.ok(&["pull", &name]);
    assert_eq!(of(&imagelet, "clock/one:1"), "too-young");
    // Forwards by years, back again, and to before it was pulled: each is a restart, and a minute has passed.
    for (passed, set) in [(10, 4000 * DAY), (20, 0), (30, -4000 * DAY), (40, -DAY), (50, 3 * HOUR)] {
        let moved = imagelet.clone().later(passed).clock_set_by(set);
        assert_eq!(of(&moved, "clock/one:1"), "too-young", "{passed} s later, the clock set by {set} s");
    }
    for (passed, set) in [(HOUR, -DAY), (2 * HOUR, 4000 * DAY), (3 * HOUR, 0)] {
        let moved = imagelet.clone().later(passed).clock_set_by(set);
        assert_eq!(of(&moved, "clock/one:1"), "remove", "{passed} s later, the clock set by {set} s");
        let plan = moved.plan(&["--older-than", "5h"]);
        assert_eq!(decision(&plan, "clock/one:1"), "used-within", "{passed} s later, the clock set by {set} s");
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn images_go_at_their_maximum_age_and_not_before() {
    let (s, imagelet) = scene();
    let imagelet = imagelet.global("--image-maximum-gc-age", "168h");
    let later = |days: i64| imagelet.clone().later(days * DAY);
    let (old, _) = s.push_file("clock/old:1", "a", "old");
    let (kept, _) = s.push_file("clock/kept:1", "a", "kept");
    let (fresh, _) = s.push_file("clock/fresh:1", "a", "fresh");
    imagelet.ok(&["pull", &old, &kept]);
    imagelet.ok(&["pin", &kept]);
    assert_eq!(removed_names(&later(6).collect(&[])), Vec::<String>::new());
    // Never used, and pulled a moment ago: its age is not that of the process that plans.
    later(8).ok(&["pull", &fresh]);
    let plan = later(8).plan(&[]);
    assert_eq!((going(&plan).as_slice(), decision(&plan, "clock/kept:1")), (&["clock/old:1".to_owned()][..], "pinned"));
    assert_eq!(removed_names(&later(8).collect(&[])), ["clock/old:1"]);
    assert_eq!(removed_names(&later(14).collect(&[])), Vec::<String>::new());
    assert_eq!(removed_names(&later(16).collect(&[])), ["clock/fresh:1"]);
    assert_eq!(decision(&later(9999).plan(&[]), "clock/kept:1"), "pinned");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn prepulled_images_are_removed_last_while_protected() {
    let (s, _) = scene();
    // If no containers run on the node, no image counts as pulled ahead of its use.
    let containerd = Containerd::start(s.registry.host());
    let imagelet = s.imagelet.clone().global("--runtime-endpoint", &containerd.endpoint());
    let later = |seconds: i64| imagelet.clone().later(seconds);
    let (name, _) = s.push_file("clock/ahead:1", "a", "ahead");
    imagelet.ok(&["pull", &name]);
    // The goal is reached without it, and the reason is which of those that stay it is.
    let kept = |imagelet: &Imagelet| decision(&imagelet.plan(&["--until-free", "1"]), "clock/ahead:1").to_owned();
    for (passed, want) in [(10 * MINUTE, "protected"), (55 * MINUTE, "protected"), (65 * MINUTE, "not-needed")] {
        assert_eq!(kept(&later(passed)), want, "{passed} s later");
    }
    assert_eq!(kept(&later(55 * MINUTE).clock_set_by(400 * DAY)), "protected", "no clock ends it");
    let done = later(55 * MINUTE).collect(&["--all-unused"]);
    assert_eq!(removed_names(&done), ["clock/ahead:1"]);
    assert!(done["removed"][0]["protectedUntil"].is_string(), "{done:#}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn node_that_was_off_for_a_month_keeps_its_history() {
    let (s, imagelet) = scene();
    let (name, _) = s.push_file("clock/one:1", "a", "one");
    let (kept, _) = s.push_file("clock/kept:1", "a", "kept");
    imagelet.ok(&["pull", &name, &kept]);
    imagelet.ok(&["pin", &kept]);
    let five = imagelet.clone().later(5 * DAY);
    assert_eq!(decision(&five.plan(&["--older-than", "4d"]), "clock/one:1"), "remove");
    // The node is off for thirty days and up for ten minutes: no image could have been used meanwhile.
    let after = imagelet.clone().later(35 * DAY).booted(10 * MINUTE);
    let plan = after.plan(&["--older-than", "7d"]);
    assert_eq!((decision(&plan, "clock/one:1"), decision(&plan, "clock/kept:1")), ("used-within", "pinned"));
    assert_eq!(decision(&after.plan(&["--older-than", "4d"]), "clock/one:1"), "remove", "nor is it young now");
    assert_eq!(of(&after, "clock/one:1"), "remove");
}
