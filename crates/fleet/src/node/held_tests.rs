//! Tables of images that sets no longer want.

use super::super::desired::desired;
use super::super::fixtures::{digest, key, set};
use super::*;

const APP: &str = "r.example/app:1";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

fn texts(pins: &Pins) -> Vec<String> {
    pins.iter().map(ToString::to_string).collect()
}

#[test]
fn pin_stands_before_the_pull_and_ends_after_its_time() {
    let wanted = desired([&set("a", &[APP])]);
    let mut held = HeldImages::default();
    let both = vec![APP.to_owned(), format!("r.example/app@{}", digest(APP))];
    assert_eq!(texts(&pins(&pinned_names(&wanted, &held))), both, "the image is not present yet");
    held.note_present(&key(APP), &wanted.images[&key(APP)], true);
    assert!(held.update(&wanted, at(0)).is_empty());
    // The set is deleted.
    let none = Desired::default();
    assert!(held.update(&none, at(100)).is_empty());
    assert_eq!((texts(&pins(&pinned_names(&none, &held))), held.next_release()), (both.clone(), Some(at(3700))));
    assert!(held.update(&none, at(3699)).is_empty());
    assert_eq!(texts(&pins(&pinned_names(&none, &held))), both);
    // Another set wants it again, and ends as well.
    held.update(&wanted, at(3699));
    assert_eq!(held.next_release(), None);
    held.update(&none, at(4000));
    assert_eq!(held.next_release(), Some(at(7600)));
    held.update(&none, at(7600));
    assert_eq!((texts(&pins(&pinned_names(&none, &held))), held.was_present(&key(APP))), (Vec::new(), false));
}

#[test]
fn images_are_removed_only_if_the_daemon_pulled_them() {
    for (pulled, want) in [(true, vec![key(APP)]), (false, Vec::new())] {
        let mut removes = set("a", &[APP]);
        removes.options.on_delete = OnDelete::Remove;
        let wanted = desired([&removes]);
        let mut held = HeldImages::default();
        held.note_present(&key(APP), &wanted.images[&key(APP)], pulled);
        assert_eq!(held.update(&Desired::default(), at(0)), want, "{pulled}");
        assert!(texts(&pins(&pinned_names(&Desired::default(), &held))).is_empty());
        assert!(held.update(&Desired::default(), at(1)).is_empty(), "once");
    }
}

#[test]
fn image_without_a_pin_is_forgotten_at_once() {
    let mut unpinned = set("a", &[APP]);
    unpinned.options.pin = false;
    let wanted = desired([&unpinned]);
    let mut held = HeldImages::default();
    held.note_present(&key(APP), &wanted.images[&key(APP)], true);
    assert!(texts(&pins(&pinned_names(&wanted, &held))).is_empty());
    held.update(&Desired::default(), at(0));
    assert!(!held.was_present(&key(APP)));
}

#[test]
fn held_images_survive_a_restart() {
    let wanted = desired([&set("a", &[APP])]);
    let mut held = HeldImages::default();
    held.note_present(&key(APP), &wanted.images[&key(APP)], true);
    held.update(&Desired::default(), at(5));
    let text = serde_json::to_string(&held).expect("plain data");
    assert_eq!(serde_json::from_str::<HeldImages>(&text).expect("its own text"), held);
}
