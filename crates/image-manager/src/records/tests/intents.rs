//! Pulls from intent to record: the kubelet's cases of `RecordPullIntent` and `RecordImagePulled`, and guards.

use super::*;

const IMAGE: &str = "repo.repo/test/test:latest";

// upstream: pullmanager/TestFileBasedImagePullManager_RecordPullIntent/first pull
#[tokio::test]
async fn a_first_pull() {
    let node = Node::new();
    let records = node.open().await;
    let intent = records.intend(IMAGE).await.unwrap();
    assert_eq!(intent.image(), IMAGE);
    assert_eq!(records.pulls_of(IMAGE), 1);
    let file = "sha256-7d8c031e2f1aeaa71649ca3e0b64c9902370ed460ef57fb07582a87a5a1e1c02";
    assert_eq!(
        fs::read_to_string(node.directory().join("pulling").join(file)).unwrap(),
        "{\"kind\":\"ImagePullIntent\",\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\",\"image\":\"repo.repo/test/test:latest\"}\n",
    );
    assert_eq!(node.files("pulling").len(), 1, "no draft is left");
    intent.failed().await;
    assert_eq!(node.files("pulling"), BTreeSet::new());
}

#[tokio::test]
async fn an_intent_that_cannot_be_made_durable_keeps_its_image_away() {
    let node = Node::new();
    let records = node.open().await;
    let intent = records.intend(IMAGE).await.unwrap();
    let before = intent.before_visible();
    before.done().await.expect("on the disk");
    fs::remove_file(node.directory().join("pulling").join(node.files("pulling").first().unwrap())).unwrap();
    before.done().await.expect("it was done once");
    let error = intent.before_visible().done().await.expect_err("there is none");
    assert!(error.message().starts_with(&format!("pull {IMAGE}: the intent is not on the disk: ")), "{error}");
    intent.failed().await;
}

// upstream: pullmanager/TestFileBasedImagePullManager_RecordPullIntent/second pull
#[tokio::test]
async fn two_pulls_share_one_intent() {
    let node = Node::new();
    let records = node.open().await;
    let first = records.intend(IMAGE).await.unwrap();
    let second = records.intend(IMAGE).await.unwrap();
    assert_eq!(records.pulls_of(IMAGE), 2);
    first.failed().await;
    assert_eq!(records.pulls_of(IMAGE), 1);
    assert_eq!(node.files("pulling"), names(&[IMAGE]), "the second still goes on");
    second.failed().await;
    assert_eq!(records.pulls_of(IMAGE), 0);
    assert_eq!(node.files("pulling"), BTreeSet::new());
}

struct Row {
    name: &'static str,
    image: &'static str,
    image_ref: &'static str,
    file: &'static str,
    used: Option<Candidate>,
    record: Option<PulledRecord>,
    in_flight: usize,
    changed: bool,
    want: Vec<(&'static str, RecordedCredentials)>,
}

fn rows() -> Vec<Row> {
    let accounts = |accounts: &[(&str, &str, &str)]| RecordedCredentials {
        accounts: accounts.iter().map(|(uid, namespace, name)| known_account(uid, namespace, name)).collect(),
        ..RecordedCredentials::default()
    };
    let one = || Row {
        name: "",
        image: "docker.io/testing/test:something",
        image_ref: "testimageref",
        file: "sha256-b3c0cc4278800b03a308ceb2611161430df571ca733122f0a40ac8b9792a9064",
        used: None,
        record: Some(testimageref()),
        in_flight: 1,
        changed: true,
        want: Vec::new(),
    };
    let known = || known_secret("testsecretuid", "default", "pull-secret", "testsecrethash");
    vec![
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_RecordImagePulled/new pull record",
            image: "repo.repo/test/test:v1",
            record: None,
            want: vec![("repo.repo/test/test", RecordedCredentials::node())],
            ..one()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_RecordImagePulled/new pull record, more pulls in-flight",
            image: "repo.repo/test/test:v1",
            record: None,
            in_flight: 2,
            want: vec![("repo.repo/test/test", RecordedCredentials::node())],
            ..one()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_RecordImagePulled/merge into existing record",
            image: "repo.repo/test/test:v1",
            used: Some(node_file("hash")),
            want: vec![
                ("repo.repo/test/test", RecordedCredentials::node()),
                (TEST, testimageref().mapping[TEST].clone()),
            ],
            ..one()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_RecordImagePulled/merge into existing record - existing key in creds mapping",
            used: Some(secret("newuid", "newns", "newname", "somehash")),
            want: vec![(
                TEST,
                RecordedCredentials {
                    secrets: vec![known(), known_secret("newuid", "newns", "newname", "somehash")],
                    ..RecordedCredentials::default()
                },
            )],
            ..one()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_RecordImagePulled/existing record stays unchanged",
            used: Some(secret("testsecretuid", "default", "pull-secret", "testsecrethash")),
            changed: false,
            want: vec![(TEST, testimageref().mapping[TEST].clone())],
            ..one()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_RecordImagePulled/new pull record with service account credentials",
            image: "docker.io/sa-test/app:v1",
            image_ref: "sa-testimageref",
            file: "sha256-7ff6218f8ead494f56af9cb95c4b855fb62609d01342fe961553ac2ed520fcfb",
            used: Some(account("sa-uid-123", "default", "test-sa")),
            record: None,
            want: vec![("docker.io/sa-test/app", accounts(&[("sa-uid-123", "default", "test-sa")]))],
            ..one()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_RecordImagePulled/merge service account into existing record with secrets",
            used: Some(account("sa-uid-456", "kube-system", "system-sa")),
            want: vec![(
                TEST,
                RecordedCredentials {
                    secrets: vec![known()],
                    ..accounts(&[("sa-uid-456", "kube-system", "system-sa")])
                },
            )],
            ..one()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_RecordImagePulled/merge additional service account into existing record with service accounts",
            image_ref: "testimageref-sa",
            file: "sha256-917e8b3439bf8a7a6f37ffd2d2ddfdfafac8a251bf214a0be39675742b420b1a",
            used: Some(account("sa-uid-789", "app-ns", "app-sa")),
            record: Some(testimageref_sa()),
            want: vec![(TEST, accounts(&[("sa-uid-789", "app-ns", "app-sa"), ("test-sa-uid", "default", "test-sa")]))],
            ..one()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_RecordImagePulled/duplicate service account should not create duplicates",
            image_ref: "testimageref-sa",
            file: "sha256-917e8b3439bf8a7a6f37ffd2d2ddfdfafac8a251bf214a0be39675742b420b1a",
            used: Some(account("test-sa-uid", "default", "test-sa")),
            record: Some(testimageref_sa()),
            changed: false,
            want: vec![(TEST, accounts(&[("test-sa-uid", "default", "test-sa")]))],
            ..one()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_RecordImagePulled/record with familiar image name - only the last segment",
            image: "testing@sha256:f24acc752be18b93b0504c86312bbaf482c9efb0c45e925bbccb0a591cebd7af",
            image_ref: "testimageref-familiarlast",
            file: "sha256-f2ba1256df29972c4fe11d8af7d302e37631c6077a2ed29d8bee55ee77cf26ad",
            used: Some(account("test-sa-uid", "default", "test-sa")),
            record: None,
            want: vec![("testing", accounts(&[("test-sa-uid", "default", "test-sa")]))],
            ..one()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_RecordImagePulled/record with familiar image name - org and name",
            image: "secretorg/myimage:customtag",
            image_ref: "testimageref-familiarwithorg",
            file: "sha256-ff66306c3a398c6e6b64d8f7acdd1aebc37fce76add3849f9d3f59274434234a",
            used: Some(account("test-sa-uid", "default", "test-sa")),
            record: None,
            want: vec![("secretorg/myimage", accounts(&[("test-sa-uid", "default", "test-sa")]))],
            ..one()
        },
    ]
}

#[tokio::test]
async fn record_image_pulled() {
    for row in rows() {
        let node = Node::new();
        if let Some(record) = &row.record {
            node.old_record(record);
        }
        let records = node.open().await;
        let intent = records.intend(row.image).await.unwrap();
        let mut more = Vec::new();
        for _ in 1..row.in_flight {
            more.push(records.intend(row.image).await.unwrap());
        }
        intent.pulled(row.image_ref, row.used.as_ref()).await.unwrap();

        assert_eq!(records.pulls_of(row.image), row.in_flight - 1, "{}", row.name);
        assert_eq!(node.intent_path(row.image).exists(), row.in_flight > 1, "{}", row.name);
        let bytes = fs::read(node.directory().join("pulled").join(row.file)).unwrap();
        let (record, _) = decode_record(&bytes).unwrap();
        let want = row.want.iter().map(|(name, recorded)| ((*name).to_owned(), recorded.clone())).collect();
        assert_eq!(record.mapping, want, "{}", row.name);
        let time = if row.changed { Timestamp::from_second(NOW).unwrap() } else { at(RECORDED) };
        assert_eq!(record.last_updated, Some(time), "{}", row.name);
        drop(more);
        records.settle().await;
        assert_eq!(node.files("pulling"), BTreeSet::new(), "{}: dropped guards count as failed", row.name);
    }
}

#[tokio::test]
async fn a_program_that_is_being_started_keeps_no_intent() {
    let node = Node::new();
    let records = node.open().await;
    let intent = records.intend(IMAGE).await.unwrap();
    let copy = records.inner.in_flight()[IMAGE].lease.try_clone().unwrap();
    intent.failed().await;
    assert_eq!(node.files("pulling"), BTreeSet::new(), "the program has not closed its copy yet");
    drop(copy);
}

#[tokio::test]
async fn files_and_directories_are_for_us_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let node = Node::new();
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(node.directory().join("pulled"), open).unwrap();
    let records = node.open().await;
    let intent = records.intend(IMAGE).await.unwrap();
    records.add(IMAGE, "id", None).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&node.directory().join("pulling")), 0o700);
    assert_eq!(mode(&node.directory().join("pulled")), 0o700);
    assert_eq!(mode(&node.intent_path(IMAGE)), 0o600);
    assert_eq!(mode(&node.record_path("id")), 0o600);
    drop(intent);
}

#[tokio::test]
async fn a_guard_that_is_dropped_anywhere_counts_as_failed() {
    let node = Node::new();
    let records = node.open().await;
    let intent = records.intend(IMAGE).await.unwrap();
    // On a thread that has no runtime, as at the end of a process.
    std::thread::spawn(move || drop(intent)).join().unwrap();
    records.settle().await;
    assert_eq!(records.pulls_of(IMAGE), 0);
    assert_eq!(node.files("pulling"), BTreeSet::new());
}

#[tokio::test]
async fn begun_writes_end_without_a_waiter() {
    let node = Node::new();
    let records = node.open().await;
    // An intent whose receiver is dropped.
    drop(futures_once(records.intend(IMAGE)));
    records.settle().await;
    assert_eq!(node.files("pulling"), BTreeSet::new());
    // An outcome whose future is dropped.
    let intent = records.intend(IMAGE).await.unwrap();
    drop(futures_once(intent.pulled("id", None)));
    records.settle().await;
    assert_eq!(node.files("pulling"), BTreeSet::new());
    assert_eq!(node.files("pulled"), names(&["id"]));
    let intent = records.intend(IMAGE).await.unwrap();
    drop(futures_once(intent.failed()));
    records.settle().await;
    assert_eq!(node.files("pulling"), BTreeSet::new());
}

/// Polls a future once, so that it begins, and gives it back.
fn futures_once<F: Future>(future: F) -> std::pin::Pin<Box<F>> {
    let mut future = Box::pin(future);
    let answer = future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    assert!(answer.is_pending(), "it waits for the disk");
    future
}

#[tokio::test]
async fn a_record_that_cannot_be_written_keeps_the_intent() {
    let node = Node::new();
    let records = node.open().await;
    let intent = records.intend(IMAGE).await.unwrap();
    // Something that no file can take the place of.
    fs::create_dir(node.record_path("id")).unwrap();
    let error = intent.pulled("id", None).await.unwrap_err();
    assert!(error.to_string().starts_with("cannot read"), "{error}");
    assert_eq!(records.pulls_of(IMAGE), 0);
    assert_eq!(node.files("pulling"), names(&[IMAGE]), "so that nobody takes the image for a preloaded one");

    // The next one that succeeds ends it.
    fs::remove_dir(node.record_path("id")).unwrap();
    records.intend(IMAGE).await.unwrap().pulled("id", None).await.unwrap();
    assert_eq!(node.files("pulling"), BTreeSet::new());
}

#[tokio::test]
async fn names_under_which_nothing_can_be_recorded() {
    let node = Node::new();
    let records = node.open().await;
    let error = records.add("repo.repo/TEST", "id", None).await.unwrap_err();
    assert_eq!(error.to_string(), "invalid image name \"repo.repo/TEST\": repository name must be lowercase");
    assert_eq!(node.files("pulled"), BTreeSet::new());
}

#[tokio::test]
async fn a_removed_intent_is_written_again_by_the_next_pull() {
    let node = Node::new();
    let records = node.open().await;
    let first = records.intend(IMAGE).await.unwrap();
    fs::remove_file(node.intent_path(IMAGE)).unwrap();
    assert_eq!(records.may(IMAGE, "id", &[]).await, NO_RECORD, "this process knows all the same");
    let second = records.intend(IMAGE).await.unwrap();
    assert!(node.intent_path(IMAGE).exists());
    drop((first, second));
    records.settle().await;
    assert_eq!(node.files("pulling"), BTreeSet::new());
}

#[tokio::test]
async fn an_image_in_flight_is_not_preloaded() {
    let node = Node::new();
    let records = node.open().await;
    assert_eq!(records.may(IMAGE, "id", &[]).await, PRELOADED);
    let intent = records.intend(IMAGE).await.unwrap();
    assert_eq!(records.may(IMAGE, "id", &[]).await, NO_RECORD);
    assert_eq!(records.may("repo.repo/test/test", "id", &[]).await, NO_RECORD, "in another spelling");
    intent.pulled("id", Some(&secret("uid", "ns", "name", "hash"))).await.unwrap();
    assert_eq!(records.may(IMAGE, "id", &[]).await, OTHERS_ONLY);
    assert_eq!(records.may(IMAGE, "id", &[secret("uid", "ns", "name", "hash")]).await, GRANTED);
    records.intend(IMAGE).await.unwrap().pulled("id", None).await.unwrap();
    assert_eq!(records.may(IMAGE, "id", &[]).await, FOR_ALL);
}

#[tokio::test]
async fn no_hash_is_shown() {
    let node = Node::new();
    let hash = "353258b53f5e9a57b059eab3f05312fc35bbeb874f08ce101e7bf0bf46977423";
    let records = node.open().await;
    let candidate = secret("uid", "ns", "name", hash);
    let intent = records.intend(IMAGE).await.unwrap();
    let shown = format!("{records:?} {intent:?} {candidate:?} {:?}", check::recorded(Some(&candidate)));
    assert!(!shown.contains(hash), "{shown}");
    intent.failed().await;
}
