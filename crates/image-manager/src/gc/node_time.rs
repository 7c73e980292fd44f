//! [`NodeTime`]: keeps ages right when the clock is set. The wall clock is set forwards and backwards, by hours or by years;
//! a node without a battery boots with its clock in the past. The kernel counts how long the node is up, so a step of the
//! clock shows as a difference between the two, and all recorded times are moved by it. Time during which the node was off
//! is known as such, and makes no image older. Pure: the caller passes the moments.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// Tells the life of the node in which it is asked; `None`: that is not known.
pub type BootClock = Arc<dyn Fn() -> Option<Boot> + Send + Sync>;

/// A life of the node, and how long it has lasted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// A text that is another one after each boot.
    pub id: Box<str>,
    /// Since the boot, sleep included.
    pub up: Duration,
}

/// A moment by both clocks.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    pub(super) wall: Timestamp,
    pub(super) boot: Option<Boot>,
}

impl From<Timestamp> for Moment {
    fn from(wall: Timestamp) -> Self {
        Self { wall, boot: None }
    }
}

/// State of the clocks that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeTime {
    /// Wall clock of the last pass.
    seen: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<Boot>,
    /// From when to when the node was off, the earliest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    off: Vec<(Timestamp, Timestamp)>,
}

/// Smaller differences are the clocks' own inaccuracy, and a clock that is slewed.
const STEP: SignedDuration = SignedDuration::from_secs(10);
/// How many times off are remembered; a node that was off more often counts the earliest as up.
const MAX_OFF: usize = 200;

impl NodeTime {
    pub(super) fn new(moment: Moment) -> Self {
        Self { seen: moment.wall, boot: moment.boot, off: Vec::new() }
    }

    /// Returns the wall clock of the last pass.
    pub(super) fn seen(&self) -> Timestamp {
        self.seen
    }

    /// Records a new moment. Returns by how much all times that were recorded before have to be moved.
    pub(super) fn advance(&mut self, moment: Moment) -> SignedDuration {
        let passed = moment.wall.duration_since(self.seen);
        let shift = match (&self.boot, &moment.boot) {
            (Some(before), Some(now)) if before.id == now.id => {
                let step = passed.saturating_sub(signed(now.up).saturating_sub(signed(before.up)));
                if step.abs() > STEP { step } else { SignedDuration::ZERO }
            }
            // The time for which the node was off is not known, but it cannot be negative.
            _ if passed.is_negative() => passed,
            (Some(_), Some(now)) => {
                let booted = moved(moment.wall, -signed(now.up));
                if booted > self.seen {
                    self.off.push((self.seen, booted));
                    let surplus = self.off.len().saturating_sub(MAX_OFF);
                    self.off.drain(..surplus);
                }
                SignedDuration::ZERO
            }
            _ => SignedDuration::ZERO,
        };
        if !shift.is_zero() {
            for (from, to) in &mut self.off {
                (*from, *to) = (moved(*from, shift), moved(*to, shift));
            }
        }
        (self.seen, self.boot) = (moment.wall, moment.boot);
        shift
    }

    /// Applies only the step of the clock, because no pass has inspected the images meanwhile. Returns the same as
    /// [`NodeTime::advance`].
    pub(super) fn follow(&mut self, moment: Moment) -> SignedDuration {
        let mut ahead = self.clone();
        let shift = ahead.advance(moment);
        if !shift.is_zero() {
            let before = moved(self.seen, shift);
            // After a reboot, nothing more is known about the boot of the last pass.
            let boot = self.boot.take().filter(|boot| ahead.boot.as_ref().is_some_and(|now| now.id == boot.id));
            *self = Self { seen: before, boot, off: ahead.off };
        }
        shift
    }

    /// The time that has to be taken for `then` where the time that has passed since counts: later by as long as the node was
    /// off in between.
    pub(super) fn effective(&self, then: Timestamp) -> Timestamp {
        let off = self.off.iter().rev().take_while(|(_, to)| *to > then);
        let off = off.map(|(from, to)| to.duration_since(then.max(*from)));
        moved(then, off.fold(SignedDuration::ZERO, SignedDuration::saturating_add))
    }

    /// Returns by how much the times of another process on the same node have to be moved to match these.
    pub(super) fn apart(&self, other: &Self) -> SignedDuration {
        match (&self.boot, &other.boot) {
            (Some(ours), Some(theirs)) if ours.id == theirs.id => {
                let booted = |seen: Timestamp, boot: &Boot| moved(seen, -signed(boot.up));
                let apart = booted(self.seen, ours).duration_since(booted(other.seen, theirs));
                if apart.abs() > STEP { apart } else { SignedDuration::ZERO }
            }
            _ => SignedDuration::ZERO,
        }
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// Returns a time moved by `by`, later or earlier; saturates at the ends of the range.
pub(super) fn moved(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_add(by).unwrap_or(if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;
    const YEAR: i64 = 365 * 24 * HOUR;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn moment(wall: i64, boot: &str, up: u64) -> Moment {
        Moment { wall: at(wall), boot: Some(Boot { id: boot.into(), up: Duration::from_secs(up) }) }
    }

    #[test]
    fn steps_of_the_clock() {
        // (wall and up before, boot, wall and up now, moved by)
        let cases = [
            ("time passes", (1000, 10), "a", (1300, 310), 0),
            ("slewed", (1000, 10), "a", (1305, 310), 0),
            ("an hour forwards", (1000, 10), "a", (1300 + HOUR, 310), HOUR),
            ("an hour backwards", (HOUR, 10), "a", (300, 310), -HOUR),
            ("fifty years forwards", (1000, 10), "a", (1300 + 50 * YEAR, 310), 50 * YEAR),
            ("off for a while", (1000, 10), "b", (5000, 20), 0),
            ("off, and the clock begins anew", (50 * YEAR, 10), "b", (20, 20), 20 - 50 * YEAR),
        ];
        for (name, (wall, up), boot, (now, up_now), want) in cases {
            let mut time = NodeTime::new(moment(wall, "a", up));
            assert_eq!(time.advance(moment(now, boot, up_now)), SignedDuration::from_secs(want), "{name}");
            assert_eq!(time.seen(), at(now), "{name}");
        }
    }

    #[test]
    fn a_clock_step_is_followed_once() {
        for (name, wall, boot, up, want) in [
            ("forwards", 1000 + YEAR, "a", 600, YEAR - 500),
            ("backwards", 1000 - YEAR, "a", 600, -YEAR - 500),
            ("none", 1500, "a", 600, 0),
            ("after a boot, before the last look", 500, "b", 7, -500),
            ("after a boot", 5000, "b", 7, 0),
        ] {
            let mut time = NodeTime::new(moment(1000, "a", 100));
            let step = time.follow(moment(wall, boot, up));
            assert_eq!(step, SignedDuration::from_secs(want), "{name}");
            assert_eq!(time.seen(), at(1000 + want), "{name}: when somebody looked stays when it was");
            assert!(time.follow(moment(wall + 60, boot, up + 60)).is_zero(), "{name}");
            assert!(time.advance(moment(wall + 90, boot, up + 90)).is_zero(), "{name}");
        }
    }

    #[test]
    fn without_a_boot_clock_only_a_clock_that_was_set_back_is_seen() {
        let mut time = NodeTime::new(at(1000).into());
        assert_eq!(time.advance(at(9000).into()), SignedDuration::ZERO);
        assert_eq!(time.advance(at(500).into()), SignedDuration::from_secs(-8500));
        assert_eq!(time.effective(at(100)), at(100));
    }

    #[test]
    fn time_off_does_not_count() {
        let mut time = NodeTime::new(moment(1000, "a", 10));
        // Off from 1000 to 5000, up for a hundred seconds before the next pass.
        time.advance(moment(5100, "b", 100));
        assert_eq!(time.off, [(at(1000), at(5000))]);
        assert_eq!(time.effective(at(900)), at(4900));
        assert_eq!(time.effective(at(1000)), at(5000));
        assert_eq!(time.effective(at(2000)), at(5000));
        assert_eq!(time.effective(at(5050)), at(5050));
        time.advance(moment(8000, "c", 0));
        assert_eq!(time.effective(at(900)), at(900 + 4000 + 2900));
        // A step moves what is known of it.
        time.advance(moment(8001 + HOUR, "c", 1));
        assert_eq!(time.off, [(at(1000 + HOUR), at(5000 + HOUR)), (at(5100 + HOUR), at(8000 + HOUR))]);
        for boot in 0..2 * i64::try_from(MAX_OFF).expect("small") {
            time.advance(moment(20_000 + 10 * boot, &boot.to_string(), 0));
        }
        assert_eq!(time.off.len(), MAX_OFF);
    }

    #[test]
    fn two_processes_agree_on_a_step() {
        let ours = NodeTime::new(moment(1000 + HOUR, "a", 100));
        let theirs = NodeTime::new(moment(990, "a", 90));
        assert_eq!(ours.apart(&theirs), SignedDuration::from_secs(HOUR));
        assert_eq!(theirs.apart(&ours), SignedDuration::from_secs(-HOUR));
        assert_eq!(ours.apart(&NodeTime::new(moment(990, "b", 90))), SignedDuration::ZERO);
    }

    #[test]
    fn the_ends_of_time_do_not_panic() {
        let mut time = NodeTime::new(Timestamp::MIN.into());
        time.advance(moment(0, "a", 1));
        time.advance(Moment { wall: Timestamp::MAX, boot: Some(Boot { id: "a".into(), up: Duration::MAX }) });
        time.advance(Moment { wall: Timestamp::MIN, boot: Some(Boot { id: "b".into(), up: Duration::ZERO }) });
        assert_eq!(moved(Timestamp::MAX, SignedDuration::from_secs(1)), Timestamp::MAX);
    }
}
