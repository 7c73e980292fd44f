//! [`DiskSpace`]: the usage of a file system, and the shortage with respect to the policy, in bytes and in inodes.
//! It measures nothing: the caller passes a [`DiskProbe`].

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::policy::GcPolicy;

/// Measures the file system of a path.
pub type DiskProbe = Arc<dyn Fn(&Path) -> io::Result<DiskSpace> + Send + Sync>;

/// How full a file system is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes in all.
    pub capacity: u64,
    /// Bytes that can be written.
    pub available: u64,
    /// Inodes in all; 0 where the file system makes them as it needs them.
    pub inodes: u64,
    /// Inodes that can be made.
    pub inodes_free: u64,
    /// Number of the device, to distinguish file systems; 0: not known.
    pub device: u64,
}

impl DiskSpace {
    /// The same with nothing available that is beyond the capacity.
    #[must_use]
    pub fn clamped(self) -> Self {
        Self { available: self.available.min(self.capacity), inodes_free: self.inodes_free.min(self.inodes), ..self }
    }

    /// Percent of the bytes that are used, as the kubelet counts: what is available is rounded down.
    #[must_use]
    pub fn used_percent(self) -> u64 {
        percent(self.capacity, self.available)
    }

    /// Percent of the inodes that are used; 0 where they are made as needed.
    #[must_use]
    pub fn inodes_used_percent(self) -> u64 {
        percent(self.inodes, self.inodes_free)
    }
}

fn percent(capacity: u64, available: u64) -> u64 {
    if capacity == 0 {
        return 0;
    }
    let available = u128::from(available.min(capacity)) * 100 / u128::from(capacity);
    100 - u64::try_from(available).unwrap_or(100)
}

/// Bytes and inodes that a file system lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Bytes to free; 0: none.
    pub bytes: u64,
    /// Inodes. The kubelet's image collection ignores them.
    pub inodes: u64,
}

impl Shortage {
    /// The space to free: nothing while bytes and inodes are both below the high threshold.
    #[must_use]
    pub fn at(space: DiskSpace, policy: &GcPolicy) -> Self {
        Self {
            bytes: policy.bytes_to_free(space.capacity, space.available),
            inodes: policy.bytes_to_free(space.inodes, space.inodes_free),
        }
    }

    /// The space missing until the low threshold, wherever the high one is.
    #[must_use]
    pub fn to_low_mark(space: DiskSpace, policy: &GcPolicy) -> Self {
        Self {
            bytes: policy.bytes_to_low_mark(space.capacity, space.available),
            inodes: policy.bytes_to_low_mark(space.inodes, space.inodes_free),
        }
    }

    /// The space still missing after some was freed.
    #[must_use]
    pub(super) fn after(self, before: DiskSpace, now: DiskSpace) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(now.available.saturating_sub(before.available)),
            inodes: self.inodes.saturating_sub(now.inodes_free.saturating_sub(before.inodes_free)),
        }
    }

    /// Returns true if nothing is missing.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Bytes for people, in the form of the kubelet's message about free disk space.
#[must_use]
pub(super) fn human(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10 << 30, "10.0 GiB"),
            (3 << 40, "3.0 TiB"),
            (5000 << 40, "5000.0 TiB"),
        ];
        for (bytes, want) in cases {
            assert_eq!(human(bytes), want);
        }
    }

    #[test]
    fn bytes_and_inodes_both_count() {
        let policy = GcPolicy::default();
        let space = |available, inodes_free| {
            let inodes = 100;
            DiskSpace { capacity: 1000, available, inodes, inodes_free, ..DiskSpace::default() }
        };
        assert!(Shortage::at(space(500, 50), &policy).is_none());
        assert_eq!(Shortage::at(space(100, 50), &policy), Shortage { bytes: 100, inodes: 0 });
        assert_eq!(Shortage::at(space(500, 2), &policy), Shortage { bytes: 0, inodes: 18 });
        assert_eq!(Shortage::to_low_mark(space(190, 50), &policy), Shortage { bytes: 10, inodes: 0 });
        let made_as_needed = DiskSpace { inodes: 0, inodes_free: 0, ..space(500, 0) };
        assert!(Shortage::at(made_as_needed, &policy).is_none());
        assert_eq!((space(100, 2).used_percent(), space(100, 2).inodes_used_percent()), (90, 98));
        let beyond = DiskSpace { available: 5000, ..space(0, 500) };
        assert_eq!((beyond.clamped().available, beyond.clamped().inodes_free, beyond.used_percent()), (1000, 100, 0));
    }
}
