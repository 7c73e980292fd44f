//! [`Quantity`]: `100m`, `1.5Gi`, `2e3`: an exact number with the suffixes of Kubernetes, for manifests and thresholds; and
//! [`parse_bytes`], the plain numbers of bytes of our own settings, with the same suffixes.
//!
//! As in apimachinery nothing finer than a nano is kept (it is rounded away from zero), and a value above 2⁶³−1 is cut to
//! that. No floating point.

use std::fmt;
use std::str::FromStr;

/// Nanos in one.
const ONE: i128 = 1_000_000_000;
/// The largest value.
const MAX: i128 = i64::MAX as i128 * ONE;

/// The form in which a quantity was written, and is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuantityFormat {
    /// `1k`, `100m`.
    #[default]
    Decimal,
    /// `1Ki`.
    Binary,
    /// `1e3`.
    Exponent,
}

/// A number of bytes, of cores or of anything else. Two quantities are equal if their values are, whatever their suffixes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: QuantityFormat,
}

/// A text that is not a quantity, in the words of apimachinery.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "quantities must match the regular expression \
     '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)]
pub struct QuantityError;

impl Quantity {
    /// Zero.
    pub const ZERO: Self = Self { nanos: 0, format: QuantityFormat::Decimal };

    /// A number of bytes, printed with binary suffixes.
    #[must_use]
    pub fn bytes(value: i64) -> Self {
        Self { nanos: i128::from(value) * ONE, format: QuantityFormat::Binary }
    }

    /// A number of thousandths, of cores for example.
    #[must_use]
    pub fn milli(value: i64) -> Self {
        Self { nanos: i128::from(value) * (ONE / 1000), format: QuantityFormat::Decimal }
    }

    /// The value in whole units, rounded away from zero.
    #[must_use]
    pub fn value(self) -> i64 {
        self.scaled(ONE)
    }

    /// The value in thousandths, rounded away from zero, at most 2⁶³−1.
    #[must_use]
    pub fn milli_value(self) -> i64 {
        self.scaled(ONE / 1000)
    }

    fn scaled(self, unit: i128) -> i64 {
        let whole = away_from_zero(self.nanos, unit);
        i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
    }

    /// Returns true if the value is zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Returns true if the value is below zero.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Returns true if the value is a number of whole units.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.nanos % ONE == 0
    }

    /// The value divided by `divisor`, rounded up; zero if the divisor is not above zero. Cores are counted in thousandths
    /// and all else in whole units, as in the downward API.
    #[must_use]
    pub fn divided(self, divisor: Self, cores: bool) -> i64 {
        let (value, by) = match cores {
            true => (self.milli_value(), divisor.milli_value()),
            false => (self.value(), divisor.value()),
        };
        if by <= 0 { 0 } else { i64::try_from(away_from_zero(value.into(), by.into())).unwrap_or(i64::MAX) }
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let nanos = (self.nanos + other.nanos).clamp(-MAX, MAX);
        Self { nanos, format: if self.is_zero() { other.format } else { self.format } }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

fn away_from_zero(value: i128, unit: i128) -> i128 {
    let whole = value / unit;
    if value % unit == 0 { whole } else { whole + value.signum() }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(QuantityError);
        }
        let (base, exponent, format) = scale(suffix).ok_or(QuantityError)?;
        let nanos = nanos(whole, fraction, base, exponent);
        Ok(Self { nanos: if negative { -nanos } else { nanos }, format })
    }
}

/// Suffixes of the powers of 1024, from the zeroth on.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The base and power of a suffix.
fn scale(suffix: &str) -> Option<(i128, i32, QuantityFormat)> {
    const DECIMAL: [(&str, i32); 10] =
        [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
    if let Some((power, _)) = (0..).zip(BINARY).skip(1).find(|(_, s)| *s == suffix) {
        return Some((1024, power, QuantityFormat::Binary));
    }
    if let Some((_, power)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Some((10, *power, QuantityFormat::Decimal));
    }
    let digits = suffix.strip_prefix(['e', 'E'])?;
    let plain = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    if plain.is_empty() || !plain.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // An exponent that does not fit is as good as one that is merely huge: either way the value is cut.
    let exponent = digits.parse().unwrap_or(if digits.starts_with('-') { -100_000 } else { 100_000 });
    Some((10, exponent, QuantityFormat::Exponent))
}

/// The number in nanos, rounded up and cut at [`MAX`].
fn nanos(whole: &str, fraction: &str, base: i128, exponent: i32) -> i128 {
    let fraction = fraction.trim_end_matches('0');
    match base {
        1024 => binary_nanos(whole, fraction, 1_i128 << (10 * exponent)),
        _ => decimal_nanos(whole, fraction, exponent),
    }
}

/// `whole.fraction` times a power of ten: all digits are one number, and the point moves.
fn decimal_nanos(whole: &str, fraction: &str, exponent: i32) -> i128 {
    // Digits beyond these change nothing but the rounding: the value is cut far below them.
    const KEPT: usize = 36;
    let digits: String = whole.chars().chain(fraction.chars()).skip_while(|c| *c == '0').collect();
    if digits.is_empty() {
        return 0;
    }
    let (kept, dropped) = digits.split_at(digits.len().min(KEPT));
    let more = dropped.bytes().any(|b| b != b'0');
    let mantissa: i128 = kept.parse().unwrap_or(MAX);
    let size = |text: &str| i32::try_from(text.len()).unwrap_or(i32::MAX);
    let power = 9_i32.saturating_add(exponent).saturating_sub(size(fraction)).saturating_add(size(dropped));
    let Some(ten) = 10_i128.checked_pow(power.unsigned_abs()) else { return if power > 0 { MAX } else { 1 } };
    if power >= 0 {
        return mantissa.checked_mul(ten).map_or(MAX, |n| n.min(MAX));
    }
    (mantissa / ten + i128::from(more || mantissa % ten != 0)).min(MAX)
}

/// `whole.fraction` times a power of 1024.
fn binary_nanos(whole: &str, fraction: &str, factor: i128) -> i128 {
    // 2⁶⁰ is below 10¹⁹: what stands behind 28 decimals is less than a nano and only makes it be rounded up.
    const KEPT: usize = 28;
    let whole = whole.trim_start_matches('0');
    let whole: i128 = if whole.len() > 19 { MAX } else { whole.parse().unwrap_or(0) };
    let (kept, dropped) = fraction.split_at(fraction.len().min(KEPT));
    let digits: i128 = kept.parse().unwrap_or(0);
    let missing = u32::try_from(KEPT - kept.len()).unwrap_or(0);
    let part = digits * 10_i128.pow(missing);
    // part · 10⁻²⁸ · factor · 10⁹, in two steps that fit.
    let unit = 10_i128.pow(19);
    let low = (part % unit) * factor;
    let part = (part / unit) * factor + low / unit + i128::from(low % unit != 0 || !dropped.is_empty());
    let whole = whole.checked_mul(factor).and_then(|n| n.checked_mul(ONE)).unwrap_or(MAX);
    whole.min(MAX).saturating_add(part).min(MAX)
}

/// The shortest form in the format in which it was written: no fraction, the largest suffix.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let binary = self.format == QuantityFormat::Binary && self.nanos.abs() >= 1024 * ONE && self.is_whole();
        if binary {
            let mut value = self.nanos / ONE;
            let mut power = 0;
            while value % 1024 == 0 && power < 6 {
                value /= 1024;
                power += 1;
            }
            return write!(f, "{value}{}", BINARY[power]);
        }
        let mut value = self.nanos;
        let mut power = 0;
        while value % 1000 == 0 && power < 9 {
            value /= 1000;
            power += 1;
        }
        match self.format {
            QuantityFormat::Exponent if power == 3 => write!(f, "{value}"),
            QuantityFormat::Exponent => write!(f, "{value}e{}", 3 * i32::try_from(power).unwrap_or(0) - 9),
            _ => write!(f, "{value}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][power]),
        }
    }
}

/// A number of bytes as settings write it: a whole number, with at most one binary suffix. Quantities that are easily
/// misread, such as `64G` and `1.5Gi`, are refused.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let power = BINARY.iter().position(|suffix| *suffix == &text[number.len()..])?;
    let is_plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    is_plain.then(|| number.parse::<u64>().ok())??.checked_mul(1 << (10 * power))
}

/// The shortest text from which [`parse_bytes`] makes this number: `64Gi`, `1000`.
#[must_use]
pub fn show_bytes(count: u64) -> String {
    let zeros = if count == 0 { 0 } else { count.trailing_zeros() };
    let power = zeros / 10;
    format!("{}{}", count >> (10 * power), BINARY[power as usize])
}

#[cfg(test)]
#[path = "quantity_tests.rs"]
mod tests;
