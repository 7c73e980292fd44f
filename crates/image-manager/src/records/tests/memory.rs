//! Answers from memory, and when memory counts: the kubelet's cases of its cache in front of the files.

use super::*;

const INTENTS: usize = 50;
const RECORDS: usize = 100;

async fn bounded(node: &Node) -> PullRecords {
    let options = RecordsOptions { max_intents: INTENTS, max_records: RECORDS, ..node.options() };
    PullRecords::open(options).await.unwrap()
}

fn many(node: &Node, intents: usize, records: usize) {
    for i in 0..intents {
        node.left_intent(&format!("test.repo/org{i}/project:tag"));
    }
    for i in 0..records {
        node.old_record(&recorded_as(&format!("ref-{i}"), TEST, RecordedCredentials::node()));
    }
    settle(node);
}

/// As if the last change had been a while ago.
fn settle(node: &Node) {
    for directory in ["pulling", "pulled"] {
        let path = node.directory().join(directory);
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        // Until the file system's clock advances, two changes cannot be distinguished.
        let probe = node.root.path().join("probe");
        loop {
            fs::write(&probe, "x").unwrap();
            if fs::metadata(&probe).unwrap().modified().unwrap() > before + Duration::from_millis(20) {
                break;
            }
        }
    }
}

/// Names the case of the kubelet that the lines below mirror.
fn mirrors(_case: &str) {}

impl PullRecords {
    /// Returns, for intents and for records, true if a missing entry means that there is no file.
    fn authority(&self) -> (bool, bool) {
        let intents = self.inner.pulling.lookup(&RequestedName::new("test.repo/not/requested")).unwrap() == Some(false);
        (intents, matches!(self.inner.pulled.known("not-requested").unwrap(), cache::CacheState::Absent))
    }

    fn remembered(&self) -> (i64, i64) {
        (self.inner.pulling.usage(), self.inner.pulled.usage())
    }
}

#[tokio::test]
async fn opening() {
    let rows = [
        (
            "upstream: pullmanager/TestNewCachedPullRecordsAccessor/no issues during init",
            4,
            3,
            false,
            false,
            (true, true),
        ),
        (
            "upstream: pullmanager/TestNewCachedPullRecordsAccessor/delegate pulledRecords list error",
            4,
            3,
            false,
            true,
            (true, false),
        ),
        (
            "upstream: pullmanager/TestNewCachedPullRecordsAccessor/too many intents get cropped",
            51,
            3,
            false,
            false,
            (false, true),
        ),
        (
            "upstream: pullmanager/TestNewCachedPullRecordsAccessor/too many pulled records get cropped",
            4,
            101,
            false,
            false,
            (true, false),
        ),
        // An unreadable intent does not affect other images: its image is known by the name of the file.
        (
            "upstream: pullmanager/TestNewCachedPullRecordsAccessor/delegate intents list error",
            4,
            3,
            true,
            false,
            (true, true),
        ),
        (
            "upstream: pullmanager/TestNewCachedPullRecordsAccessor/both delegate lists fail during init",
            4,
            3,
            true,
            true,
            (true, false),
        ),
    ];
    for (name, intents, count, broken_intent, broken_record, authority) in rows {
        let node = Node::new();
        if broken_intent {
            fs::write(node.intent_path("test.repo/broken:tag"), "{").unwrap();
        }
        if broken_record {
            fs::write(node.record_path("broken"), "{").unwrap();
        }
        many(&node, intents, count);
        let records = bounded(&node).await;
        assert_eq!(records.authority(), authority, "{name}");
        let (_, percent) = records.remembered();
        assert_eq!(percent, i64::try_from(count.min(RECORDS)).unwrap(), "{name}");
        // The answers are those of the files, whatever is cached.
        for i in 0..count {
            assert_eq!(records.may(TEST, &format!("ref-{i}"), &[]).await, FOR_ALL, "{name} {i}");
        }
        for i in 0..intents {
            assert_eq!(
                records.may(&format!("test.repo/org{i}/project:tag"), "none", &[]).await,
                NO_RECORD,
                "{name} {i}"
            );
        }
        assert_eq!(records.may("test.repo/other:tag", "none", &[]).await, PRELOADED, "{name}");
        if broken_intent {
            assert_eq!(records.may("test.repo/broken:tag", "none", &[]).await, UNREADABLE, "{name}");
        }
        if broken_record {
            assert_eq!(records.may(TEST, "broken", &[]).await, UNREADABLE, "{name}");
        }
    }
}

#[tokio::test]
async fn intents_are_looked_up() {
    let node = Node::new();
    many(&node, 4, 0);
    let records = bounded(&node).await;
    let lookup = |image: &str| records.inner.pulling.lookup(&RequestedName::new(image)).unwrap();
    let exists = |image: &str| records.inner.pulling.exists(&RequestedName::new(image));
    let rows = [
        (
            "upstream: pullmanager/Test_cachedPullRecordsAccessor_ImagePullIntentExists/intent exists in cache",
            "test.repo/org1/project:tag",
            true,
        ),
        (
            "upstream: pullmanager/Test_cachedPullRecordsAccessor_ImagePullIntentExists/intent does not exist in cache or delegate",
            "test.repo/org1/doesnotexist:tag",
            false,
        ),
    ];
    for (name, image, exists) in rows {
        assert_eq!(lookup(image), Some(exists), "{name}: from memory");
    }
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_ImagePullIntentExists/intent exists in delegate, nonauthoritative cache gets updated",
    );
    node.left_intent("test.repo/late:tag");
    settle(&node);
    assert_eq!(lookup("test.repo/late:tag"), None, "memory knows that it does not know");
    assert!(exists("test.repo/late:tag").unwrap());
    assert_eq!(lookup("test.repo/late:tag"), Some(true), "and now it does");
    assert_eq!(lookup("test.repo/other:tag"), Some(false));
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_ImagePullIntentExists/intent does not exist in cache, delegate returns error on GET",
    );
    fs::write(node.intent_path("test.repo/broken:tag"), "{").unwrap();
    exists("test.repo/broken:tag").unwrap_err();
    assert!(!exists("test.repo/other:tag").unwrap());
}

#[tokio::test]
async fn records_are_looked_up() {
    use super::super::cache::CacheState;
    let node = Node::new();
    many(&node, 0, 3);
    let records = bounded(&node).await;
    let pulled = &records.inner.pulled;
    mirrors("upstream: pullmanager/Test_cachedPullRecordsAccessor_GetImagePulledRecord/pulled record exists in cache");
    assert!(matches!(pulled.known("ref-1").unwrap(), CacheState::Fresh(_)));
    mirrors("upstream: pullmanager/Test_cachedPullRecordsAccessor_GetImagePulledRecord/pulled record does not exist");
    assert!(matches!(pulled.lookup("ref-87").unwrap(), Lookup::Absent));
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_GetImagePulledRecord/pulled record exists in delegate, nonauthoritative cache gets updated",
    );
    node.old_record(&recorded_as("ref-22", TEST, RecordedCredentials::node()));
    settle(&node);
    assert!(matches!(pulled.known("ref-22").unwrap(), CacheState::Unknown));
    assert_eq!(records.may(TEST, "ref-22", &[]).await, FOR_ALL);
    assert!(matches!(pulled.known("ref-22").unwrap(), CacheState::Fresh(_)));
    // Entries from before the change are compared with their files once.
    assert!(matches!(pulled.known("ref-1").unwrap(), CacheState::Stale(..)));
    assert_eq!(records.may(TEST, "ref-1", &[]).await, FOR_ALL);
    assert!(matches!(pulled.known("ref-1").unwrap(), CacheState::Fresh(_)));
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_GetImagePulledRecord/pulled record not cached and not in delegate, delegate returns error on read",
    );
    fs::create_dir(node.record_path("doesnotexist")).unwrap();
    assert_eq!(records.may(TEST, "doesnotexist", &[]).await, UNREADABLE);
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_GetImagePulledRecord/pulled record not cached, exists in delegate, delegate returns error",
    );
    fs::write(node.record_path("ref-3"), "{").unwrap();
    assert_eq!(records.may(TEST, "ref-3", &[]).await, UNREADABLE);
    assert!(!matches!(pulled.known("ref-3").unwrap(), CacheState::Fresh(_)));
}

#[tokio::test]
async fn a_listing_makes_memory_authoritative_again() {
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_ListImagePulledRecords/initial cache error gets cleared by successful imagePulledRecords list from delegate",
    );
    let node = Node::new();
    fs::write(node.record_path("broken"), "{").unwrap();
    many(&node, 0, 3);
    let records = bounded(&node).await;
    assert_eq!(records.authority(), (true, false));
    let present: BTreeSet<String> = (0..3).map(|i| format!("ref-{i}")).collect();
    let prune = async || records.prune(&present, at(RECORDED)).await.unwrap();
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_ListImagePulledRecords/initial cache error, partial imagePulledRecords listed from delegate with an error",
    );
    prune().await;
    assert_eq!(records.authority(), (true, false));
    fs::remove_file(node.record_path("broken")).unwrap();
    settle(&node);
    prune().await;
    assert_eq!(records.authority(), (true, true));
    mirrors("upstream: pullmanager/Test_cachedPullRecordsAccessor_ListImagePulledRecords/delegate returns empty list");
    for i in 0..3 {
        fs::remove_file(node.record_path(&format!("ref-{i}"))).unwrap();
    }
    settle(&node);
    assert_eq!(records.authority(), (true, false));
    prune().await;
    assert_eq!(records.authority(), (true, true));
    assert_eq!(records.may(TEST, "ref-1", &[]).await, PRELOADED);
}

#[tokio::test]
async fn a_listing_of_intents_makes_memory_authoritative_again() {
    let node = Node::new();
    many(&node, 4, 0);
    let records = bounded(&node).await;
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_ListImagePullIntents/successful intents list from delegate, start authoritative",
    );
    assert_eq!(records.inner.pulling.images().unwrap().len(), 4);
    assert!(records.authority().0);
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_ListImagePullIntents/successful intents list from delegate, start non-authoritative",
    );
    node.left_intent("test.repo/late:tag");
    settle(&node);
    assert!(!records.authority().0);
    assert_eq!(records.inner.pulling.images().unwrap().len(), 5);
    assert!(records.authority().0);
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_ListImagePullIntents/partial intents listed from delegate with an error, start authoritative",
    );
    fs::write(node.intent_path("test.repo/broken:tag"), "{").unwrap();
    settle(&node);
    assert_eq!(records.inner.pulling.images().unwrap().len(), 5, "the others are listed");
    assert!(records.authority().0);
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_ListImagePullIntents/partial intents listed from delegate with an error, start non-authoritative",
    );
    std::os::unix::fs::symlink("elsewhere", node.intent_path("test.repo/link:tag")).unwrap();
    settle(&node);
    records.inner.pulling.images().unwrap_err();
    assert!(!records.authority().0);
    mirrors("upstream: pullmanager/Test_cachedPullRecordsAccessor_ListImagePullIntents/delegate returns empty list");
    for entry in fs::read_dir(node.directory().join("pulling")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    settle(&node);
    assert_eq!(records.inner.pulling.images().unwrap().len(), 0);
    assert!(records.authority().0);
}

#[tokio::test]
async fn what_is_written_is_on_disk_and_in_memory() {
    let node = Node::new();
    let records = bounded(&node).await;
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_WriteImagePulledRecord/successful write through an empty cache to delegate",
    );
    records.add(LATEST, "someref-1", Some(&secret("u", "n", "m", "h"))).await.unwrap();
    assert_eq!(records.remembered().1, 1);
    assert_eq!(node.files("pulled"), names(&["someref-1"]));
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_WriteImagePulledRecord/rewrite cached pulled record, write through to delegate",
    );
    records.add(LATEST, "someref-1", None).await.unwrap();
    assert_eq!(records.may(LATEST, "someref-1", &[]).await, FOR_ALL);
    assert_eq!(node.record("someref-1").mapping[TEST], RecordedCredentials::node());
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_WriteImagePulledRecord/write to cache that's already populated",
    );
    records.add(LATEST, "newref", None).await.unwrap();
    assert_eq!(records.remembered().1, 2);
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_WriteImagePulledRecord/write to delegate returns error",
    );
    fs::create_dir(node.record_path("blocked")).unwrap();
    records.add(LATEST, "blocked", None).await.unwrap_err();
    assert_eq!(records.remembered().1, 2);
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_DeleteImagePulledRecord/attempt to delete a non-existent imagePulledRecord from the cache",
    );
    let round = Timestamp::from_second(NOW + 1).unwrap();
    let present = ["someref-1".to_owned(), "newref".to_owned(), "blocked".to_owned()].into();
    assert_eq!(records.prune(&present, round).await.unwrap(), 0);
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_DeleteImagePulledRecord/delete an existing pulled record from the cache",
    );
    let present = ["newref".to_owned()].into();
    assert_eq!(records.prune(&present, round).await.unwrap(), 1);
    assert_eq!(records.remembered().1, 1);
    assert_eq!(records.may(LATEST, "someref-1", &[]).await, PRELOADED);
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_DeleteImagePulledRecord/error deleting an imagePulledRecord from delegate",
    );
    std::os::unix::fs::symlink("elsewhere", node.record_path("link")).unwrap();
    records.prune(&BTreeSet::new(), round).await.unwrap_err();
    assert!(node.record_path("link").is_symlink());
    assert!(!node.record_path("newref").exists(), "the others are removed all the same");
    assert_eq!(records.may(LATEST, "link", &[]).await, UNREADABLE);
}

#[tokio::test]
async fn intents_that_are_written_are_on_disk_and_in_memory() {
    let node = Node::new();
    let records = bounded(&node).await;
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_WriteImagePullIntent/successful write through an empty cache to delegate",
    );
    let first = records.intend("test.repo/org1/project1:tag").await.unwrap();
    assert_eq!(records.remembered().0, 2);
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_WriteImagePullIntent/write to cache that's already populated",
    );
    let second = records.intend("test.repo/org1/newimage:tag").await.unwrap();
    assert_eq!(records.remembered().0, 4);
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_WriteImagePullIntent/write to delegate returns error",
    );
    fs::create_dir(node.intent_path("blocked")).unwrap();
    records.intend("blocked").await.unwrap_err();
    assert_eq!(records.pulls_of("blocked"), 0);
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_DeleteImagePullIntent/delete an existing intent from the cache",
    );
    first.failed().await;
    assert_eq!(records.remembered().0, 2);
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_DeleteImagePullIntent/attempt to delete a non-existent intent from the cache",
    );
    fs::remove_file(node.intent_path("test.repo/org1/newimage:tag")).unwrap();
    second.failed().await;
    assert_eq!(records.remembered().0, 0);
    assert_eq!(records.pulls_of("test.repo/org1/newimage:tag"), 0);
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_DeleteImagePullIntent/error deleting an intent from delegate",
    );
    let image = "test.repo/org1/project3:tag";
    let third = records.intend(image).await.unwrap();
    fs::remove_file(node.intent_path(image)).unwrap();
    std::os::unix::fs::symlink("elsewhere", node.intent_path(image)).unwrap();
    third.failed().await;
    assert_eq!(records.pulls_of(image), 0, "it is told in the log");
    assert_eq!(records.may(image, "id", &[]).await, NO_RECORD, "and what stays counts");
}

#[tokio::test]
async fn more_than_memory_has_room_for() {
    let node = Node::new();
    many(&node, INTENTS, RECORDS);
    let records = bounded(&node).await;
    assert_eq!(records.authority(), (true, true));
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_WriteImagePulledRecord/exceeding the cache size turns it from authoritative to non-authoritative",
    );
    records.add(LATEST, "newref", None).await.unwrap();
    settle(&node);
    assert_eq!(records.authority(), (true, false));
    assert_eq!(records.remembered().1, 100);
    for i in 0..RECORDS {
        assert_eq!(records.may(TEST, &format!("ref-{i}"), &[]).await, FOR_ALL, "{i}: from the file where need be");
    }
    mirrors(
        "upstream: pullmanager/Test_cachedPullRecordsAccessor_WriteImagePullIntent/exceeding the cache size turns it from authoritative to non-authoritative",
    );
    let intent = records.intend("new.repo/neworg/newimage:tag").await.unwrap();
    settle(&node);
    assert_eq!(records.authority(), (false, false));
    assert_eq!(records.may("test.repo/org7/project:tag", "none", &[]).await, NO_RECORD);
    assert_eq!(records.may("test.repo/other:tag", "none", &[]).await, PRELOADED);
    intent.failed().await;
    settle(&node);
    records.inner.pulling.images().unwrap();
    assert_eq!(records.authority(), (true, false), "with room again");
}

// upstream: pullmanager/TestFSPullRecordsMetrics
#[tokio::test]
async fn gauges_follow_disk_and_memory() {
    let node = Node::new();
    let options = RecordsOptions { max_intents: 5, max_records: 10, ..node.options() };
    let records = PullRecords::open(options).await.unwrap();
    let expect = |intents: i64, memory_intents: i64, pulled: i64, memory_pulled: i64| {
        let text = super::access::text(&node.metrics);
        for (name, value) in [
            ("ondisk_pullintents", intents),
            ("inmemory_pullintents_usage_percent", memory_intents),
            ("ondisk_pulledrecords", pulled),
            ("inmemory_pulledrecords_usage_percent", memory_pulled),
        ] {
            assert!(text.contains(&format!("kubelet_imagemanager_{name} {value}\n")), "{name} {value} in {text}");
        }
    };
    expect(0, 0, 0, 0);
    let mut guards = Vec::new();
    for image in ["test-image:latest", "test-image:latest", "test-image:v1", "test-image:v1.1"] {
        guards.push(records.intend(image).await.unwrap());
    }
    expect(3, 60, 0, 0);
    for image_ref in ["latest", "latest", "v1", "v1.1", "v1.2"] {
        records.add(LATEST, image_ref, None).await.unwrap();
    }
    expect(3, 60, 4, 40);
    for guard in guards {
        guard.failed().await;
    }
    expect(0, 0, 4, 40);
    let round = Timestamp::from_second(NOW + 1).unwrap();
    records.prune(&["v1".to_owned(), "v1.2".to_owned()].into(), round).await.unwrap();
    expect(0, 0, 2, 20);
    // Changes of another process are counted at the next complete listing.
    let other = PullRecords::open(RecordsOptions { metrics: Metrics::new(), ..node.options() }).await.unwrap();
    other.add(LATEST, "other", None).await.unwrap();
    for i in 0..20 {
        records.add(LATEST, &format!("v{i}-ref"), None).await.unwrap();
    }
    records.recover(&[]).await.unwrap();
    expect(0, 0, 23, 100);
}

/// The kubelet's check allocates 37 times in memory and 83 times on files.
#[test]
fn a_hit_allocates_next_to_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let node = Node::new();
    node.old_record(&testimageref());
    settle(&node);
    let records = runtime.block_on(node.open());
    let forgetful = runtime.block_on(PullRecords::open(RecordsOptions { max_records: 1, ..node.options() })).unwrap();
    let pod: Arc<[Candidate]> = Arc::from([secret("testsecretuid", "default", "pull-secret", "testsecrethash")]);
    let count = |records: &PullRecords, image_ref: &str| {
        let mut answer = None;
        let info = allocation_counter::measure(|| {
            let access =
                std::pin::pin!(records.access(LATEST, image_ref, async || { Ok::<_, Infallible>(Arc::clone(&pod)) }));
            let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
            answer = Some(access.poll(context).map(Result::unwrap));
        });
        (info.count_total, answer.unwrap())
    };
    let (allocations, access) = count(&records, "testimageref");
    assert_eq!(access, std::task::Poll::Ready(GRANTED), "at the first poll");
    assert!(allocations <= 2, "{allocations}");
    let (allocations, access) = count(&records, "unknown");
    assert_eq!(access, std::task::Poll::Ready(PRELOADED));
    assert!(allocations <= 2, "{allocations}");

    // Memory has room for one other record only, so each look-up reads a file, where the file system can do so without
    // waiting.
    node.old_record(&anonpull());
    settle(&node);
    runtime.block_on(forgetful.may(LATEST, "testimage-anonpull", &[]));
    let (allocations, access) = count(&forgetful, "testimageref");
    if access.is_ready() {
        assert_eq!(access, std::task::Poll::Ready(GRANTED));
        assert!(allocations <= 35, "{allocations}");
    }
}
