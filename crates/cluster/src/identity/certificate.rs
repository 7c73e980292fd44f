//! The times of a certificate (X.509), and when it is renewed. Pure; time and chance are handed in. Called by [`super::files`] and
//! [`super::rotation`].

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::der::{CONTEXT_0, Element, GENERALIZED_TIME, SEQUENCE, UTC_TIME, read};
use super::request::unpem;
use crate::retry::Random;

/// From when until when a certificate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

impl Validity {
    /// The validity of the first certificate in PEM; `None` if there is none that can be read.
    pub(super) fn of(pem: &str) -> Option<Self> {
        let document = unpem("CERTIFICATE", pem)?;
        let inside = |element: Element<'_>| (element.tag == SEQUENCE).then_some(element.content.len());
        let (certificate, _) = read(&document)?;
        inside(certificate)?;
        let (to_sign, _) = read(certificate.content)?;
        inside(to_sign)?;
        let mut rest = to_sign.content;
        // The version is optional; serial number, algorithm and issuer come before the validity.
        if read(rest)?.0.tag == CONTEXT_0 {
            rest = read(rest)?.1;
        }
        for _ in 0..3 {
            rest = read(rest)?.1;
        }
        let (validity, _) = read(rest)?;
        inside(validity)?;
        let (not_before, rest) = read(validity.content)?;
        let (not_after, _) = read(rest)?;
        Some(Self { not_before: time(not_before)?, not_after: time(not_after)? })
    }

    /// Returns true if the certificate cannot be used any more.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        now >= self.not_after
    }

    /// The time of its renewal: after 70 to 90 % of its life, as in the kubelet.
    pub(super) fn renewal(&self, random: &Random) -> Timestamp {
        let life = Duration::try_from(self.not_after.duration_since(self.not_before)).unwrap_or_default();
        let after = life.mul_f64(0.7 + 0.2 * random());
        self.not_before.checked_add(after).unwrap_or(self.not_after)
    }
}

/// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn time(element: Element<'_>) -> Option<Timestamp> {
    let text = std::str::from_utf8(element.content).ok()?.strip_suffix('Z')?;
    let text = match element.tag {
        // Years from 50 are of the last century.
        UTC_TIME if text.len() == 12 && text.get(..1)? >= "5" => format!("19{text}"),
        UTC_TIME if text.len() == 12 => format!("20{text}"),
        GENERALIZED_TIME if text.len() == 14 => text.to_owned(),
        _ => return None,
    };
    let date = DateTime::strptime("%Y%m%d%H%M%S", text).ok()?;
    TimeZone::UTC.to_timestamp(date).ok()
}

#[cfg(test)]
#[path = "certificate_tests.rs"]
pub(super) mod tests;
