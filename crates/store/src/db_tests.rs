//! The database handle after failures, on real full disks.

use std::path::PathBuf;

use super::*;
use crate::error::StoreError;
use crate::records::{LayerEntry, decode};

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

    fn db(&self, reserve_bytes: u64) -> Result<Db, DbError> {
        let reserve = Reserve::open(&self.path.join("reserve"), reserve_bytes).expect("opens");
        Db::open(&self.path.join("db"), Arc::new(reserve), Arc::new(crate::young::Youth::over()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::DETACH);
    }
}

fn put(db: &Db, key: &str, bytes: usize) -> Result<(), StoreError> {
    db.write(|transaction| Ok(transaction.put_meta(key, &vec![7; bytes])?))
}

fn get(db: &Db, key: &str) -> Option<usize> {
    db.read(|records| Ok::<_, StoreError>(records.meta(key)?.map(|value| value.len()))).expect("readable")
}

#[test]
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
        matches!(&error, DbError::Corrupt(what) if what == "record of layer 7 has the unknown format 9"),
        "{error:?}"
    );
    assert!(decode::<LayerEntry>("layer 7", &[]).is_err());
    assert!(decode::<LayerEntry>("layer 7", &[1, b'{', b'}']).is_err());
}
