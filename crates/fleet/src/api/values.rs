//! The meaning of values that are a number or a text: shares of nodes, amounts of bytes. Pure; rounding is stated with each
//! function.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A value that has no meaning where it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not {expected}")]
pub struct ValueError {
    /// The value.
    pub value: String,
    /// Description of a right value.
    pub expected: &'static str,
}

/// Free space that a pull has to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinFree {
    /// Percentage of the file system.
    Percent(u8),
    /// Bytes.
    Bytes(u64),
}

impl MinFree {
    /// Reads the value of `minFree`.
    pub fn parse(value: &IntOrString) -> Result<Self, ValueError> {
        if let IntOrString::String(text) = value
            && let Some(percent) = percent(text)
        {
            return Ok(Self::Percent(percent));
        }
        bytes(value)
            .map(Self::Bytes)
            .map_err(|error| ValueError { expected: "a percentage (10%) or an amount of bytes (20Gi)", ..error })
    }

    /// Returns the bytes that have to stay free of a file system of this size.
    #[must_use]
    pub const fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Percent(percent) => capacity / 100 * percent as u64,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// Returns a number or percentage of `total`, rounded down.
pub fn share_of(value: &IntOrString, total: usize) -> Result<usize, ValueError> {
    let wrong = |value: String| ValueError { value, expected: "a number of nodes or a percentage (10%)" };
    match value {
        IntOrString::Int(number) => usize::try_from(*number).map_err(|_| wrong(number.to_string())),
        IntOrString::String(text) => match percent(text) {
            Some(percent) => Ok(total.saturating_mul(usize::from(percent)) / 100),
            None => text.parse().map_err(|_| wrong(text.clone())),
        },
    }
}

/// Returns a number of bytes, such as `50Mi`.
fn bytes(value: &IntOrString) -> Result<u64, ValueError> {
    const UNITS: [(&str, u64); 8] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
    ];
    let wrong = |value: String| ValueError { value, expected: "an amount of bytes (20Gi)" };
    let text = match value {
        IntOrString::Int(number) => return u64::try_from(*number).map_err(|_| wrong(number.to_string())),
        IntOrString::String(text) => text,
    };
    let (digits, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|digits| (digits, *unit)))
        .unwrap_or((text, 1));
    let number: Option<u64> = digits.parse().ok();
    number.and_then(|number| number.checked_mul(unit)).ok_or_else(|| wrong(text.clone()))
}

fn percent(text: &str) -> Option<u8> {
    let percent = text.strip_suffix('%')?.parse().ok()?;
    (percent <= 100).then_some(percent)
}

/// Reads a watched object. The error is a message.
pub fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> IntOrString {
        IntOrString::String(text.into())
    }

    #[test]
    fn shares_are_numbers_or_percentages_rounded_down() {
        for (value, total, want) in [
            (IntOrString::Int(7), 3, Some(7)),
            (IntOrString::Int(-1), 3, None),
            (text("10%"), 99, Some(9)),
            (text("100%"), 99, Some(99)),
            (text("0%"), 99, Some(0)),
            (text("12"), 99, Some(12)),
            (text("101%"), 99, None),
            (text("half"), 99, None),
        ] {
            assert_eq!(share_of(&value, total).ok(), want, "{value:?} of {total}");
        }
    }

    #[test]
    fn amounts_have_the_suffixes_of_kubernetes() {
        for (value, want) in [
            (IntOrString::Int(512), Some(512)),
            (text("20Gi"), Some(20 << 30)),
            (text("5k"), Some(5_000)),
            (text("7"), Some(7)),
            (text("-7"), None),
            (text("20GiB"), None),
            (text("99999999999Ti"), None),
        ] {
            assert_eq!(bytes(&value).ok(), want, "{value:?}");
        }
        assert_eq!(MinFree::parse(&text("10%")).map(|free| free.of(1_000)), Ok(100));
        assert_eq!(MinFree::parse(&text("1Ki")).map(|free| free.of(1)), Ok(1024));
        let error = MinFree::parse(&text("some")).expect_err("refused").to_string();
        assert_eq!(error, "\"some\" is not a percentage (10%) or an amount of bytes (20Gi)");
    }
}
