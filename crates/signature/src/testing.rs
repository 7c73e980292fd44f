//! Signatures as cosign makes them, with keys that live as long as the test: the manifests that a registry must hold in
//! addition to an image for a policy to accept it. For tests only.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use oci::{Descriptor, Digest, media_type};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SigningKey as _};
use serde_json::{Value, json};

use crate::Signature;

/// Media type of a layer that is a payload.
pub const PAYLOAD_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// Annotation of that layer with the signature.
pub const ANNOTATION: &str = "dev.cosignproject.cosign/signature";

/// Type of a manifest that refers to an image and holds signatures of it.
pub const ARTIFACT_TYPE: &str = "application/vnd.dev.cosign.artifact.sig.v1+json";

/// A pair of keys on P-256, as `cosign generate-key-pair` makes them.
#[derive(Debug)]
pub struct TestKey(KeyPair);

impl TestKey {
    /// A new one.
    #[must_use]
    pub fn generate() -> Self {
        Self(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("makes a key"))
    }

    /// The public key in PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        let text = BASE64_STANDARD.encode(self.0.subject_public_key_info());
        let (first, second) = text.split_at(64);
        format!("-----BEGIN PUBLIC KEY-----\n{first}\n{second}\n-----END PUBLIC KEY-----\n")
    }

    /// The signature of any payload.
    #[must_use]
    pub fn sign(&self, payload: &[u8]) -> Signature {
        let bytes = self.0.sign(payload).expect("signs");
        Signature { payload: payload.to_vec(), signature: BASE64_STANDARD.encode(bytes) }
    }

    /// The signature of an image by name and digest.
    #[must_use]
    pub fn sign_image(&self, name: &str, digest: &Digest) -> Signature {
        self.sign(&payload(name, digest))
    }
}

/// A payload as cosign writes it.
#[must_use]
pub fn payload(name: &str, digest: &Digest) -> Vec<u8> {
    json!({
        "critical": {
            "identity": { "docker-reference": name },
            "image": { "docker-manifest-digest": digest },
            "type": "cosign container image signature",
        },
        "optional": null,
    })
    .to_string()
    .into_bytes()
}

/// Returns the tag of the signatures of a digest: `sha256-<hex>.sig`.
#[must_use]
pub fn tag(digest: &Digest) -> String {
    format!("{}-{}.sig", digest.algorithm().as_str(), digest.hex())
}

/// The manifest with these signatures, and the blobs that it names. With a subject it is one that refers to an image, as
/// registries list them.
#[must_use]
pub fn manifest(signatures: &[Signature], subject: Option<&Descriptor>) -> (Vec<u8>, Vec<Vec<u8>>) {
    let config = b"{}".to_vec();
    let layers: Vec<Value> = signatures.iter().map(layer).collect();
    let mut manifest = json!({
        "schemaVersion": 2,
        "mediaType": media_type::OCI_MANIFEST,
        "config": {
            "mediaType": if subject.is_some() { ARTIFACT_TYPE } else { media_type::OCI_CONFIG },
            "digest": Digest::sha256(&config),
            "size": config.len(),
        },
        "layers": layers,
    });
    if let Some(subject) = subject {
        manifest["subject"] = serde_json::to_value(subject).expect("a descriptor serialises");
    }
    let mut blobs = vec![config];
    blobs.extend(signatures.iter().map(|signature| signature.payload.clone()));
    (manifest.to_string().into_bytes(), blobs)
}

fn layer(signature: &Signature) -> Value {
    json!({
        "mediaType": PAYLOAD_TYPE,
        "digest": Digest::sha256(&signature.payload),
        "size": signature.payload.len(),
        "annotations": { ANNOTATION: signature.signature },
    })
}
