//! When connections are added and when they go, on lines that are made up.

use super::*;

const MB: u64 = 1_000_000;
const UNKNOWN: (u32, u32) = (1, u32::MAX);

/// A line that gives so many bytes a second to each of so many connections at most, to a reader that takes so many.
struct Line {
    pace: ConnectionPace,
    now: Instant,
    left: u64,
    each: u64,
    connections: u32,
    reader: u64,
    learnt: Vec<HostObservation>,
}

impl Line {
    fn new(each: u64, connections: u32, reader: u64) -> Self {
        let now = Instant::now();
        let pace = ConnectionPace::new(RangePolicy { per_blob: 8, ..RangePolicy::default() }, now);
        Self { pace, now, left: 1000 * MB, each, connections, reader, learnt: Vec::new() }
    }

    fn run(&mut self, seconds: f64, seen: (u32, u32)) -> u32 {
        let step = Duration::from_millis(10);
        let end = self.now + Duration::from_secs_f64(seconds);
        while self.now < end {
            let line = self.each * u64::from(self.pace.level().min(self.connections));
            let rate = line.min(self.reader);
            self.pace.received(rate / 100);
            self.pace.waited(step.mul_f64(1.0 - rate as f64 / self.reader as f64));
            self.left = self.left.saturating_sub(rate / 100);
            self.now += step;
            self.learnt.extend(self.pace.tick(self.now, self.left, seen));
        }
        self.pace.level()
    }
}

#[test]
fn level_grows_while_throughput_grows() {
    // The most that the policy allows.
    let mut line = Line::new(10 * MB, 100, 1000 * MB);
    assert_eq!(line.run(3.0, UNKNOWN), 8);
    assert_eq!(line.learnt, [HostObservation::Useful(2), HostObservation::Useful(4), HostObservation::Useful(8)]);
    // The host serves four: eight deliver no more.
    let mut line = Line::new(10 * MB, 4, 1000 * MB);
    assert_eq!(line.run(3.0, UNKNOWN), 4);
    assert_eq!(line.learnt, [HostObservation::Useful(2), HostObservation::Useful(4), HostObservation::Ceiling(4)]);
    // All of the line is had by one.
    let mut line = Line::new(10 * MB, 1, 1000 * MB);
    assert_eq!(line.run(3.0, UNKNOWN), 1);
    assert_eq!(line.learnt, [HostObservation::Ceiling(1)]);
}

#[test]
fn level_stays_at_one_without_benefit() {
    for (name, each, reader) in [("a slow reader", 100 * MB, 20 * MB), ("a fast line", 300 * MB, 3000 * MB)] {
        let mut line = Line::new(each, 100, reader);
        assert_eq!(line.run(2.0, UNKNOWN), 1, "{name}");
        assert!(line.learnt.is_empty(), "{name}: {:?}", line.learnt);
    }
    let mut line = Line::new(10 * MB, 100, 1000 * MB);
    line.left = 7 * MB;
    assert_eq!(line.run(0.6, UNKNOWN), 1, "there is little left");
}

#[test]
fn one_bad_window_is_ignored() {
    let mut line = Line::new(10 * MB, 100, 1000 * MB);
    line.run(0.21, UNKNOWN);
    assert_eq!(line.pace.level(), 2);
    // Something else has the line for the window that is judged (the first one after a change is not).
    line.run(0.19, UNKNOWN);
    line.each = 5 * MB;
    line.run(0.2, UNKNOWN);
    assert_eq!((line.pace.level(), line.learnt.as_slice()), (2, [].as_slice()), "one more look");
    line.each = 10 * MB;
    assert_eq!(line.run(2.4, UNKNOWN), 8);
    assert_eq!(line.learnt, [HostObservation::Useful(2), HostObservation::Useful(4), HostObservation::Useful(8)]);
}

#[test]
fn level_falls_when_the_reader_is_slower() {
    let mut line = Line::new(10 * MB, 100, 1000 * MB);
    assert_eq!(line.run(3.0, UNKNOWN), 8);
    line.reader = 5 * MB;
    assert_eq!(line.run(1.0, UNKNOWN), 1);
}

#[test]
fn cached_host_limits_apply_early_and_are_reassessed() {
    let mut line = Line::new(10 * MB, 100, 1000 * MB);
    assert_eq!(line.run(0.06, (4, u32::MAX)), 4);
    let mut line = Line::new(10 * MB, 1, 1000 * MB);
    assert_eq!(line.run(1.0, (4, u32::MAX)), 1);
    let mut line = Line::new(10 * MB, 100, 1000 * MB);
    assert_eq!(line.run(3.0, (2, 2)), 2, "no more than the host wants");
    line.pace.limit(1);
    assert_eq!(line.run(3.0, UNKNOWN), 1, "nor once it has said so");
}

#[test]
fn starvation_is_not_blamed_on_the_host() {
    let mut line = Line::new(10 * MB, 1, 1000 * MB);
    line.run(0.21, UNKNOWN);
    assert_eq!(line.pace.level(), 2);
    for _ in 0..100 {
        line.pace.starved();
        line.run(0.01, UNKNOWN);
    }
    assert!(line.learnt.is_empty(), "{:?}", line.learnt);
}

#[test]
fn the_length_of_a_range() {
    let now = Instant::now();
    let mut pace = ConnectionPace::new(RangePolicy::default(), now);
    assert_eq!(pace.chunk(), 512 << 10);
    pace.each = 20e6;
    assert_eq!(pace.chunk(), 2_000_000_u64.next_multiple_of(64 << 10), "a tenth of a second");
    pace.answered(Duration::from_millis(20));
    assert_eq!(pace.chunk(), 3_200_000_u64.next_multiple_of(64 << 10), "eight times what the answer takes");
    pace.each = 1e9;
    assert_eq!(pace.chunk(), 4 << 20);
}
