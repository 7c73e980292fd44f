//! Invariants of this crate's parsers for any input: run by libFuzzer (`fuzz/` at the top of the repository), and over
//! the committed corpora by a test. Compiled for tests and with the feature `fuzzing` only.

use oci::Reference;

use crate::payload::Payload;
use crate::{Policy, PublicKey};

/// A parser with what it has to keep, by its name.
pub type Harness = (&'static str, fn(&[u8]));

/// The harnesses by name. Each panics where a parser does not keep what it has to.
pub const HARNESSES: &[Harness] =
    &[("signature-payload", payload), ("signature-policy", policy), ("public-key", public_key)];

fn payload(bytes: &[u8]) {
    match Payload::parse(bytes) {
        Ok(payload) => assert!(!payload.reference.to_string().is_empty() && payload.digest.hex().len() >= 64),
        // The error quotes texts of the payload, each truncated.
        Err(error) => assert!(error.len() < 8192, "{} bytes", error.len()),
    }
}

/// A policy that can be read answers for every name.
fn policy(bytes: &[u8]) {
    const KEY: &[u8] = b"-----BEGIN PUBLIC KEY-----\n\
        MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEoooooooooooooooooooooooooooo\n-----END PUBLIC KEY-----\n";
    if let Ok(policy) = Policy::parse(bytes, &mut |_| Ok(KEY.to_vec())) {
        for name in ["docker.io/library/busybox:1", "r.example:5000/a/b"] {
            let rule = policy.rule(&Reference::parse(name).expect("a good name"));
            let _ = (rule.scope(), rule.demand(), rule.keys());
        }
        let _ = policy.unnamed().demand();
    }
}

/// A key verifies nothing that is not a signature.
fn public_key(bytes: &[u8]) {
    for key in [PublicKey::from_pem(bytes).ok(), PublicKey::from_der(bytes).ok()].into_iter().flatten() {
        assert!(!key.verifies(b"message", b"no signature"));
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
#[test]
fn corpora_are_replayed() {
    replay::replay(HARNESSES);
}
