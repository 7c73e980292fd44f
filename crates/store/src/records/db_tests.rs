//! The database handle after failures, on real full disks.

use std::path::PathBuf;

use super::*;
use crate::error::StoreError;
use crate::records::entries::{LayerEntry, decode};

/// A small file system in memory, mounted while this lives.
struct SmallDisk {
    path: PathBuf,
    _top: tempfile::TempDir,
}

impl SmallDisk {
    fn new(options: &str) -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test mounts a disk: run it as root");
        let top = tempfile::tempdir().expect("tempdir");
        let path = top.path().join("disk");
        std::fs::create_dir(&path).expect("creates");
        let data = std::ffi::CString::new(options).expect("no zero byte");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("test", &path, "tmpfs", flags, data.as_c_str()).expect("mounts");
        Self { path, _top: top }
    }

    fn db(&self, reserve_bytes: u64) -> Result<Db, StoreError> {
        let reserve = Reserve::open(&self.path.join("reserve"), reserve_bytes).expect("opens");
        Db::open(&self.path.join("db"), Arc::new(reserve), Arc::new(crate::disk::young::Youth::over()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::DETACH);
    }
}

fn put(db: &Db, key: &str, bytes: usize) -> Result<(), StoreError> {
    db.write(|transaction| transaction.put_meta(key, &vec![7; bytes]))
}

fn get(db: &Db, key: &str) -> Option<usize> {
    db.read(|records| Ok::<_, StoreError>(records.meta(key)?.map(|value| value.len()))).expect("readable")
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_failed_write_leaves_the_last_state_and_a_handle_that_works() {
    let disk = SmallDisk::new("size=4m");
    std::fs::write(disk.path.join("filler"), vec![1; 500_000]).expect("fits");
    let db = disk.db(0).expect("opens");
    put(&db, "small", 100).expect("fits");
    let mut error = None;
    for round in 0..20 {
        if let Err(failed) = put(&db, &format!("big {round}"), 600_000) {
            error = Some(failed);
            break;
        }
    }
    let error = error.expect("the disk is full at last");
    assert!(error.is_disk_full(), "{error:?}");
    assert_eq!(get(&db, "small"), Some(100));
    assert_eq!(get(&db, "big 0"), Some(600_000));
    std::fs::remove_file(disk.path.join("filler")).expect("removes");
    put(&db, "small", 200).expect("there is space again");
    assert_eq!(get(&db, "small"), Some(200));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn the_reserve_is_what_a_write_on_a_full_disk_uses() {
    let disk = SmallDisk::new("size=8m");
    let db = disk.db(1 << 20).expect("opens");
    put(&db, "small", 100).expect("fits");
    db.reserve().ensure().expect("fits");
    let filler = vec![1_u8; 16 << 20];
    std::fs::write(disk.path.join("filler"), filler).expect_err("the disk is full");
    put(&db, "more", 200_000).expect("the reserve gives way");
    assert_eq!(std::fs::metadata(disk.path.join("reserve")).expect("there").len(), 0);
    assert_eq!(get(&db, "more"), Some(200_000));
    db.reserve().ensure().expect_err("the disk is still full");
    std::fs::remove_file(disk.path.join("filler")).expect("removes");
    db.reserve().ensure().expect("fits again");
    assert_eq!(std::fs::metadata(disk.path.join("reserve")).expect("there").len(), 1 << 20);
}

#[test]
fn a_damaged_file_is_an_error_and_no_panic() {
    let top = tempfile::tempdir().expect("tempdir");
    let path = top.path().join("db");
    let open = || {
        let reserve = Reserve::open(&top.path().join("reserve"), 0).expect("opens");
        Db::open(&path, Arc::new(reserve), Arc::new(crate::disk::young::Youth::over()))
    };
    let db = open().expect("opens");
    for number in 0..40 {
        put(&db, &format!("key {number}"), 100 * number).expect("fits");
    }
    drop(db);
    let sound = std::fs::read(&path).expect("readable");
    let mut refused = 0;
    // Each place where something was, as a disk has it that lost a write, or wrote it elsewhere.
    let used: Vec<usize> =
        (0..sound.len()).step_by(512).filter(|&at| sound[at..at + 512].iter().any(|b| *b != 0)).collect();
    for (round, &at) in used.iter().enumerate() {
        let mut damaged = sound.clone();
        let other = used[(round * 7 + 3) % used.len()];
        match round % 3 {
            0 => damaged[at..at + 512].fill(0),
            1 => damaged.copy_within(other..other + 512, at),
            _ => damaged[at..at + 512].iter_mut().for_each(|byte| *byte = !*byte),
        }
        std::fs::write(&path, damaged).expect("writes");
        let used = open().and_then(|db| {
            for number in 0..40 {
                db.read(|records| records.meta(&format!("key {number}")))?;
            }
            db.read(|records| records.layer_rows())?;
            put(&db, "one more", 1000)
        });
        refused += u32::from(used.is_err());
    }
    assert!(refused > 0, "none of {} was seen", used.len());
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn an_act_that_refuses_changes_nothing() {
    let disk = SmallDisk::new("size=8m");
    let db = disk.db(0).expect("opens");
    let refused: Result<(), StoreError> = db.write(|transaction| {
        transaction.put_meta("k", b"v")?;
        Err(StoreError::Corrupt("as a test".into()))
    });
    refused.expect_err("refused");
    assert_eq!(get(&db, "k"), None);
}

#[test]
fn a_record_of_an_unknown_format_is_named() {
    let error = decode::<LayerEntry>("layer 7", &[9, b'{', b'}']).expect_err("unknown");
    assert!(
        matches!(&error, StoreError::Corrupt(what) if what == "record of layer 7 has the unknown format 9"),
        "{error:?}"
    );
    assert!(decode::<LayerEntry>("layer 7", &[]).is_err());
    assert!(decode::<LayerEntry>("layer 7", &[1, b'{', b'}']).is_err());
}

/// A database in a directory that lasts longer than it.
struct DatabaseFiles {
    top: tempfile::TempDir,
}

impl DatabaseFiles {
    fn new() -> Self {
        Self { top: tempfile::tempdir().expect("tempdir") }
    }

    fn file(&self) -> PathBuf {
        self.top.path().join("db")
    }

    fn open(&self) -> Db {
        let reserve = Reserve::open(&self.top.path().join("reserve"), 0).expect("opens");
        Db::open(&self.file(), Arc::new(reserve), Arc::new(crate::disk::young::Youth::over())).expect("opens")
    }

    /// The content, and when it was changed.
    fn state(&self) -> (Vec<u8>, std::time::SystemTime) {
        let file = self.file();
        let modified = std::fs::metadata(&file).expect("there").modified().expect("known");
        (std::fs::read(&file).expect("readable"), modified)
    }

    /// A copy of the files as they are if the process is killed now.
    fn as_killed(&self) -> Self {
        let copy = Self::new();
        std::fs::copy(self.file(), copy.file()).expect("copies");
        copy
    }
}

fn syncs(db: &Db) -> u64 {
    db.reserve().syncs.load(std::sync::atomic::Ordering::Relaxed)
}

#[test]
fn who_only_reads_writes_and_syncs_nothing() {
    let place = DatabaseFiles::new();
    put(&place.open(), "a", 100).expect("fits");
    let before = place.state();
    for _ in 0..3 {
        let db = place.open();
        assert_eq!(get(&db, "a"), Some(100));
        assert_eq!(syncs(&db), 0);
        drop(db);
        assert_eq!(place.state(), before);
    }
    // The same of a file that was closed in the ordinary way, by what is not ours.
    drop(Database::create(place.file()).expect("opens"));
    let before = place.state();
    let db = place.open();
    assert_eq!((get(&db, "a"), syncs(&db)), (Some(100), 0));
    drop(db);
    assert_eq!(place.state(), before);
    let db = place.open();
    put(&db, "a", 200).expect("fits");
    drop(db);
    assert_eq!(get(&place.open(), "a"), Some(200));
}

#[test]
fn a_transaction_costs_two_syncs_and_neither_open_nor_end_another() {
    let place = DatabaseFiles::new();
    drop(place.open());
    for round in 0..20 {
        let db = place.open();
        for step in 0..3 {
            put(&db, &format!("{}", (round * 7 + step) % 16), 1000 + round).expect("fits");
            // Both to come once more, and what a kill leaves.
            assert_eq!(get(&place.as_killed().open(), &format!("{}", (round * 7 + step) % 16)), Some(1000 + round));
        }
        assert_eq!(syncs(&db), 6, "round {round}");
        drop(db);
        let db = place.open();
        assert_eq!(get(&db, &format!("{}", (round * 7) % 16)), Some(1000 + round));
        assert_eq!(syncs(&db), 0);
    }
    let size = std::fs::metadata(place.file()).expect("there").len();
    assert!(size < 4 << 20, "what is free is used again: {size} bytes");
    // The file is an ordinary database all the same.
    let mut ordinary = Database::open(place.file()).expect("opens");
    assert!(ordinary.check_integrity().expect("readable"));
}
