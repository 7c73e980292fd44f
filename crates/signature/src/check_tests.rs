//! Tests of the demands that a signature meets, and of the messages for those that it does not meet.

use super::*;
use crate::policy::Policy;
use crate::testing::{TestKey, payload};

fn rule(policy: &str, keys: &[(&str, &TestKey)], image: &Reference) -> Rule {
    let read = &mut |path: &str| {
        let found = keys.iter().find(|(name, _)| *name == path);
        found.map(|(_, key)| key.pem().into_bytes()).ok_or_else(|| "no such file".to_owned())
    };
    Policy::parse(policy.as_bytes(), read).expect("a policy").rule(image)
}

fn image() -> Reference {
    Reference::parse("r.example/app:1").expect("a reference")
}

#[test]
fn one_accepted_signature_is_enough() {
    let (key, stranger) = (TestKey::generate(), TestKey::generate());
    let (root, manifest, other) = (Digest::sha256(b"root"), Digest::sha256(b"manifest"), Digest::sha256(b"other"));
    let policy =
        r#"{"default":[{"type":"sigstoreSigned","keyPath":"/k.pub","signedIdentity":{"type":"matchRepository"}}]}"#;
    let rule = rule(policy, &[("/k.pub", &key)], &image());
    assert_eq!(rule.keys(), "key /k.pub");
    let fresh = || Check::new(rule.clone(), Some(image()), vec![root.clone(), manifest.clone()]);

    for digest in [&root, &manifest] {
        let mut check = fresh();
        assert!(!check.is_met());
        assert!(check.offer(&key.sign_image("r.example/app", digest)) && check.is_met());
        assert!(!check.offer(&key.sign_image("r.example/app", digest)), "it is met already");
    }

    let tampered = Signature {
        payload: payload("r.example/app", &root),
        signature: key.sign_image("r.example/app", &other).signature,
    };
    let text = |text: &str| Signature { payload: payload("r.example/app", &root), signature: text.to_owned() };
    let large = vec![b' '; usize::try_from(MAX_PAYLOAD).expect("small") + 1];
    let refused = [
        (stranger.sign_image("r.example/app", &root), "it was not made with the key"),
        (tampered, "it was not made with the key"),
        (text(""), "it was not made with the key"),
        (text("?"), "it is not in base64"),
        (text(&"A".repeat(MAX_SIGNATURE_TEXT + 1)), "it is longer than any signature"),
        (key.sign(&large), "its payload is larger than is looked at"),
        (key.sign(b"{}"), "cannot read its payload: missing field `critical`"),
        (key.sign_image("r.example/app", &other), "is for another image"),
        (key.sign_image("r.example/other", &root), "it is for the name \"r.example/other\", which matchRepository"),
    ];
    for (signature, words) in &refused {
        let mut check = fresh();
        assert!(!check.offer(signature) && !check.is_met());
        assert!(check.reasons().contains(words), "{} not {words}", check.reasons());
    }
    let mut check = fresh();
    for (signature, _) in &refused {
        check.offer(signature);
    }
    let reasons = check.reasons();
    assert!(reasons.starts_with("it is for the name") && reasons.ends_with("; and more"), "{reasons}");
    assert!(check.offer(&key.sign_image("r.example/app", &root)) && check.is_met(), "bad ones do not spoil a good one");
    assert_eq!(check.offered(), refused.len() + 1);
}

#[test]
fn all_demands_of_a_scope_must_be_met() {
    let (a, b, c) = (TestKey::generate(), TestKey::generate(), TestKey::generate());
    let digest = Digest::sha256(b"root");
    let policy = r#"{"default":[{"type":"reject"}],"transports":{"docker":{"r.example":[
        {"type":"insecureAcceptAnything"},
        {"type":"sigstoreSigned","keyPaths":["/a.pub","/b.pub"],"signedIdentity":{"type":"matchRepository"}},
        {"type":"sigstoreSigned","keyPath":"/c.pub"}]}}}"#;
    let rule = rule(policy, &[("/a.pub", &a), ("/b.pub", &b), ("/c.pub", &c)], &image());
    assert_eq!(rule.keys(), "key /a.pub or /b.pub, and key /c.pub");
    let mut check = Check::new(rule, Some(image()), vec![digest.clone()]);
    assert!(check.offer(&b.sign_image("r.example/app", &digest)));
    assert!(!check.is_met());
    assert!(!check.offer(&a.sign_image("r.example/app", &digest)));
    assert!(!check.offer(&c.sign_image("r.example/app", &digest)), "cosign's name has no tag");
    assert!(check.reasons().contains("use matchRepository or exactRepository"), "{}", check.reasons());
    assert!(check.offer(&c.sign_image("r.example/app:1", &digest)) && check.is_met());
}

#[test]
fn unnamed_image_has_no_signature() {
    let key = TestKey::generate();
    let digest = Digest::sha256(b"root");
    let policy = r#"{"default":[{"type":"sigstoreSigned","keyPath":"/k.pub"}]}"#;
    let mut check = Check::new(rule(policy, &[("/k.pub", &key)], &image()), None, vec![digest.clone()]);
    assert!(!check.offer(&key.sign_image("r.example/app:1", &digest)));
    assert!(check.reasons().contains("no name"), "{}", check.reasons());
}
