//! The windows, what ends them early, and what is forgotten.

use proptest::prelude::*;

use super::*;

const S: Duration = Duration::from_secs(1);

fn subject(uid: &'static str) -> Subject<'static> {
    let marks = Marks { keyring: 1, registry: 1 };
    Subject { namespace: "shop", name: "web", uid, image: "r.example/a", registry: "r.example", marks }
}

fn failure(cause: Cause) -> Failure<'static> {
    Failure { cause, retry_after: None, message: "ErrImagePull: 404" }
}

/// Fails again and again, always as soon as the window is over, and answers the windows in seconds.
fn windows(options: BackoffOptions, causes: &[Cause]) -> Vec<u64> {
    let mut backoff = Backoff::new(options);
    let mut now = Instant::now();
    let next = |cause: &Cause| {
        assert_eq!(backoff.check(&subject("u"), now), None);
        backoff.failed(&subject("u"), failure(*cause), now);
        let until = backoff.check(&subject("u"), now).expect("a window begins").until;
        let window = until - now;
        now = until;
        window.as_secs()
    };
    causes.iter().map(next).collect()
}

#[test]
fn windows_double_up_to_the_cap_of_their_cause() {
    use Cause::{Deadline, DiskFull, NotFound, Other, RateLimited, Throttled, Unauthenticated, Unavailable};
    let like_the_kubelet = BackoffOptions { by_cause: false, ..BackoffOptions::default() };
    let by_cause = BackoffOptions::default();
    let kubelet = [10, 20, 40, 80, 160, 300, 300];
    for cause in Cause::ALL {
        assert_eq!(windows(like_the_kubelet, &[cause; 7]), kubelet, "{cause}");
    }
    for cause in [NotFound, Unauthenticated, RateLimited, Other] {
        assert_eq!(windows(by_cause, &[cause; 7]), kubelet, "{cause}");
    }
    for cause in [Unavailable, DiskFull, Deadline, Throttled] {
        assert_eq!(windows(by_cause, &[cause; 5]), [10, 20, 40, 60, 60], "{cause}");
    }
    // The count does not depend on the causes in between.
    let mixed = [NotFound, NotFound, NotFound, NotFound, Unavailable, NotFound];
    assert_eq!(windows(by_cause, &mixed), [10, 20, 40, 80, 60, 300]);
}

#[test]
fn a_window_ends_exactly_and_is_forgotten_after_twice_the_cap() {
    let mut backoff = Backoff::new(BackoffOptions::default());
    let begin = Instant::now();
    backoff.failed(&subject("u"), failure(Cause::NotFound), begin);
    let held = backoff.check(&subject("u"), begin + 10 * S - Duration::from_nanos(1)).expect("held");
    assert_eq!((held.message.as_str(), held.cause, held.until), ("ErrImagePull: 404", Cause::NotFound, begin + 10 * S));
    assert_eq!(backoff.check(&subject("u"), begin + 10 * S), None);
    assert_eq!(backoff.check(&subject("other"), begin), None, "each pod for itself");
    let other = Subject { image: "r.example/b", ..subject("u") };
    assert_eq!(backoff.check(&other, begin), None, "each image for itself");
    // At 600 s the next failure still doubles, beyond it does not.
    let mut younger = Backoff::new(BackoffOptions::default());
    younger.failed(&subject("u"), failure(Cause::NotFound), begin);
    younger.failed(&subject("u"), failure(Cause::NotFound), begin + 600 * S);
    assert_eq!(younger.list(begin + 600 * S)[0].window, 20 * S);
    backoff.failed(&subject("u"), failure(Cause::NotFound), begin + 600 * S + Duration::from_nanos(1));
    assert_eq!(backoff.list(begin + 601 * S)[0].window, 10 * S);
}

#[test]
fn a_success_keeps_the_next_window_long() {
    let mut backoff = Backoff::new(BackoffOptions::default());
    let begin = Instant::now();
    backoff.failed(&subject("u"), failure(Cause::NotFound), begin);
    backoff.succeeded("u", "r.example/a", begin + 10 * S);
    assert_eq!(backoff.list(begin + 10 * S), [], "nobody waits any more");
    backoff.failed(&subject("u"), failure(Cause::NotFound), begin + 20 * S);
    assert_eq!(backoff.list(begin + 20 * S)[0].window, 20 * S);
}

#[test]
fn one_event_per_window_or_one_per_check() {
    for (event_every_check, want) in [(false, [true, false, false]), (true, [true, true, true])] {
        let mut backoff = Backoff::new(BackoffOptions { event_every_check, ..BackoffOptions::default() });
        let begin = Instant::now();
        for window in 0..2 {
            let now = begin + 10 * window * S;
            backoff.failed(&subject("u"), failure(Cause::NotFound), now);
            let told = [0, 1, 2].map(|s| backoff.check(&subject("u"), now + s * S).expect("held").tell);
            assert_eq!(told, want, "window {window}");
        }
    }
}

#[test]
fn a_change_of_credentials_or_registry_ends_it() {
    for marks in [Marks { keyring: 2, registry: 1 }, Marks { keyring: 1, registry: 2 }] {
        let mut backoff = Backoff::new(BackoffOptions::default());
        let now = Instant::now();
        for _ in 0..3 {
            backoff.failed(&subject("u"), failure(Cause::Unauthenticated), now);
        }
        let changed = Subject { marks, ..subject("u") };
        assert_eq!(backoff.peek(&changed, now), None);
        assert!(backoff.peek(&subject("u"), now).is_some(), "a look changes nothing");
        assert_eq!(backoff.check(&changed, now), None);
        backoff.failed(&changed, failure(Cause::Unauthenticated), now);
        assert_eq!(backoff.list(now)[0].window, 10 * S, "it begins anew");
    }
}

#[test]
fn a_registry_that_names_a_time_is_left_alone_by_every_pod() {
    let now = Instant::now();
    let limited = Failure { retry_after: Some(45 * S), ..failure(Cause::RateLimited) };
    let mut backoff = Backoff::new(BackoffOptions::default());
    backoff.failed(&subject("u"), limited, now);
    assert_eq!(backoff.check(&subject("u"), now).map(|held| held.until), Some(now + 45 * S));
    // Another pod, another image, the same registry: held, reported once, listed.
    let other = Subject { uid: "v", name: "db", image: "r.example/b", ..subject("v") };
    assert_eq!(backoff.peek(&other, now).map(|held| held.until), Some(now + 45 * S));
    let held = backoff.check(&other, now + S).expect("held");
    assert_eq!((held.until, held.cause, held.tell), (now + 45 * S, Cause::RateLimited, true));
    assert!(!backoff.check(&other, now + 2 * S).expect("held").tell);
    let listed: Vec<(String, u32)> = backoff.list(now + 2 * S).into_iter().map(|e| (e.name, e.failures)).collect();
    assert_eq!(listed, [("db".to_owned(), 0), ("web".to_owned(), 1)]);
    let unavailable = Failure { retry_after: Some(45 * S), ..failure(Cause::Unavailable) };
    let busy = Subject { registry: "t.example", image: "t.example/a", ..subject("u") };
    backoff.failed(&busy, unavailable, now);
    let held = backoff.peek(&Subject { uid: "v", ..busy }, now).expect("held");
    assert_eq!((held.until, held.cause), (now + 45 * S, Cause::Unavailable), "whatever it failed of");
    // Another registry, and the same one in another configuration, are not.
    let elsewhere = Subject { registry: "s.example", image: "s.example/a", ..subject("u") };
    assert_eq!(backoff.check(&elsewhere, now), None);
    let mirrored = Subject { marks: Marks { keyring: 1, registry: 2 }, ..subject("w") };
    assert_eq!(backoff.peek(&mirrored, now), None);
    assert_eq!(backoff.check(&other, now + 45 * S), None);
    // Held is not failed: the first failure of one's own is the first.
    backoff.failed(&other, failure(Cause::NotFound), now + 45 * S);
    assert_eq!(backoff.list(now + 45 * S)[0].window, 10 * S);
}

#[test]
fn a_registrys_wish_has_a_limit_and_never_shortens() {
    let now = Instant::now();
    let asks = |seconds, options: BackoffOptions, times: u32| {
        let mut backoff = Backoff::new(options);
        for _ in 0..times {
            let failure = Failure { retry_after: Some(seconds * S), ..failure(Cause::RateLimited) };
            backoff.failed(&subject("u"), failure, now);
        }
        backoff.list(now)[0].window
    };
    let options = BackoffOptions::default();
    assert_eq!(asks(1, options, 3), 40 * S);
    assert_eq!(asks(u32::MAX, options, 1), 3600 * S);
    assert_eq!(asks(1000, BackoffOptions { by_cause: false, ..options }, 1), 10 * S);
    // A window that is longer than what is forgotten is kept to its end.
    let mut backoff = Backoff::new(options);
    backoff.failed(&subject("u"), Failure { retry_after: Some(3600 * S), ..failure(Cause::RateLimited) }, now);
    assert!(backoff.check(&subject("u"), now + 3599 * S).is_some());
}

#[test]
fn reset_chooses_and_forgets_what_the_registry_asked_for() {
    let now = Instant::now();
    let selectors = [
        (BackoffSelector::All, 3),
        (BackoffSelector::Image("r.example/a".into()), 2),
        (BackoffSelector::Pod { namespace: "shop".into(), name: "db".into() }, 1),
        (BackoffSelector::Uid("u".into()), 1),
        (BackoffSelector::Registry("r.example".into()), 2),
        (BackoffSelector::Registry("t.example".into()), 0),
    ];
    for (selector, want) in selectors {
        let mut backoff = Backoff::new(BackoffOptions::default());
        backoff.failed(&subject("u"), Failure { retry_after: Some(45 * S), ..failure(Cause::RateLimited) }, now);
        let db = Subject { name: "db", ..subject("v") };
        assert!(backoff.check(&db, now).is_some());
        backoff.failed(&Subject { registry: "s.example", image: "s.example/a", ..subject("w") }, limited(), now);
        assert_eq!(backoff.reset(&selector), want, "{selector:?}");
        assert_eq!(backoff.len(), 3 - want, "{selector:?}");
        let freed = backoff.check(&Subject { uid: "new", ..subject("u") }, now).is_none();
        assert_eq!(freed, want > 0, "who resets wants a pull now: {selector:?}");
    }
}

fn limited() -> Failure<'static> {
    Failure { retry_after: Some(45 * S), ..failure(Cause::RateLimited) }
}

#[test]
fn entries_of_deleted_pods_expire() {
    let mut backoff = Backoff::new(BackoffOptions::default());
    let now = Instant::now();
    backoff.failed(&subject("gone"), failure(Cause::NotFound), now);
    assert_eq!(backoff.check(&subject("other"), now + 601 * S), None);
    assert_eq!(backoff.len(), 0, "another pod's look was enough");
}

#[test]
fn the_number_of_entries_is_bounded() {
    let uids: Vec<String> = (0..50).map(|i| format!("u{i}")).collect();
    let mut backoff = Backoff::new(BackoffOptions { max_entries: 10, ..BackoffOptions::default() });
    let now = Instant::now();
    for (i, uid) in (0..).zip(&uids) {
        let subject = Subject { uid, ..subject("") };
        backoff.failed(&subject, failure(Cause::NotFound), now + i * Duration::from_millis(1));
    }
    assert_eq!(backoff.len(), 10);
    let kept: Vec<String> = backoff.list(now).into_iter().map(|entry| entry.uid).collect();
    assert_eq!(kept, uids[40..], "those whose windows end last");
}

proptest! {
    #[test]
    fn windows_stay_within_their_bounds(
        steps in proptest::collection::vec((0usize..11, 0u64..700, proptest::option::of(0u64..5000)), 1..60),
        by_cause: bool,
    ) {
        let options = BackoffOptions { by_cause, ..BackoffOptions::default() };
        let mut backoff = Backoff::new(options);
        let mut now = Instant::now();
        let mut hold = now;
        for (cause, wait, retry_after) in steps {
            let failure = Failure {
                cause: Cause::ALL[cause],
                retry_after: retry_after.map(Duration::from_secs),
                message: "x",
            };
            backoff.failed(&subject("u"), failure, now);
            let listed = backoff.list(now);
            prop_assert_eq!(listed.len(), 1);
            let window = listed[0].window;
            let asked = failure.retry_after.filter(|_| by_cause).unwrap_or_default().min(options.retry_after_max);
            prop_assert!(window >= options.initial && window >= asked);
            prop_assert!(window <= options.max.max(asked));
            if failure.retry_after.is_some() && by_cause {
                hold = now + asked;
            }
            let until = hold.max(now + window);
            prop_assert_eq!(backoff.check(&subject("u"), now).map(|held| held.until), Some(until));
            prop_assert_eq!(backoff.peek(&subject("u"), until), None);
            now += Duration::from_secs(wait);
        }
    }
}
