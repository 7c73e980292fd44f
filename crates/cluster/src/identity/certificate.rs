//! The times of a certificate (X.509), and when it is renewed. Pure; time and randomness are arguments. Called by [`super::files`]
//! and [`super::rotation`].

use std::time::Duration;

use base::der::{each, expect, tag};
use base::pem;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

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
        let document = pem::read("CERTIFICATE", pem)?;
        let (certificate, _) = expect(tag::SEQUENCE, &document)?;
        let (to_sign, _) = expect(tag::SEQUENCE, certificate)?;
        // The version is optional; serial number, algorithm and issuer precede the validity.
        let mut fields = each(to_sign).skip_while(|(tag, _)| *tag == tag::explicit(0));
        let (_, validity) = fields.nth(3).filter(|(tag, _)| *tag == tag::SEQUENCE)?;
        let mut times = each(validity).map(time);
        Some(Self { not_before: times.next()??, not_after: times.next()?? })
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
fn time((tag, content): (u8, &[u8])) -> Option<Timestamp> {
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    let text = match tag {
        // Years from 50 are of the last century.
        tag::UTC_TIME if text.len() == 12 && text.get(..1)? >= "5" => format!("19{text}"),
        tag::UTC_TIME if text.len() == 12 => format!("20{text}"),
        tag::GENERALIZED_TIME if text.len() == 14 => text.to_owned(),
        _ => return None,
    };
    let date = DateTime::strptime("%Y%m%d%H%M%S", text).ok()?;
    TimeZone::UTC.to_timestamp(date).ok()
}

#[cfg(test)]
#[path = "certificate_tests.rs"]
pub(super) mod tests;
