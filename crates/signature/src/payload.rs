//! [`Payload`]: the signed statement, in the format called simple signing (`containers-signature(5)`, cosign's
//! `SIGNATURE_SPEC`). It is read only after the signature over its bytes was verified, and then strictly: an unknown
//! field in `critical` makes it invalid.

use std::fmt;

use oci::{Digest, Reference};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// A larger payload is refused. Those of cosign have some 300 bytes, which leaves room for annotations.
pub const MAX_PAYLOAD: u64 = 16 << 10;

/// The `critical.type` that cosign and containers/image write.
const TYPE: &str = "cosign container image signature";

/// A payload that could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    /// The name that was signed.
    pub(crate) reference: Reference,
    /// The manifest or index that was signed.
    pub(crate) digest: Digest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PayloadText {
    critical: Critical,
    #[serde(default, rename = "optional")]
    _optional: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Critical {
    identity: PayloadIdentity,
    image: PayloadImage,
    r#type: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PayloadIdentity {
    #[serde(rename = "docker-reference")]
    docker_reference: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PayloadImage {
    #[serde(rename = "docker-manifest-digest")]
    docker_manifest_digest: String,
}

impl Payload {
    /// Reads a payload's bytes.
    ///
    /// # Errors
    /// A description of the problem. The payload is signed, so the description may quote it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let document: PayloadText =
            serde_json::from_slice(bytes).map_err(|error| format!("cannot read its payload: {error}"))?;
        let Critical { identity, image, r#type } = document.critical;
        if r#type != TYPE {
            return Err(format!("its payload is of the type {}", QuotedExcerpt(&r#type)));
        }
        let reference = Reference::parse(&identity.docker_reference)
            .map_err(|error| format!("its payload names {}: {error}", QuotedExcerpt(&identity.docker_reference)))?;
        let digest = image.docker_manifest_digest.parse().map_err(|error| {
            format!("its payload has the digest {}: {error}", QuotedExcerpt(&image.docker_manifest_digest))
        })?;
        Ok(Self { reference, digest })
    }
}

/// A text from a payload within a message: quoted, and no longer than a line bears.
pub(crate) struct QuotedExcerpt<'a>(pub(crate) &'a str);

impl fmt::Display for QuotedExcerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX: usize = 200;
        match self.0.char_indices().nth(MAX) {
            Some((end, _)) => write!(f, "{:?} and more", &self.0[..end]),
            None => write!(f, "{:?}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

    fn text(reference: &str, digest: &str, kind: &str, rest: &str) -> String {
        format!(
            r#"{{"critical":{{"identity":{{"docker-reference":"{reference}"}},"image":{{"docker-manifest-digest":"{digest}"}},"type":"{kind}"}}{rest}}}"#
        )
    }

    #[test]
    fn payloads() {
        for rest in ["", r#","optional":null"#, r#","optional":{"creator":"cosign","timestamp":1,"deep":[[{}]]}"#] {
            let payload = Payload::parse(text("r.example/app", DIGEST, TYPE, rest).as_bytes()).expect("reads");
            assert_eq!(payload.reference.to_string(), "r.example/app");
            assert_eq!(payload.digest.to_string(), DIGEST);
        }
        let long = "x".repeat(5000);
        for (bad, words) in [
            (String::new(), "cannot read its payload"),
            ("{}".to_owned(), "missing field `critical`"),
            ("null".to_owned(), "cannot read its payload"),
            ("[".repeat(2000), "cannot read its payload"),
            (text("r.example/app", DIGEST, TYPE, r#","more":1"#), "unknown field `more`"),
            (text("r.example/app", DIGEST, TYPE, "").replace("\"image\"", "\"x\":1,\"image\""), "unknown field `x`"),
            (text("r.example/app", DIGEST, TYPE, "").replace("\"type\"", "\"type\":\"\",\"type\""), "duplicate field"),
            (text("r.example/app", DIGEST, "atomic container signature", ""), "is of the type"),
            (text("r.example/APP", DIGEST, TYPE, ""), "must be lowercase"),
            (text("", DIGEST, TYPE, ""), "at least one component"),
            (text("r.example/app", "sha256:../../x", TYPE, ""), "has the digest"),
            (text("r.example/app", DIGEST, &long, ""), "and more"),
        ] {
            let error = Payload::parse(bad.as_bytes()).expect_err(&bad);
            assert!(error.contains(words) && error.len() < 600, "{bad}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn payload_parser_never_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200), cut in 0usize..300) {
            let _ = Payload::parse(&bytes);
            let mut whole = text("r.example/app", DIGEST, TYPE, "").into_bytes();
            whole.truncate(cut);
            whole.extend(&bytes);
            let _ = Payload::parse(&whole);
        }
    }
}
