//! Trees as containers make them: wide, deeper than any path, changed while they are read, and with mounts in them.

use std::ffi::CString;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use super::*;

fn open(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OPEN, Mode::empty()).expect("a directory")
}

fn count(root: &Path) -> Result<usize, TreeWalkError> {
    let mut files = 0;
    walk_tree(open(root), |_| files += 1).map(|()| files)
}

/// Makes a chain of directories of this name, and returns the deepest one.
fn chain(root: &Path, name: &str, levels: usize) -> OwnedFd {
    let name = CString::new(name).expect("a name");
    let mut deepest = open(root);
    for _ in 0..levels {
        rustix::fs::mkdirat(&deepest, &name, Mode::RWXU).expect("made");
        deepest = rustix::fs::openat(&deepest, &name, OPEN, Mode::empty()).expect("open");
    }
    deepest
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

#[test]
fn memory_does_not_grow_with_the_number_of_directories() {
    let visited = |directories: usize| {
        let top = tempfile::tempdir().expect("a directory");
        for one in 0..directories / 300 {
            for two in 0..300 {
                fs::create_dir_all(top.path().join(format!("{one}-{}/{two}-{}", "a".repeat(200), "b".repeat(200))))
                    .expect("made");
            }
        }
        let mut files = 0;
        let root = open(top.path());
        let cost = allocation_counter::measure(|| walk_tree(root, |_| files += 1).expect("walked"));
        assert_eq!(files, 1 + directories / 300 * 301);
        cost.bytes_max
    };
    let (few, many) = (visited(600), visited(60_000));
    assert!(many < few + (64 << 10) && many < 1 << 20, "{few} bytes for 600 directories, {many} for 60,000");
}

#[test]
fn tree_deeper_than_path_max_needs_few_descriptors() {
    let top = tempfile::tempdir().expect("a directory");
    // Side branches above and below the levels that are closed and opened again.
    let name = "d".repeat(250);
    let mut made = 1;
    let mut level = open(top.path());
    for depth in 0..300 {
        for side in 0..3 {
            let branch = format!("{side}-{depth}");
            rustix::fs::mkdirat(&level, branch.as_str(), Mode::RWXU).expect("made");
            rustix::fs::mkdirat(&level, format!("{branch}/below"), Mode::RWXU).expect("made");
            made += 2;
        }
        rustix::fs::mkdirat(&level, name.as_str(), Mode::RWXU).expect("made");
        level = rustix::fs::openat(&level, name.as_str(), OPEN, Mode::empty()).expect("open");
        made += 1;
    }
    drop(level);
    let (mut files, mut most, before) = (0, 0, descriptors());
    let root = open(top.path());
    let cost = allocation_counter::measure(|| {
        walk_tree(root, |_| {
            files += 1;
            if files % 100 == 0 {
                most = most.max(descriptors());
            }
        })
        .expect("walked");
    });
    assert_eq!(files, made);
    // Other tests of this process have descriptors, too.
    assert!(most < before + 100, "{most} descriptors, {before} before");
    assert!(cost.bytes_max < 1 << 20, "{} bytes", cost.bytes_max);
}

#[test]
fn too_many_levels_are_an_error_with_bounded_memory() {
    let top = tempfile::tempdir().expect("a directory");
    drop(chain(top.path(), "d", MAX_DEPTH - 1));
    assert_eq!(count(top.path()), Ok(MAX_DEPTH));
    let mut deepest = top.path().to_path_buf();
    // No path names the deepest one: one more level is put above all the rest.
    deepest.push("d");
    fs::rename(&deepest, top.path().join("moved")).expect("moved");
    fs::create_dir(&deepest).expect("made");
    fs::rename(top.path().join("moved"), deepest.join("d")).expect("moved");
    let root = open(top.path());
    let mut result = Ok(());
    let cost = allocation_counter::measure(|| result = walk_tree(root, |_| {}));
    assert_eq!(result, Err(TreeWalkError::TooDeep));
    assert!(cost.bytes_max < 2 << 20, "{} bytes", cost.bytes_max);
    // The standard library would need a descriptor and a stack frame for each level.
    let (first, rest) = (top.path().join("d"), top.path().join("rest"));
    while fs::rename(first.join("d"), &rest).is_ok() {
        fs::remove_dir(&first).expect("removed");
        fs::rename(&rest, &first).expect("moved");
    }
}

#[test]
fn symlinks_are_not_followed() {
    let (top, outside) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    fs::create_dir_all(outside.path().join("a/b/c")).expect("made");
    std::os::unix::fs::symlink(outside.path(), top.path().join("out")).expect("a link");
    std::os::unix::fs::symlink(".", top.path().join("round")).expect("a link");
    assert_eq!(count(top.path()), Ok(3));
}

#[test]
fn concurrently_removed_files_are_skipped() {
    let top = tempfile::tempdir().expect("a directory");
    let deepest = chain(top.path(), &"d".repeat(100), 40);
    for number in 0..200 {
        rustix::fs::mkdirat(&deepest, format!("{number}"), Mode::RWXU).expect("made");
    }
    // At the first of the 200 the rest is removed, and so are two directories on the way back.
    let mut visited = 0;
    let walked = walk_tree(open(top.path()), |_| {
        visited += 1;
        if visited == 42 {
            for number in 0..200 {
                let _ = rustix::fs::unlinkat(&deepest, format!("{number}"), AtFlags::REMOVEDIR);
            }
            for up in ["..", "../.."] {
                let parent = rustix::fs::openat(&deepest, up, OPEN, Mode::empty()).expect("open");
                rustix::fs::unlinkat(parent, "d".repeat(100), AtFlags::REMOVEDIR).expect("removed");
            }
        }
    });
    assert_eq!(walked, Ok(()));
    assert!((42..241).contains(&visited), "{visited}");
}

#[test]
fn moved_directory_is_detected() {
    let top = tempfile::tempdir().expect("a directory");
    let outside = tempfile::tempdir().expect("a directory");
    drop(chain(top.path(), "d", 40));
    let half = format!("{}/{}", top.path().display(), ["d"; 10].join("/"));
    let mut visited = 0;
    let walked = walk_tree(open(top.path()), |_| {
        visited += 1;
        if visited == 41 {
            fs::rename(&half, outside.path().join("moved")).expect("moved");
        }
    });
    // The way back leads to what is outside, which is not read.
    assert_eq!((walked, visited), (Err(TreeWalkError::Moved), 41));
}

#[test]
fn directory_replaced_by_a_symlink_is_not_entered() {
    let (top, outside) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    fs::create_dir_all(outside.path().join("secret")).expect("made");
    fs::create_dir(top.path().join("a")).expect("made");
    let mut visited = 0;
    let walked = walk_tree(open(top.path()), |_| {
        visited += 1;
        if visited == 2 {
            fs::remove_dir(top.path().join("a")).expect("removed");
            std::os::unix::fs::symlink(outside.path(), top.path().join("a")).expect("a link");
        }
    });
    assert_eq!((walked, visited), (Ok(()), 2));
}

#[test]
fn unreadable_directory_is_an_error() {
    let top = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(top.path().join("a/b")).expect("made");
    // The root is given without the right to read it.
    let root = rustix::fs::open(top.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).expect("open");
    let error = walk_tree(root, |_| {}).expect_err("refused");
    let expected = TreeWalkError::Call { operation: "read a directory", depth: 0, source: Errno::BADF };
    assert_eq!(error, expected);
    assert!(error.to_string().starts_with("cannot read a directory 0 levels below the top: "), "{error}");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn mounts_are_not_entered() {
    let (top, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    fs::create_dir_all(other.path().join("a/b/c")).expect("made");
    fs::create_dir(top.path().join("mount")).expect("made");
    fs::write(top.path().join("file"), "").expect("written");
    assert_eq!(count(top.path()), Ok(3));
    // On the same file system, which devices do not show.
    let root = open(top.path());
    let place = rustix::fs::openat(&root, "mount", OPEN, Mode::empty()).expect("open");
    rustix::mount::mount_bind(other.path(), format!("/proc/self/fd/{}", place.as_raw_fd())).expect("mounted");
    let counted = count(top.path());
    rustix::mount::unmount(top.path().join("mount"), rustix::mount::UnmountFlags::DETACH).expect("unmounted");
    assert_eq!(counted, Ok(2), "the mount point is not of this tree either");
}
