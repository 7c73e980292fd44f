//! Tests of the times of certificates.

use std::sync::Arc;

use base::der::tag::{GENERALIZED_TIME, INTEGER, SEQUENCE, UTC_TIME};
use base::der::value;

use super::*;

/// Returns a certificate in PEM with this validity; its signature is empty.
pub(crate) fn certificate(from: (u8, &str), until: (u8, &str), version: bool) -> String {
    let sequence = |parts: &[&[u8]]| value(SEQUENCE, parts);
    let empty = sequence(&[]);
    let times = sequence(&[&value(from.0, &[from.1.as_bytes()]), &value(until.0, &[until.1.as_bytes()])]);
    let version = if version { value(tag::explicit(0), &[&value(INTEGER, &[&[2]])]) } else { Vec::new() };
    let to_sign = sequence(&[&version, &value(INTEGER, &[&[7]]), &empty, &empty, &times, &empty]);
    format!("x\n{}", pem::write("CERTIFICATE", &sequence(&[&to_sign, &empty])))
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

#[test]
fn times_of_both_kinds_are_read() {
    for (from, until, version, want) in [
        (
            (UTC_TIME, "260101000000Z"),
            (UTC_TIME, "270101000000Z"),
            true,
            ("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ),
        (
            (UTC_TIME, "991231235959Z"),
            (GENERALIZED_TIME, "20500101000000Z"),
            false,
            ("1999-12-31T23:59:59Z", "2050-01-01T00:00:00Z"),
        ),
    ] {
        let validity = Validity::of(&certificate(from, until, version)).expect("a validity");
        assert_eq!(validity, Validity { not_before: at(want.0), not_after: at(want.1) });
        assert!(validity.is_over(validity.not_after) && !validity.is_over(validity.not_before));
    }
}

#[test]
fn what_cannot_be_read_is_none() {
    let bad = |text: &str| certificate((UTC_TIME, text), (UTC_TIME, "270101000000Z"), true);
    for text in [
        String::new(),
        "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----".into(),
        bad("2601010000Z"),
        bad("269901000000Z"),
        bad("ä60101000000Z"),
        bad(""),
    ] {
        assert_eq!(Validity::of(&text), None, "{text}");
    }
}

#[test]
fn renewal_is_between_seven_and_nine_tenths() {
    let validity = Validity { not_before: at("2026-01-01T00:00:00Z"), not_after: at("2026-01-11T00:00:00Z") };
    for (chance, want) in [(0.0, "2026-01-08T00:00:00Z"), (0.5, "2026-01-09T00:00:00Z"), (1.0, "2026-01-10T00:00:00Z")]
    {
        let random: Random = Arc::new(move || chance);
        assert_eq!(validity.renewal(&random).as_second(), at(want).as_second());
    }
}
