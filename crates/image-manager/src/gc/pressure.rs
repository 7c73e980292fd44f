//! [`Pressure`]: the condition of disk pressure, with hysteresis: the condition stays for a while after its cause ended, so
//! that it does not flap. Pure; the caller passes observations and their times.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::disk::DiskSpace;
use super::eviction::{Amount, Signal, Thresholds};

/// State of disk pressure that outlives restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Pressure {
    /// True under disk pressure; `None`: not measured yet.
    pub(super) under: Option<bool>,
    /// Since when that is so.
    pub(super) since: Option<Timestamp>,
    /// When a threshold was last seen crossed.
    pub(super) crossed: Option<Timestamp>,
}

impl Pressure {
    /// Records an observation. Returns true if the condition changed.
    pub(super) fn observe(&mut self, crossed: bool, now: Timestamp, transition: Duration) -> bool {
        if crossed {
            self.crossed = Some(now);
        }
        // A clock that was set back does not make the condition last longer than from now on.
        self.crossed = self.crossed.map(|at| at.min(now));
        self.since = self.since.map(|at| at.min(now));
        let lasts = |at: Timestamp| Duration::try_from(now.duration_since(at)).is_ok_and(|past| past <= transition);
        // As in the kubelet: it ends when the last observation of it is older than the period.
        let under = crossed || (self.under == Some(true) && self.crossed.is_some_and(lasts));
        let changed = self.under != Some(under);
        if changed {
            self.under = Some(under);
            self.since = Some(now);
        }
        changed
    }
}

/// The file systems that count, as they were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Disks {
    /// The file system of the images.
    pub(super) images: Option<DiskSpace>,
    /// File system of the containers' writable layers, if it is a different one.
    pub(super) containers: Option<DiskSpace>,
    /// The file system of the root.
    pub(super) node: Option<DiskSpace>,
}

/// An eviction threshold with its current measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Observation {
    /// Eviction signal, as in the configuration.
    pub signal: &'static str,
    /// Threshold in bytes or inodes.
    pub threshold: u64,
    /// Available bytes or inodes.
    pub available: u64,
    /// Capacity in bytes or inodes.
    pub capacity: u64,
    /// True if the available amount is below the threshold.
    pub crossed: bool,
    #[serde(skip)]
    pub(super) of: Signal,
}

impl Observation {
    /// How much is missing until the threshold is met again.
    pub(super) fn missing(&self) -> u64 {
        self.threshold.saturating_sub(self.available)
    }
}

/// Holds the thresholds against what was measured. A file system that makes inodes as it needs them has none to run out of;
/// one that was not measured crosses nothing.
pub(super) fn observe(thresholds: &Thresholds, disks: Disks) -> Vec<Observation> {
    let one = |(signal, amount): (Signal, Amount)| {
        let space = if signal.is_of_images() { disks.images } else { disks.node };
        let (capacity, available) = signal.of(space?.clamped());
        if capacity == 0 {
            return None;
        }
        let threshold = amount.of(capacity);
        let crossed = available < threshold;
        Some(Observation { signal: signal.as_str(), threshold, available, capacity, crossed, of: signal })
    };
    thresholds.iter().filter_map(one).collect()
}

/// The resources to free for crossed thresholds, as the kubelet decides by the layout of the file systems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reclaim {
    pub(super) containers: bool,
    pub(super) images: bool,
}

/// Assignment of data to file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Everything on one.
    Shared,
    /// Images and containers on one of their own.
    DedicatedImages,
    /// Images on one of their own, containers with the root.
    Split,
}

impl Layout {
    pub(super) fn reclaim(self, crossed: impl Iterator<Item = Signal>) -> Reclaim {
        let mut reclaim = Reclaim::default();
        for signal in crossed {
            let (containers, images) = match (self, signal.is_of_images()) {
                (Self::Shared, _) | (Self::DedicatedImages, true) => (true, true),
                (Self::DedicatedImages, false) => (false, false),
                (Self::Split, true) => (false, true),
                (Self::Split, false) => (true, false),
            };
            reclaim.containers |= containers;
            reclaim.images |= images;
        }
        reclaim
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn pressure_begins_at_once_and_ends_after_the_period() {
        let mut pressure = Pressure::default();
        let period = Duration::from_secs(300);
        // (second, crossed, under, changed)
        let steps = [
            (1000, false, false, true),
            (1010, false, false, false),
            (1020, true, true, true),
            (1030, false, true, false),
            (1040, true, true, false),
            (1340, false, true, false),
            (1341, false, false, true),
            (1350, true, true, true),
        ];
        for (second, crossed, under, changed) in steps {
            assert_eq!(pressure.observe(crossed, at(second), period), changed, "{second}");
            assert_eq!(pressure.under, Some(under), "{second}");
        }
        assert_eq!(pressure.since, Some(at(1350)));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_hold_it() {
        let mut pressure = Pressure::default();
        let period = Duration::from_secs(300);
        assert!(pressure.observe(true, at(1_000_000), period));
        assert!(!pressure.observe(false, at(100), period));
        assert_eq!((pressure.crossed, pressure.since), (Some(at(100)), Some(at(100))));
        assert!(pressure.observe(false, at(401), period));
        assert_eq!(pressure.under, Some(false));
    }

    #[test]
    fn thresholds_are_crossed_below_them() {
        let space = |available, inodes_free| DiskSpace {
            capacity: 1000,
            available,
            inodes: 100,
            inodes_free,
            ..DiskSpace::default()
        };
        let crossed = |images, node| -> Vec<&'static str> {
            let disks = Disks { images: Some(images), node: Some(node), containers: None };
            let all = observe(&Thresholds::default(), disks).into_iter();
            all.filter(|observation| observation.crossed).map(|observation| observation.signal).collect()
        };
        assert_eq!(crossed(space(150, 5), space(100, 5)), [""; 0]);
        assert_eq!(crossed(space(149, 5), space(100, 5)), ["imagefs.available"]);
        assert_eq!(
            crossed(space(150, 4), space(99, 4)),
            ["imagefs.inodesFree", "nodefs.available", "nodefs.inodesFree"]
        );
        let as_needed = DiskSpace { inodes: 0, inodes_free: 0, ..space(500, 0) };
        assert_eq!(crossed(as_needed, as_needed), [""; 0]);
        assert!(observe(&Thresholds::default(), Disks::default()).is_empty());
        assert!(observe(&Thresholds::none(), Disks { images: Some(space(0, 0)), ..Disks::default() }).is_empty());
    }

    #[test]
    fn what_is_removed_depends_on_the_layout() {
        use Signal::{ImageFsAvailable as Images, NodeFsInodesFree as Node};
        let cases = [
            (Layout::Shared, vec![Images], (true, true)),
            (Layout::Shared, vec![Node], (true, true)),
            (Layout::DedicatedImages, vec![Images], (true, true)),
            (Layout::DedicatedImages, vec![Node], (false, false)),
            (Layout::Split, vec![Images], (false, true)),
            (Layout::Split, vec![Node], (true, false)),
            (Layout::Split, vec![Node, Images], (true, true)),
            (Layout::Shared, vec![], (false, false)),
        ];
        for (layout, signals, (containers, images)) in cases {
            assert_eq!(
                layout.reclaim(signals.iter().copied()),
                Reclaim { containers, images },
                "{layout:?} {signals:?}"
            );
        }
    }
}
