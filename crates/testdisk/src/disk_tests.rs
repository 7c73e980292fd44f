//! The disk itself: it records the writes of a file system in order, and fails on request. Needs root.

use crate::{Disk, EIO, Event, Fault, Kind, Op};

fn flushes(events: &[Event]) -> usize {
    events.iter().filter(|event| **event == Event::Flush).count()
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn what_is_synced_is_in_the_record_before_its_flush() {
    for (kind, bytes) in [(Kind::Ext4, 64 << 20), (Kind::Xfs, 300 << 20)] {
        let disk = Disk::new(kind, bytes).expect("a disk");
        let base = disk.record().expect("records");
        let mounted = disk.mount().expect("mounts");
        std::fs::write(mounted.path().join("unsynced"), vec![1; 100_000]).expect("writes");
        std::fs::write(mounted.path().join("synced"), vec![2; 100_000]).expect("writes");
        disk.note("before").expect("notes");
        let file = std::fs::File::open(mounted.path().join("synced")).expect("opens");
        file.sync_all().expect("syncs");
        disk.note("after").expect("notes");
        let events = disk.recorded().expect("a record");
        let place = |text: &str| events.iter().position(|e| *e == Event::Note(text.into())).expect("is noted");
        let (before, after) = (place("before"), place("after"));
        assert!(flushes(&events[before..after]) > 0, "{kind:?}: a sync is a flush");
        // As a machine finds it whose power is cut right after the sync, and one that loses everything before its flush.
        for (end, there) in [(after, true), (before, false)] {
            let image = base.copy().expect("memory");
            for event in &events[..end] {
                image.apply(event).expect("memory");
            }
            let again = image.mount().expect("the journal is replayed");
            let found = std::fs::read(again.path().join("synced")).ok();
            assert_eq!(found == Some(vec![2; 100_000]), there, "{kind:?}");
        }
        drop(mounted);
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn faults_occur_where_and_when_requested() {
    let disk = Disk::new(Kind::Ext4NoJournal, 64 << 20).expect("a disk");
    let mounted = disk.mount().expect("mounts");
    let path = mounted.path().join("file");
    let write = |byte: u8| {
        std::fs::write(&path, vec![byte; 5 << 20])?;
        std::fs::File::open(&path)?.sync_all()
    };
    write(1).expect("a sound disk");
    let before = disk.counts().expect("counts");
    assert!(before.writes > 0 && before.flushes > 0 && before.failed == 0, "{before:?}");
    disk.fail(Fault::of(Op::Write, EIO).after(1)).expect("is told");
    let error = write(2).expect_err("the second write fails");
    assert_eq!(error.raw_os_error(), Some(EIO), "{error}");
    assert!(disk.counts().expect("counts").failed > 0);
    disk.heal().expect("is told");
    write(3).expect("is sound again");
    disk.fail(Fault::of(Op::Flush, EIO).times(1)).expect("is told");
    assert!(write(4).is_err(), "what cannot be flushed is not synced");
    write(5).expect("is sound again");
}
