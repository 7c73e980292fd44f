//! Records of removed images: the kubelet's cases of `PruneUnknownRecords`, and the records that must stay.

use super::*;

const GC_START: &str = "2024-12-25T00:01:00Z";

fn present(refs: &[&str]) -> BTreeSet<String> {
    refs.iter().map(|&image_ref| image_ref.to_owned()).collect()
}

#[tokio::test]
async fn prune_unknown_records() {
    let rows: [(&str, &[&str], &[&str]); 4] = [
        (
            "upstream: pullmanager/TestFileBasedImagePullManager_PruneUnknownRecords/all images present",
            &["testimage-anonpull", "testimageref", "testemptycredmapping"],
            &["testimage-anonpull", "testimageref", "testemptycredmapping"],
        ),
        (
            "upstream: pullmanager/TestFileBasedImagePullManager_PruneUnknownRecords/remove all records on empty list from the GC",
            &[],
            &[],
        ),
        (
            "upstream: pullmanager/TestFileBasedImagePullManager_PruneUnknownRecords/remove all records on list of untracked images from the GC",
            &["untracked1", "different-untracked"],
            &[],
        ),
        (
            "upstream: pullmanager/TestFileBasedImagePullManager_PruneUnknownRecords/remove records without a match in the image list from the GC",
            &["testimage-anonpull", "untracked1", "testimageref", "different-untracked"],
            &["testimage-anonpull", "testimageref"],
        ),
    ];
    for (name, images, left) in rows {
        let node = Node::new();
        [anonpull(), testimageref(), emptycredmapping()].iter().for_each(|record| node.old_record(record));
        let records = node.open().await;
        let removed = records.prune(&present(images), at(GC_START)).await.unwrap();
        assert_eq!(removed, 3 - left.len(), "{name}");
        assert_eq!(node.files("pulled"), names(left), "{name}");
        let gone = !left.contains(&"testimageref");
        assert_eq!(records.may(LATEST, "testimageref", &[]).await == PRELOADED, gone, "{name}: memory knows");
    }
}

#[tokio::test]
async fn records_newer_than_the_round_stay() {
    let node = Node::new();
    let records = node.open().await;
    // Within the second in which the round began; files carry full seconds.
    records.add(LATEST, "id", None).await.unwrap();
    let before = Timestamp::from_millisecond(NOW * 1000 + 900).unwrap();
    assert_eq!(records.prune(&present(&[]), before).await.unwrap(), 0);
    let before = Timestamp::from_second(NOW + 1).unwrap();
    assert_eq!(records.prune(&present(&[]), before).await.unwrap(), 1);
}

#[tokio::test]
async fn a_pull_that_changes_nothing_affirms_its_record() {
    let node = Node::new();
    node.old_record(&anonpull());
    let records = node.open().await;
    // The image is removed, and pulled again after the round began; there is nothing new to record.
    let before = Timestamp::from_second(NOW).unwrap();
    node.later(1);
    records.add(LATEST, "testimage-anonpull", None).await.unwrap();
    assert_eq!(node.record("testimage-anonpull"), anonpull(), "the file says what it said");
    assert_eq!(records.prune(&present(&[]), before).await.unwrap(), 0);
    node.later(2);
    let before = Timestamp::from_second(NOW + 2).unwrap();
    assert_eq!(records.prune(&present(&[]), before).await.unwrap(), 1);
}

#[tokio::test]
async fn what_cannot_be_read_stays_and_stops_nothing() {
    let node = Node::new();
    node.old_record(&testimageref());
    let broken = node.record_path("broken");
    fs::write(&broken, "{").unwrap();
    // A record under another's name, and files of others.
    fs::write(node.record_path("other"), encode_record(&anonpull())).unwrap();
    fs::write(broken.with_file_name("notes"), "").unwrap();
    fs::create_dir(broken.with_file_name("sha256-directory")).unwrap();
    let records = node.open().await;
    assert_eq!(records.prune(&present(&[]), at(GC_START)).await.unwrap(), 1);
    let mut left = names(&["broken", "other"]);
    left.extend(["notes".to_owned(), "sha256-directory".to_owned()]);
    assert_eq!(node.files("pulled"), left);
}

#[tokio::test]
async fn pruning_during_pulls_loses_no_record() {
    let node = Node::new();
    let records = node.open().await;
    let refs: Vec<String> = (0..40).map(|i| format!("ref{i}")).collect();
    for image_ref in &refs {
        node.old_record(&PulledRecord { image_ref: image_ref.clone(), ..anonpull() });
    }
    let before = Timestamp::from_second(NOW).unwrap();
    let pulls = async {
        for image_ref in &refs {
            records.add(LATEST, image_ref, None).await.unwrap();
        }
    };
    let prunes = async {
        for _ in 0..10 {
            records.prune(&present(&[]), before).await.unwrap();
        }
    };
    tokio::join!(pulls, prunes);
    for image_ref in &refs {
        assert_eq!(records.may(LATEST, image_ref, &[]).await, FOR_ALL, "{image_ref}");
    }
}
