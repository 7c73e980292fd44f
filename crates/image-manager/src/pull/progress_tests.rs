//! Tables of pulls that are too slow, and of the events that a late subscriber gets.

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

const IDLE: Limits = Limits { idle: Some(at(60)), rate: None };
const RATE: Limits = Limits { idle: None, rate: Some(100) };

/// Name, events with their seconds, limits, and the second in which a limit is not kept.
type Case = (&'static str, Vec<(u64, PullEvent)>, Limits, Option<u64>);

/// The first full second, up to the last one, at which a limit is not kept. The judge is asked when it asks to be.
fn first_failure(events: &[(u64, PullEvent)], limits: Limits, until: u64) -> Option<(u64, String)> {
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
        match progress.judge(limits, at(second)) {
            Ok(next) => again = next,
            Err(exceeded) => return Some((second, exceeded.to_string())),
        }
    }
    None
}

#[test]
fn what_is_too_slow() {
    use LayerState::{Done, Fetching, Present, Unpacking, Waiting, WaitingForOther};
    let trickle = |per_second: u64| {
        let begin = [(0, resolved(&[("a", 9000)])), (0, layer("a", Fetching))];
        begin.into_iter().chain((1..200).map(|s| (s, bytes("a", s * per_second)))).collect::<Vec<_>>()
    };
    let starting = |first: PullEvent| vec![(0, resolved(&[("a", 500), ("b", 700)])), (3, first)];
    let with = |mut events: Vec<(u64, PullEvent)>, more: &[(u64, PullEvent)]| {
        events.extend_from_slice(more);
        events
    };
    let cases: Vec<Case> = vec![
        ("nothing is told", vec![], IDLE, None),
        ("nothing is told, nothing is slow", vec![], RATE, None),
        ("no limits", starting(layer("a", Fetching)), Limits::default(), None),
        ("the registry does not say what the name stands for", vec![(2, PullEvent::Resolving)], IDLE, Some(62)),
        ("it says so just in time", vec![(2, PullEvent::Resolving), (61, resolved(&[("a", 5)]))], IDLE, None),
        ("resolved only", vec![(0, resolved(&[("a", 5)]))], IDLE, None),
        ("no byte comes", starting(layer("a", Fetching)), IDLE, Some(63)),
        ("a byte comes just in time", with(starting(layer("a", Fetching)), &[(62, bytes("a", 1))]), IDLE, Some(122)),
        (
            "a change of another layer counts",
            with(starting(layer("a", Fetching)), &[(9, layer("b", Present))]),
            IDLE,
            Some(69),
        ),
        (
            "what is told again is no change",
            with(starting(layer("a", Fetching)), &[(9, layer("a", Fetching))]),
            IDLE,
            Some(63),
        ),
        ("waiting for a turn", starting(layer("a", Waiting)), IDLE, None),
        ("waiting for another's layer", starting(layer("a", WaitingForOther)), IDLE, None),
        ("unpacking", with(starting(layer("a", Fetching)), &[(9, layer("a", Unpacking))]), IDLE, None),
        (
            "one unpacks, another is fetched",
            with(starting(layer("a", Unpacking)), &[(9, layer("b", Fetching))]),
            IDLE,
            Some(69),
        ),
        ("all done", with(starting(layer("a", Fetching)), &[(9, layer("a", Done))]), IDLE, None),
        ("committing", with(starting(layer("a", Fetching)), &[(9, PullEvent::Committing)]), IDLE, None),
        ("fast enough", trickle(100), RATE, None),
        ("too slow over half a minute", trickle(99), RATE, Some(30)),
        ("fast at first", with(trickle(300)[..32].to_vec(), &[(31, bytes("a", 9000))]), RATE, Some(51)),
        (
            "a pause between layers begins anew",
            {
                let pause = [(1, layer("a", Waiting)), (100, layer("a", Fetching))];
                with(starting(layer("b", Present))[..1].to_vec(), &[&[(0, layer("a", Fetching))], &pause[..]].concat())
            },
            RATE,
            Some(130),
        ),
        (
            "unpacking goes on",
            with(starting(layer("a", Fetching)), &[(60, unpacked("a", 1)), (90, unpacked("a", 2))]),
            IDLE,
            Some(150),
        ),
        (
            "few bytes of many files",
            with(starting(layer("a", Fetching)), &(4..200).map(|s| (s, unpacked("a", s * 101))).collect::<Vec<_>>()),
            RATE,
            None,
        ),
        ("slow while nothing is fetched", starting(layer("a", Unpacking)), RATE, None),
    ];
    for (name, events, limits, want) in cases {
        let got = first_failure(&events, limits, 199);
        assert_eq!(got.as_ref().map(|(second, _)| *second), want, "{name}: {got:?}");
    }
}

#[test]
fn what_was_seen_is_told() {
    let events = [
        (0, resolved(&[("a", 500), ("b", 700), ("here", 9000)])),
        (0, layer("here", LayerState::Present)),
        (0, layer("a", LayerState::Fetching)),
        (2, bytes("a", 20)),
    ];
    let idle = first_failure(&events, IDLE, 99).expect("it stalls").1;
    assert_eq!(idle, "the pull made no progress for 1m0s (imagePullProgressDeadline: 1m0s); 20 of 1200 bytes had come");
    let slow = first_failure(&events, RATE, 99).expect("it stalls").1;
    assert_eq!(
        slow,
        "the pull is too slow: 0 bytes per second over 30s (imagePullMinimumRate: 100); 20 of 1200 bytes had come"
    );
    let long = Exceeded::Long { limit: at(5), seen: Seen::default() };
    assert_eq!(long.to_string(), "the pull took longer than 5s (imagePullDeadline)");
}

#[test]
fn bytes_are_counted_once() {
    let mut progress = Progress::default();
    let mut came = |event: PullEvent| progress.see(&event, Duration::ZERO);
    assert_eq!(came(bytes("a", 10)), 10);
    assert_eq!(came(bytes("a", 10)), 0);
    assert_eq!(came(bytes("b", 5)), 5);
    assert_eq!(came(bytes("a", 25)), 15);
    assert_eq!(came(bytes("a", 3)), 3, "fetched anew");
    assert_eq!(came(layer("a", LayerState::Done)), 0);
}

#[test]
fn a_late_joiner_is_told_where_things_stand() {
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
