//! Proof that the power cuts see every sync that the store makes: a day goes on in a process whose syncs are counted, and one of
//! them is not made although it answers that it was, as if the code did without. Some cut has to find what that loses, at each place
//! where one is made; what only orders two writes is found by chance, and not each time. The quick form leaves out the last one of
//! each place, whose loss is certain, the long form each in turn, and prints which cut has seen it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use image_service::Resume;
use store::{Durability, LayerFormat};
use testdisk::{Event, Kind};
use testfault::Sync;

use super::cuts::{self, Cut, Cuts};
use super::judge::{self, Promise};
use super::work::{self, Record, Setting};
use super::{EXT4, Extent, XFS, extent};

/// After how many different losses behind each flush the long form gives up.
const LOSSES: usize = 12;
/// Where the store is on its disk, which is mounted in no namespace.
const STORE: &str = "/store";
const ASKED: &str = "IMAGELET_POWER_CUT_SYNCS";

/// Syncs that no cut on a disk with a journal misses, and why they are made.
const UNSEEN: &[(&str, &str)] = &[
    (
        "opening: fsync(young)",
        "a file system with a journal never has what comes later without it; on one that has none this is what tells a torn store",
    ),
    (
        "pulling: fsync(.)",
        "the sync of the records that follows takes the end of `young` along where there is a journal",
    ),
    ("ending: fsync(.)", "with relaxed durability `young` ends then, and records follow in the same way"),
];

fn word(format: LayerFormat) -> &'static str {
    if format == LayerFormat::Erofs { "erofs" } else { "dir" }
}

/// The process that works.
#[test]
#[ignore = "a process of other tests, which start it: scripts/test.sh"]
fn child() {
    #[expect(clippy::disallowed_methods, reason = "the parent test tells its child by the environment")]
    let asked = std::env::var(ASKED).expect("started by another test");
    let words: Vec<&str> = asked.split('\n').collect();
    let [format, durability, keep_blobs, at, directory, host, notes] = words[..] else { panic!("{asked:?}") };
    let setting = Setting {
        kind: Kind::Ext4,
        bytes: 0,
        format: if format == "erofs" { LayerFormat::Erofs } else { LayerFormat::Dir },
        durability: if durability == "full" { Durability::Full } else { Durability::Relaxed },
        keep_blobs: keep_blobs == "true",
        resume: Resume::Off,
        mounts: false,
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    writeln!(std::io::stdout(), "\nREADY").expect("the parent listens");
    let mut go = String::new();
    std::io::stdin().read_line(&mut go).expect("the parent says so");
    let step = Cell::new(0);
    let note = |text: &str| {
        testdisk::note(Path::new(notes), text).expect("notes");
        step.set(step.get() + 1);
        testfault::note_step(step.get());
    };
    testfault::arm_untrue_sync(at.parse().ok());
    runtime.block_on(work::short_day(&setting, Path::new(directory), host, &note));
    testfault::disarm();
}

/// Records a day of which this sync is not done; answers all of them.
fn record_without(setting: &Setting, at: Option<usize>) -> (Record, Vec<Sync>) {
    let mut syncs = Vec::new();
    let record = work::record_of(setting, |directory, host, notes| {
        let module = module_path!().split_once("::").expect("it is no crate").1;
        let words = [
            word(setting.format).to_owned(),
            if setting.durability == Durability::Full { "full" } else { "relaxed" }.to_owned(),
            setting.keep_blobs.to_string(),
            at.map_or_else(|| "none".to_owned(), |at| at.to_string()),
            directory.display().to_string(),
            host.to_owned(),
            notes.display().to_string(),
        ];
        #[expect(clippy::disallowed_methods, reason = "only another process can be traced")]
        let mut child = Command::new(std::env::current_exe().expect("a test is a program"))
            .args([&format!("{module}::child"), "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ASKED, words.join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        while lines.next().expect("the child ended by itself").expect("readable") != "READY" {}
        let traced = testfault::trace(child, Path::new(STORE), |child| {
            writeln!(child.stdin.as_ref().expect("piped"), "go").expect("it listens");
        });
        assert!(traced.success, "{}: {:?}", traced.end, lines.map_while(Result::ok).collect::<Vec<_>>());
        assert_eq!(traced.failed, u64::from(at.is_some()), "{:?}", traced.last);
        syncs = traced.syncs;
    });
    (record, syncs)
}

/// Work that goes on in a step, by the remark with which it began.
fn doing(record: &Record, step: u16) -> (usize, String) {
    let is_note = |(at, event): (usize, &Event)| match event {
        Event::Note(text) => Some((at, text.split(' ').next().unwrap_or_default().to_owned())),
        Event::Write { .. } | Event::Flush => None,
    };
    let mut notes = record.events.iter().enumerate().filter_map(is_note);
    step.checked_sub(1).map_or((0, "opening".to_owned()), |nth| notes.nth(nth.into()).expect("it was noted"))
}

/// Returns the first cut from this event on that finds something wrong: of the cuts at which a result was reported, and
/// of this many losses after each flush.
fn seen(record: &Record, from: usize, promise: Promise, losses: usize) -> Option<String> {
    let mut cuts: Vec<Cut> = cuts::at_notes(record);
    if losses > 0 {
        cuts.extend(cuts::all(record, losses));
    }
    cuts.retain(|cut| cut.end >= from);
    cuts.sort_by_key(|cut| cut.sure);
    let mut disks = Cuts::new(record);
    cuts.iter().find_map(|cut| {
        let image = disks.disk_after(cut);
        let judge = || judge::judge(record, &image, cut, promise, false);
        let verdict = std::panic::catch_unwind(std::panic::AssertUnwindSafe(judge));
        verdict.unwrap_or_else(|_| Err("a panic".to_owned())).err().map(|wrong| format!("{cut}: {wrong}"))
    })
}

/// Results of the syncs of one place.
#[derive(Default)]
struct SyncResults {
    left_out: usize,
    seen: usize,
    by: String,
}

#[expect(clippy::print_stdout, reason = "the figures that the long form is run for")]
fn each_is_missed(setting: &Setting) {
    let promise = if setting.durability == Durability::Full { Promise::Durable } else { Promise::Settled };
    let is_quick = matches!(extent(0), Extent::Some(_));
    let losses = if is_quick { 0 } else { LOSSES };
    let (record, syncs) = record_without(setting, None);
    assert_eq!(seen(&record, 0, promise, losses), None, "with all of its syncs it stands every cut");
    let name_of = |record: &Record, Sync { step, call, path }: &Sync| {
        let (from, doing) = doing(record, *step);
        (from, format!("{doing}: {call}({})", if path.is_empty() { "." } else { path }))
    };
    let is_unseen = |name: &str| UNSEEN.iter().any(|(known, _)| *known == name);
    let mut chosen: Vec<usize> = (0..syncs.len()).collect();
    if is_quick {
        let names: Vec<String> = syncs.iter().map(|sync| name_of(&record, sync).1).collect();
        chosen.retain(|at| !is_unseen(&names[*at]) && !names[at + 1..].contains(&names[*at]));
    }
    let number = chosen.len();
    let mut places: BTreeMap<String, SyncResults> = BTreeMap::new();
    for at in chosen {
        let (record, syncs) = record_without(setting, Some(at + 1));
        let (from, name) = name_of(&record, &syncs[at]);
        let place = places.entry(name).or_default();
        place.left_out += 1;
        if let Some(by) = seen(&record, from, promise, losses) {
            place.seen += 1;
            place.by = by;
        }
    }
    println!("{setting:?}: {} syncs, of which {number} were left out, each by itself", syncs.len());
    let mut missing = Vec::new();
    for (name, SyncResults { left_out, seen, by }) in &places {
        println!("  {name}: {seen} of {left_out} seen, {}", by.chars().take(160).collect::<String>());
        if *seen == 0 && !is_unseen(name) {
            missing.push(name);
        }
    }
    assert!(missing.is_empty(), "{setting:?}: no cut misses {missing:?}");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn each_sync_is_missed() {
    each_is_missed(&super::setting(EXT4, LayerFormat::Dir));
}

/// The other shapes and file systems.
#[test]
#[ignore = "takes hours: scripts/test-long.sh"]
fn each_sync_is_missed_elsewhere() {
    each_is_missed(&Setting { keep_blobs: true, ..super::setting(EXT4, LayerFormat::Erofs) });
    each_is_missed(&super::setting(XFS, LayerFormat::Dir));
    each_is_missed(&super::setting(XFS, LayerFormat::Erofs));
    each_is_missed(&super::relaxed(EXT4, LayerFormat::Dir));
}
