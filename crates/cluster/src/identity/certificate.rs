//! The times of a certificate (X.509), and when it is renewed. Pure; time and randomness are arguments. Called by [`super::files`]
//! and [`super::rotation`].

use std::time::Duration;

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::retry::Random;

/// Validity of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

impl Validity {
    /// Returns the validity of the first certificate in PEM, or `None` if none can be read.
    pub(super) fn of(pem: &str) -> Option<Self> {
        let document = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let (_, certificate) = X509Certificate::from_der(&document).ok()?;
        let validity = certificate.validity();
        Some(Self {
            not_before: Timestamp::from_second(validity.not_before.timestamp()).ok()?,
            not_after: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
        })
    }

    /// Returns true if the certificate cannot be used any more.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        now >= self.not_after
    }

    /// Returns the time of its renewal: after 70 to 90 % of its lifetime, as in the kubelet.
    pub(super) fn renewal(&self, random: &Random) -> Timestamp {
        let life = Duration::try_from(self.not_after.duration_since(self.not_before)).unwrap_or_default();
        let after = life.mul_f64(0.7 + 0.2 * random());
        self.not_before.checked_add(after).unwrap_or(self.not_after)
    }
}

#[cfg(test)]
#[path = "certificate_tests.rs"]
pub(super) mod tests;
