//! The file system under a store: every kind of file system works or is refused with a reason; a disk fails or becomes read-only
//! while it is used; other processes move, delete, replace and damage files of the store. Needs root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use cri_api::engine::ProblemKind;
use imagelet_store::check::Depth;
use imagelet_store::{OpenError, Store, StoreError};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::support::{
    Image, LoopDisk, Tar, check_accounts, in_directories, list, open, options, plain_layer, run, run_check,
};

fn image(name: &str) -> Image {
    let lower = plain_layer("lower", &[3; 20_000]).directory("d/closed", 0o700);
    let upper = Tar::default().file("d/closed/upper", name.as_bytes()).file("d/.wh.lower", b"").device("d/null");
    Image::new(name, &[lower, upper]).with_blobs()
}

/// Every operation once: pulls, restarts and removals work on this file system.
fn works(root: &Path) {
    let store = Store::open(root, options()).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
    let (one, two) = (image("one"), image("two"));
    one.pull(&store, "docker.io/library/one:1");
    two.pull(&store, "docker.io/library/two:1");
    store.remove_image(&one.id()).expect("removes");
    drop(store);
    let store = open(root);
    check_accounts(&store);
    same(&store, &two);
    let report = run_check(&store, Depth::Files, false);
    assert_eq!((report.problems, report.incomplete_images), (vec![], vec![]), "{}", root.display());
    store.remove_image(&two.id()).expect("removes");
    check_accounts(&store);
}

/// Asserts that the image is present to the last byte.
fn same(store: &Store, image: &Image) {
    let record = store.image(&image.id()).expect("readable").expect("there");
    for (layer, (_, tar)) in store.image_layers(&record).expect("readable").iter().zip(&image.layers) {
        let mut stream = Vec::new();
        store.export_layer(layer, &mut stream).expect("exports");
        assert!(stream == *tar, "layer {} is as it came", layer.id);
    }
}

/// Something mounted while this lives.
struct Mounted(PathBuf);

impl Mounted {
    fn new(kind: &str, source: &str, on: &Path, data: &str) -> Self {
        fs::create_dir_all(on).expect("creates");
        let data = std::ffi::CString::new(data).expect("no zero byte");
        mount(source, on, kind, MountFlags::empty(), data.as_c_str()).unwrap_or_else(|error| panic!("{kind}: {error}"));
        Self(on.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn disks_of_every_kind_hold_a_store() {
    for (program, bytes, options) in [
        ("mkfs.ext4", 64 << 20, &["-q", "-O", "^has_journal"][..]),
        ("mkfs.ext4", 64 << 20, &["-q", "-b", "1024"]),
        ("mkfs.ext2", 64 << 20, &["-q"]),
        ("mkfs.xfs", 320 << 20, &["-q"]),
        ("mkfs.btrfs", 128 << 20, &["-q"]),
    ] {
        works(&LoopDisk::made_by(program, bytes, options).path.join("store"));
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_file_system_in_memory_holds_a_store() {
    let top = tempfile::tempdir().expect("tempdir");
    let memory = Mounted::new("tmpfs", "test", &top.path().join("tmpfs"), "size=64m");
    works(&memory.0.join("store"));
}

/// Where a node's disk is an overlay itself, as in a container.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn an_overlay_holds_a_store_or_says_why_not() {
    let top = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
    for name in ["lower", "upper", "work"] {
        fs::create_dir(top.path().join(name)).expect("creates");
    }
    let at = |name: &str| top.path().join(name).display().to_string();
    let data = format!("lowerdir={},upperdir={},workdir={}", at("lower"), at("upper"), at("work"));
    let overlay = Mounted::new("overlay", "test", &top.path().join("overlay"), &data);
    let root = overlay.0.join("store");
    if !in_directories() {
        works(&root);
        return;
    }
    match Store::open(&root, options()) {
        Err(error @ OpenError::Lacks { .. }) => refused(&error, "overlayfs", "overlay"),
        opened => panic!("layers of directories have whiteouts, which an overlay takes for its own: {opened:?}"),
    }
}

fn refused(error: &OpenError, kind: &str, word: &str) {
    let text = error.to_string();
    assert!(text.contains(&format!("on the file system {kind}: ")) && text.contains(word), "{text}");
    assert!(!text.contains('\n'), "{text}");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn what_has_no_attributes_is_refused_for_trees() {
    let top = tempfile::tempdir().expect("tempdir");
    let memory = Mounted::new("ramfs", "test", &top.path().join("ramfs"), "");
    let opened = Store::open(&memory.0.join("store"), options());
    if in_directories() {
        refused(&opened.expect_err("no attributes"), "ramfs", "extended attributes");
        // Nothing was made that the next one would take for a store.
        refused(&Store::open(&memory.0.join("store"), options()).expect_err("still none"), "ramfs", "attributes");
    } else {
        drop(opened.expect("a file needs none"));
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn directories_of_several_file_systems_are_refused() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    drop(open(&root));
    let _other = Mounted::new("tmpfs", "test", &root.join("layers"), "size=1m");
    let error = Store::open(&root, options()).expect_err("layers could not move there");
    assert!(error.to_string().contains("layers/ is on another file system"), "{error}");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn what_can_only_be_read_is_refused_in_one_line() {
    let disk = LoopDisk::ext4(32 << 20);
    let root = disk.path.join("store");
    let image = image("one");
    image.pull(&open(&root), "docker.io/library/one:1");
    disk.remount("ro");
    let error = Store::open(&root, options()).expect_err("nothing can be written").to_string();
    assert!(error.contains(&root.display().to_string()), "{error}");
    disk.remount("rw");
    same(&open(&root), &image);
}

/// As ext4 does it by itself when it finds an error: from one moment on nothing can be written.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_disk_that_becomes_read_only_loses_nothing() {
    let disk = LoopDisk::ext4(64 << 20);
    let root = disk.path.join("store");
    let (kept, other) = (image("kept"), image("other"));
    let store = open(&root);
    let record = kept.pull(&store, "docker.io/library/kept:1");
    let lease = store.lease();
    let half = other.sources(&store, &lease);
    disk.break_off();
    let error = store.commit_image(&lease, imagelet_store::ImageCommit { layers: half, ..other.commit(None) });
    let error = error.expect_err("nothing can be written");
    assert!(!error.is_disk_full() && !error.to_string().contains('\n'), "{error:?}");
    store.remove_image(&record.id).expect_err("nothing can be written");
    // The existing image can be used.
    same(&store, &kept);
    assert!(store.image(&other.id()).expect("readable").is_none());
    drop((lease, store));
    disk.again();
    let store = open(&root);
    same(&store, &kept);
    check_accounts(&store);
    other.pull(&store, "docker.io/library/other:1");
    check_accounts(&store);
}

/// The whole device disappears at one moment, as when a cable is pulled.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn unmounted_disk_loses_nothing() {
    for disk in [LoopDisk::ext4(64 << 20), LoopDisk::xfs(320 << 20)] {
        let root = disk.path.join("store");
        let (kept, other) = (image("kept"), image("other"));
        let store = open(&root);
        kept.pull(&store, "docker.io/library/kept:1");
        run("xfs_io", &["-x", "-c", "shutdown", disk.path.to_str().expect("text")]);
        let lease = store.lease();
        match store.new_layer(&lease) {
            Ok(layer) => drop(layer.unpack(&mut other.layers[0].1.as_slice(), &|| false).expect_err("no disk")),
            Err(error) => assert!(!error.is_disk_full(), "{error:?}"),
        }
        drop(store.remove_image(&kept.id()).expect_err("no disk"));
        drop((lease, store));
        disk.again();
        let store = open(&root);
        same(&store, &kept);
        check_accounts(&store);
        other.pull(&store, "docker.io/library/other:1");
    }
}

/// At every number of free bytes a pull ends well, or is as if it had not been.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_pull_at_each_size_of_a_disk() {
    let disk = LoopDisk::ext4(32 << 20);
    let root = disk.path.join("store");
    let (kept, other) = (image("kept"), image("other"));
    let store = open(&root);
    kept.pull(&store, "docker.io/library/kept:1");
    let (mut refused, mut done) = (0, 0);
    let filler = disk.path.join("filler");
    for left in (0..48).map(|step| step * (36 << 10)) {
        let file = fs::File::create(&filler).expect("creates");
        let mut take = disk.free().saturating_sub(left);
        // To note which blocks a file has takes some as well.
        while take > 0 && rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, take).is_err() {
            take = take.saturating_sub(16 << 10);
        }
        let pulled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let lease = store.lease();
            let mut layers = Vec::new();
            for (diff_id, tar) in &other.layers {
                let layer = store.new_layer(&lease).ok()?.unpack(&mut tar.as_slice(), &|| false).ok()?;
                layers.push(imagelet_store::LayerSource::New { layer: layer.into(), diff_id: diff_id.clone() });
            }
            let commit = imagelet_store::ImageCommit { layers, ..other.commit(Some("docker.io/library/other:1")) };
            store.commit_image(&lease, commit).inspect_err(|error| assert!(error.is_disk_full(), "{error:?}")).ok()
        }));
        let pulled = pulled.expect("no panic").is_some();
        same(&store, &kept);
        assert_eq!(store.image(&other.id()).expect("readable").is_some(), pulled, "{left} bytes were left");
        *(if pulled { &mut done } else { &mut refused }) += 1;
        store.remove_image(&other.id()).expect("a removal needs no space");
        assert_eq!(list(&root.join("ingest")), Vec::<String>::new(), "{left} bytes were left");
        fs::remove_file(&filler).expect("removes");
    }
    assert!(refused > 10 && done > 5, "{refused} were refused, {done} came to their end");
    drop(store);
    check_accounts(&open(&root));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn operations_on_a_moved_store_fail_with_its_path() {
    let top = tempfile::tempdir().expect("tempdir");
    let (root, aside) = (top.path().join("store"), top.path().join("aside"));
    let store = open(&root);
    let (kept, other) = (image("kept"), image("other"));
    kept.pull(&store, "docker.io/library/kept:1");
    let told = |what: &str| {
        let error = other.pull_or_store_error(&store).expect_err(what);
        assert!(matches!(error, StoreError::Displaced(_)), "{what}: {error:?}");
        let text = error.to_string();
        assert!(text.contains(&root.display().to_string()) && text.contains("started again"), "{what}: {text}");
        assert!(matches!(store.remove_image(&kept.id()), Err(StoreError::Displaced(_))), "{what}");
        same(&store, &kept);
    };
    let fine = |what: &str| {
        other.pull(&store, "docker.io/library/other:1");
        store.remove_image(&other.id()).unwrap_or_else(|error| panic!("{what}: {error}"));
    };
    for name in ["", "lock", "meta.redb", "ingest", "layers"] {
        let path = if name.is_empty() { root.clone() } else { root.join(name) };
        fs::rename(&path, &aside).expect("renames");
        if !["ingest", "layers"].contains(&name) {
            told(&format!("{name:?} is gone"));
        }
        // Another one in its place.
        if path.extension().is_some() || name == "lock" {
            fs::copy(&aside, &path).expect("copies");
            told(&format!("{name:?} is a copy"));
            fs::remove_file(&path).expect("removes");
        } else if name.is_empty() {
            symlink("/", &path).expect("links");
            told("the root is a link to elsewhere");
            fs::remove_file(&path).expect("removes");
        }
        fs::rename(&aside, &path).expect("renames");
        fine(name);
    }
    let over = Mounted::new("tmpfs", "test", &root, "size=1m");
    told("something is mounted over it");
    drop(over);
    fine("nothing is mounted over it any more");
    check_accounts(&store);
}

#[test]
fn replaced_lock_file_stops_all_changes() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let first = open(&root);
    let (kept, other) = (image("kept"), image("other"));
    kept.pull(&first, "docker.io/library/kept:1");
    fs::remove_file(root.join("lock")).expect("removes");
    // The second process cannot know of the first one; from now on the first one changes nothing any more.
    let second = open(&root);
    assert!(matches!(first.remove_image(&kept.id()), Err(StoreError::Displaced(_))));
    other.pull(&second, "docker.io/library/other:1");
    same(&second, &kept);
    drop(second);
    drop(first);
    let store = open(&root);
    same(&store, &kept);
    same(&store, &other);
    check_accounts(&store);
}

#[test]
fn missing_or_damaged_database_is_refused_and_nothing_is_deleted() {
    let top = tempfile::tempdir().expect("tempdir");
    let (root, good) = (top.path().join("store"), top.path().join("good"));
    let kept = image("kept");
    kept.pull(&open(&root), "docker.io/library/kept:1");
    let database = root.join("meta.redb");
    fs::copy(&database, &good).expect("copies");
    let layers = list(&root.join("layers"));
    let length = fs::metadata(&good).expect("there").len();
    let refused = |what: &str| {
        let error = match Store::open(&root, options()) {
            Ok(_) => return false,
            Err(error) => error,
        };
        let text = error.to_string();
        assert!(text.contains(&root.display().to_string()) && !text.contains('\n'), "{what}: {text}");
        assert_eq!(list(&root.join("layers")), layers, "{what}");
        true
    };
    fs::remove_file(&database).expect("removes");
    assert!(refused("gone"));
    for keep in [0, 1, 64, 319, 4096, 5000, length / 2, length - 4096] {
        fs::copy(&good, &database).expect("copies");
        fs::File::options().write(true).open(&database).expect("opens").set_len(keep).expect("cuts");
        assert!(refused(&format!("{keep} bytes of {length}")));
    }
    let mut harmless = 0;
    for at in (0..length).step_by(2048) {
        let mut bytes = fs::read(&good).expect("reads");
        let at = usize::try_from(at).expect("small");
        let end = bytes.len().min(at + 700);
        bytes[at..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
        fs::write(&database, bytes).expect("writes");
        // Unused bytes can be anything; used ones are never taken for something else.
        if !refused(&format!("noise at {at}")) {
            harmless += 1;
        }
    }
    assert!(harmless > 0);
    let text = b"this is no database".repeat(4000);
    fs::write(&database, text).expect("writes");
    assert!(refused("text"));
    fs::copy(&good, &database).expect("copies");
    same(&open(&root), &kept);
}

/// A file that cannot be deleted does not prevent other deletions, and is deleted with the next removal after it can be.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn undeletable_files_are_deleted_by_a_later_sweep() {
    let disk = LoopDisk::ext4(32 << 20);
    let root = disk.path.join("store");
    let store = open(&root);
    let (one, two) = (image("one"), Image::new("two", &[plain_layer("two", b"two")]));
    let record = one.pull(&store, "docker.io/library/one:1");
    two.pull(&store, "docker.io/library/two:1");
    let layer = root.join("layers").join(record.layers[0].to_string());
    let file = if in_directories() { layer.join("fs/d/lower") } else { layer.join("layer.erofs") };
    run("chattr", &["+i", file.to_str().expect("text")]);
    let error = store.remove_image(&one.id()).expect_err("one file cannot be deleted");
    assert!(error.to_string().contains("remove files from"), "{error}");
    assert!(store.image(&one.id()).expect("readable").is_none(), "the image is gone");
    let left = list(&root.join("ingest"));
    assert_eq!(left.len(), 1, "{left:?}");
    let below = if in_directories() { "fs/d/lower" } else { "layer.erofs" };
    run("chattr", &["-i", root.join("ingest").join(&left[0]).join(below).to_str().expect("text")]);
    store.remove_image(&two.id()).expect("removes");
    check_accounts(&store);
}

/// Files that another process changes are detected, and never taken for what they were.
#[test]
fn files_that_others_change_are_found() {
    let top = tempfile::tempdir().expect("tempdir");
    let store = open(&top.path().join("store"));
    let image = image("one");
    for change in ["deleted", "cut", "changed", "replaced by a link", "a directory"] {
        let record = image.pull(&store, "docker.io/library/one:1");
        let layer = store.root().join("layers").join(record.layers[0].to_string());
        let file = if in_directories() { layer.join("fs/d/lower") } else { layer.join("layer.erofs") };
        match change {
            "cut" => fs::File::options().write(true).open(&file).expect("opens").set_len(100).expect("cuts"),
            "changed" => {
                let mut bytes = fs::read(&file).expect("reads");
                let middle = bytes.len() / 2;
                bytes[middle..].iter_mut().take(2000).for_each(|byte| *byte ^= 1);
                fs::write(&file, bytes).expect("writes");
            }
            _ => {
                fs::remove_file(&file).expect("removes");
                match change {
                    "a directory" => fs::create_dir(&file).expect("creates"),
                    "replaced by a link" => symlink("/etc/passwd", &file).expect("links"),
                    _ => {}
                }
            }
        }
        let mut stream = Vec::new();
        let exported = store.export_layer(&store.image_layers(&record).expect("readable")[0], &mut stream);
        assert!(exported.is_err() || stream != image.layers[0].1, "{change}");
        let report = run_check(&store, Depth::Digest, true);
        let kinds = [ProblemKind::DamagedLayer, ProblemKind::MissingLayer];
        assert!(report.problems.iter().any(|problem| kinds.contains(&problem.kind)), "{change}: {report:?}");
        image.pull(&store, "docker.io/library/one:1");
        same(&store, &image);
    }
    store.remove_image(&image.id()).expect("removes");
    check_accounts(&store);
}
