//! A disk without a free block: pulls fail and change nothing, removals work. Needs root.

use std::time::{Duration, Instant};

use imagelet_store::{ImageCommit, OpenOptions, Store};

use super::crash;
use super::support::{Image, LoopDisk, check_accounts, in_directories, list, options, plain_layer};

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn removal_works_on_a_disk_without_a_free_block() {
    let disk = LoopDisk::ext4(96 << 20);
    let root = disk.path.join("store");
    let store = Store::open(&root, OpenOptions { reserve_bytes: 4 << 20, ..options() }).expect("opens");
    let mut images = Vec::new();
    for number in 0..4_u8 {
        let image = Image::new(&format!("image {number}"), &[plain_layer("a", &vec![number; 4 << 20])]);
        images.push(image.pull(&store, &format!("docker.io/library/a:{number}")));
    }
    disk.fill("filler");
    assert_eq!(disk.free(), 0);

    let removed = store.remove_image(&images[0].id).expect("removes on a full disk");
    assert!(removed.freed_bytes >= 4 << 20);
    assert!(disk.free() + (1 << 20) >= removed.freed_bytes, "the space is back: {}", disk.free());
    // Again and again, always from a full disk, as an eviction does it.
    for (number, image) in images.iter().enumerate().skip(1) {
        disk.fill(&format!("filler {number}"));
        assert_eq!(disk.free(), 0);
        store.remove_image(&image.id).expect("removes on a full disk");
    }
    check_accounts(&store);
    // And after a start on a full disk.
    let image = Image::new("last", &[plain_layer("a", &[9; 1 << 20])]).pull(&store, "docker.io/library/a:9");
    drop(store);
    disk.fill("last filler");
    let store = Store::open(&root, OpenOptions { reserve_bytes: 4 << 20, ..options() }).expect("opens on a full disk");
    store.remove_image(&image.id).expect("removes on a full disk");
    check_accounts(&store);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_pull_onto_a_full_disk_changes_nothing() {
    let disk = LoopDisk::ext4(64 << 20);
    let store =
        Store::open(&disk.path.join("store"), OpenOptions { reserve_bytes: 2 << 20, ..options() }).expect("opens");
    let kept = Image::new("kept", &[plain_layer("a", &[1; 1 << 20])]).pull(&store, "docker.io/library/a:1");
    let image = Image::new("new", &[plain_layer("b", b"small")]);
    let lease = store.lease();
    let layers = image.sources(&store, &lease);
    disk.fill("filler");
    // The reserve was given up, and cannot be had again: nothing but removals may go on.
    std::fs::File::options()
        .write(true)
        .open(store.root().join("reserve"))
        .expect("there")
        .set_len(0)
        .expect("shrinks");
    disk.fill("second filler");
    let totals = store.totals().expect("readable");
    let commit = ImageCommit { layers, ..image.commit(Some("docker.io/library/a:1")) };
    let error = store.commit_image(&lease, commit.clone()).expect_err("no space");
    assert!(error.is_disk_full(), "{error:?}");
    assert_eq!(store.totals().expect("readable"), totals);
    assert_eq!(store.images().expect("readable"), std::slice::from_ref(&kept));

    std::fs::remove_file(disk.path.join("filler")).expect("removes");
    store.commit_image(&lease, commit).expect("commits when there is space again");
    drop(lease);
    check_accounts(&store);
    store.remove_image(&kept.id).expect("removes");
    check_accounts(&store);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_pull_leaves_the_reserve_to_removals() {
    let disk = LoopDisk::ext4(64 << 20);
    let options = OpenOptions { reserve_bytes: 2 << 20, ..options() };
    let store = Store::open(&disk.path.join("store"), options).expect("opens");
    let image = Image::new("new", &[]);
    disk.fill("filler");
    // The reserve is whole, and nothing else is free.
    let error = image.try_pull(&store, Some("docker.io/library/a:1")).expect_err("no space");
    assert!(error.is_disk_full(), "{error:?}");
    assert_eq!(std::fs::metadata(store.root().join("reserve")).expect("there").len(), 2 << 20);
    assert!(store.images().expect("readable").is_empty());
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn unpacking_onto_a_full_disk_leaves_nothing() {
    let disk = LoopDisk::ext4(32 << 20);
    let store =
        Store::open(&disk.path.join("store"), OpenOptions { reserve_bytes: 1 << 20, ..options() }).expect("opens");
    let before = disk.free();
    let tar = plain_layer("big", &vec![1; 40 << 20]).bytes();
    let lease = store.lease();
    store.new_layer(&lease).expect("creates").unpack(&mut tar.as_slice(), &|| false).expect_err("no space");
    drop(lease);
    check_accounts(&store);
    assert!(disk.free() + (64 << 10) >= before, "{} of {before} are free again", disk.free());
}

/// Opens a store whose last process was killed, and removes all of its images one by one.
fn empty_it(disk: &LoopDisk, images: usize) {
    let store = Store::open(&disk.path.join("store"), options()).expect("opens on a disk without any space");
    assert!(store.was_unclean());
    let ids: Vec<_> = store.images().expect("readable").into_iter().map(|image| image.id).collect();
    assert_eq!(ids.len(), images);
    for id in ids {
        assert!(store.remove_image(&id).expect("removes without any space").freed_bytes > 0);
    }
    check_accounts(&store);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn without_any_space_and_without_a_reserve_a_killed_store_opens_and_removes() {
    for keep_reserve_file in [true, false] {
        let disk = LoopDisk::ext4(64 << 20);
        let root = disk.path.join("store");
        let store = Store::open(&root, options()).expect("opens");
        let shared = plain_layer("shared", &[9; 1 << 20]);
        for number in 0..3_u8 {
            let own = plain_layer("own", &vec![number; 2 << 20]);
            let image = Image::new(&format!("image {number}"), &[shared.clone(), own]);
            image.pull(&store, &format!("r.example/i:{number}"));
        }
        drop(store);
        let mut child = crash::start(&root, crash::HOLD);
        crash::wait_for(&mut child, "ready");
        disk.fill("filler");
        child.kill().expect("kills");
        child.wait().expect("is gone");
        // The reserve is given up, by the store or by a user in need of space, and that space is taken as well.
        let reserve = root.join("reserve");
        if keep_reserve_file {
            std::fs::File::options().write(true).open(&reserve).expect("there").set_len(0).expect("shrinks");
        } else {
            std::fs::remove_file(&reserve).expect("deletes");
        }
        disk.fill("second filler");
        assert_eq!(disk.free(), 0);
        empty_it(&disk, 3);
        assert!(disk.free() > 5 << 20, "{} bytes are free again", disk.free());
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn without_an_inode_a_killed_store_opens_and_removes() {
    let disk = LoopDisk::with_inodes(64 << 20, 200);
    let root = disk.path.join("store");
    let store = Store::open(&root, options()).expect("opens");
    for number in 0..2_u8 {
        let mut own = plain_layer("own", &[number; 1000]);
        for file in 0..20 {
            own = own.file(&format!("d/{file}"), b"x");
        }
        Image::new(&format!("image {number}"), &[own]).pull(&store, &format!("r.example/i:{number}"));
    }
    drop(store);
    let mut child = crash::start(&root, crash::HOLD);
    crash::wait_for(&mut child, "ready");
    child.kill().expect("kills");
    child.wait().expect("is gone");
    std::fs::remove_file(root.join("reserve")).expect("deletes");
    disk.fill_inodes();
    empty_it(&disk, 2);
    let free = || rustix::fs::statvfs(&disk.path).expect("asks").f_favail;
    let least = if in_directories() { 44 } else { 5 };
    // The kernel may give up the last one a moment after it has lost its name.
    let from = Instant::now();
    while free() < least {
        assert!(from.elapsed() < Duration::from_secs(10), "only {} inodes are free again", free());
        std::thread::yield_now();
    }
    assert_eq!(list(&root.join("layers")), Vec::<String>::new());
    // And a pull that finds none says that it is these.
    std::fs::remove_dir_all(disk.path.join("inodes")).expect("removes");
    let store = Store::open(&root, options()).expect("opens");
    disk.fill_inodes();
    assert!(imagelet_store::is_out_of_inodes(&root));
    let refused = store.new_layer(&store.lease()).expect_err("no inode");
    assert!(refused.is_disk_full(), "{refused:?}");
}
