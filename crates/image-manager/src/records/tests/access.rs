//! Access to images on the node: the table of the kubelet's `MustAttemptImagePull`, and cases beyond it.

use super::*;

struct Row {
    name: &'static str,
    policy: VerificationPolicy,
    pod: Vec<Candidate>,
    image: &'static str,
    image_ref: &'static str,
    record: Option<PulledRecord>,
    intent: Option<&'static str>,
    want: Access,
    asked: bool,
    /// The secrets of the record afterwards, where it learns something.
    learns: Option<Vec<RecordedSecret>>,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            name: "",
            policy: VerificationPolicy::NeverVerifyPreloadedImages,
            pod: Vec::new(),
            image: LATEST,
            image_ref: "testimageref",
            record: Some(testimageref()),
            intent: None,
            want: GRANTED,
            asked: true,
            learns: None,
        }
    }
}

fn pod_secret() -> Vec<Candidate> {
    vec![secret("testsecretuid", "default", "pull-secret", "testsecrethash")]
}

fn pod_account() -> Vec<Candidate> {
    vec![account("test-sa-uid", "default", "test-sa")]
}

fn rows_of_secrets() -> Vec<Row> {
    let never = Access::Granted(Grant::PolicyNeverVerifies);
    vec![
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and is recorded with pod's exact secret",
            pod: pod_secret(),
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and is recorded, no pod secrets",
            want: OTHERS_ONLY,
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and is recorded with the same secret but different credential hash",
            pod: vec![secret("testsecretuid", "default", "pull-secret", "differenthash")],
            learns: Some(vec![known_secret("testsecretuid", "default", "pull-secret", "differenthash")]),
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and is recorded with a different secret with a different UID",
            pod: vec![secret("different uid", "default", "pull-secret", "differenthash")],
            want: OTHERS_ONLY,
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and is recorded with a different secret",
            pod: vec![secret("testsecretuid", "differentns", "pull-secret", "differenthash")],
            want: OTHERS_ONLY,
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and is recorded with a different secret with the same credential hash",
            pod: vec![secret("testsecretuid", "differentns", "pull-secret", "testsecrethash")],
            learns: Some(vec![
                known_secret("testsecretuid", "default", "pull-secret", "testsecrethash"),
                known_secret("testsecretuid", "differentns", "pull-secret", "testsecrethash"),
            ]),
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists but the pull is recorded with a different image name but with the exact same secret",
            pod: pod_secret(),
            image: "docker.io/testing/different:latest",
            want: UNKNOWN_NAME,
            asked: false,
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and is recorded with empty credential mapping",
            image_ref: "testemptycredmapping",
            record: Some(emptycredmapping()),
            want: NO_RECORD,
            asked: false,
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image does not exist and there are no records of it",
            image_ref: "",
            record: None,
            want: NO_RECORD,
            asked: false,
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and there are no records of it with NeverVerifyPreloadedImages pull policy",
            image_ref: "testexistingref",
            record: None,
            want: PRELOADED,
            asked: false,
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and there are no records of it with AlwaysVerify pull policy",
            policy: VerificationPolicy::AlwaysVerify,
            image_ref: "testexistingref",
            record: None,
            want: NO_RECORD,
            asked: false,
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists but is only recorded via pulling intent",
            pod: pod_secret(),
            image_ref: "testexistingref",
            record: None,
            intent: Some(LATEST),
            want: NO_RECORD,
            asked: false,
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists but is only recorded via pulling intent - NeverVerify policy",
            policy: VerificationPolicy::NeverVerify,
            pod: pod_secret(),
            image_ref: "testexistingref",
            record: None,
            intent: Some(LATEST),
            want: never,
            asked: false,
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and is recorded as node-accessible, no pod secrets",
            image_ref: "testimage-anonpull",
            record: Some(anonpull()),
            want: FOR_ALL,
            asked: false,
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and is recorded as node-accessible, request with pod secrets",
            pod: pod_secret(),
            image_ref: "testimage-anonpull",
            record: Some(anonpull()),
            want: FOR_ALL,
            asked: false,
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and is recorded with empty hash as its hashing originally failed, the same fail for a different pod secret",
            pod: vec![secret("testsecretuid", "differentns", "pull-secret", "")],
            image_ref: "test-brokenhash",
            record: Some(brokenhash()),
            want: OTHERS_ONLY,
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and is recorded with empty hash as its hashing originally failed, the same fail for the same pod secret",
            pod: vec![secret("testsecretuid", "default", "pull-secret", "")],
            image_ref: "test-brokenhash",
            record: Some(brokenhash()),
            ..Row::default()
        },
    ]
}

/// Rows of credentials from manifests, whose coordinates prove nothing.
fn rows_of_manifests() -> Vec<Row> {
    let pod = |uid, namespace, hash| vec![of_manifest(secret(uid, namespace, "pull-secret", hash))];
    vec![
        Row {
            name: "the secret of a manifest, as it is recorded",
            pod: pod("testsecretuid", "default", "testsecrethash"),
            ..Row::default()
        },
        Row {
            name: "the content of the recorded secret, elsewhere",
            pod: pod("testsecretuid", "differentns", "testsecrethash"),
            learns: Some(vec![
                known_secret("testsecretuid", "default", "pull-secret", "testsecrethash"),
                known_secret("testsecretuid", "differentns", "pull-secret", "testsecrethash"),
            ]),
            ..Row::default()
        },
        Row {
            name: "another content under the recorded coordinates",
            pod: pod("testsecretuid", "default", "differenthash"),
            want: OTHERS_ONLY,
            ..Row::default()
        },
        Row {
            name: "a good content behind a wrong one",
            pod: [pod("testsecretuid", "default", "differenthash"), pod("other", "default", "testsecrethash")].concat(),
            learns: Some(vec![
                known_secret("other", "default", "pull-secret", "testsecrethash"),
                known_secret("testsecretuid", "default", "pull-secret", "testsecrethash"),
            ]),
            ..Row::default()
        },
        Row {
            name: "no hash under the recorded coordinates",
            pod: pod("testsecretuid", "default", ""),
            image_ref: "test-brokenhash",
            record: Some(brokenhash()),
            want: OTHERS_ONLY,
            ..Row::default()
        },
    ]
}

fn rows_of_accounts() -> Vec<Row> {
    let with_account =
        || Row { image_ref: "testimageref-sa", record: Some(testimageref_sa()), pod: pod_account(), ..Row::default() };
    vec![
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and is recorded with pod's exact service account",
            ..with_account()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and is recorded, no pod service accounts",
            want: OTHERS_ONLY,
            ..Row::default()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and is recorded with a different service account with different UID",
            pod: vec![account("different-sa-uid", "default", "test-sa")],
            want: OTHERS_ONLY,
            ..with_account()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and is recorded with a different service account with different namespace",
            pod: vec![account("test-sa-uid", "different-ns", "test-sa")],
            want: OTHERS_ONLY,
            ..with_account()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists but the pull is recorded with a different image name but with the exact same service account",
            image: "docker.io/testing/different:latest",
            want: UNKNOWN_NAME,
            asked: false,
            ..with_account()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists but is only recorded via pulling intent with service account",
            image_ref: "testexistingref",
            record: None,
            intent: Some(LATEST),
            want: NO_RECORD,
            asked: false,
            ..with_account()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists but is only recorded via pulling intent with service account - NeverVerify policy",
            policy: VerificationPolicy::NeverVerify,
            image_ref: "testexistingref",
            record: None,
            intent: Some(LATEST),
            want: Access::Granted(Grant::PolicyNeverVerifies),
            asked: false,
            ..with_account()
        },
        Row {
            name: "upstream: pullmanager/TestFileBasedImagePullManager_MustAttemptImagePull/image exists and is recorded as node-accessible, request with pod service accounts",
            image_ref: "testimage-anonpull",
            record: Some(anonpull()),
            want: FOR_ALL,
            asked: false,
            ..with_account()
        },
        Row {
            name: "the account of a manifest: who names it has its credentials anyway",
            pod: vec![of_manifest(account("test-sa-uid", "default", "test-sa"))],
            ..with_account()
        },
        Row {
            name: "a second service account of the pod does not count",
            pod: vec![account("other", "default", "other"), account("test-sa-uid", "default", "test-sa")],
            want: OTHERS_ONLY,
            ..with_account()
        },
        Row {
            name: "a credential of the node is none of the pod, whatever its hash",
            pod: vec![node_file("testsecrethash")],
            want: OTHERS_ONLY,
            ..Row::default()
        },
        Row {
            name: "a name that cannot be parsed is nobody's",
            pod: pod_secret(),
            image: "docker.io/testing/TEST",
            want: UNREADABLE,
            asked: false,
            ..Row::default()
        },
        Row {
            name: "an intent in another spelling is an intent",
            image: "nginx",
            image_ref: "testexistingref",
            record: None,
            intent: Some("docker.io/library/nginx:latest"),
            want: NO_RECORD,
            asked: false,
            ..Row::default()
        },
        Row {
            name: "an intent for another image is none for this one",
            image: "nginx",
            image_ref: "testexistingref",
            record: None,
            intent: Some("docker.io/library/nginx:1"),
            want: PRELOADED,
            asked: false,
            ..Row::default()
        },
    ]
}

#[tokio::test]
async fn must_attempt_image_pull() {
    for row in rows_of_secrets().into_iter().chain(rows_of_accounts()).chain(rows_of_manifests()) {
        // Once from memory, and once from files that appear while we run.
        for late in [false, true] {
            check(&row, late).await;
        }
    }
}

async fn check(row: &Row, late: bool) {
    let name = format!("{} (files appear later: {late})", row.name);
    let node = Node::new();
    let write = || {
        if let Some(record) = &row.record {
            node.old_record(record);
        }
        if let Some(image) = row.intent {
            node.left_intent(image);
        }
    };
    let records = if late {
        let records = node.open_with(row.policy.clone()).await;
        write();
        records
    } else {
        write();
        node.open_with(row.policy.clone()).await
    };
    let pod: Arc<[Candidate]> = row.pod.clone().into();
    let before = row.record.as_ref().map(|record| node.record(&record.image_ref));

    for writes in [false, true] {
        let mut asked = false;
        let candidates = async || {
            asked = true;
            Ok::<_, Infallible>(Arc::clone(&pod))
        };
        let access = match writes {
            false => records.peek(row.image, row.image_ref, candidates).await.unwrap(),
            true => records.access(row.image, row.image_ref, candidates).await.unwrap(),
        };
        records.settle().await;
        assert_eq!(access, row.want, "{name}");
        assert_eq!(asked, row.asked, "{name}: credentials asked for");
        let after = row.record.as_ref().map(|record| node.record(&record.image_ref));
        match &row.learns {
            Some(secrets) if writes => {
                let after = after.unwrap();
                assert_eq!(&after.mapping[TEST].secrets, secrets, "{name}");
                assert_eq!(after.last_updated.unwrap().as_second(), NOW, "{name}");
            }
            _ => assert_eq!(after, before, "{name}: nothing is written"),
        }
    }
}

#[tokio::test]
async fn an_error_of_the_keyring_is_the_callers() {
    let node = Node::new();
    node.old_record(&testimageref());
    let records = node.open().await;
    let answer = records.access(LATEST, "testimageref", async || Err::<Arc<[Candidate]>, _>("malformed secret")).await;
    assert_eq!(answer, Err("malformed secret"));
}

#[tokio::test]
async fn a_record_of_a_hundred_secrets_grows_no_more() {
    let node = Node::new();
    let secrets =
        (0..100).map(|i| known_secret(&format!("uid{i:02}"), "ns", &format!("name{i:02}"), &format!("hash{i}")));
    let recorded = RecordedCredentials { secrets: secrets.collect(), ..RecordedCredentials::default() };
    node.old_record(&recorded_as("full", TEST, recorded));
    let records = node.open().await;
    let before = node.record("full");

    let rows = [
        ("the same content elsewhere is accepted", secret("x", "elsewhere", "y", "hash7"), GRANTED),
        ("a changed object is not", secret("uid07", "ns", "name07", "changed"), OTHERS_ONLY),
        ("the last one is found", secret("uid99", "ns", "name99", "hash99"), GRANTED),
    ];
    for (name, candidate, want) in rows {
        assert_eq!(records.may(LATEST, "full", &[candidate]).await, want, "{name}");
        records.settle().await;
        assert_eq!(node.record("full"), before, "{name}");
    }
}

#[tokio::test]
async fn a_name_counts_in_every_spelling() {
    let mine = || with_secret("uid", "ns", "name", "hash");
    let pod = [secret("uid", "ns", "name", "hash")];
    type Row<'a> = (&'a str, &'a [(&'a str, RecordedCredentials)], &'a str, Access);
    let rows: [Row<'_>; 10] = [
        ("the host in capitals, with its port", &[("Docker.IO:443/library/nginx", mine())], "nginx:1", GRANTED),
        ("a port with zeros", &[("localhost:5999/x", mine())], "LOCALHOST:05999/x:1", GRANTED),
        ("short, asked in full", &[("nginx", mine())], "docker.io/library/nginx:1", GRANTED),
        ("in full, asked short", &[("docker.io/library/nginx", mine())], "nginx", GRANTED),
        ("without library", &[("docker.io/nginx", mine())], "index.docker.io/library/nginx:1", GRANTED),
        ("for all, in another spelling", &[("nginx", RecordedCredentials::node())], "docker.io/library/nginx", FOR_ALL),
        (
            "what one spelling refuses another grants",
            &[("docker.io/library/nginx", with_secret("o", "o", "o", "other")), ("nginx", mine())],
            "docker.io/library/nginx",
            GRANTED,
        ),
        ("another repository", &[("docker.io/nginx/nginx", mine())], "nginx", UNKNOWN_NAME),
        ("another registry", &[("quay.io/library/nginx", mine())], "nginx", UNKNOWN_NAME),
        ("a recorded name that is none", &[("NGINX", mine())], "nginx", UNKNOWN_NAME),
    ];
    for (name, mapping, image, want) in rows {
        let node = Node::new();
        let mapping = mapping.iter().map(|(name, recorded)| ((*name).to_owned(), recorded.clone())).collect();
        node.old_record(&PulledRecord { mapping, ..recorded_as("id", TEST, mine()) });
        let before = node.record("id");
        let records = node.open().await;
        assert_eq!(records.may(image, "id", &pod).await, want, "{name}");
        records.settle().await;
        assert_eq!(node.record("id"), before, "{name}: the spelling in the file stays");
    }
}

#[tokio::test]
async fn what_cannot_be_read_has_to_be_verified() {
    let rows: [(&str, &[u8]); 6] = [
        ("nothing", b""),
        ("no JSON", b"{"),
        ("another kind", br#"{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"a"}"#),
        ("a newer version", br#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v2","imageRef":"id"}"#),
        ("a field more", br#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"id","x":1}"#),
        ("more behind it", b"{\"kind\":\"ImagePulledRecord\",\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\",\"imageRef\":\"id\"}\n{}"),
    ];
    for (name, bytes) in rows {
        for late in [false, true] {
            let node = Node::new();
            let records = if late { Some(node.open().await) } else { None };
            fs::write(node.record_path("id"), bytes).unwrap();
            let records = match records {
                Some(records) => records,
                None => node.open().await,
            };
            assert_eq!(records.may(LATEST, "id", &[]).await, UNREADABLE, "{name}");
            // A pull heals it.
            records.add(LATEST, "id", None).await.unwrap();
            assert_eq!(records.may(LATEST, "id", &[]).await, FOR_ALL, "{name}");
        }
    }
}

#[tokio::test]
async fn a_record_under_the_name_of_another_is_none() {
    let node = Node::new();
    fs::write(node.record_path("id"), encode_record(&testimageref())).unwrap();
    let records = node.open().await;
    assert_eq!(records.may(LATEST, "id", &[]).await, PRELOADED);
    assert_eq!(records.may(LATEST, "testimageref", &[]).await, PRELOADED);
}

#[tokio::test]
async fn an_intent_that_cannot_be_read_has_to_be_verified() {
    let node = Node::new();
    fs::write(node.intent_path(LATEST), "{").unwrap();
    let records = node.open().await;
    assert_eq!(records.may(LATEST, "id", &[]).await, UNREADABLE);
    assert_eq!(records.may("docker.io/testing/other", "id", &[]).await, PRELOADED);
}

#[tokio::test]
async fn a_directory_that_is_taken_away_opens_nothing() {
    let node = Node::new();
    let records = node.open().await;
    assert_eq!(records.may(LATEST, "id", &[]).await, PRELOADED);
    fs::remove_dir_all(node.directory()).unwrap();
    assert_eq!(records.may(LATEST, "id", &[]).await, UNREADABLE);
    records.intend(LATEST).await.unwrap_err();
    records.add(LATEST, "id", None).await.unwrap_err();
}

// upstream: pullmanager/TestMustAttemptPullMetrics
#[tokio::test]
async fn every_answer_is_counted() {
    let node = Node::new();
    fs::write(node.record_path("testbrokenrecord"), "{").unwrap();
    node.old_record(&anonpull());
    node.old_record(&testimageref());
    let list = Allowlist::parse(&["docker.io/testing/policyexempt".to_owned()]).unwrap();
    let records = node.open_with(VerificationPolicy::NeverVerifyAllowlistedImages(list)).await;
    let pod = pod_secret();
    for (times, image, image_ref, pod) in [
        (3, "docker.io/testing/broken", "testbrokenrecord", &[][..]),
        (4, TEST, "testimage-anonpull", &[]),
        (2, "docker.io/testing/policyexempt", "policyallowed", &[]),
        (1, "docker.io/testing/norecords", "somewhatunknown", &[]),
        (1, TEST, "testimageref", &pod),
    ] {
        for _ in 0..times {
            records.may(image, image_ref, pod).await;
        }
    }
    records.peek(TEST, "testimageref", async || Ok::<_, Infallible>(Arc::from([]))).await.unwrap();
    records.may(TEST, "", &[]).await;

    let metrics = text(&node.metrics);
    for (result, count) in
        [("error", 3), ("credentialRecordFound", 5), ("credentialPolicyAllowed", 2), ("mustAuthenticate", 1)]
    {
        let line = format!("kubelet_imagemanager_image_mustpull_checks_total{{result=\"{result}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
}

/// The metrics as they are served.
pub(super) fn text(metrics: &Metrics) -> String {
    let mut registry = prometheus_client::registry::Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

#[tokio::test]
async fn another_policy_counts_from_then_on() {
    let node = Node::new();
    let records = node.open_with(VerificationPolicy::NeverVerify).await;
    let ask = async |image: &str| records.access(image, "some-ref", async || Ok::<_, ()>([].into())).await;
    assert_eq!(ask(LATEST).await, Ok(Access::Granted(Grant::PolicyNeverVerifies)));
    records.set_policy(VerificationPolicy::AlwaysVerify);
    assert_eq!(ask(LATEST).await, Ok(Access::MustVerify(AccessUnverified::NoRecord)));
    records.set_policy(VerificationPolicy::NeverVerifyPreloadedImages);
    assert_eq!(ask(LATEST).await, Ok(Access::Granted(Grant::Preloaded)));
    // An intent counts although the policy at the start ignored intents.
    let intent = records.intend("r.example/pulled:1").await.unwrap();
    assert_eq!(ask("r.example/pulled:1").await, Ok(Access::MustVerify(AccessUnverified::NoRecord)));
    drop(intent);
}
