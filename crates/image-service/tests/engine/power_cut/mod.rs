//! Power cuts: an engine pulls, removes, converts and collects on a disk that records every write and flush; then the disk is
//! made again as it may be after a cut at any of these moments, mounted, and the store on it opened and judged. Needs root.
//!
//! Until a flush has come back, the disk may have any of the writes since the flush before it, and a part of some: for each
//! flush, that moment itself is tried, and the time until the next one with all, some, and torn writes of it.

mod cuts;
mod judge;
mod syncs;
mod work;

use image_service::Resume;
use store::{Durability, LayerFormat};
use testdisk::{Event, Kind};

use cuts::{Cut, Cuts};
use judge::Promise;
use work::{Record, Setting};

/// Cut points of the quick form, for each of the four durable cases.
const QUICK: usize = 50;
const QUICK_RELAXED: usize = 16;
/// Of each day that has more in it.
const QUICK_MORE: usize = 6;

const EXT4: (Kind, u64) = (Kind::Ext4, 96 << 20);
const XFS: (Kind, u64) = (Kind::Xfs, 300 << 20);

/// A store of full durability.
fn setting((kind, bytes): (Kind, u64), format: LayerFormat) -> Setting {
    Setting { kind, bytes, format, durability: Durability::Full, keep_blobs: false, resume: Resume::Off, mounts: false }
}

/// How many cuts are to be tried: so many, or, in the long form, this many different losses after every flush.
enum Extent {
    Some(usize),
    All { losses: usize },
}

/// The long form is asked for by the environment: the number of different losses after every flush.
fn extent(quick: usize) -> Extent {
    #[expect(clippy::disallowed_methods, reason = "the long form of a test is asked for by the environment")]
    let asked = std::env::var("IMAGELET_POWER_CUT_LOSSES").ok();
    match asked {
        Some(losses) => Extent::All { losses: losses.parse().expect("a number of losses") },
        None => Extent::Some(quick),
    }
}

/// Of the long form the environment may ask for one of several parts, `1/4` to `4/4`.
fn part(cuts: Vec<Cut>) -> Vec<Cut> {
    #[expect(clippy::disallowed_methods, reason = "the long form of a test is asked for by the environment")]
    let Ok(asked) = std::env::var("IMAGELET_POWER_CUT_PART") else { return cuts };
    let numbers = asked.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
    let (number, of): (usize, usize) = numbers.filter(|(number, of)| (1..=*of).contains(number)).expect("a part");
    let (from, to) = ((number - 1) * cuts.len() / of, number * cuts.len() / of);
    cuts[from..to].to_vec()
}

/// Tries the cuts of a record; answers what is wrong, with the cut that shows it.
fn failures(record: &Record, cuts: &[Cut], promise: Promise) -> Vec<String> {
    let mut failures = Vec::new();
    let mut disks = Cuts::new(record);
    for (number, cut) in cuts.iter().enumerate() {
        let image = disks.disk_after(cut);
        // Now and then the node goes on after the cut.
        let judge = || judge::judge(record, &image, cut, promise, number % 8 == 7);
        let verdict = std::panic::catch_unwind(std::panic::AssertUnwindSafe(judge));
        if let Err(wrong) = verdict.unwrap_or_else(|_| Err("a panic".to_owned())) {
            failures.push(format!("{cut}: {wrong}"));
        }
    }
    failures
}

#[expect(clippy::print_stdout, reason = "the figures that the long form is run for")]
fn survives(setting: &Setting, quick: usize, promise: Promise) {
    let record = work::record(setting);
    let cuts = match extent(quick) {
        Extent::Some(number) => cuts::some(&record, number),
        Extent::All { losses } => part(cuts::all(&record, losses)),
    };
    let failures = failures(&record, &cuts, promise);
    let count = |what: fn(&Event) -> bool| record.events.iter().filter(|event| what(event)).count();
    println!(
        "{setting:?}: {} writes and {} flushes recorded; {} cuts tried, {} failed",
        count(|event| matches!(event, Event::Write { .. })),
        count(|event| *event == Event::Flush),
        cuts.len(),
        failures.len()
    );
    assert!(failures.is_empty(), "{setting:?}: {}:\n{}", failures.len(), failures.join("\n"));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn directories_on_ext4() {
    survives(&setting(EXT4, LayerFormat::Dir), QUICK, Promise::Durable);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn images_on_ext4() {
    survives(&Setting { keep_blobs: true, ..setting(EXT4, LayerFormat::Erofs) }, QUICK, Promise::Durable);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn directories_on_xfs() {
    survives(&Setting { keep_blobs: true, ..setting(XFS, LayerFormat::Dir) }, QUICK, Promise::Durable);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn images_on_xfs() {
    survives(&setting(XFS, LayerFormat::Erofs), QUICK, Promise::Durable);
}

fn relaxed(disk: (Kind, u64), format: LayerFormat) -> Setting {
    Setting { durability: Durability::Relaxed, ..setting(disk, format) }
}

/// Pulls that are interrupted and resumed.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn resumed_pulls_on_ext4() {
    for format in [LayerFormat::Dir, LayerFormat::Erofs] {
        let setting = Setting { resume: Resume::Always, ..setting(EXT4, format) };
        survives(&setting, QUICK_MORE, Promise::Durable);
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn resumed_pulls_on_xfs() {
    for format in [LayerFormat::Dir, LayerFormat::Erofs] {
        let setting = Setting { resume: Resume::Always, ..setting(XFS, format) };
        survives(&setting, QUICK_MORE, Promise::Durable);
    }
}

/// With layers that outlive the cut as far as they were written by chance.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn resumed_pulls_that_are_relaxed() {
    let setting = Setting { resume: Resume::Always, ..relaxed(EXT4, LayerFormat::Dir) };
    survives(&setting, QUICK_MORE, Promise::Settled);
}

/// An image of many layers, whose mount is of one that is composed for it.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn mounts_of_one_image() {
    survives(&Setting { mounts: true, ..setting(EXT4, LayerFormat::Erofs) }, QUICK_MORE, Promise::Durable);
}

/// Images that were pulled with `durability: relaxed` may be gone after a cut, unless the store was closed in order since; what is
/// there is whole all the same.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn relaxed_directories() {
    survives(&relaxed(EXT4, LayerFormat::Dir), QUICK_RELAXED, Promise::Settled);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn relaxed_images() {
    survives(&relaxed(XFS, LayerFormat::Erofs), QUICK_RELAXED, Promise::Settled);
}

/// The judge can find fault: with what relaxed durability does not promise, and with a disk that takes flushes and does nothing.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn what_is_lost_is_seen() {
    let record = work::record(&relaxed(EXT4, LayerFormat::Dir));
    let cuts = cuts::some(&record, QUICK_RELAXED);
    let found = failures(&record, &cuts, Promise::Durable);
    assert!(found.iter().any(|wrong| wrong.contains("was pulled")), "relaxed is not durable: {found:?}");

    let record = work::record(&setting(EXT4, LayerFormat::Erofs));
    let cuts = cuts::lying(&record, QUICK_RELAXED);
    let found = failures(&record, &cuts, Promise::Durable);
    assert!(found.len() > cuts.len() / 4, "a disk that lies about its flushes: {found:?} of {}", cuts.len());
}
