//! Image file trees through overlayfs. Needs root.

use std::fs;
use std::path::{Path, PathBuf};

use imagelet_store::mount::{self, MountError};
use imagelet_store::{Store, StoreError};

use super::support::{Image, Tar, in_directories, list, open, plain_layer};

/// A store and a place to mount on, which is unmounted in the end.
struct Bench {
    store: Store,
    target: PathBuf,
    top: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test mounts: run it as root");
        let top = tempfile::tempdir().expect("tempdir");
        let store = open(&top.path().join("store"));
        let target = top.path().join("a target, with: odd\\characters");
        fs::create_dir(&target).expect("creates");
        Self { store, target, top }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        while rustix::mount::unmount(&self.target, rustix::mount::UnmountFlags::DETACH).is_ok() {}
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn layers_lie_on_each_other() {
    let bench = Bench::new();
    let image = Image::new(
        "stack",
        &[
            plain_layer("a", b"lower").file("d/gone", b"x").directory("hidden/", 0o755).file("hidden/x", b"x"),
            Tar::default()
                .directory("./", 0o755)
                .directory("d/", 0o750)
                .file("d/a", b"upper")
                .file("d/.wh.gone", b"")
                .directory("hidden/", 0o755)
                .file("hidden/.wh..wh..opq", b"")
                .file("hidden/y", b"y"),
            plain_layer("b", b"bbb"),
        ],
    )
    .pull(&bench.store, "docker.io/library/a:1");
    bench.store.mount_image(&image, &bench.target, None).expect("mounts");
    assert_eq!(fs::read(bench.target.join("d/a")).expect("there"), b"upper");
    assert_eq!(list(&bench.target.join("d")), ["a", "b"]);
    assert_eq!(list(&bench.target.join("hidden")), ["y"]);
    let error = fs::write(bench.target.join("f"), "x").expect_err("read-only");
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    bench.store.unmount_image(&bench.target).expect("unmounts");
    assert!(list(&bench.target).is_empty());
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn any_number_of_layers() {
    for count in [0, 1, 2, 60, 300] {
        let bench = Bench::new();
        let layers: Vec<Tar> = (0..count).map(|n| plain_layer(&format!("f{n}"), format!("{n}").as_bytes())).collect();
        let image = Image::new("many", &layers).pull(&bench.store, "docker.io/library/a:1");
        bench.store.mount_image(&image, &bench.target, None).unwrap_or_else(|e| panic!("{count} layers: {e:?}"));
        if count == 0 {
            assert!(list(&bench.target).is_empty());
        } else {
            assert_eq!(list(&bench.target.join("d")).len(), count);
        }
        fs::write(bench.target.join("f"), "x").expect_err("read-only");
        bench.store.unmount_image(&bench.target).expect("unmounts");

        let writable = bench.top.path().join("writable, too");
        fs::create_dir(&writable).expect("creates");
        bench.store.mount_image(&image, &bench.target, Some(&writable)).unwrap_or_else(|e| panic!("{count}: {e:?}"));
        fs::write(bench.target.join("f"), "x").expect("writable");
        assert_eq!(fs::read(writable.join("upper/f")).expect("there"), b"x");
        bench.store.unmount_image(&bench.target).expect("unmounts");
        // The written file is present again.
        bench.store.mount_image(&image, &bench.target, Some(&writable)).expect("mounts");
        assert_eq!(fs::read(bench.target.join("f")).expect("there"), b"x");
        bench.store.unmount_image(&bench.target).expect("unmounts");
        // None of these files stay next to the layers.
        super::support::check_accounts(&bench.store);
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_writable_tree_has_the_roots_looks() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let root = Tar::default().directory("./", 0o711).file("f", b"x");
    let image = Image::new("root", &[root]).pull(&bench.store, "docker.io/library/a:1");
    let writable = bench.top.path().join("w");
    fs::create_dir(&writable).expect("creates");
    bench.store.mount_image(&image, &bench.target, Some(&writable)).expect("mounts");
    assert_eq!(fs::metadata(&bench.target).expect("there").permissions().mode() & 0o7777, 0o711);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_mounted_image_is_not_removed() {
    let bench = Bench::new();
    let base = plain_layer("a", b"aaa");
    let image = Image::new("one", std::slice::from_ref(&base)).pull(&bench.store, "docker.io/library/a:1");
    let other = Image::new("two", &[base]).pull(&bench.store, "docker.io/library/b:1");
    bench.store.mount_image(&image, &bench.target, None).expect("mounts");
    let mounts = bench.store.mounts().expect("readable");
    assert_eq!(mounts.len(), 1);
    let id = image.id.to_string();
    assert_eq!((&mounts[0].target, &mounts[0].image, mounts[0].writable), (&bench.target, &id, false));

    let error = bench.store.remove_image(&image.id).expect_err("in use");
    assert!(
        matches!(&error, StoreError::InUse { id, target } if *id == image.id && *target == bench.target),
        "{error:?}"
    );
    bench.store.remove_image(&other.id).expect("the other image goes, their layer stays");
    assert_eq!(fs::read(bench.target.join("d/a")).expect("there"), b"aaa");

    // The record of a mount that no longer exists keeps nothing, whichever process unmounted it.
    rustix::mount::unmount(&bench.target, rustix::mount::UnmountFlags::empty()).expect("unmounts");
    assert!(bench.store.mounts().expect("readable").is_empty());
    bench.store.remove_image(&image.id).expect("removes");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_mount_is_known_after_a_reopening() {
    let mut bench = Bench::new();
    let image = Image::new("one", &[plain_layer("a", b"aaa")]).pull(&bench.store, "docker.io/library/a:1");
    bench.store.mount_image(&image, &bench.target, None).expect("mounts");
    let root = bench.store.root().to_owned();
    let empty = open(&bench.top.path().join("another"));
    drop(std::mem::replace(&mut bench.store, empty));
    bench.store = open(&root);
    assert_eq!(bench.store.mounts().expect("readable").len(), 1);
    bench.store.remove_image(&image.id).expect_err("still mounted");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn only_what_is_ours_is_unmounted_and_nothing_is_covered() {
    let bench = Bench::new();
    let image = Image::new("one", &[plain_layer("a", b"aaa")]).pull(&bench.store, "docker.io/library/a:1");
    assert!(matches!(bench.store.unmount_image(&bench.target), Err(MountError::NotMounted { .. })));
    assert!(matches!(mount::unmount(Path::new("/proc")), Err(MountError::NotOurs { .. })));
    assert!(matches!(mount::unmount(Path::new("/nowhere/at/all")), Err(MountError::Io { .. })));
    let missing = bench.top.path().join("missing");
    assert!(matches!(bench.store.mount_image(&image, &missing, None), Err(MountError::Io { .. })));

    bench.store.mount_image(&image, &bench.target, None).expect("mounts");
    let again = bench.store.mount_image(&image, &bench.target, None);
    assert!(matches!(again, Err(MountError::AlreadyMounted { .. })), "{again:?}");
    bench.store.unmount_image(&bench.target).expect("unmounts");
    assert!(matches!(bench.store.unmount_image(&bench.target), Err(MountError::NotMounted { .. })));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_mount_that_fails_is_not_recorded() {
    let bench = Bench::new();
    let image = Image::new("one", &[plain_layer("a", b"a"), plain_layer("b", b"b")]);
    let record = image.pull(&bench.store, "docker.io/library/a:1");
    let lowest = &bench.store.layer_directories(&record).expect("readable")[0];
    if lowest.is_dir() { fs::remove_dir_all(lowest) } else { fs::remove_file(lowest) }.expect("removes");
    let error = bench.store.mount_image(&record, &bench.target, None).expect_err("damaged");
    assert!(format!("{error:?}").contains(lowest.to_str().expect("text")), "{error:?}");
    assert!(bench.store.mounts().expect("readable").is_empty());
    assert!(list(&bench.target).is_empty());
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn layers_of_an_ordinary_user_lie_on_each_other_too() {
    let bench = Bench::new();
    let root = bench.top.path().join("ordinary");
    let options = imagelet_store::OpenOptions { privileged: Some(false), ..super::support::options() };
    let store = Store::open(&root, options).expect("opens");
    assert!(!store.is_privileged());
    let image = Image::new(
        "stack",
        &[
            plain_layer("a", b"lower").file("d/gone", b"x").directory("hidden/", 0o755).file("hidden/x", b"x"),
            plain_layer("b", b"upper")
                .file("d/.wh.gone", b"")
                .directory("hidden/", 0o755)
                .file("hidden/.wh..wh..opq", b"")
                .device("null"),
        ],
    );
    let record = image.pull(&store, "docker.io/library/a:1");
    let deferred = u64::from(in_directories());
    assert_eq!(store.image_layers(&record).expect("readable")[1].stats.deferred, deferred, "the device");
    store.mount_image(&record, &bench.target, None).expect("mounts");
    assert_eq!(list(&bench.target.join("d")), ["a", "b"]);
    assert!(list(&bench.target.join("hidden")).is_empty());
    store.unmount_image(&bench.target).expect("unmounts");
    store.remove_image(&record.id).expect("removes");
    super::support::check_accounts(&store);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn directories_can_be_mounted_without_a_store() {
    let bench = Bench::new();
    let layers: Vec<PathBuf> = ["one", "two"].iter().map(|name| bench.top.path().join(name)).collect();
    for layer in &layers {
        fs::create_dir(layer).expect("creates");
        fs::write(layer.join("f"), layer.to_str().expect("text")).expect("writes");
    }
    mount::mount(&layers, &bench.target, None).expect("mounts");
    assert_eq!(fs::read_to_string(bench.target.join("f")).expect("there"), layers[1].to_str().expect("text"));
    mount::unmount(&bench.target).expect("unmounts");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_foreign_mount_in_the_store_is_neither_crossed_nor_an_obstacle() {
    let bench = Bench::new();
    let root = bench.top.path().join("another");
    drop(open(&root));
    let inside = root.join("ingest/5/fs/mnt");
    fs::create_dir_all(&inside).expect("creates");
    fs::write(bench.target.join("kept"), "x").expect("writes");
    rustix::mount::mount_bind(&bench.target, &inside).expect("binds");
    let store = open(&root);
    let image = Image::new("one", &[plain_layer("a", b"aaa")]).pull(&store, "docker.io/library/a:1");
    assert!(store.image_is_whole(&image));
    assert!(bench.target.join("kept").exists(), "what is mounted is not deleted");
    rustix::mount::unmount(&inside, rustix::mount::UnmountFlags::empty()).expect("unmounts");
    drop(store);
    assert!(list(&open(&root).root().join("ingest")).is_empty());
}
