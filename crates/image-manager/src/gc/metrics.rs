//! [`GcMetrics`]: the metrics of garbage collection. The kubelet counts removed images; attempts, durations, bytes and
//! reasons for keeping images are the metrics that KEP-6053 misses there.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use cri_api::engine::UnfinishedPulls;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::disk::DiskSpace;
use super::plan::{Because, RemovedBecause};
use crate::metrics::series::{LabelPairs, Series};

const REMOVED: [RemovedBecause; 3] = [RemovedBecause::Age, RemovedBecause::Space, RemovedBecause::Unused];
const OUTCOMES: [&str; 2] = ["success", "failure"];
const ROUNDS: usize = OUTCOMES.len() * Trigger::ALL.len();

/// Why a round runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// The timer, or a nudge.
    Periodic,
    /// There is disk pressure.
    Pressure,
    /// A pull found no space.
    Pull,
    /// A person asked.
    Command,
}

impl Trigger {
    pub(super) const ALL: [Self; 4] = [Self::Periodic, Self::Pressure, Self::Pull, Self::Command];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Periodic => "periodic",
            Self::Pressure => "pressure",
            Self::Pull => "pull",
            Self::Command => "command",
        }
    }
}

/// Metrics of garbage collection.
#[derive(Debug)]
pub struct GcMetrics {
    images: Series<Counter, { REMOVED.len() }>,
    bytes: Series<Counter, { REMOVED.len() }>,
    rounds: Series<Counter, ROUNDS, 2>,
    duration: Histogram,
    not_removed: Counter,
    pressure: Gauge,
    capacity: Gauge,
    available: Gauge,
    wanted: Counter,
    kept: Series<Gauge, { Because::WORDS.len() }>,
    used_ratio: Gauge<f64, AtomicU64>,
    unfinished: Gauge,
    unfinished_bytes: Gauge,
}

impl GcMetrics {
    /// Nothing is counted yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            images: Series::new(removed_labels, Counter::default),
            bytes: Series::new(removed_labels, Counter::default),
            rounds: Series::new(round_labels, Counter::default),
            duration: Histogram::new(exponential_buckets(0.01, 2.5, 12)),
            not_removed: Counter::default(),
            pressure: Gauge::default(),
            capacity: Gauge::default(),
            available: Gauge::default(),
            wanted: Counter::default(),
            kept: Series::new(kept_labels, Gauge::default),
            used_ratio: Gauge::default(),
            unfinished: Gauge::default(),
            unfinished_bytes: Gauge::default(),
        })
    }

    /// Gives every metric its name. The registry appends `_total` to counters.
    pub fn register(&self, registry: &mut Registry) {
        let r = registry;
        r.register("kubelet_image_garbage_collected", "Images that were collected, by reason", self.images.clone());
        r.register("imagelet_image_gc_freed_bytes", "Bytes that collection freed, by reason", self.bytes.clone());
        r.register("imagelet_image_gc_rounds", "Rounds of collection, by trigger and outcome", self.rounds.clone());
        r.register("imagelet_image_gc_duration_seconds", "Time that a round of collection took", self.duration.clone());
        r.register("imagelet_image_gc_wanted_bytes", "Bytes that rounds set out to free", self.wanted.clone());
        r.register("imagelet_image_gc_kept_images", "Images that the last round left, by why", self.kept.clone());
        r.register(
            "imagelet_image_gc_removal_failures",
            "Images that collection tried to remove and could not",
            self.not_removed.clone(),
        );
        r.register("imagelet_disk_pressure", "Whether the node says that it has disk pressure", self.pressure.clone());
        r.register("imagelet_image_fs_capacity_bytes", "Size of the image file system", self.capacity.clone());
        r.register(
            "imagelet_image_fs_available_bytes",
            "Bytes left on the image file system when it was last measured",
            self.available.clone(),
        );
        r.register(
            "imagelet_image_fs_used_ratio",
            "Share of the image file system in use when it was last measured, from 0 to 1",
            self.used_ratio.clone(),
        );
        r.register(
            "imagelet_unfinished_pulls",
            "Layers and parts of layers that interrupted pulls left for later ones",
            self.unfinished.clone(),
        );
        r.register("imagelet_unfinished_pulls_bytes", "Bytes on disk that they take", self.unfinished_bytes.clone());
    }

    /// Counts a removed image with its bytes.
    pub fn removed(&self, because: RemovedBecause, bytes: u64) {
        let index = REMOVED.iter().position(|reason| *reason == because).unwrap_or(0);
        self.images.at(index).inc();
        self.bytes.at(index).inc_by(bytes);
    }

    /// Records the data that interrupted pulls left.
    pub(super) fn unfinished(&self, left: UnfinishedPulls) {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.unfinished.set(number(left.layers.saturating_add(left.blobs)));
        self.unfinished_bytes.set(number(left.bytes));
    }

    /// A round ended.
    pub(super) fn round(&self, trigger: Trigger, took: Duration, wanted_bytes: u64, ok: bool) {
        let trigger = Trigger::ALL.iter().position(|known| *known == trigger).unwrap_or(0);
        self.rounds.at(trigger * OUTCOMES.len() + usize::from(!ok)).inc();
        self.duration.observe(took.as_secs_f64());
        self.wanted.inc_by(wanted_bytes);
    }

    /// Why images stayed, one word each.
    pub fn kept<'a>(&self, words: impl Iterator<Item = &'a str>) {
        let mut counts = [0_i64; Because::WORDS.len()];
        for word in words {
            if let Some(index) = Because::WORDS.iter().position(|known| *known == word) {
                counts[index] += 1;
            }
        }
        for (index, count) in counts.into_iter().enumerate() {
            self.kept.at(index).set(count);
        }
    }

    /// An image could not be removed.
    pub(super) fn not_removed(&self) {
        self.not_removed.inc();
    }

    /// Records if there is disk pressure.
    pub(super) fn disk_pressure(&self, under: bool) {
        self.pressure.set(i64::from(under));
    }

    /// The file system was measured.
    pub(super) fn measured(&self, space: DiskSpace) {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let used = space.capacity.saturating_sub(space.available);
        self.used_ratio.set(if space.capacity == 0 { 0.0 } else { used as f64 / space.capacity as f64 });
        self.capacity.set(number(space.capacity));
        self.available.set(number(space.available));
    }
}

fn removed_labels(index: usize) -> LabelPairs<1> {
    [("reason", REMOVED[index].as_str())]
}

fn round_labels(index: usize) -> LabelPairs<2> {
    [("trigger", Trigger::ALL[index / OUTCOMES.len()].as_str()), ("outcome", OUTCOMES[index % OUTCOMES.len()])]
}

fn kept_labels(index: usize) -> LabelPairs<1> {
    [("reason", Because::WORDS[index])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_as_documented() {
        let metrics = GcMetrics::new();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        metrics.removed(RemovedBecause::Space, 10);
        metrics.removed(RemovedBecause::Age, 1);
        metrics.round(Trigger::Periodic, Duration::from_millis(20), 12, true);
        metrics.round(Trigger::Pull, Duration::from_millis(20), 0, false);
        metrics.not_removed();
        metrics.disk_pressure(true);
        metrics.kept(["in-use", "in-use", "pinned"].into_iter());
        metrics.measured(DiskSpace { capacity: 1000, available: 199, ..DiskSpace::default() });
        metrics.unfinished(UnfinishedPulls { layers: 1, blobs: 2, bytes: 70 });
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        for line in [
            "kubelet_image_garbage_collected_total{reason=\"age\"} 1",
            "kubelet_image_garbage_collected_total{reason=\"space\"} 1",
            "imagelet_image_gc_freed_bytes_total{reason=\"space\"} 10",
            "imagelet_image_gc_rounds_total{trigger=\"periodic\",outcome=\"success\"} 1",
            "imagelet_image_gc_rounds_total{trigger=\"pull\",outcome=\"failure\"} 1",
            "imagelet_image_gc_duration_seconds_count 2",
            "imagelet_image_gc_removal_failures_total 1",
            "imagelet_disk_pressure 1",
            "imagelet_image_fs_capacity_bytes 1000",
            "imagelet_image_fs_available_bytes 199",
            "imagelet_image_gc_wanted_bytes_total 12",
            "imagelet_image_gc_kept_images{reason=\"in-use\"} 2",
            "imagelet_image_gc_kept_images{reason=\"rule\"} 0",
            "imagelet_image_fs_used_ratio 0.801",
            "imagelet_unfinished_pulls 3",
            "imagelet_unfinished_pulls_bytes 70",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
