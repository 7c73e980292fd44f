//! Files that several layers have: stored once, counted once, and intact whichever layer is removed.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use imagelet_store::check::Depth;
use imagelet_store::{ImageRecord, OpenError, OpenOptions, Sharing, Store, Totals};
use oci::Digest;
use proptest::prelude::*;

use super::support::{Image, LoopDisk, Tar, check_accounts, measure, options, plain_layer, run_check};

fn open(root: &Path, sharing: Sharing) -> Store {
    Store::open(root, OpenOptions { sharing, ..options() }).expect("opens")
}

fn store(sharing: Sharing) -> (tempfile::TempDir, Store) {
    let top = tempfile::tempdir().expect("tempdir");
    let store = open(&top.path().join("store"), sharing);
    (top, store)
}

fn file(store: &Store, image: &ImageRecord, path: &str) -> PathBuf {
    let directories = store.layer_directories(image).expect("there");
    directories.iter().rev().map(|d| d.join(path)).find(|path| path.exists()).expect("some layer has it")
}

fn pull(store: &Store, name: &str, layer: Tar) -> ImageRecord {
    Image::new(name, &[layer]).pull(store, &format!("a.example/{name}:1"))
}

#[test]
fn the_same_file_is_one_inode_until_the_last_layer_goes() {
    let (_top, store) = store(Sharing::Hardlink);
    let common = vec![7; 100_000];
    let layer =
        |own: u8| plain_layer("own", &[own; 9000]).file(&format!("d/copy-{own}"), &common).file("d/small", &[1; 100]);
    let mut images: Vec<ImageRecord> = (1..4).map(|n| pull(&store, &format!("i{n}"), layer(n))).collect();
    let inode =
        |image: &ImageRecord, n: usize| fs::metadata(file(&store, image, &format!("d/copy-{n}"))).expect("there");
    assert_eq!((inode(&images[0], 1).ino(), inode(&images[0], 1).nlink()), (inode(&images[2], 3).ino(), 3));
    assert_eq!(fs::metadata(file(&store, &images[0], "d/small")).expect("there").nlink(), 1, "not worth it");
    check_accounts(&store);
    assert_eq!(run_check(&store, Depth::Files, false).problems, []);
    for image in &images {
        let (unique, shared) = store.usage(&image.id).expect("readable").expect("there");
        assert!(shared >= 100_000 && unique < 50_000, "{unique} {shared}");
    }
    // A removal takes nothing that other images have, and the last one everything.
    let freed = store.remove_image(&images.remove(0).id).expect("removes").freed_bytes;
    assert!(freed < 50_000, "{freed}");
    check_accounts(&store);
    assert_eq!(fs::read(file(&store, &images[0], "d/copy-2")).expect("reads"), common);
    assert_eq!(run_check(&store, Depth::Files, false).problems, []);
    store.remove_image(&images.remove(0).id).expect("removes");
    check_accounts(&store);
    assert!(store.remove_image(&images[0].id).expect("removes").freed_bytes > 100_000);
    assert_eq!(store.totals().expect("readable"), Totals::default());
}

#[test]
fn only_what_is_the_same_in_everything_is_a_link() {
    let (_top, store) = store(Sharing::Hardlink);
    let first = pull(&store, "first", plain_layer("a", &[7; 8192]).file("d/b", &[8; 8192]));
    let mut changed = [8; 8192];
    changed[8000] = 9;
    let second = pull(&store, "second", plain_layer("c", &changed).file("d/d", &[7; 8193]).file("d/e", &[7; 8192]));
    let links = |image, path: &str| fs::metadata(file(&store, image, path)).expect("there").nlink();
    assert_eq!(
        [links(&first, "d/b"), links(&second, "d/c"), links(&second, "d/d"), links(&second, "d/e")],
        [1, 1, 1, 2]
    );
    // Another mode is another file; a link within a layer stays one.
    fs::set_permissions(file(&store, &first, "d/b"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    let third = pull(&store, "third", plain_layer("f", &[8; 8192]));
    assert_eq!(links(&third, "d/f"), 1);
    check_accounts(&store);
    let time = |path: &Path| path.metadata().expect("there").mtime();
    assert_eq!(
        time(file(&store, &second, "d/e").parent().expect("d")),
        time(&file(&store, &second, "d/e")),
        "as the layer says"
    );
}

#[test]
fn a_shared_file_that_is_damaged_damages_every_layer_that_has_it() {
    let (_top, store) = store(Sharing::Hardlink);
    let layer = |own: u8| plain_layer("own", &[own; 5000]).file("d/common", &[7; 50_000]);
    let pull = |n: u8| pull(&store, &format!("i{n}"), layer(n));
    let (first, second) = (pull(1), pull(2));
    let path = file(&store, &first, "d/common");
    let mut bytes = fs::read(&path).expect("reads");
    bytes[10] ^= 1;
    fs::write(&path, bytes).expect("writes");
    let report = run_check(&store, Depth::Files, true);
    assert_eq!((report.problems.len(), report.incomplete_images.len()), (2, 2), "{report:?}");
    assert_eq!(run_check(&store, Depth::Files, false).problems, [], "the sums are right without them");
    // They come back, and share again.
    let first_again = pull(1);
    assert!(!store.image_is_whole(&second));
    let second_again = pull(2);
    assert_eq!((first_again.id, second_again.id.clone()), (first.id, second.id));
    assert_eq!(fs::metadata(file(&store, &second_again, "d/common")).expect("there").nlink(), 2);
    check_accounts(&store);
    assert_eq!(run_check(&store, Depth::Files, false).problems, []);
}

#[test]
fn a_layer_that_is_replaced_leaves_what_it_shared() {
    let (_top, store) = store(Sharing::Hardlink);
    let layer = |own: u8| plain_layer("own", &[own; 5000]).file("d/common", &[7; 50_000]);
    let records: Vec<_> = (1..4).map(|n| pull(&store, &format!("i{n}"), layer(n))).collect();
    // Its directory is lost, and no check has run.
    fs::remove_dir_all(store.layer_directories(&records[1]).expect("there")[0].parent().expect("the layer"))
        .expect("removes");
    pull(&store, "i2", layer(2));
    check_accounts(&store);
    assert_eq!(run_check(&store, Depth::Files, false).problems, []);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_file_has_only_so_many_links() {
    let disk = LoopDisk::ext4(64 << 20);
    let store = open(&disk.path.join("store"), Sharing::Hardlink);
    let layer = |own: u8| plain_layer("own", &[own; 5000]).file("d/common", &[7; 50_000]);
    let first = pull(&store, "i1", layer(1));
    let (path, links) = (file(&store, &first, "d/common"), disk.path.join("links"));
    fs::create_dir(&links).expect("creates");
    let mut number = 0;
    while fs::hard_link(&path, links.join(number.to_string())).is_ok() {
        number += 1;
    }
    assert!(number > 60_000, "{number}");
    let second = pull(&store, "i2", layer(2));
    assert_eq!(fs::metadata(file(&store, &second, "d/common")).expect("there").nlink(), 1, "it has its own");
    fs::remove_dir_all(links).expect("removes");
    check_accounts(&store);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn blocks_are_shared_where_the_file_system_can() {
    let disk = LoopDisk::ext4(32 << 20);
    let root = disk.path.join("store");
    let options = |sharing| OpenOptions { sharing, ..options() };
    match Store::open(&root, options(Sharing::Reflink)).expect_err("ext4 cannot") {
        error @ OpenError::NoSharing { way: "reflink", .. } => {
            assert!(error.to_string().contains("its file system cannot do that"), "{error}");
        }
        error => panic!("{error}"),
    }
    drop(Store::open(&root, options(Sharing::Hardlink)).expect("it can have links"));

    let disk = LoopDisk::xfs(400 << 20);
    let store = open(&disk.path.join("store"), Sharing::Reflink);
    let common: Vec<u8> = (0..16_u8).flat_map(|n| vec![n; 1 << 20]).collect();
    let layer =
        |own: u8| plain_layer("own", &[own; 5000]).directory("d/x/", 0o700 + u32::from(own)).file("d/x/c", &common);
    let first = pull(&store, "i1", layer(1));
    let (before, bytes) = (disk.free(), store.totals().expect("readable").bytes);
    let records: Vec<_> = (2..6).map(|n| pull(&store, &format!("i{n}"), layer(n))).collect();
    assert!(before - disk.free() < 12 << 20, "{} bytes for four", before - disk.free());
    assert!(store.totals().expect("readable").bytes - bytes < 1 << 20);
    assert_eq!(run_check(&store, Depth::Files, false).problems, [], "times and modes are as the layers say");
    let inodes: BTreeSet<u64> =
        records.iter().map(|r| fs::metadata(file(&store, r, "d/x/c")).expect("there").ino()).collect();
    assert_eq!(inodes.len(), 4);
    store.remove_image(&first.id).expect("removes");
    assert_eq!(fs::read(file(&store, &records[3], "d/x/c")).expect("reads"), common);
    let sums = |store: &Store| {
        let images = store.images().expect("readable");
        let known = store.layers_of_images().expect("readable");
        let documents: u64 = images.iter().map(|image| (image.config.len() + image.manifest.len()) as u64).sum();
        assert_eq!(store.totals().expect("readable").bytes, known.layers.iter().sum::<u64>() + documents);
    };
    sums(&store);
    for record in records {
        store.remove_image(&record.id).expect("removes");
        sums(&store);
    }
    assert_eq!(store.totals().expect("readable"), Totals::default());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Layers that have files in common as they like, removed in any order: what is promised is what the disk gets back,
    /// and the sums are always those of the disk.
    #[test]
    fn what_is_shared_is_counted_once(
        layers in prop::collection::vec(prop::collection::vec(0_u8..4, 0..4), 5),
        stacks in prop::collection::vec(prop::collection::vec(0_usize..5, 1..4), 1..6),
        steps in prop::collection::vec(prop::collection::vec(0_usize..6, 1..3), 4),
    ) {
        let (_top, store) = store(Sharing::Hardlink);
        let tars: Vec<Tar> = layers
            .iter()
            .enumerate()
            .map(|(number, files)| {
                let tar = plain_layer(&format!("own-{number}"), &[u8::try_from(number).expect("five of them"); 3000]);
                let add = |tar: Tar, (at, file): (usize, &u8)| {
                    tar.file(&format!("d/{at}-{file}"), &vec![*file; 5000 * (usize::from(*file) + 1)])
                };
                files.iter().enumerate().fold(tar, add)
            })
            .collect();
        let mut ids: Vec<Digest> = Vec::new();
        for (number, stack) in stacks.iter().enumerate() {
            let stack: Vec<Tar> = stack.iter().map(|layer| tars[*layer].clone()).collect();
            ids.push(Image::new(&format!("image {number}"), &stack).with_blobs().pull(&store, &format!("r.example/i:{number}")).id);
            check_accounts(&store);
        }
        let on_disk = || {
            let of = |name: &str| {
                let path = store.root().join(name);
                path.metadata().map_or(0, |metadata| measure(&path).0 - metadata.blocks() * 512)
            };
            of("layers") + of("blobs")
        };
        for step in steps {
            let gone: Vec<Digest> = step.iter().filter_map(|at| ids.get(*at).cloned()).collect();
            let known = store.layers_of_images().expect("readable");
            let parts = |goes: bool| -> BTreeSet<u32> {
                let images = known.images.iter().filter(|(id, ..)| gone.contains(id) == goes);
                images.flat_map(|(.., parts)| parts.iter().copied()).collect()
            };
            let promised = parts(true).difference(&parts(false)).map(|part| known.layers[*part as usize]).sum::<u64>();
            let before = on_disk();
            let freed: u64 = store.remove_images(&gone).into_iter().map(|removed| removed.expect("removes").freed_bytes).sum();
            prop_assert_eq!((freed, before - on_disk()), (promised, promised));
            check_accounts(&store);
            prop_assert_eq!(run_check(&store, Depth::Files, false).problems, []);
        }
    }
}
