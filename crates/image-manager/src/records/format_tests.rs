//! The two documents, byte by byte.

use proptest::prelude::*;

use super::super::record::{RecordedAccount, RecordedSecret};
use super::*;

const TEXT: &str = "{\"kind\":\"ImagePulledRecord\",\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\",\
    \"lastUpdatedTime\":\"2024-10-21T12:26:40Z\",\"imageRef\":\"testimageref\",\"credentialMapping\":{\
    \"docker.io/a\":{\"kubernetesSecrets\":[{\"uid\":\"u\",\"namespace\":\"ns\",\"name\":\"n\",\"credentialHash\":\"h\"}],\
    \"kubernetesServiceAccounts\":[{\"uid\":\"u\",\"namespace\":\"ns\",\"name\":\"n\"}]},\
    \"docker.io/b\":{\"nodePodsAccessible\":true},\"docker.io/c\":{}}}\n";

fn record() -> PulledRecord {
    let name = || ("u".to_owned(), "ns".to_owned(), "n".to_owned());
    let (uid, namespace, name_) = name();
    let secret = RecordedSecret { uid, namespace, name: name_, credential_hash: "h".to_owned() };
    let (uid, namespace, name) = name();
    let account = RecordedAccount { uid, namespace, name };
    let both = RecordedCredentials { secrets: vec![secret], accounts: vec![account], node_pods_accessible: false };
    PulledRecord {
        last_updated: Some("2024-10-21T12:26:40Z".parse().unwrap()),
        image_ref: "testimageref".to_owned(),
        mapping: [
            ("docker.io/a", both),
            ("docker.io/b", RecordedCredentials::node()),
            ("docker.io/c", RecordedCredentials::default()),
        ]
        .map(|(name, recorded)| (name.to_owned(), recorded))
        .into(),
    }
}

#[test]
fn records_are_what_the_kubelet_writes() {
    assert_eq!(String::from_utf8(encode_record(&record())).unwrap(), TEXT);
    assert_eq!(decode_record(TEXT.as_bytes()).unwrap(), (record(), Version::Beta));
    let empty = PulledRecord { image_ref: "r".to_owned(), ..PulledRecord::default() };
    let text = "{\"kind\":\"ImagePulledRecord\",\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\",\"lastUpdatedTime\":null,\"imageRef\":\"r\"}\n";
    assert_eq!(String::from_utf8(encode_record(&empty)).unwrap(), text);
    assert_eq!(decode_record(text.as_bytes()).unwrap().0, empty);
}

#[test]
fn what_is_read() {
    let head = "\"kind\":\"ImagePulledRecord\",\"apiVersion\":\"kubelet.config.k8s.io/v1alpha1\",\"imageRef\":\"r\"";
    let rows = [
        ("the old version", format!("{{{head}}}"), None),
        ("no mapping", format!("{{{head},\"credentialMapping\":null}}"), None),
        ("spaces", format!(" {{ {head} }} \n"), None),
        ("another zone", format!("{{{head},\"lastUpdatedTime\":\"2024-10-21T14:26:40+02:00\"}}"), None),
        ("a field more", format!("{{{head},\"extra\":1}}"), Some("unknown field `extra`")),
        (
            "a field within",
            format!("{{{head},\"credentialMapping\":{{\"a\":{{\"x\":1}}}}}}"),
            Some("unknown field `x`"),
        ),
        ("a field twice", format!("{{{head},\"imageRef\":\"s\"}}"), Some("duplicate field `imageRef`")),
        (
            "a name twice",
            format!("{{{head},\"credentialMapping\":{{\"a\":{{}},\"a\":{{}}}}}}"),
            Some("duplicate field `a`"),
        ),
        ("a wrong type", format!("{{{head},\"credentialMapping\":[]}}"), Some("expected a map of credentials")),
        ("a wrong time", format!("{{{head},\"lastUpdatedTime\":\"yesterday\"}}"), Some("")),
        ("another case", format!("{{{head},\"CredentialMapping\":{{}}}}"), Some("unknown field")),
        ("more behind it", format!("{{{head}}}x"), Some("trailing characters")),
        ("no kind", "{}".to_owned(), Some("its kind is \"\"")),
        (
            "no version",
            "{\"kind\":\"ImagePulledRecord\",\"apiVersion\":\"v1\"}".to_owned(),
            Some("its apiVersion is \"v1\""),
        ),
    ];
    for (name, text, error) in rows {
        match (decode_record(text.as_bytes()), error) {
            (Ok((record, Version::Alpha)), None) => assert_eq!(record.image_ref, "r", "{name}"),
            (Err(found), Some(wanted)) => assert!(found.contains(wanted), "{name}: {found}"),
            (found, _) => panic!("{name}: {found:?}"),
        }
    }
}

#[test]
fn names_of_files() {
    let name = "sha256-b3c0cc4278800b03a308ceb2611161430df571ca733122f0a40ac8b9792a9064";
    assert_eq!(file_name("testimageref"), name);
    for (name, record, draft) in [
        (name, true, false),
        ("sha256-x", true, false),
        ("sha256-x.tmp", false, true),
        ("sha256-x.12-3.tmp", false, true),
        ("x.tmp", false, false),
        ("sha512-x", false, false),
        ("", false, false),
    ] {
        assert_eq!((is_record(name), is_draft(name)), (record, draft), "{name}");
    }
}

#[test]
fn seconds_are_full() {
    for (time, want) in [
        ("2026-01-02T03:04:05.999Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("1969-12-31T23:59:58.5Z", "1969-12-31T23:59:58Z"),
    ] {
        assert_eq!(full_seconds(time.parse().unwrap()).to_string(), want);
    }
    assert_eq!(full_seconds(Timestamp::MIN), full_seconds(full_seconds(Timestamp::MIN)));
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9./-]{0,30}", any::<String>()]
}

fn recorded() -> impl Strategy<Value = RecordedCredentials> {
    let secret = (texts(), texts(), texts(), texts())
        .prop_map(|(uid, namespace, name, credential_hash)| RecordedSecret { uid, namespace, name, credential_hash });
    let account =
        (texts(), texts(), texts()).prop_map(|(uid, namespace, name)| RecordedAccount { uid, namespace, name });
    (proptest::collection::vec(secret, 0..3), proptest::collection::vec(account, 0..3), any::<bool>()).prop_map(
        |(secrets, accounts, node_pods_accessible)| RecordedCredentials { secrets, accounts, node_pods_accessible },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        image_ref in texts(),
        mapping in proptest::collection::btree_map(texts(), recorded(), 0..4),
        second in proptest::option::of(0_i64..4_000_000_000),
    ) {
        let last_updated = second.map(|second| Timestamp::from_second(second).unwrap());
        let record = PulledRecord { last_updated, image_ref, mapping };
        prop_assert_eq!(decode_record(&encode_record(&record)), Ok((record, Version::Beta)));
    }

    #[test]
    fn intents_that_are_written_are_read(image in texts()) {
        prop_assert_eq!(decode_intent(&encode_intent(&image)), Ok((image, Version::Beta)));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _any = (decode_record(&bytes), decode_intent(&bytes));
    }
}
