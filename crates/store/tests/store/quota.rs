//! A quota that is used up on a disk which has space: what of btrfs is a limit of a subvolume is to the store what every quota is,
//! and `statfs` says nothing of it. Pulls fail and change nothing; the store opens and removes all the same. Needs root.

use imagelet_store::{OpenOptions, Store};

use super::crash;
use super::support::{Image, LoopDisk, check_accounts, options, plain_layer, run};

/// A disk of which a part may have so many bytes.
fn limited(bytes: u64) -> (LoopDisk, std::path::PathBuf) {
    let disk = LoopDisk::made_by("mkfs.btrfs", 192 << 20, &["-q"]);
    let part = disk.path.join("part");
    let (top, at) = (disk.path.to_str().expect("UTF-8"), part.to_str().expect("UTF-8"));
    run("btrfs", &["-q", "quota", "enable", top]);
    run("btrfs", &["-q", "subvolume", "create", at]);
    run("btrfs", &["-q", "qgroup", "limit", &bytes.to_string(), at]);
    (disk, part)
}

/// Takes all that the quota gives, however it is asked for.
fn fill(part: &std::path::Path, name: &str) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(part.join(name)).expect("creates");
    for size in [1 << 20, 4096] {
        while file.write_all(&vec![1; size]).is_ok() {}
        // Makes the file system allocate the blocks that it has only reserved.
        let _ = file.sync_all();
    }
    let error = file.write_all(&[1; 4096]).and_then(|()| file.sync_all()).expect_err("nothing is left");
    assert_eq!(error.kind(), std::io::ErrorKind::QuotaExceeded);
}

fn pictures(store: &Store, count: u8) -> Vec<Image> {
    let image = |number| Image::new(&format!("image {number}"), &[plain_layer("a", &vec![number; 3 << 20])]);
    let images: Vec<Image> = (0..count).map(image).collect();
    for (number, image) in images.iter().enumerate() {
        image.pull(store, &format!("r.example/a:{number}"));
    }
    images
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_pull_into_a_used_up_quota_changes_nothing_and_removals_work() {
    let (disk, part) = limited(32 << 20);
    let root = part.join("store");
    let options = OpenOptions { reserve_bytes: 4 << 20, unfinished_since: Some(0), ..options() };
    let store = Store::open(&root, options.clone()).expect("opens");
    let images = pictures(&store, 3);
    let big = Image::new("big", &[plain_layer("a", &vec![9; 40 << 20])]);
    assert!(disk.free() > 60 << 20, "the disk itself has room: {}", disk.free());
    // While it is unpacked.
    let lease = store.lease();
    let error = store.new_layer(&lease).expect("makes").unpack(&mut big.layers[0].1.as_slice(), &|| false);
    let error = std::error::Error::source(&error.expect_err("no quota")).map(ToString::to_string);
    assert!(error.as_ref().is_some_and(|text| text.contains("quota")), "{error:?}");
    drop(lease);
    check_accounts(&store);
    // When it is committed: what the store keeps for removals helps its records for a while, and cannot be had again.
    fill(&part, "filler");
    let mut there = images.len();
    let error = loop {
        let small = Image::new(&format!("small {there}"), &[]);
        match small.try_pull(&store, Some("r.example/small:1")) {
            Ok(_) => there += 1,
            Err(error) => break error,
        }
        assert!(there < 50, "the quota is used up");
    };
    assert!(error.is_disk_full() && format!("{error:?}").contains("QuotaExceeded"), "{error:?}");
    assert_eq!(store.images().expect("readable").len(), there);

    let removed = store.remove_image(&images[0].id()).expect("removes without a byte of quota");
    assert!(removed.freed_bytes >= 3 << 20);
    Image::new("last", &[]).pull(&store, "r.example/last:1");
    check_accounts(&store);

    // A start in a full quota, after a clean end and after a kill.
    drop(store);
    fill(&part, "third filler");
    let store = Store::open(&root, options.clone()).expect("opens without a byte of quota");
    store.remove_image(&images[1].id()).expect("removes");
    check_accounts(&store);
    drop(store);
    let mut child = crash::start(&root, crash::HOLD);
    crash::wait_for(&mut child, "ready");
    fill(&part, "fourth filler");
    child.kill().expect("kills");
    child.wait().expect("is gone");
    let store = Store::open(&root, options).expect("opens without a byte of quota");
    assert!(store.was_unclean());
    for image in store.images().expect("readable") {
        store.remove_image(&image.id).expect("removes");
        check_accounts(&store);
    }
    assert_eq!(store.totals().expect("readable").layers, 0);
}
