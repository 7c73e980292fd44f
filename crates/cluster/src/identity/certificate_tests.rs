//! Tests of the times of certificates.

use std::sync::Arc;

use base::pem;
use rcgen::{CertificateParams, KeyPair};
use time::OffsetDateTime;

use super::*;

fn der(from: &str, until: &str) -> Vec<u8> {
    let time = |text: &str| OffsetDateTime::from_unix_timestamp(at(text).as_second()).expect("a time");
    let mut parameters = CertificateParams::default();
    (parameters.not_before, parameters.not_after) = (time(from), time(until));
    parameters.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").der().to_vec()
}

/// Returns a certificate in PEM with this validity.
pub(crate) fn certificate(from: &str, until: &str) -> String {
    format!("x\n{}", pem::write("CERTIFICATE", &der(from, until)))
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

#[test]
fn times_of_both_kinds_are_read() {
    for (from, until) in
        [("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"), ("1999-12-31T23:59:59Z", "2050-01-01T00:00:00Z")]
    {
        let validity = Validity::of(&certificate(from, until)).expect("a validity");
        assert_eq!(validity, Validity { not_before: at(from), not_after: at(until) });
        assert!(validity.is_over(validity.not_after) && !validity.is_over(validity.not_before));
    }
}

#[test]
fn certificate_of_version_1_is_read() {
    // Made by openssl without extensions.
    let validity = Validity::of(include_str!("testdata/v1.pem")).expect("a validity");
    assert_eq!(validity.not_after.duration_since(validity.not_before).as_hours(), 36_500 * 24);
}

#[test]
fn first_certificate_counts() {
    let [first, second] = ["2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"];
    let both = certificate(first, second) + &certificate("2001-01-01T00:00:00Z", "2002-01-01T00:00:00Z");
    assert_eq!(Validity::of(&both).expect("a validity").not_before, at(first));
}

#[test]
fn what_cannot_be_read_is_none() {
    let whole = der("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
    let good = b"260101000000Z";
    let place = whole.windows(good.len()).position(|part| part == good).expect("the time is in it");
    let bad = |text: &str| {
        let mut changed = whole.clone();
        changed[place..place + good.len()].copy_from_slice(text.as_bytes());
        pem::write("CERTIFICATE", &changed)
    };
    assert!(Validity::of(&bad("260102000000Z")).is_some());
    for text in [
        String::new(),
        "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----".into(),
        pem::write("CERTIFICATE", &whole[..whole.len() / 2]),
        pem::write("CERTIFICATE", &[]),
        bad("2601010000000"),
        bad("26010100000\0Z"),
        bad("269901000000Z"),
        bad("260101250000Z"),
        bad("\u{e4}0101000000Z"),
        bad("             "),
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
