//! Whose turn it is, and how fast pulls may begin.

use super::*;

// upstream: images/TestMaxParallelImagePullsLimit
#[tokio::test(start_paused = true)]
async fn at_most_five_at_a_time() {
    let mut rig = Rig::new(PullerOptions { max_parallel: Some(5), coalesce: false, ..free() });
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    for _ in 0..7 {
        rig.ask("a:1").await;
    }
    gate.until_waiting(5).await;
    settle().await;
    assert_eq!(gate.arrived(), 5, "two wait for their turn");
    gate.let_through(2);
    gate.until_arrived(7).await;
    gate.until_waiting(5).await;
    gate.open();
    assert_eq!(rig.outcomes().await.iter().filter(|outcome| outcome.is_ok()).count(), 7);
    assert_eq!(rig.pulled().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn urgent_ones_first_and_a_waiter_raises_its_job() {
    let mut rig = Rig::new(serial());
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    let urgent = |image: &str, priority| Wanted { priority, ..Wanted::new(ImageSpec::new(image)) };
    rig.ask("a:1").await;
    rig.ask("b:1").await;
    rig.start(urgent("c:1", 1000)).await;
    rig.start(urgent("d:1", 2_000_001_000)).await;
    rig.ask("e:1").await;
    // A critical pod requests an image that an ordinary pod has requested.
    rig.start(urgent("b:1", 2_000_000_000)).await;
    settle().await;
    gate.open();
    rig.outcomes().await;
    assert_eq!(rig.pulled(), ["a:1", "d:1", "b:1", "c:1", "e:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_overrides_priority() {
    let mut rig = Rig::new(serial());
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    for image in ["a:1", "b:1", "c:1"] {
        rig.ask(image).await;
    }
    tokio::time::sleep(Duration::from_secs(61)).await;
    rig.start(Wanted { priority: 2_000_001_000, ..Wanted::new(ImageSpec::new("d:1")) }).await;
    gate.open();
    rig.outcomes().await;
    assert_eq!(rig.pulled(), ["a:1", "b:1", "c:1", "d:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_full_registry_delays_no_other() {
    let mut rig = Rig::new(PullerOptions { max_parallel: Some(3), per_registry: Some(1), ..free() });
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    for image in ["reg.example/a:1", "reg.example/b:1", "reg.example/c:1", "other.example/a:1", "a:1"] {
        rig.ask(image).await;
    }
    gate.until_waiting(3).await;
    settle().await;
    assert_eq!(rig.pulled(), ["reg.example/a:1", "other.example/a:1", "a:1"]);
    // The short name and the long one are one registry.
    rig.ask("docker.io/library/b:1").await;
    settle().await;
    assert_eq!(gate.waiting(), 3);
    gate.let_through(1);
    gate.until_arrived(4).await;
    settle().await;
    assert_eq!(rig.pulled()[3..], ["reg.example/b:1"]);
    gate.open();
    assert_eq!(rig.outcomes().await.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_pull_waits_for_its_token() {
    let options = PullerOptions { qps: 2.0, burst: 2, pull_wait: Duration::from_secs(1), ..free() };
    let mut rig = Rig::new(options);
    let begun = Instant::now();
    for image in ["a:1", "b:1", "c:1", "d:1", "e:1"] {
        rig.ask(image).await;
    }
    let outcomes = rig.outcomes().await;
    // Two at once, one after half a second, one after a whole one; the last would wait longer than it may.
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    assert_eq!(rig.pulled(), ["a:1", "b:1", "c:1", "d:1"]);
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, Err(PullFailed::Throttled))).count();
    assert_eq!(refused, 1);
    assert_eq!(PullFailed::Throttled.to_string(), "pull QPS exceeded");
    let pulling = |outcome: &Outcome| outcome.as_ref().map_or(Duration::ZERO, |pulled| pulled.pulling);
    assert!(outcomes.iter().all(|outcome| pulling(outcome) == Duration::ZERO), "the wait is no part of the pull");
}

#[tokio::test(start_paused = true)]
async fn without_patience_a_pull_fails_at_once() {
    for (qps, burst, succeed) in [(400.0, 600, 3), (1.0, 2, 2), (2000.0, 0, 0), (0.0, 0, 3)] {
        let mut rig = Rig::new(PullerOptions { qps, burst, pull_wait: Duration::ZERO, ..free() });
        for image in ["a:1", "b:1", "c:1"] {
            rig.ask(image).await;
        }
        let outcomes = rig.outcomes().await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), succeed, "{qps} {burst}");
        assert_eq!(rig.pulled().len(), succeed);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unused_token_is_returned() {
    let options = PullerOptions { qps: 1.0, burst: 1, linger: Duration::ZERO, ..free() };
    let mut rig = Rig::new(options);
    rig.ask("a:1").await;
    settle().await;
    rig.ask("b:1").await.abort();
    settle().await;
    let begun = Instant::now();
    rig.ask("c:1").await;
    rig.outcomes().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(1), "not two");
    assert_eq!(rig.pulled(), ["a:1", "c:1"]);
}

#[tokio::test(start_paused = true)]
async fn further_attempts_wait_for_tokens_as_well() {
    let mut rig = Rig::new(PullerOptions { qps: 1.0, burst: 1, pull_wait: Duration::ZERO, ..free() });
    rig.fake.require_auth("a:1", RegistryAuth::basic("ada", "right"));
    let begun = Instant::now();
    rig.start(with("a:1", ["wrong", "worse", "right"].map(|password| candidate("ada", password, password)))).await;
    let outcome = rig.outcomes().await.pop().expect("one");
    assert_eq!(outcome.expect("the third fits").used, Some(2));
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn those_that_wait_take_new_limits() {
    let mut rig = Rig::new(serial());
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    for image in ["reg.example/a:1", "reg.example/b:1", "reg.example/c:1", "other.example/a:1"] {
        rig.ask(image).await;
    }
    settle().await;
    assert_eq!(gate.arrived(), 1);
    // A limit that is set later applies to pulls that are already waiting.
    rig.puller.set_options(PullerOptions { max_parallel: Some(3), per_registry: Some(2), ..free() });
    gate.until_waiting(3).await;
    settle().await;
    assert_eq!(gate.arrived(), 3, "the third one of its registry waits");
    // A lower limit ends no pull, and starts none until it is kept.
    rig.puller.set_options(serial());
    gate.let_through(2);
    settle().await;
    assert_eq!(gate.arrived(), 3);
    gate.open();
    assert_eq!(rig.outcomes().await.iter().filter(|outcome| outcome.is_ok()).count(), 4);
    assert_eq!(rig.pulled().last().map(String::as_str), Some("reg.example/c:1"));
}

#[tokio::test(start_paused = true)]
async fn a_new_rate_forgets_nothing() {
    let mut rig = Rig::new(PullerOptions { qps: 1.0, burst: 2, pull_wait: Duration::ZERO, ..free() });
    for image in ["a:1", "b:1", "c:1"] {
        rig.ask(image).await;
    }
    let refused = |outcomes: &[Outcome]| outcomes.iter().filter(|outcome| outcome.is_err()).count();
    assert_eq!(refused(&rig.outcomes().await), 1, "two at once");
    // The same rate again gives nothing back.
    rig.puller.set_options(PullerOptions { qps: 1.0, burst: 2, pull_wait: Duration::ZERO, ..free() });
    rig.ask("d:1").await;
    assert_eq!(refused(&rig.outcomes().await), 1);
    rig.puller.set_options(free());
    for image in ["c:1", "d:1", "e:1"] {
        rig.ask(image).await;
    }
    assert_eq!(refused(&rig.outcomes().await), 0, "nothing is limited any more");
}
