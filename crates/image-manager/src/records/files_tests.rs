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
    let buffer = &mut [0; 64];
    assert!(matches!(directory.read_now(&name, None, buffer), Now::Absent | Now::Unknown));

    let draft = directory.draft(&name, b"content").unwrap();
    let lock = directory.lock().unwrap();
    assert!(draft.place(&name).unwrap().is_some());
    drop(lock);
    let content = directory.read(&name).unwrap().unwrap();
    assert_eq!(content.bytes, b"content");
    assert!(directory.is_still(&name, Some(&content)).unwrap());
    // Where the file system can do it, it is the same; where it cannot, it says so.
    for room in [64, 8, 7, 1] {
        let mut buffer = vec![0; room];
        match directory.read_now(&name, None, &mut buffer) {
            Now::Is(size, _) => assert_eq!(&buffer[..size], b"content", "{room}"),
            Now::Long(bytes, _) => assert_eq!(bytes, b"content", "{room}"),
            Now::Unknown => {}
            other => panic!("{room}: {other:?}"),
        }
    }
    let seen = FileStamp { settled: true, ..content.stamp };
    assert!(matches!(directory.read_now(&name, Some(&seen), buffer), Now::Unchanged | Now::Unknown));
    for unsure in [FileStamp { settled: false, ..content.stamp }, FileStamp::UNKNOWN] {
        match directory.read_now(&name, Some(&unsure), buffer) {
            Now::Is(size, stamp) => assert!(&buffer[..size] == b"content" && stamp.inode == content.stamp.inode),
            Now::Unknown => {}
            other => panic!("{other:?}"),
        }
    }

    // A link, a directory, or something far too big is no record.
    std::os::unix::fs::symlink(directory.path_of(&name), directory.path_of("sha256-link")).unwrap();
    directory.read("sha256-link").unwrap_err();
    std::fs::create_dir(directory.path_of("sha256-dir")).unwrap();
    directory.read("sha256-dir").unwrap_err();
    let big = File::create(directory.path_of("sha256-big")).unwrap();
    big.set_len(MAX_SIZE + 1).unwrap();
    directory.read("sha256-big").unwrap_err();
    for name in ["sha256-link", "sha256-dir", "sha256-big"] {
        assert!(matches!(directory.read_now(name, None, buffer), Now::Unknown), "{name}");
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
    // A draft that another process removed is reported.
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
