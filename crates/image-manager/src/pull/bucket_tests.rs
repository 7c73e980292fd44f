//! Tables and properties of the bucket.

use proptest::prelude::*;

use super::*;

const NO_PATIENCE: Duration = Duration::ZERO;

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[test]
fn a_rate_of_nothing_limits_nothing() {
    for rate in [0.0, -1.0, f64::NAN] {
        assert!(Bucket::new(rate, 10).is_none());
    }
}

#[test]
fn a_burst_of_nothing_refuses_everything() {
    let mut bucket = Bucket::new(2000.0, 0).expect("limited");
    for patience in [NO_PATIENCE, Duration::MAX] {
        for second in [0.0, 1.0, 1e6] {
            assert_eq!(bucket.take(secs(second), patience), None);
        }
    }
}

#[test]
fn full_at_first_then_by_the_rate() {
    let mut bucket = Bucket::new(5.0, 10).expect("limited");
    for _ in 0..10 {
        assert_eq!(bucket.take(secs(100.0), NO_PATIENCE), Some(Token { ready: secs(100.0) }));
    }
    assert_eq!(bucket.take(secs(100.0), NO_PATIENCE), None, "refused, not owed");
    assert_eq!(bucket.take(secs(100.19), NO_PATIENCE), None);
    assert!(bucket.take(secs(100.2), NO_PATIENCE).is_some());
    assert!(bucket.take(secs(100.2), NO_PATIENCE).is_none());
    // It holds no more than the burst.
    let later = std::iter::from_fn(|| bucket.take(secs(1000.0), NO_PATIENCE)).count();
    assert_eq!(later, 10);
}

#[test]
fn the_wait_is_known_beforehand() {
    let mut bucket = Bucket::new(2.0, 1).expect("limited");
    let patience = secs(1.0);
    let ready: Vec<_> = std::iter::from_fn(|| bucket.take(NO_PATIENCE, patience)).map(|token| token.ready).collect();
    assert_eq!(ready, [secs(0.0), secs(0.5), secs(1.0)], "a fourth would wait for a second and a half");
    assert_eq!(bucket.take(secs(0.5), patience), Some(Token { ready: secs(1.5) }));
}

#[test]
fn waits_for_ever_are_refused() {
    let mut bucket = Bucket::new(f64::MIN_POSITIVE, 1).expect("limited");
    assert!(bucket.take(NO_PATIENCE, Duration::MAX).is_some());
    assert_eq!(bucket.take(NO_PATIENCE, Duration::MAX), None);
}

#[test]
fn what_is_given_back_serves_the_next() {
    let mut bucket = Bucket::new(1.0, 1).expect("limited");
    let take = |bucket: &mut Bucket| bucket.take(NO_PATIENCE, secs(10.0)).expect("within patience").ready;
    let tokens: Vec<Token> = (0..4).map(|_| Token { ready: take(&mut bucket) }).collect();
    assert_eq!(tokens.iter().map(|token| token.ready.as_secs()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    bucket.give_back(tokens[0], NO_PATIENCE);
    assert_eq!(bucket.clone().take(NO_PATIENCE, secs(10.0)), Some(Token { ready: secs(4.0) }), "it was used");
    bucket.give_back(tokens[1], NO_PATIENCE);
    assert_eq!(bucket.clone().take(NO_PATIENCE, secs(10.0)), Some(Token { ready: secs(4.0) }), "two are behind it");
    bucket.give_back(tokens[3], NO_PATIENCE);
    bucket.give_back(tokens[2], NO_PATIENCE);
    assert_eq!(take(&mut bucket), secs(2.0));
}

proptest! {
    /// In no span of time do more tokens become ready than were in the bucket and were added to it.
    #[test]
    fn never_more_than_rate_and_burst(
        rate in 0.1..20.0f64,
        burst in 1..5u32,
        steps in proptest::collection::vec((0..2000u64, 0..5000u64, any::<Option<u8>>()), 1..80),
    ) {
        let mut bucket = Bucket::new(rate, burst).expect("limited");
        let mut now = Duration::ZERO;
        let mut taken: Vec<Token> = Vec::new();
        for (passed, patience, give_back) in steps {
            now += Duration::from_millis(passed);
            if let Some(which) = give_back && !taken.is_empty() {
                let index = usize::from(which) % taken.len();
                if taken[index].ready > now {
                    bucket.give_back(taken.remove(index), now);
                }
            }
            let patience = Duration::from_millis(patience);
            if let Some(token) = bucket.take(now, patience) {
                prop_assert!(token.ready >= now && token.ready <= now + patience);
                taken.push(token);
            }
        }
        let mut ready: Vec<f64> = taken.iter().map(|token| token.ready.as_secs_f64()).collect();
        ready.sort_by(f64::total_cmp);
        for (i, first) in ready.iter().enumerate() {
            for (j, last) in ready.iter().enumerate().skip(i) {
                let count = (j - i + 1) as f64;
                prop_assert!(count <= f64::from(burst) + rate * (last - first) + 1e-3, "{count} between {first} and {last}");
            }
        }
    }
}
