//! A store that is copied to a disk with another file system and other blocks, as `cp -a` and `rsync -aHAX` do it: it opens, is
//! sound, mounts, works and can be emptied there. Needs root.

use std::fs;
use std::path::Path;

use imagelet_store::{Durability, OpenOptions, Store};

use super::support::{Image, LoopDisk, NEVER, Tar, is_sound, list, options, plain_layer, run};

fn layers(number: u8) -> [Tar; 3] {
    let base = plain_layer("base", &[9; 300_000]).directory("tmp/", 0o1777).device("d/null").symlink("d/link", "base");
    let upper = Tar::default().file("d/.wh.link", b"").file("tmp/implicit", &[number; 7000]);
    [base, upper, plain_layer("own", &[number; 50_000])]
}

/// Opens the copy as another node does it, and does there what a node does.
fn lives_on(root: &Path, options: &OpenOptions, images: &[Image]) {
    let options = OpenOptions { boot: Some("the boot of another node".into()), ..options.clone() };
    let store = Store::open(root, options.clone()).expect("opens elsewhere");
    assert_eq!(store.unfinished().layers, 1, "what a pull left came along");
    is_sound(&store);
    let target = root.with_extension("target");
    fs::create_dir_all(&target).expect("creates");
    for (number, image) in images.iter().enumerate() {
        let record = store.resolve(&format!("r.example/i:{number}").into()).expect("resolves").expect("there");
        assert_eq!(record.id, image.id());
        assert!(store.image_is_whole(&record));
        store.mount_image(&record, &target, None).expect("mounts");
        assert_eq!(list(&target.join("d")), ["base", "null", "own"]);
        assert_eq!(
            fs::read(target.join("d/own")).expect("readable"),
            vec![u8::try_from(number).expect("small"); 50_000]
        );
        store.unmount_image(&target).expect("unmounts");
    }
    // What is new there is counted as it is there, and takes the old layers along.
    let new = Image::new("new", &layers(7));
    let record = new.pull(&store, "r.example/new:1");
    is_sound(&store);
    store.remove_image(&images[0].id()).expect("removes");
    assert!(store.image_is_whole(&record));
    drop(store);
    let store = Store::open(root, options).expect("opens again");
    assert!(!store.was_unclean());
    is_sound(&store);
    for image in store.images().expect("readable") {
        store.remove_image(&image.id).expect("removes");
    }
    store.drop_unfinished(None);
    assert_eq!(store.totals().expect("readable"), imagelet_store::Totals::default());
    for place in ["layers", "ingest"] {
        assert_eq!(list(&root.join(place)), Vec::<String>::new(), "{place}");
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_copy_of_a_store_on_another_disk_is_a_store() {
    let disk = LoopDisk::ext4_with(64 << 20, &["-b", "4096"]);
    let others = [
        LoopDisk::ext4_with(64 << 20, &["-b", "1024"]),
        LoopDisk::xfs(320 << 20),
        LoopDisk::made_by("mkfs.btrfs", 160 << 20, &["-q"]),
    ];
    let root = disk.path.join("store");
    let options = OpenOptions { unfinished_since: Some(0), durability: Durability::Full, ..options() };
    let store = Store::open(&root, options.clone()).expect("opens");
    let images: Vec<Image> = (0..2).map(|n| Image::new(&n.to_string(), &layers(n)).with_blobs()).collect();
    for (number, image) in images.iter().enumerate() {
        image.pull(&store, &format!("r.example/i:{number}"));
    }
    let lease = store.lease();
    let tar = plain_layer("left", b"left").bytes();
    let left = store.new_layer(&lease).expect("makes").unpack(&mut tar.as_slice(), NEVER).expect("unpacks");
    left.note_whole(&oci::Digest::sha256(b"blob"), 4, &oci::Digest::sha256(&tar), "").expect("notes");
    left.leave();
    drop(lease);
    drop(store);
    for other in &others {
        let copy = other.path.join("copy");
        run("cp", &["-a", root.to_str().expect("UTF-8"), copy.to_str().expect("UTF-8")]);
        lives_on(&copy, &options, &images);
    }
}
