//! Pulls that several requests share, requests that leave, and the reports to each.

use base::lock::Mutex;

use cri_api::{ProgressSink, PullEvent};

use super::*;

#[tokio::test(start_paused = true)]
async fn the_last_of_twenty_is_served_by_the_one_pull() {
    let mut rig = Rig::new(free());
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    let mut handles = Vec::new();
    for _ in 0..20 {
        handles.push(rig.ask("a:1").await);
    }
    gate.until_waiting(1).await;
    // The request that started it is cancelled first.
    for handle in &handles[..19] {
        handle.abort();
        settle().await;
    }
    assert_eq!(rig.puller.pulls.waiters(), 1);
    tokio::time::advance(10 * LINGER).await;
    settle().await;
    gate.open();
    let outcomes = rig.outcomes().await;
    assert_eq!(outcomes.len(), 1);
    assert!(outcomes[0].as_ref().expect("pulled").coalesced);
    assert_eq!((rig.pulled().len(), rig.fake.abandoned_pulls()), (1, 0));
    assert_eq!(rig.puller.pulls.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unwanted_pull_ends_after_the_linger() {
    let mut rig = Rig::new(free());
    let _gate = rig.fake.faults().hold(CallKind::PullImage);
    let handles = [rig.ask("a:1").await, rig.ask("a:1").await];
    settle().await;
    for handle in handles {
        handle.abort();
        settle().await;
    }
    tokio::time::sleep(LINGER - Duration::from_millis(1)).await;
    assert_eq!((rig.fake.abandoned_pulls(), rig.puller.pulls.len()), (0, 1));
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!((rig.fake.abandoned_pulls(), rig.puller.pulls.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_takes_a_lingering_pull_over() {
    let mut rig = Rig::new(free());
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    rig.ask("a:1").await.abort();
    settle().await;
    assert_eq!(gate.waiting(), 1);
    tokio::time::sleep(LINGER / 2).await;
    let second = rig.ask("a:1").await;
    tokio::time::sleep(2 * LINGER).await;
    assert_eq!(rig.fake.abandoned_pulls(), 0);
    // The linger time starts again.
    second.abort();
    tokio::time::sleep(LINGER * 3 / 4).await;
    rig.ask("a:1").await;
    gate.open();
    assert!(rig.outcomes().await.pop().expect("the third").is_ok());
    assert_eq!((rig.pulled().len(), rig.fake.abandoned_pulls()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn who_only_waited_for_a_turn_does_not_linger() {
    let mut rig = Rig::new(serial());
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    rig.ask("a:1").await;
    let queued = [rig.ask("b:1").await, rig.ask("b:1").await];
    rig.ask("c:1").await;
    settle().await;
    for handle in queued {
        handle.abort();
    }
    settle().await;
    assert_eq!((rig.puller.pulls.len(), rig.puller.turns.waiting()), (2, 1), "out of the line at once");
    gate.open();
    assert_eq!(rig.outcomes().await.len(), 2);
    assert_eq!(rig.pulled(), ["a:1", "c:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_shared_with_the_sources_of_each() {
    let mut rig = Rig::new(free());
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    rig.fake.require_auth("a:1", RegistryAuth::basic("ada", "right"));
    rig.start(with("a:1", [candidate("ada", "wrong", "first")])).await;
    rig.start(with("a:1", [candidate("ada", "wrong", "second")])).await;
    gate.until_waiting(1).await;
    gate.open();
    let mut sources = Vec::new();
    for outcome in rig.outcomes().await {
        let Err(PullFailed::Attempts(failure)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.attempts().len(), 1);
        sources.push(failure.attempts()[0].source.as_ref().expect("a credential").to_string());
    }
    sources.sort();
    assert_eq!(sources, ["secret shop/first", "secret shop/second"]);
    assert_eq!(rig.pulled().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn different_credentials_are_verified_one_by_one() {
    let mut rig = Rig::new(free());
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    rig.fake.require_auth("a:1", RegistryAuth::basic("ada", "right"));
    for password in ["right", "wrong", "right", "wrong"] {
        rig.start(with("a:1", [candidate("ada", password, "s")])).await;
    }
    rig.ask("a:1").await;
    gate.until_waiting(3).await;
    gate.open();
    let outcomes = rig.outcomes().await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 2);
    assert_eq!(rig.pulled().len(), 3, "right, wrong, anonymous");
}

// upstream: images/TestParallelPodPullingTimeRecorderWithErr
#[tokio::test(start_paused = true)]
async fn without_coalescing_everybody_pulls() {
    let mut rig = Rig::new(PullerOptions { coalesce: false, ..free() });
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    rig.fake.faults().fail_times(CallKind::PullImage, 1, Error::new(cri_api::Kind::Unavailable, "pull error"));
    for _ in 0..2 {
        rig.ask("a:1").await;
    }
    gate.until_waiting(2).await;
    gate.open();
    let outcomes = rig.outcomes().await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 1);
    assert_eq!(rig.pulled().len(), 2);
    // No other caller can take it over, so it ends with its only waiter.
    rig.fake.faults().clear(CallKind::PullImage);
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    let handle = rig.ask("a:1").await;
    gate.until_waiting(1).await;
    handle.abort();
    settle().await;
    assert_eq!((rig.fake.abandoned_pulls(), rig.puller.pulls.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn everybody_sees_the_progress() {
    let mut rig = Rig::new(free());
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    let seen = Arc::new(Mutex::new(Vec::new()));
    for who in 0..3 {
        let seen = Arc::clone(&seen);
        let progress = ProgressSink::new(move |event| {
            assert_ne!(who, 1, "a sink that fails");
            seen.lock().push((who, matches!(event, PullEvent::Resolved { .. })));
        });
        rig.start(Wanted { progress, ..Wanted::new(ImageSpec::new("a:1")) }).await;
    }
    gate.until_waiting(1).await;
    settle().await;
    gate.open();
    assert!(rig.outcomes().await.iter().all(Result::is_ok), "a sink that panics harms nobody");
    assert_eq!(*seen.lock(), [(0, true), (2, true), (0, false), (2, false)]);
}

/// A recheck that answers `image_ref`, and counts how often it is asked.
fn recheck(image_ref: Option<&'static str>, asked: &Arc<AtomicU64>) -> Option<Recheck> {
    let asked = Arc::clone(asked);
    Some(Arc::new(move || {
        asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move { image_ref.map(str::to_owned) })
    }))
}

#[tokio::test(start_paused = true)]
async fn who_waited_for_a_turn_looks_again() {
    // Of four that wait for one pull, two find the image, one may not have it, and one has to ask the registry.
    let mut rig = Rig::new(serial());
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    let asked = Arc::new(AtomicU64::new(0));
    rig.ask("a:1").await;
    for found in [Some("here"), Some("here"), None] {
        rig.start(Wanted { recheck: recheck(found, &asked), ..Wanted::new(ImageSpec::new("b:1")) }).await;
    }
    rig.ask("b:1").await;
    gate.let_through(1);
    gate.until_arrived(2).await;
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    assert_eq!(rig.puller.pulls.waiters(), 2, "two are served already");
    gate.open();
    let outcomes: Vec<Pulled> = rig.outcomes().await.into_iter().map(|outcome| outcome.expect("here")).collect();
    let found: Vec<&Pulled> = outcomes.iter().filter(|pulled| pulled.found).collect();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|pulled| pulled.image_ref == "here" && pulled.used.is_none()));
    assert_eq!(rig.pulled(), ["a:1", "b:1"]);
}

#[tokio::test(start_paused = true)]
async fn where_all_find_it_nothing_is_pulled() {
    let mut rig = Rig::new(serial());
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    let asked = Arc::new(AtomicU64::new(0));
    rig.ask("a:1").await;
    for _ in 0..3 {
        rig.start(Wanted { recheck: recheck(Some("here"), &asked), ..Wanted::new(ImageSpec::new("b:1")) }).await;
    }
    gate.open();
    let outcomes = rig.outcomes().await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.as_ref().is_ok_and(|pulled| pulled.found)).count(), 3);
    assert_eq!((rig.pulled().len(), rig.puller.pulls.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_outdated_check_is_repeated_without_a_wait() {
    let mut rig = Rig::new(free());
    let asked = Arc::new(AtomicU64::new(0));
    let wanted = |mark| Wanted { recheck: recheck(Some("here"), &asked), mark, ..Wanted::new(ImageSpec::new("b:1")) };
    let mark = rig.puller.mark();
    rig.ask("a:1").await;
    rig.outcomes().await;
    assert_ne!(rig.puller.mark(), mark);
    // It took its mark before the pull ended, and found no job after that.
    assert!(rig.puller.pull(wanted(mark)).await.expect("here").found);
    assert!(!rig.puller.pull(wanted(rig.puller.mark())).await.expect("pulled").found);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn many_requests_for_few_images() {
    let mut rig = Rig::new(PullerOptions { max_parallel: Some(2), ..free() });
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    for i in 0..200 {
        let puller = Arc::clone(&rig.puller);
        let name = format!("{}:1", ["a", "b", "c", "d", "e"][i % 5]);
        rig.tasks.spawn(async move { puller.pull(Wanted::new(ImageSpec::new(name))).await });
    }
    gate.until_waiting(2).await;
    settle().await;
    gate.open();
    let outcomes = rig.outcomes().await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 200);
    let mut pulled = rig.pulled();
    pulled.sort();
    assert_eq!(pulled, ["a:1", "b:1", "c:1", "d:1", "e:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_running_pulls_end_and_begins_none() {
    let mut rig = Rig::new(serial());
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    let running = rig.ask("a:1").await;
    rig.ask("b:1").await;
    gate.until_waiting(1).await;
    let puller = Arc::clone(&rig.puller);
    let ending = async {
        settle().await;
        // Its caller is cancelled, as workers are at the end of a process.
        running.abort();
        tokio::time::sleep(LINGER * 2).await;
        gate.open();
    };
    tokio::join!(puller.drain(Duration::from_secs(60)), ending);
    let outcomes = rig.outcomes().await;
    assert!(matches!(outcomes.as_slice(), [Err(PullFailed::ShuttingDown)]), "{outcomes:?}");
    assert_eq!(rig.fake.abandoned_pulls(), 0, "it came to its end");
    rig.ask("c:1").await;
    assert!(matches!(rig.outcomes().await.as_slice(), [Err(PullFailed::ShuttingDown)]));
    assert_eq!(rig.pulled(), ["a:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_has_an_end() {
    let mut rig = Rig::new(serial());
    let _gate = rig.fake.faults().hold(CallKind::PullImage);
    rig.ask("a:1").await;
    settle().await;
    let begin = Instant::now();
    rig.puller.drain(Duration::from_secs(3)).await;
    assert_eq!(begin.elapsed(), Duration::from_secs(3));
    assert!(matches!(rig.outcomes().await.as_slice(), [Err(PullFailed::ShuttingDown)]));
}
