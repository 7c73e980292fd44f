//! The kubelet's cases of merging, and ours.

use std::collections::BTreeMap;

use super::*;

fn secret(uid: &str, namespace: &str, name: &str, hash: &str) -> RecordedSecret {
    RecordedSecret { uid: uid.into(), namespace: namespace.into(), name: name.into(), credential_hash: hash.into() }
}

fn account(uid: &str, namespace: &str, name: &str) -> RecordedAccount {
    RecordedAccount { uid: uid.into(), namespace: namespace.into(), name: name.into() }
}

fn secrets(secrets: &[RecordedSecret]) -> RecordedCredentials {
    RecordedCredentials { secrets: secrets.to_vec(), ..RecordedCredentials::default() }
}

fn accounts(accounts: &[RecordedAccount]) -> RecordedCredentials {
    RecordedCredentials { accounts: accounts.to_vec(), ..RecordedCredentials::default() }
}

fn record() -> PulledRecord {
    let one = || secret("uid1", "namespace1", "name1", "hash1");
    let mapping = [
        ("test-image1", secrets(&[one()])),
        ("test-image2", secrets(&[one(), secret("uid2", "namespace2", "name2", "hash2")])),
        ("test-image-with-sa", accounts(&[account("sa-uid1", "default", "sa1")])),
        (
            "test-image-mixed",
            RecordedCredentials {
                secrets: vec![secret("secret-uid1", "kube-system", "secret1", "secret-hash1")],
                accounts: vec![account("sa-uid2", "kube-system", "sa2")],
                node_pods_accessible: false,
            },
        ),
        ("test-nodewide", RecordedCredentials::node()),
    ];
    PulledRecord {
        last_updated: Some("2022-02-22T12:00:00Z".parse().unwrap()),
        image_ref: "testImageRef".into(),
        mapping: mapping.into_iter().map(|(name, recorded)| (name.to_owned(), recorded)).collect(),
    }
}

type Row = (&'static str, &'static str, Option<RecordedCredentials>, Option<RecordedCredentials>);

fn rows() -> Vec<Row> {
    let new = || secret("newuid", "newnamespace", "newname", "newhash");
    let one = || secret("uid1", "namespace1", "name1", "hash1");
    let two = |hash| secret("uid2", "namespace2", "name2", hash);
    let sa1 = || account("sa-uid1", "default", "sa1");
    let z = || [("z", "z"), ("a", "a"), ("m", "m")];
    vec![
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/create a new image record",
            "new-image",
            Some(secrets(&[new()])),
            Some(secrets(&[new()])),
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/merge with an existing image secret",
            "test-image1",
            Some(secrets(&[new()])),
            Some(secrets(&[one(), new()])),
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/merge with existing image record secrets",
            "test-image2",
            Some(secrets(&[secret("newuid", "namespace1", "newname", "newhash")])),
            Some(secrets(&[one(), secret("newuid", "namespace1", "newname", "newhash"), two("hash2")])),
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/node-accessible overrides all secrets",
            "test-image2",
            Some(RecordedCredentials::node()),
            Some(RecordedCredentials::node()),
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/new creds have the same secret coordinates but a different hash",
            "test-image2",
            Some(secrets(&[two("newhash")])),
            Some(secrets(&[one(), two("newhash")])),
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/new creds have the same hash but a different coordinates",
            "test-image2",
            Some(secrets(&[secret("uid3", "namespace2", "name3", "hash2")])),
            Some(secrets(&[one(), two("hash2"), secret("uid3", "namespace2", "name3", "hash2")])),
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/create a new image record with service accounts",
            "new-sa-image",
            Some(accounts(&[account("new-sa-uid", "default", "new-sa")])),
            Some(accounts(&[account("new-sa-uid", "default", "new-sa")])),
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/merge with existing service account",
            "test-image-with-sa",
            Some(accounts(&[account("new-sa-uid", "kube-system", "new-sa")])),
            Some(accounts(&[sa1(), account("new-sa-uid", "kube-system", "new-sa")])),
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/no update when service account is identical",
            "test-image-with-sa",
            Some(accounts(&[sa1()])),
            None,
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/add service account to image with only secrets",
            "test-image2",
            Some(accounts(&[account("new-sa-uid", "default", "new-sa")])),
            Some(RecordedCredentials {
                secrets: vec![one(), two("hash2")],
                ..accounts(&[account("new-sa-uid", "default", "new-sa")])
            }),
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/add secret to image with only service accounts",
            "test-image-with-sa",
            Some(secrets(&[new()])),
            Some(RecordedCredentials { secrets: vec![new()], ..accounts(&[sa1()]) }),
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/node-accessible overrides mixed credentials",
            "test-image-mixed",
            Some(RecordedCredentials::node()),
            Some(RecordedCredentials::node()),
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/no update when image already marked as node-accessible with secrets",
            "test-nodewide",
            Some(secrets(&[new()])),
            None,
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/no update when trying to add service account to node-accessible image",
            "test-nodewide",
            Some(accounts(&[sa1()])),
            None,
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/nil credentials should not update",
            "test-image1",
            None,
            None,
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/empty credentials should not update",
            "test-image1",
            Some(RecordedCredentials::default()),
            None,
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/multiple secrets with sorting verification",
            "new-sorted-image",
            Some(secrets(&z().map(|(ns, name)| secret("uid", ns, name, "hash")))),
            Some(secrets(&z().map(|(ns, name)| secret("uid", ns, name, "hash")))),
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/multiple service accounts with sorting verification",
            "new-sorted-sa-image",
            Some(accounts(&z().map(|(ns, name)| account("uid", ns, name)))),
            Some(accounts(&z().map(|(ns, name)| account("uid", ns, name)))),
        ),
        (
            "upstream: pullmanager/Test_pulledRecordMergeNewCreds/service account with same namespace and name but different UID",
            "test-image-with-sa",
            Some(accounts(&[account("different-uid", "default", "sa1")])),
            Some(accounts(&[account("different-uid", "default", "sa1"), sa1()])),
        ),
        (
            "secrets and service accounts that come together are both kept",
            "test-image-mixed",
            Some(RecordedCredentials { secrets: vec![new()], ..accounts(&[sa1()]) }),
            Some(RecordedCredentials {
                secrets: vec![secret("secret-uid1", "kube-system", "secret1", "secret-hash1"), new()],
                ..accounts(&[sa1(), account("sa-uid2", "kube-system", "sa2")])
            }),
        ),
    ]
}

#[test]
fn merging() {
    let now: Timestamp = "2026-01-02T03:04:05.9Z".parse().unwrap();
    for (name, image, added, want) in rows() {
        let merged = merge(&record(), image, added.as_ref(), now);
        let want = want.map(|recorded| {
            let mut want = record();
            want.mapping.insert(image.to_owned(), recorded);
            want.last_updated = Some("2026-01-02T03:04:05Z".parse().unwrap());
            want
        });
        assert_eq!(merged, want, "{name}");
        if let Some(merged) = merged {
            assert_eq!(merge(&merged, image, added.as_ref(), now), None, "{name}: once is enough");
        }
    }
}

#[test]
fn service_accounts() {
    let one = || account("sa1", "default", "serviceaccount1");
    let two = || account("sa2", "kube-system", "serviceaccount2");
    type Row<'a> = (&'a str, &'a [RecordedAccount], &'a [RecordedAccount], Option<&'a [RecordedAccount]>);
    let rows: [Row<'_>; 7] = [
        ("upstream: pullmanager/Test_mergePullServiceAccounts/merge empty slices", &[], &[], None),
        (
            "upstream: pullmanager/Test_mergePullServiceAccounts/add new service account to empty slice",
            &[],
            &[one()],
            Some(&[one()]),
        ),
        (
            "upstream: pullmanager/Test_mergePullServiceAccounts/duplicate service account - no change",
            &[one()],
            &[one()],
            None,
        ),
        (
            "upstream: pullmanager/Test_mergePullServiceAccounts/merge different service accounts",
            &[one()],
            &[two()],
            Some(&[one(), two()]),
        ),
        (
            "upstream: pullmanager/Test_mergePullServiceAccounts/verify sorting by namespace, name, uid",
            &[account("sa2", "kube-system", "z-sa")],
            &[account("sa1", "default", "a-sa"), account("sa3", "kube-system", "a-sa")],
            Some(&[
                account("sa1", "default", "a-sa"),
                account("sa3", "kube-system", "a-sa"),
                account("sa2", "kube-system", "z-sa"),
            ]),
        ),
        (
            "upstream: pullmanager/Test_mergePullServiceAccounts/multiple service accounts with some duplicates",
            &[one(), two()],
            &[one(), account("sa3", "default", "serviceaccount3")],
            Some(&[one(), account("sa3", "default", "serviceaccount3"), two()]),
        ),
        (
            "upstream: pullmanager/Test_mergePullServiceAccounts/same namespace and name, different UID",
            &[one()],
            &[account("sa2", "default", "serviceaccount1")],
            Some(&[one(), account("sa2", "default", "serviceaccount1")]),
        ),
    ];
    for (name, known, added, want) in rows {
        assert_eq!(union_accounts(known, added).as_deref(), want, "{name}");
    }
}

#[test]
fn first_records() {
    let now: Timestamp = "2026-01-02T03:04:05.9Z".parse().unwrap();
    let empty = first("id", Some("name"), None, now);
    assert_eq!(empty.mapping, BTreeMap::new(), "nobody knows with what");
    assert_eq!(empty.last_updated, Some("2026-01-02T03:04:05Z".parse().unwrap()));
    assert_eq!(
        first("id", Some("name"), Some(&RecordedCredentials::node()), now).mapping["name"],
        RecordedCredentials::node()
    );
}
