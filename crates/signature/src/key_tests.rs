//! Every kind of key with a signature that openssl made, and what must not pass for a key. Called by the test runner.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::*;

/// Keys and signatures of `testdata` were made with openssl.
macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("testdata/", $name))
    };
}

/// The bytes that the signatures of `testdata` sign.
const PAYLOAD: &[u8] = br#"{"critical":{"identity":{"docker-reference":"r.example/app"},"image":{"docker-manifest-digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},"type":"cosign container image signature"},"optional":null}"#;

fn signature(text: &[u8]) -> Vec<u8> {
    BASE64_STANDARD.decode(text.trim_ascii_end()).expect("base64")
}

#[test]
fn keys_and_their_signatures() {
    let keys: [(&[u8], &[u8], KeyAlgorithm); 6] = [
        (data!("p256.pub"), data!("p256.sig"), KeyAlgorithm::P256),
        (data!("p384.pub"), data!("p384.sig"), KeyAlgorithm::P384),
        (data!("p384.pub"), data!("p384-sha384.sig"), KeyAlgorithm::P384),
        (data!("ed25519.pub"), data!("ed25519.sig"), KeyAlgorithm::Ed25519),
        (data!("rsa2048.pub"), data!("rsa2048.sig"), KeyAlgorithm::Rsa),
        (data!("rsa3072.pub"), data!("rsa3072.sig"), KeyAlgorithm::Rsa),
    ];
    for (pem, good, kind) in keys {
        let key = PublicKey::from_pem(pem).expect("a key");
        assert_eq!(key.kind, kind);
        let good = signature(good);
        assert!(key.verifies(PAYLOAD, &good), "{kind:?}");
        let mut payload = PAYLOAD.to_vec();
        payload[20] ^= 1;
        assert!(!key.verifies(&payload, &good), "{kind:?}: another payload");
        let mut wrong = good.clone();
        *wrong.last_mut().expect("not empty") ^= 1;
        for wrong in [wrong.as_slice(), &good[1..], &[], &[0; 5000]] {
            assert!(!key.verifies(PAYLOAD, wrong), "{kind:?}");
        }
        for (other, _, _) in keys.iter().filter(|(other, ..)| *other != pem) {
            assert!(!PublicKey::from_pem(other).expect("a key").verifies(PAYLOAD, &good), "{kind:?}: another key");
        }
        let shown = format!("{key:?}");
        assert!(!shown.contains("bytes"), "{shown}");
    }
}

#[test]
fn unusable_keys_are_refused() {
    let p256: &[u8] = data!("p256.pub");
    let two = [p256, data!("ed25519.pub")].concat();
    let private = |label: &str| format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n").into_bytes();
    let public = |der: &[u8]| {
        let text = BASE64_STANDARD.encode(der);
        format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n").into_bytes()
    };
    // The key Ed25519, whose algorithm is an integer instead of an object identifier.
    let integer = [&[0x30, 0x2a, 0x30, 0x05, 0x02, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00][..], &[7; 32]].concat();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (public(&integer), "damaged"),
        (Vec::new(), "no PEM block PUBLIC KEY"),
        (b"ssh-ed25519 AAAA".to_vec(), "no PEM block PUBLIC KEY"),
        (private("CERTIFICATE"), "no PEM block PUBLIC KEY"),
        (p256[..60].to_vec(), "PEM"),
        (private("PRIVATE KEY"), "it is a private key"),
        (private("EC PRIVATE KEY"), "it is a private key"),
        (private("ENCRYPTED SIGSTORE PRIVATE KEY"), "it is a private key"),
        ([p256, &private("ENCRYPTED COSIGN PRIVATE KEY")].concat(), "it is a private key"),
        (two, "there are 2 keys"),
        (data!("p521.pub").to_vec(), "elliptic curve is another one"),
        (data!("p256c.pub").to_vec(), "not given in full"),
        (data!("ed448.pub").to_vec(), "algorithm is another one"),
        (data!("rsa1024.pub").to_vec(), "RSA key of 1024 bits"),
        (public(&[]), "damaged"),
        (public(&[0x30, 0x00]), "damaged"),
        (public(&[0x30, 0x82, 0xff, 0xff, 0x30]), "damaged"),
        (public(&[0x30, 0x81]), "damaged"),
        (public(&[0x30, 0x84, 0, 0, 0, 1, 0]), "damaged"),
    ];
    for (text, words) in cases {
        let error = PublicKey::from_pem(&text).expect_err(words).to_string();
        assert!(error.contains(words), "{error}, not {words}");
    }
}

proptest::proptest! {
    #[test]
    fn key_parser_never_panics(at in 0usize..200, with in proptest::num::u8::ANY, cut in 0usize..400) {
        for pem in [data!("p256.pub").as_slice(), data!("rsa2048.pub"), data!("ed25519.pub")] {
            let mut changed = pem.to_vec();
            let at = at % changed.len();
            changed[at] = with;
            changed.truncate(cut.max(1));
            if let Ok(key) = PublicKey::from_pem(&changed) {
                let _ = key.verifies(PAYLOAD, &signature(data!("p256.sig")));
            }
        }
    }

    #[test]
    fn der_parser_never_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..120)) {
        let _ = PublicKey::from_der(&bytes);
    }
}
