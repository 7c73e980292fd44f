//! Measurement of trees as containers leave them.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

fn measured(path: &Path) -> DiskAmount {
    measure(OpenDirectory::open(path)).expect("measured")
}

fn open(directory: &OwnedFd, name: &str) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty()).expect("open")
}

#[test]
fn a_tree_is_counted_once_and_without_links() {
    let outside = tempfile::tempdir().expect("a directory");
    fs::write(outside.path().join("big"), vec![1; 1 << 20]).expect("write");
    let root = tempfile::tempdir().expect("a directory");
    let empty = measured(root.path());
    assert_eq!(empty.inodes, 1);
    fs::create_dir_all(root.path().join("a/b")).expect("directories");
    fs::write(root.path().join("a/b/file"), vec![1; 64 << 10]).expect("write");
    fs::hard_link(root.path().join("a/b/file"), root.path().join("again")).expect("a link");
    symlink(outside.path(), root.path().join("out")).expect("a link");
    let full = measured(root.path());
    assert_eq!(full.inodes - empty.inodes, 4);
    assert!((64 << 10..512 << 10).contains(&(full.bytes - empty.bytes)), "{full:?}");
}

#[test]
fn an_absent_directory_uses_nothing() {
    assert_eq!(measured(Path::new("/nonexistent/volume")), DiskAmount::default());
}

#[test]
fn a_file_with_many_names_counts_once_and_costs_no_memory() {
    let root = tempfile::tempdir().expect("a directory");
    let file = root.path().join("file");
    fs::write(&file, vec![1; 3 << 20]).expect("write");
    let before = measured(root.path());
    for number in 0..1000 {
        fs::create_dir_all(root.path().join(format!("{}", number % 7))).expect("made");
        fs::hard_link(&file, root.path().join(format!("{}/{number}", number % 7))).expect("a link");
    }
    let directory = OpenDirectory::open(root.path());
    let mut after = DiskAmount::default();
    let cost = allocation_counter::measure(|| after = measure(directory).expect("measured"));
    assert_eq!(after.inodes, before.inodes + 7);
    assert!(after.bytes >= before.bytes && after.bytes < before.bytes + (1 << 20), "{before:?} {after:?}");
    assert!(cost.bytes_max < 256 << 10, "{} bytes", cost.bytes_max);
}

#[test]
fn data_below_more_names_than_a_path_has_is_counted() {
    let root = tempfile::tempdir().expect("a directory");
    let mut directory = open(&rustix::fs::open(root.path(), OFlags::PATH, Mode::empty()).expect("open"), ".");
    let name = "d".repeat(250);
    for _ in 0..20 {
        rustix::fs::mkdirat(&directory, name.as_str(), Mode::RWXU).expect("made");
        directory = open(&directory, &name);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, "hidden", flags, Mode::RUSR).expect("made");
    let bytes = 4 << 20;
    rustix::io::write(&file, &vec![1; bytes]).expect("written");
    let amount = measured(root.path());
    assert!(amount.bytes >= bytes as u64, "{amount:?}");
    assert_eq!(amount.inodes, 22);
}

#[test]
fn errors_of_the_tree_and_of_this_process_are_distinguished() {
    let is_shortage = |error: MeasureError| matches!(error, MeasureError::Shortage(_));
    for (errno, shortage) in [(Errno::MFILE, true), (Errno::NFILE, true), (Errno::NOMEM, true), (Errno::IO, false)] {
        assert_eq!(is_shortage(io::Error::from(errno).into()), shortage, "{errno}");
        let call = TreeWalkError::Call { operation: "read a directory", depth: 3, source: errno };
        assert_eq!(is_shortage(call.into()), shortage, "{errno}");
    }
    assert!(!is_shortage(TreeWalkError::TooDeep.into()));
    let root = tempfile::tempdir().expect("a directory");
    symlink("/", root.path().join("link")).expect("a link");
    let link = OpenDirectory::open(root.path()).and_then(|root| root.child("link"));
    let error = measure(link).expect_err("a link is not measured");
    assert!(!is_shortage(error));
}
