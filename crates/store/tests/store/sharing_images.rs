//! Layers that are EROFS files, and have blocks in common: stored once, counted once, and intact whichever layer is removed.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

use imagelet_store::check::Depth;
use imagelet_store::view::View;
use imagelet_store::{ImageRecord, LayerFormat, OpenOptions, Sharing, Store, Totals};
use oci::Digest;
use proptest::prelude::*;

use super::support::{Image, LoopDisk, Tar, check_accounts, options, plain_layer, run_check};

const MIB: usize = 1 << 20;

fn open(root: &std::path::Path, sharing: Sharing) -> Store {
    let options = OpenOptions { sharing, layer_format: LayerFormat::Erofs, ..options() };
    Store::open(root, options).expect("opens")
}

fn store() -> (tempfile::TempDir, Store) {
    let top = tempfile::tempdir().expect("tempdir");
    let store = open(&top.path().join("store"), Sharing::Hardlink);
    (top, store)
}

fn pull(store: &Store, name: &str, layer: Tar) -> ImageRecord {
    Image::new(name, &[layer]).pull(store, &format!("a.example/{name}:1"))
}

/// Bytes that are no other's.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The one layer of an image, its file and what it holds.
fn parts(store: &Store, image: &ImageRecord) -> (PathBuf, Vec<PathBuf>) {
    let file = store.layer_directories(image).expect("there")[0].clone();
    let device = |number: usize| file.with_file_name(format!("device.{number}"));
    let devices = (1..).map(device).take_while(|path| path.exists()).collect();
    (file, devices)
}

fn content(store: &Store, image: &ImageRecord, path: &str) -> Vec<u8> {
    let lease = store.lease();
    let stack = store.stack(&lease, &image.id.to_string()).expect("readable").expect("it is there");
    let view = View::open(store.root(), &stack).expect("opens");
    let node = view.resolve(path.as_bytes(), true).expect("there");
    let file = view.file(&node).expect("a file");
    let mut bytes = vec![0; usize::try_from(node.stat().size).expect("short")];
    let mut done = 0;
    while done < bytes.len() {
        done += file.read_at(done as u64, &mut bytes[done..]).expect("reads");
    }
    bytes
}

/// Two files that all have, one of which ends within a block, and one of its own.
fn alike(own: u64) -> Tar {
    plain_layer("own", &noise(own, 9000))
        .file("d/blocks", &noise(1000, 3 * MIB / 2))
        .file(&format!("d/tail-{own}"), &noise(1001, MIB + 100))
        .file("d/small", b"small")
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn blocks_that_another_layer_has_are_taken_from_there() {
    let (top, store) = store();
    let mut images: Vec<ImageRecord> = (1..4).map(|n| pull(&store, &format!("i{n}"), alike(n))).collect();
    let (first, none) = parts(&store, &images[0]);
    assert_eq!(none, Vec::<PathBuf>::new());
    for (number, image) in images.iter().enumerate().skip(1) {
        let (file, devices) = parts(&store, image);
        assert_eq!(devices.len(), 1);
        let (held, origin) = (fs::metadata(&devices[0]).expect("there"), fs::metadata(&first).expect("there"));
        assert_eq!((held.ino(), held.nlink()), (origin.ino(), 3));
        assert!(fs::metadata(&file).expect("there").blocks() * 512 < 100_000, "its own blocks were given back");
        assert_eq!(content(&store, image, "d/blocks"), noise(1000, 3 * MIB / 2));
        assert_eq!(content(&store, image, &format!("d/tail-{}", number + 1)), noise(1001, MIB + 100));
        let (unique, shared) = store.usage(&image.id).expect("readable").expect("there");
        assert!(shared > 2 << 20 && unique < 120_000, "{unique} {shared}");
    }
    check_accounts(&store);
    assert_eq!(run_check(&store, Depth::Files, false).problems, []);

    // The kernel reads it as well.
    assert!(rustix::process::geteuid().is_root(), "this test mounts: run it as root");
    let target = top.path().join("target");
    fs::create_dir(&target).expect("creates");
    store.mount_image(&images[2], &target, None).expect("mounts");
    assert_eq!(fs::read(target.join("d/tail-3")).expect("reads"), noise(1001, MIB + 100));
    assert_eq!(fs::read(target.join("d/own")).expect("reads"), noise(3, 9000));
    store.unmount_image(&target).expect("unmounts");

    // A removal takes nothing that other images have. Later layers take blocks from files that only those images hold.
    let freed = store.remove_image(&images.remove(0).id).expect("removes").freed_bytes;
    assert!(freed < 100_000, "{freed}");
    check_accounts(&store);
    assert_eq!(content(&store, &images[1], "d/blocks"), noise(1000, 3 * MIB / 2));
    let late = pull(&store, "late", alike(9));
    assert_eq!(parts(&store, &late).1.len(), 1);
    assert_eq!(content(&store, &late, "d/tail-9"), noise(1001, MIB + 100));
    check_accounts(&store);
    assert_eq!(run_check(&store, Depth::Files, false).problems, []);
    store.remove_image(&images.remove(0).id).expect("removes");
    store.remove_image(&images.remove(0).id).expect("removes");
    check_accounts(&store);
    assert!(store.remove_image(&late.id).expect("removes").freed_bytes > 2 << 20);
    assert_eq!(store.totals().expect("readable"), Totals::default());
}

#[test]
fn a_layer_is_held_only_where_half_of_it_is_wanted() {
    let (_top, store) = store();
    pull(&store, "large", plain_layer("large", &noise(5, 5 * MIB)).file("d/common", &noise(6, 2 * MIB)));
    let other = pull(&store, "other", plain_layer("own", &noise(7, 9000)).file("d/common", &noise(6, 2 * MIB)));
    assert_eq!(parts(&store, &other).1, Vec::<PathBuf>::new());
    pull(&store, "short", plain_layer("s", &noise(8, MIB / 2)));
    let other = pull(&store, "other-short", plain_layer("own", b"").file("d/s", &noise(8, MIB / 2)));
    assert_eq!(parts(&store, &other).1, Vec::<PathBuf>::new(), "too little to be worth it");
    // The same beginning and the same length are not the same blocks.
    let mut changed = noise(8, 3 * MIB);
    pull(&store, "before", plain_layer("s", &changed));
    changed[3 * MIB - 1] ^= 1;
    let changed_image = pull(&store, "changed", plain_layer("s", &changed));
    assert_eq!(parts(&store, &changed_image).1, Vec::<PathBuf>::new());
    assert!(content(&store, &changed_image, "d/s") == changed);
    check_accounts(&store);
}

#[test]
fn blocks_that_are_damaged_damage_every_layer_that_has_them() {
    let (_top, store) = store();
    let (first, second) = (pull(&store, "i1", alike(1)), pull(&store, "i2", alike(2)));
    let (file, _) = parts(&store, &first);
    let bytes = fs::read(&file).expect("reads");
    let at = bytes.windows(64).position(|piece| piece == &noise(1000, 64)[..]).expect("it is there");
    let writing = fs::File::options().write(true).open(&file).expect("opens");
    writing.write_all_at(&[bytes[at + 10] ^ 1], at as u64 + 10).expect("writes");
    let report = run_check(&store, Depth::Files, true);
    assert_eq!((report.problems.len(), report.incomplete_images.len()), (2, 2), "{report:?}");
    assert_eq!(run_check(&store, Depth::Files, false).problems, [], "the sums are right without them");
    // They come back, and share again.
    let again = (pull(&store, "i1", alike(1)), pull(&store, "i2", alike(2)));
    assert_eq!((again.0.id.clone(), again.1.id.clone()), (first.id, second.id));
    assert_eq!(parts(&store, &again.1).1.len(), 1);
    assert_eq!(content(&store, &again.1, "d/blocks"), noise(1000, 3 * MIB / 2));
    check_accounts(&store);
    assert_eq!(run_check(&store, Depth::Files, false).problems, []);
    // Its content is lost.
    fs::remove_file(&parts(&store, &again.1).1[0]).expect("removes");
    assert_eq!(run_check(&store, Depth::Files, false).problems.len(), 1);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn the_file_system_shares_blocks_of_images() {
    let disk = LoopDisk::xfs(400 << 20);
    let store = open(&disk.path.join("store"), Sharing::Reflink);
    let layer = |own: u64| plain_layer("own", &noise(own, 9000)).file("d/common", &noise(77, 16 * MIB + 5));
    let first = pull(&store, "i1", layer(1));
    let (before, bytes) = (disk.free(), store.totals().expect("readable").bytes);
    let records: Vec<ImageRecord> = (2..6).map(|n| pull(&store, &format!("i{n}"), layer(n))).collect();
    assert!(before - disk.free() < 12 << 20, "{} bytes for four", before - disk.free());
    assert!(store.totals().expect("readable").bytes - bytes < 1 << 20);
    assert_eq!(run_check(&store, Depth::Files, false).problems, []);
    store.remove_image(&first.id).expect("removes");
    assert_eq!(content(&store, &records[3], "d/common"), noise(77, 16 * MIB + 5));
    for record in records {
        assert_eq!(parts(&store, &record).1, Vec::<PathBuf>::new());
        store.remove_image(&record.id).expect("removes");
    }
    assert_eq!(store.totals().expect("readable"), Totals::default());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    /// Layers that have files in common as they like, removed in any order: sums are always those of the disk.
    #[test]
    fn what_is_held_is_counted_once(
        layers in prop::collection::vec(prop::collection::vec(0_u64..3, 0..3), 4),
        stacks in prop::collection::vec(prop::collection::vec(0_usize..4, 1..3), 1..6),
        steps in prop::collection::vec(0_usize..6, 4),
    ) {
        let (_top, store) = store();
        let tars: Vec<Tar> = layers
            .iter()
            .zip(0_u64..)
            .map(|(files, number)| {
                let tar = plain_layer(&format!("own-{number}"), &noise(100 + number, 3000));
                let add = |tar: Tar, file: &u64| tar.file(&format!("d/{number}-{file}"), &noise(*file, MIB + 4096));
                files.iter().fold(tar, add)
            })
            .collect();
        let mut ids: Vec<Digest> = Vec::new();
        for (number, stack) in stacks.iter().enumerate() {
            let stack: Vec<Tar> = stack.iter().map(|layer| tars[*layer].clone()).collect();
            ids.push(Image::new(&format!("image {number}"), &stack).pull(&store, &format!("r.example/i:{number}")).id);
            check_accounts(&store);
        }
        for step in steps {
            if let Some(id) = ids.get(step) {
                let before = store.totals().expect("readable").bytes;
                // Some are removed already.
                let freed = store.remove_image(id).map_or(0, |removed| removed.freed_bytes);
                prop_assert!(store.totals().expect("readable").bytes + freed <= before);
                check_accounts(&store);
                prop_assert_eq!(run_check(&store, Depth::Files, false).problems, []);
            }
        }
    }
}
