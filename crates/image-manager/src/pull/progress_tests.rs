//! Tables of pulls that stall, and of the events that a late subscriber gets.

use super::*;

fn digest(name: &str) -> Digest {
    Digest::sha256(name.as_bytes())
}

fn layer(name: &str, state: LayerState) -> PullEvent {
    PullEvent::Layer { digest: digest(name), state }
}

fn bytes(name: &str, done: u64) -> PullEvent {
    PullEvent::Bytes { digest: digest(name), done }
}

fn unpacked(name: &str, done: u64) -> PullEvent {
    PullEvent::Unpacked { digest: digest(name), done }
}

fn resolved(layers: &[(&str, u64)]) -> PullEvent {
    let layers = layers.iter().map(|(name, size)| (digest(name), *size)).collect();
    PullEvent::Resolved { digest: digest("manifest"), layers }
}

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const LIMIT: Duration = at(60);

/// Name, events with their seconds, and the second in which the pull counts as stalled.
type Case = (&'static str, Vec<(u64, PullEvent)>, Option<u64>);

/// Returns the first full second, up to the last one, in which the pull counts as stalled. Checks when the last check asked for it.
fn first_failure(events: &[(u64, PullEvent)], until: u64) -> Option<(u64, String)> {
    let mut progress = Progress::default();
    let mut events = events.iter().peekable();
    let mut again = Duration::ZERO;
    for second in 0..=until {
        while let Some((_, event)) = events.next_if(|(when, _)| *when == second) {
            progress.see(event, at(second));
        }
        if again > at(second) {
            continue;
        }
        match progress.judge(LIMIT, at(second)) {
            Ok(next) => again = next,
            Err(stalled) => return Some((second, stalled.to_string())),
        }
    }
    None
}

#[test]
fn what_stalls() {
    use LayerState::{Done, Fetching, Present, Unpacking, Waiting, WaitingForOther};
    let starting = |first: PullEvent| vec![(0, resolved(&[("a", 500), ("b", 700)])), (3, first)];
    let with = |mut events: Vec<(u64, PullEvent)>, more: &[(u64, PullEvent)]| {
        events.extend_from_slice(more);
        events
    };
    let cases: Vec<Case> = vec![
        ("nothing is reported", vec![], None),
        ("the registry does not say what the name stands for", vec![(2, PullEvent::Resolving)], Some(62)),
        ("it says so just in time", vec![(2, PullEvent::Resolving), (61, resolved(&[("a", 5)]))], None),
        ("resolved only", vec![(0, resolved(&[("a", 5)]))], None),
        ("no byte comes", starting(layer("a", Fetching)), Some(63)),
        ("a byte comes just in time", with(starting(layer("a", Fetching)), &[(62, bytes("a", 1))]), Some(122)),
        (
            "a change of another layer counts",
            with(starting(layer("a", Fetching)), &[(9, layer("b", Present))]),
            Some(69),
        ),
        (
            "a repeated report is no change",
            with(starting(layer("a", Fetching)), &[(9, layer("a", Fetching))]),
            Some(63),
        ),
        ("waiting for a turn", starting(layer("a", Waiting)), None),
        ("waiting for another's layer", starting(layer("a", WaitingForOther)), None),
        ("unpacking", with(starting(layer("a", Fetching)), &[(9, layer("a", Unpacking))]), None),
        (
            "one unpacks, another is fetched",
            with(starting(layer("a", Unpacking)), &[(9, layer("b", Fetching))]),
            Some(69),
        ),
        ("all done", with(starting(layer("a", Fetching)), &[(9, layer("a", Done))]), None),
        ("committing", with(starting(layer("a", Fetching)), &[(9, PullEvent::Committing)]), None),
        (
            "unpacking goes on",
            with(starting(layer("a", Fetching)), &[(60, unpacked("a", 1)), (90, unpacked("a", 2))]),
            Some(150),
        ),
    ];
    for (name, events, want) in cases {
        let got = first_failure(&events, 199);
        assert_eq!(got.as_ref().map(|(second, _)| *second), want, "{name}: {got:?}");
    }
}

#[test]
fn the_error_reports_the_bytes_seen() {
    let events = [
        (0, resolved(&[("a", 500), ("b", 700), ("here", 9000)])),
        (0, layer("here", LayerState::Present)),
        (0, layer("a", LayerState::Fetching)),
        (2, bytes("a", 20)),
    ];
    let idle = first_failure(&events, 99).expect("it stalls").1;
    assert_eq!(idle, "the pull made no progress for 1m0s (imagePullProgressDeadline: 1m0s); 20 of 1200 bytes had come");
}

#[test]
fn bytes_are_counted_once() {
    let mut progress = Progress::default();
    let mut received = |event: PullEvent| progress.see(&event, Duration::ZERO);
    assert_eq!(received(bytes("a", 10)), 10);
    assert_eq!(received(bytes("a", 10)), 0);
    assert_eq!(received(bytes("b", 5)), 5);
    assert_eq!(received(bytes("a", 25)), 15);
    assert_eq!(received(bytes("a", 3)), 3, "fetched again");
    assert_eq!(received(layer("a", LayerState::Done)), 0);
}

#[test]
fn a_late_joiner_receives_the_current_state() {
    let mut progress = Progress::default();
    assert_eq!(progress.replay().count(), 0);
    let events = [
        resolved(&[("a", 9)]),
        layer("a", LayerState::Waiting),
        layer("a", LayerState::Fetching),
        bytes("a", 2),
        bytes("a", 5),
        unpacked("a", 70),
    ];
    for event in &events {
        progress.see(event, Duration::ZERO);
    }
    let want = [resolved(&[("a", 9)]), layer("a", LayerState::Fetching), bytes("a", 5), unpacked("a", 70)];
    assert_eq!(progress.replay().collect::<Vec<_>>(), want);
    progress.see(&PullEvent::Committing, Duration::ZERO);
    assert_eq!(progress.replay().last(), Some(PullEvent::Committing));
}

#[test]
fn measurements_are_bounded() {
    let mut progress = Progress::default();
    progress.see(&layer("a", LayerState::Fetching), Duration::ZERO);
    for millis in 0..60_000 {
        progress.see(&bytes("a", millis + 1), Duration::from_millis(millis * 5));
    }
    assert!(progress.measured.len() <= 32, "{}", progress.measured.len());
}
