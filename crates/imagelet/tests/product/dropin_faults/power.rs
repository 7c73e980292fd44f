//! Power cuts on a disk that records every write and flush: our engine fills the containerd on it; then the disk is rebuilt as it may
//! be after a cut at one of these moments, and containerd starts on it. No snapshot is committed without its files, an image that was
//! pulled is present, and the next pull succeeds.

use std::collections::BTreeMap;
use std::path::Path;

use testdisk::{Disk, Event, Image, Kind};

use super::{Harbour, Pushed, differences};
use crate::support::disk::share;
use crate::support::process::{eventually, run, tool};
use crate::support::random::Random;
use crate::support::scene::Scene;
use crate::support::tree::{self, Tree};

const CUTS: usize = 10;
const SEED: u64 = 0x1DEA_2026_1124;
/// Bytes that a disk writes whole.
const SECTORS: usize = 4096 / testdisk::SECTOR;

/// The tree of a snapshot that is committed.
#[track_caller]
fn tree_of(h: &Harbour, chain: &str) -> Tree {
    let on = h.s.scratch.directory("view");
    // containerd may collect it at once: its mount is of what the layers have.
    let key = format!("look at {chain}");
    let view = || {
        let args = ["snapshots", "view", "--target", &on.display().to_string(), &key, chain];
        h.containerd.ctr().args(args).output().expect("ctr starts")
    };
    let mut viewed = view();
    if String::from_utf8_lossy(&viewed.stderr).contains("file exists") {
        // A directory whose record the cut took is in the way of the first snapshot, which fails and clears it.
        viewed = view();
    }
    assert!(viewed.status.success(), "{chain}: {}", String::from_utf8_lossy(&viewed.stderr));
    run(tool("sh").args(["-ec", &String::from_utf8_lossy(&viewed.stdout)]));
    let tree = tree::read(&on);
    run(tool("umount").arg(&on));
    eventually("nothing looks any more", || {
        let _ = h.containerd.ctr().args(["snapshots", "remove", &key]).output();
        h.snapshots().iter().all(|row| !row.key.starts_with("look at"))
    });
    tree
}

/// A recorded disk, and the images that were pulled on it.
struct Record {
    base: Image,
    events: Vec<Event>,
    /// Trees by chain id.
    good: BTreeMap<String, Tree>,
    images: Vec<Pushed>,
}

/// Pulls two images that share layers, one after the other.
fn record(h: &mut Harbour, disk: &Disk, base: Image) -> Record {
    let layers = h.layers("cut", 5, 30_000);
    let images = vec![h.push("cut/one:1", &layers[..3]), h.push("cut/two:1", &layers)];
    for image in &images {
        h.imagelet.ok(&["pull", &image.name]);
        disk.note(&image.name).expect("its server is there");
    }
    h.containerd.stop();
    let events = disk.recorded().expect("a record");
    // Reading the trees makes snapshots: no power cut is among those writes.
    h.containerd.start_again();
    let chains: Vec<&String> = images.iter().flat_map(|image| &image.chains).map(|(chain, _)| chain).collect();
    let good = chains.into_iter().map(|chain| (chain.clone(), tree_of(h, chain))).collect();
    h.containerd.stop();
    Record { base, events, good, images }
}

/// The disk after a cut behind the event `end`: everything up to the last flush before it is present; of the later writes a share is
/// missing, and some are present in part.
fn after_a_cut(record: &Record, end: usize, lost: Option<f64>, random: &mut Random) -> Image {
    let events = &record.events[..end];
    let sure = events.iter().rposition(|event| *event == Event::Flush).map_or(0, |flush| flush + 1);
    let image = record.base.copy().expect("memory");
    for event in &events[..sure] {
        image.apply(event).expect("memory");
    }
    let Some(lost) = lost else { return image };
    for event in &events[sure..] {
        let Event::Write { data, .. } = event else { continue };
        let sectors = data.len().div_ceil(testdisk::SECTOR);
        if random.next() < lost {
            continue;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "few")]
        let part = (random.next() * sectors as f64) as usize;
        let kept = if sectors > SECTORS && random.next() < lost { part } else { sectors };
        image.apply_torn(event, kept).expect("memory");
    }
    image
}

#[track_caller]
fn judge(h: &mut Harbour, record: &Record, end: usize, on: &Path, image: &Image, context: &str) {
    let mut mounted = image.mount().unwrap_or_else(|e| panic!("{context}: {e}"));
    mounted.attach(on).expect("it can be mounted");
    share(on);
    // As the unit does when the machine starts. A snapshot that was not committed may lack its file.
    let mounts = h.imagelet.run(&["mounts", "--all"]);
    assert!(matches!(mounts.code, Some(0 | 1)), "{context}: {}", mounts.stderr);
    h.containerd.start_again();
    for chain in h.committed() {
        let good = record.good.get(&chain).unwrap_or_else(|| panic!("{context}: a snapshot {chain}"));
        assert_eq!(differences(good, &tree_of(h, &chain)), Vec::<String>::new(), "{context}: {chain}");
    }
    let visible = h.visible();
    let told = |name: &str| record.events[..end].iter().any(|event| matches!(event, Event::Note(note) if note == name));
    for image in &record.images {
        let top = &image.chains.last().expect("layers").0;
        if told(&image.name) {
            assert!(visible.contains(&image.name), "{context}: {} was pulled: {visible:?}", image.name);
        }
        if visible.contains(&image.name) {
            assert!(h.committed().contains(top), "{context}: {} cannot start", image.name);
        }
    }
    // Of the next boot.
    let imagelet = h.imagelet.clone().booted(60);
    for image in &record.images {
        let done = imagelet.run(&["pull", &image.name]);
        assert_eq!(done.code, Some(0), "{context}: {}\n{}", done.stderr, h.containerd.lines().join("\n"));
        let top = &image.chains.last().expect("layers").0;
        assert_eq!(differences(&record.good[top], &tree_of(h, top)), Vec::<String>::new(), "{context}");
    }
    h.nothing_on_the_way(context);
    h.containerd.kill();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn no_snapshot_is_committed_without_its_files() {
    let s = Scene::new();
    let disk = Disk::new(Kind::Ext4, 128 << 20).expect("a disk");
    let base = disk.record().expect("it records");
    let on = s.scratch.directory("disk");
    let mut mounted = disk.mount().expect("it can be mounted");
    mounted.attach(&on).expect("it can be mounted there");
    share(&on);
    let mut h = Harbour::on(s, on.clone());
    let record = record(&mut h, &disk, base);
    drop((mounted, disk));

    let flushes: Vec<usize> =
        record.events.iter().enumerate().filter(|(_, event)| **event == Event::Flush).map(|(at, _)| at).collect();
    let first = record.events.iter().position(|event| matches!(event, Event::Note(_))).expect("a pull");
    // The flushes before a pull belong to containerd's own start.
    let of_pulls: Vec<usize> = flushes.into_iter().filter(|flush| *flush > first / 3).collect();
    let cuts = crate::support::random::number("IMAGELET_POWER_CUT_LOSSES", 0) * of_pulls.len();
    let cuts = if cuts == 0 { CUTS } else { cuts };
    let mut random = Random(SEED);
    for cut in 0..cuts {
        // One in each part of equal size; at the flush itself, or somewhere before the next one.
        let (flush, lost) = (cut * of_pulls.len() / cuts, [None, Some(0.5), Some(0.1)][cut % 3]);
        let from = of_pulls[flush];
        let to = of_pulls.get(flush + 1).copied().unwrap_or(record.events.len());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "few")]
        let end = from + 1 + lost.map_or(0, |_| (random.next() * (to - from) as f64) as usize);
        let end = end.min(record.events.len());
        let context = format!("seed {SEED:#x}, cut {cut} of {cuts} at event {end}, lost {lost:?}");
        let image = after_a_cut(&record, end, lost, &mut random);
        judge(&mut h, &record, end, &on, &image, &context);
    }
    println!("{} events, {} flushes of pulls; {cuts} cuts tried, 0 failed", record.events.len(), of_pulls.len());
}
