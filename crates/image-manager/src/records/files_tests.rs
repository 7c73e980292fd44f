//! Files that are read without waiting, and stamps that can be relied on.

use super::*;
use crate::records::format::file_name;

#[test]
fn a_stamp_is_relied_on_when_no_later_change_can_bear_it() {
    for (changed, now, want) in [
        ((10, 5), (10, 6), true),
        ((10, 5), (10, 5), false),
        ((10, 5), (9, 9), false),
        ((10, 0), (11, 1), false),
        ((10, 0), (12, 9), false),
        ((10, 0), (13, 0), true),
    ] {
        assert_eq!(settled(changed, now), want, "{changed:?} {now:?}");
    }
}

#[test]
fn a_file_is_read_without_waiting_once_it_is_in_memory() {
    let root = tempfile::tempdir().unwrap();
    let directory = Directory::open(root.path().join("pulled")).unwrap();
    let name = file_name("id");
    assert!(directory.read(&name).unwrap().is_none());
    assert!(matches!(directory.read_now(&name, None), Now::Absent | Now::Unknown));

    let draft = directory.draft(&name, b"content").unwrap();
    let lock = directory.lock().unwrap();
    assert!(draft.place(&name).unwrap().is_some());
    drop(lock);
    let content = directory.read(&name).unwrap().unwrap();
    assert_eq!(content.bytes, b"content");
    assert!(directory.is_still(&name, Some(&content)).unwrap());
    // Where the file system can do it, it is the same; where it cannot, it says so.
    match directory.read_now(&name, None) {
        Now::Is(now) => assert_eq!(now.bytes, b"content"),
        Now::Unknown => {}
        other => panic!("{other:?}"),
    }
    let seen = FileStamp { settled: true, ..content.stamp };
    assert!(matches!(directory.read_now(&name, Some(&seen)), Now::Unchanged | Now::Unknown));
    let unsure = FileStamp { settled: false, ..content.stamp };
    assert!(matches!(directory.read_now(&name, Some(&unsure)), Now::Is(_) | Now::Unknown));

    // A link, a directory, or something far too big is no record.
    std::os::unix::fs::symlink(directory.path_of(&name), directory.path_of("sha256-link")).unwrap();
    directory.read("sha256-link").unwrap_err();
    std::fs::create_dir(directory.path_of("sha256-dir")).unwrap();
    directory.read("sha256-dir").unwrap_err();
    let big = File::create(directory.path_of("sha256-big")).unwrap();
    big.set_len(MAX_SIZE + 1).unwrap();
    directory.read("sha256-big").unwrap_err();
    for name in ["sha256-link", "sha256-dir", "sha256-big"] {
        assert!(matches!(directory.read_now(name, None), Now::Unknown), "{name}");
    }
    let mut names = directory.names().unwrap();
    names.sort();
    assert_eq!(names, [&name, "sha256-big", "sha256-link"]);
}

#[test]
fn a_draft_that_is_dropped_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let directory = Directory::open(root.path().to_owned()).unwrap();
    drop(directory.draft("sha256-x", b"x").unwrap());
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    // One that somebody took away is told.
    let draft = directory.draft("sha256-x", b"x").unwrap();
    std::fs::remove_file(std::fs::read_dir(root.path()).unwrap().next().unwrap().unwrap().path()).unwrap();
    assert!(draft.place("sha256-x").unwrap().is_none());
}

#[test]
fn threads_shut_each_other_out() {
    let root = tempfile::tempdir().unwrap();
    let directory = Directory::open(root.path().to_owned()).unwrap();
    let inside = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let _lock = directory.lock().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
}
