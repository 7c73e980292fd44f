//! A store in which an earlier version shared files between layers: what is complete stays, what is not is absent and pulled again.

use std::fs;
use std::path::{Path, PathBuf};

use imagelet_store::check::Depth;
use imagelet_store::view::View;
use imagelet_store::{ImageRecord, OpenOptions, Store, Totals};

use super::support::{Image, Tar, is_sound, options, plain_layer, run, run_check};

/// The store, as version 0.2.0 made it on ext4 with `shareFiles: hardlink` for an ordinary user. Ten images of one layer each have a file of
/// their own, `d/NAME`, and one in common, `d/common`. In layers of directories, `tree-a`, `tree-b` and `tree-c` have a hard link to it;
/// the layer that shared it with `tree-d` was removed. `file-b` and `file-c` have the blocks of it in the EROFS file of `file-a`; those
/// of `file-e`, and of `file-g` and `file-h`, are in the files of layers that were removed.
const OLD_STORE: &[u8] = include_bytes!("../data/shared-files.tar.zst");
const TREES: [(&str, u8); 4] = [("tree-a", 1), ("tree-b", 1), ("tree-c", 1), ("tree-d", 2)];
/// The only EROFS file that has all its blocks.
const WHOLE_FILE: (&str, u8) = ("file-a", 3);
const INCOMPLETE: [(&str, u8); 5] = [("file-b", 3), ("file-c", 3), ("file-e", 4), ("file-g", 5), ("file-h", 5)];
/// Bytes on the disk of the file that directories have in common, and of the EROFS file that others have.
const COMMON_FILE: u64 = 1284 << 10;
const COMMON_EROFS: u64 = 1288 << 10;

/// The old store under a root of its own.
fn old_store(top: &Path) -> PathBuf {
    let (archive, root) = (top.join("old.tar"), top.join("store"));
    fs::write(&archive, zstd::decode_all(OLD_STORE).expect("a stream")).expect("writes");
    fs::create_dir(&root).expect("creates");
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    run("tar", &["--no-same-owner", "-xf", &path(&archive), "-C", &path(&root)]);
    root
}

fn open(root: &Path) -> Store {
    Store::open(root, OpenOptions { privileged: Some(false), ..options() }).expect("opens")
}

fn common(seed: u8) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = Vec::with_capacity(4096);
    while block.len() < 4096 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        block.extend_from_slice(&state.to_le_bytes());
    }
    block.iter().cycle().take((5 << 18) + 100).map(|byte| byte ^ seed).collect()
}

fn image(name: &str, seed: u8) -> Image {
    let layer: Tar = plain_layer(name, name.as_bytes()).file("d/common", &common(seed));
    Image::new(name, &[layer])
}

fn record(store: &Store, (name, seed): (&str, u8)) -> ImageRecord {
    store.image(&image(name, seed).id()).expect("readable").expect("the image is recorded")
}

/// An error with its causes.
fn chain(mut error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    while let Some(source) = error.source() {
        text = format!("{text}: {source}");
        error = source;
    }
    text
}

/// Content of a file of an image.
fn content(store: &Store, image: &ImageRecord, path: &str) -> Result<Vec<u8>, String> {
    let lease = store.lease();
    let stack = store.stack(&lease, &image.id.clone().into()).map_err(|error| chain(&error))?;
    let view = View::open(store.root(), &stack.ok_or("the image is absent")?).map_err(|error| chain(&error))?;
    let node = view.resolve(path.as_bytes(), true).map_err(|error| chain(&error))?;
    let file = view.file(&node).map_err(|error| chain(&error))?;
    let mut bytes = vec![0; usize::try_from(node.stat().size).expect("short")];
    let mut done = 0;
    while done < bytes.len() {
        done += file.read_at(done as u64, &mut bytes[done..]).map_err(|error| chain(&error))?;
    }
    Ok(bytes)
}

#[track_caller]
fn assert_content(store: &Store, (name, seed): (&str, u8)) {
    let image = record(store, (name, seed));
    assert!(store.image_is_whole(&image), "{name}");
    assert!(content(store, &image, "d/common").as_ref() == Ok(&common(seed)), "{name}");
    assert_eq!(content(store, &image, &format!("d/{name}")).as_deref(), Ok(name.as_bytes()), "{name}");
}

fn layer_bytes(store: &Store, name: (&str, u8)) -> u64 {
    let layers = store.image_layers(&record(store, name)).expect("readable");
    layers.iter().map(|layer| layer.stats.disk_bytes).sum()
}

#[test]
fn shared_trees_stay_and_files_without_all_blocks_are_absent() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = old_store(top.path());
    for round in 0..2 {
        let store = open(&root);
        for name in TREES.into_iter().chain([WHOLE_FILE]) {
            assert_content(&store, name);
        }
        for name in INCOMPLETE {
            let image = record(&store, name);
            assert!(!store.image_is_whole(&image), "{name:?}");
            assert!(content(&store, &image, "d/common").is_err(), "{name:?}");
            assert_eq!(layer_bytes(&store, name), 0, "{name:?}");
        }
        // Of the incomplete layers, no directory is left.
        let mut left: Vec<_> =
            fs::read_dir(root.join("layers")).expect("reads").map(|e| e.expect("reads").file_name()).collect();
        left.sort();
        assert_eq!(left, ["1", "2", "3", "4", "6"]);
        // The records agree with each other and with every file. What was shared is counted once, with its first layer.
        let report = run_check(&store, Depth::Files, false);
        assert_eq!((report.problems, report.incomplete_images.len()), (vec![], INCOMPLETE.len()), "round {round}");
        let own = 24 << 10;
        let counted = TREES.into_iter().chain([WHOLE_FILE]).map(|name| layer_bytes(&store, name));
        assert_eq!(
            counted.collect::<Vec<_>>(),
            [COMMON_FILE + own, own, own, COMMON_FILE + own, COMMON_EROFS + (12 << 10)]
        );
    }
}

#[test]
fn pull_replaces_incomplete_layers_of_an_old_store() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = old_store(top.path());
    let store = open(&root);
    for (name, seed) in INCOMPLETE {
        image(name, seed).pull(&store, &format!("a.example/{name}:1"));
        assert_content(&store, (name, seed));
    }
    is_sound(&store);
    // Removals in any order leave every other image whole, and nothing in the end.
    let mut left: Vec<(&str, u8)> = TREES.into_iter().chain([WHOLE_FILE]).chain(INCOMPLETE).collect();
    while let Some(name) = left.pop() {
        store.remove_image(&record(&store, name).id).expect("removes");
        for name in &left {
            assert_content(&store, *name);
        }
        is_sound(&store);
    }
    assert_eq!(store.totals().expect("readable"), Totals::default());
    assert_eq!(fs::read_dir(root.join("layers")).expect("reads").count(), 0);
}

/// A layer that the conversion has not seen, as after a restored backup.
#[test]
fn file_without_all_blocks_is_an_error_to_every_reader() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = old_store(top.path());
    let incomplete = fs::read(root.join("layers/7/layer.erofs")).expect("reads");
    let store = open(&root);
    fs::write(root.join("layers/6/layer.erofs"), incomplete).expect("writes");
    let image = record(&store, WHOLE_FILE);
    let error = content(&store, &image, "d/file-a").expect_err("it is incomplete");
    assert!(error.contains("further devices"), "{error}");
    let report = run_check(&store, Depth::Sizes, true);
    assert_eq!(report.problems.len(), 1, "{report:?}");
    assert!(report.problems[0].detail.contains("further devices"), "{report:?}");
    assert!(!store.image_is_whole(&image));
}
