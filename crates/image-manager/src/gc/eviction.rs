//! [`Thresholds`]: from how little space on there is disk pressure (`evictionHard`), in the kubelet's words. Pure: it reads
//! settings and compares numbers.

use std::collections::BTreeMap;
use std::fmt;

use oci::Quantity;

use super::disk::DiskSpace;

/// Signal of a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Bytes of the image file system.
    ImageFsAvailable,
    /// Inodes of the image file system.
    ImageFsInodesFree,
    /// Bytes of the file system of the root.
    NodeFsAvailable,
    /// Inodes of the file system of the root.
    NodeFsInodesFree,
}

impl Signal {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::ImageFsAvailable, Self::ImageFsInodesFree, Self::NodeFsAvailable, Self::NodeFsInodesFree];

    /// Name of the signal in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ImageFsAvailable => "imagefs.available",
            Self::ImageFsInodesFree => "imagefs.inodesFree",
            Self::NodeFsAvailable => "nodefs.available",
            Self::NodeFsInodesFree => "nodefs.inodesFree",
        }
    }

    /// Name of the resource in events.
    #[must_use]
    pub fn resource(self) -> &'static str {
        if self.is_inodes() { "inodes" } else { "ephemeral-storage" }
    }

    pub(super) fn is_inodes(self) -> bool {
        matches!(self, Self::ImageFsInodesFree | Self::NodeFsInodesFree)
    }

    pub(super) fn is_of_images(self) -> bool {
        matches!(self, Self::ImageFsAvailable | Self::ImageFsInodesFree)
    }

    /// How much there is of it: all, and what is left.
    pub(super) fn of(self, space: DiskSpace) -> (u64, u64) {
        if self.is_inodes() { (space.inodes, space.inodes_free) } else { (space.capacity, space.available) }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How little is too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Parts of a million of the capacity.
    Share(u32),
    /// Bytes, or inodes.
    Quantity(u64),
}

impl Amount {
    /// The amount for a capacity.
    #[must_use]
    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Share(parts) => {
                u64::try_from(u128::from(capacity) * u128::from(parts) / 1_000_000).unwrap_or(u64::MAX)
            }
            Self::Quantity(amount) => amount,
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(parts) => write!(f, "{}%", f64::from(*parts) / 10_000.0),
            Self::Quantity(amount) => write!(f, "{amount}"),
        }
    }
}

/// The thresholds that are in force, each below its amount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thresholds(BTreeMap<Signal, Amount>);

impl Default for Thresholds {
    /// The kubelet's.
    fn default() -> Self {
        let percent = |percent: u32| Amount::Share(percent * 10_000);
        Self(BTreeMap::from([
            (Signal::ImageFsAvailable, percent(15)),
            (Signal::ImageFsInodesFree, percent(5)),
            (Signal::NodeFsAvailable, percent(10)),
            (Signal::NodeFsInodesFree, percent(5)),
        ]))
    }
}

/// Why a threshold is none; in the kubelet's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// An unknown signal.
    #[error("unsupported eviction signal {0}")]
    Signal(String),
    /// A percentage out of range.
    #[error("eviction percentage threshold {signal} must be {bound}: {text}")]
    Percentage {
        /// The signal, for example `nodefs.available`.
        signal: String,
        /// `>= 0%` or `<= 100%`.
        bound: &'static str,
        /// The threshold as it was written.
        text: String,
    },
    /// A quantity that is not above zero.
    #[error("eviction threshold {signal} must be positive: {text}")]
    NotPositive {
        /// The signal, for example `nodefs.available`.
        signal: String,
        /// The threshold as it was written.
        text: String,
    },
    /// Neither a percentage nor a quantity.
    #[error("eviction threshold {signal}: {text:?} is neither a quantity, as 1Gi or 500Mi, nor a percentage, as 10%")]
    Unreadable {
        /// The signal, for example `nodefs.available`.
        signal: String,
        /// The threshold as it was written.
        text: String,
    },
}

/// Signals that the kubelet knows and that are not about the disks which images can free.
const OTHERS: [&str; 5] = [
    "memory.available",
    "allocatableMemory.available",
    "pid.available",
    "containerfs.available",
    "containerfs.inodesFree",
];

impl Thresholds {
    /// No thresholds: there is never disk pressure.
    #[must_use]
    pub fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// Reads `evictionHard`. As in the kubelet the thresholds that are set replace the defaults as a whole, `0%` and `100%`
    /// disable a signal, and signals of memory and processes are accepted, though they are not used.
    ///
    /// # Errors
    /// An unknown signal, or an amount that cannot be parsed.
    pub fn parse<'a>(settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ThresholdError> {
        let mut thresholds = Self::none();
        for (name, text) in settings {
            let signal = Signal::ALL.into_iter().find(|signal| signal.as_str() == name);
            if signal.is_none() && !OTHERS.contains(&name) {
                return Err(ThresholdError::Signal(name.to_owned()));
            }
            let amount = amount(name, text.trim())?;
            if let (Some(signal), Some(amount)) = (signal, amount) {
                thresholds.0.insert(signal, amount);
            }
        }
        Ok(thresholds)
    }

    /// Returns true if there are no thresholds.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each signal with its amount.
    pub fn iter(&self) -> impl Iterator<Item = (Signal, Amount)> + '_ {
        self.0.iter().map(|(signal, amount)| (*signal, *amount))
    }
}

/// `None`: the signal is switched off.
fn amount(signal: &str, text: &str) -> Result<Option<Amount>, ThresholdError> {
    let unreadable = || ThresholdError::Unreadable { signal: signal.to_owned(), text: text.to_owned() };
    if let Some(number) = text.strip_suffix('%') {
        let percent: f64 = number.trim().parse().map_err(|_| unreadable())?;
        let out_of = |bound| {
            let (signal, text) = (signal.to_owned(), text.to_owned());
            Err(ThresholdError::Percentage { signal, bound, text })
        };
        if percent.is_nan() {
            return Err(unreadable());
        }
        if percent < 0.0 {
            return out_of(">= 0%");
        }
        if percent > 100.0 {
            return out_of("<= 100%");
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and a million")]
        let parts = (percent * 10_000.0).round() as u32;
        return Ok((parts > 0 && parts < 1_000_000).then_some(Amount::Share(parts)));
    }
    // The kubelet truncates such an exponent; imagelet refuses it as a mistake.
    let exponent = text.split_once(['e', 'E']).and_then(|(_, exponent)| exponent.parse::<i64>().ok());
    if exponent.is_some_and(|exponent| i8::try_from(exponent).is_err()) {
        return Err(unreadable());
    }
    match text.parse::<Quantity>().map_err(|_| unreadable())?.value() {
        // The largest quantity means more than any disk has.
        i64::MAX => Ok(Some(Amount::Quantity(u64::MAX))),
        value if value > 0 => Ok(Some(Amount::Quantity(value.unsigned_abs()))),
        _ => Err(ThresholdError::NotPositive { signal: signal.to_owned(), text: text.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_kubelets() {
        let text = "imagefs.available 15%, imagefs.inodesFree 5%, nodefs.available 10%, nodefs.inodesFree 5%";
        let defaults = Thresholds::default();
        let shown: Vec<String> = defaults.iter().map(|(signal, amount)| format!("{signal} {amount}")).collect();
        assert_eq!(shown.join(", "), text);
    }

    #[test]
    fn amounts() {
        let cases = [
            ("10%", Some(Amount::Share(100_000))),
            ("7.5%", Some(Amount::Share(75_000))),
            ("0%", None),
            ("100%", None),
            ("1Gi", Some(Amount::Quantity(1 << 30))),
            ("1.5Gi", Some(Amount::Quantity(3 << 29))),
            ("500M", Some(Amount::Quantity(500_000_000))),
            ("1e9", Some(Amount::Quantity(1_000_000_000))),
            ("100m", Some(Amount::Quantity(1))),
            ("123", Some(Amount::Quantity(123))),
            ("16Ei", Some(Amount::Quantity(u64::MAX))),
            ("+2k", Some(Amount::Quantity(2000))),
        ];
        for (text, want) in cases {
            let got = Thresholds::parse([("imagefs.available", text)]).expect("an amount");
            assert_eq!(got.iter().next().map(|(_, amount)| amount), want, "{text}");
        }
        assert_eq!(Amount::Share(150_000).of(u64::MAX), u64::MAX / 20 * 3 + 2);
    }

    #[test]
    fn what_is_refused() {
        let cases = [
            ("imagefs.free", "1Gi", "unsupported eviction signal imagefs.free"),
            ("nodefs.available", "-1%", "eviction percentage threshold nodefs.available must be >= 0%: -1%"),
            ("nodefs.available", "101%", "eviction percentage threshold nodefs.available must be <= 100%: 101%"),
            ("memory.available", "0", "eviction threshold memory.available must be positive: 0"),
            ("nodefs.inodesFree", "-5", "eviction threshold nodefs.inodesFree must be positive: -5"),
            (
                "nodefs.inodesFree",
                "few",
                "eviction threshold nodefs.inodesFree: \"few\" is neither a quantity, as 1Gi or 500Mi, nor a percentage, \
                 as 10%",
            ),
        ];
        for (signal, text, want) in cases {
            assert_eq!(Thresholds::parse([(signal, text)]).expect_err("refused").to_string(), want);
        }
        for text in ["", "1.2.3", "1Zi", "e5", "%", "NaN%", "1e999"] {
            assert!(Thresholds::parse([("nodefs.available", text)]).is_err(), "{text:?}");
        }
        assert!(Thresholds::parse([("memory.available", "100Mi")]).expect("legal").is_empty());
    }
}
