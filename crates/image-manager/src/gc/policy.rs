//! [`GcPolicy`]: when images are collected, and which are too young for it. Checked with the kubelet's words.

use std::time::Duration;

/// When collection begins, where it ends, and what it leaves alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcPolicy {
    /// Percent of the file system used at which collection begins (`imageGCHighThresholdPercent`). 100: never.
    pub high_threshold_percent: i32,
    /// Percent of the file system used at which it ends (`imageGCLowThresholdPercent`).
    pub low_threshold_percent: i32,
    /// An image that was detected more recently stays (`imageMinimumGCAge`).
    pub min_age: Duration,
    /// An unused image older than this is removed regardless of free space (`imageMaximumGCAge`); zero: never.
    pub max_age: Duration,
}

impl Default for GcPolicy {
    fn default() -> Self {
        Self {
            high_threshold_percent: 85,
            low_threshold_percent: 80,
            min_age: Duration::from_secs(120),
            max_age: Duration::ZERO,
        }
    }
}

/// Why a policy is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GcPolicyError {
    /// The high threshold is no percentage.
    #[error("invalid HighThresholdPercent {0}, must be in range [0-100]")]
    High(i32),
    /// The low threshold is no percentage.
    #[error("invalid LowThresholdPercent {0}, must be in range [0-100]")]
    Low(i32),
    /// They are the wrong way round.
    #[error("LowThresholdPercent {low} can not be higher than HighThresholdPercent {high}")]
    Order {
        /// Percent of `imageGCLowThresholdPercent`.
        low: i32,
        /// Percent of `imageGCHighThresholdPercent`.
        high: i32,
    },
}

impl GcPolicy {
    /// Checks the thresholds.
    ///
    /// # Errors
    /// They do not.
    pub fn check(&self) -> Result<(), GcPolicyError> {
        let (high, low) = (self.high_threshold_percent, self.low_threshold_percent);
        if !(0..=100).contains(&high) {
            return Err(GcPolicyError::High(high));
        }
        if !(0..=100).contains(&low) {
            return Err(GcPolicyError::Low(low));
        }
        if low > high { Err(GcPolicyError::Order { low, high }) } else { Ok(()) }
    }

    /// Returns true if this policy never removes anything.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.high_threshold_percent == 100 && self.max_age.is_zero()
    }

    /// How many bytes have to go from a file system of `capacity` bytes of which `available` are free; zero below the
    /// high threshold. What is claimed to be available beyond the capacity does not count.
    #[must_use]
    pub fn bytes_to_free(&self, capacity: u64, available: u64) -> u64 {
        let available = available.min(capacity);
        if capacity == 0 || self.usage_percent(capacity, available) < i128::from(self.high_threshold_percent) {
            return 0;
        }
        self.bytes_to_low_mark(capacity, available)
    }

    /// How many bytes are missing until the low threshold is reached.
    #[must_use]
    pub fn bytes_to_low_mark(&self, capacity: u64, available: u64) -> u64 {
        let wanted = u128::from(capacity) * u128::from((100 - self.low_threshold_percent).unsigned_abs()) / 100;
        u64::try_from(wanted).unwrap_or(u64::MAX).saturating_sub(available.min(capacity))
    }

    fn usage_percent(&self, capacity: u64, available: u64) -> i128 {
        100 - i128::from(available) * 100 / i128::from(capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(high: i32, low: i32) -> GcPolicy {
        GcPolicy { high_threshold_percent: high, low_threshold_percent: low, ..GcPolicy::default() }
    }

    #[test]
    fn thresholds_are_checked() {
        let cases = [
            ("upstream: gc/TestValidateImageGCPolicy/valid", 2, 1, None),
            (
                "upstream: gc/TestValidateImageGCPolicy/high below 0",
                -1,
                1,
                Some("invalid HighThresholdPercent -1, must be in range [0-100]"),
            ),
            (
                "upstream: gc/TestValidateImageGCPolicy/high above 100",
                101,
                1,
                Some("invalid HighThresholdPercent 101, must be in range [0-100]"),
            ),
            (
                "upstream: gc/TestValidateImageGCPolicy/low below 0",
                2,
                -1,
                Some("invalid LowThresholdPercent -1, must be in range [0-100]"),
            ),
            (
                "upstream: gc/TestValidateImageGCPolicy/low above 100",
                2,
                101,
                Some("invalid LowThresholdPercent 101, must be in range [0-100]"),
            ),
            (
                "upstream: gc/TestValidateImageGCPolicy/low above high",
                1,
                2,
                Some("LowThresholdPercent 2 can not be higher than HighThresholdPercent 1"),
            ),
        ];
        for (name, high, low, want) in cases {
            let got = policy(high, low).check().err().map(|e| e.to_string());
            assert_eq!(got.as_deref(), want, "{name}");
        }
        assert_eq!(policy(80, 80).check(), Ok(()));
    }

    #[test]
    fn the_free_space_formula() {
        // (high, low, capacity, available, bytes to free)
        let cases = [
            (90, 80, 1000, 600, 0),
            (85, 80, 1000, 160, 0),
            (85, 80, 1000, 159, 41),
            (85, 80, 1000, 150, 50),
            (90, 80, 1000, 50, 150),
            (85, 80, 1000, 0, 200),
            (85, 80, 1000, 5000, 0),
            (85, 80, 0, 0, 0),
            (100, 100, 1000, 0, 0),
            (0, 0, 1000, 1000, 0),
            (0, 0, 1000, 999, 1),
            (85, 80, u64::MAX, 0, u64::MAX / 5),
        ];
        for (high, low, capacity, available, want) in cases {
            assert_eq!(
                policy(high, low).bytes_to_free(capacity, available),
                want,
                "{high} {low} {capacity} {available}"
            );
        }
        assert!(policy(100, 80).is_off());
        assert!(!GcPolicy { max_age: Duration::from_secs(1), ..policy(100, 80) }.is_off());
        assert!(!GcPolicy::default().is_off());
    }
}
