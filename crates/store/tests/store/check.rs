//! The check: its findings, what a repair keeps and removes, and how a damaged image is restored.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use cri_api::engine::{CheckReport, ProblemKind};
use imagelet_store::check::{CheckError, CheckOptions, Depth};
use imagelet_store::{Durability, ImageRecord, OpenOptions, Store};
use redb::{ReadableTable as _, TableDefinition};

use super::support::{Image, Tar, check_accounts, in_directories, list, open, options, plain_layer, run_check};

pub(super) fn kinds(report: &CheckReport) -> Vec<ProblemKind> {
    report.problems.iter().map(|problem| problem.kind).collect()
}

/// A store with three images: two share a base, one of which has a layer that depends on it; one stands alone.
struct Bench {
    _top: tempfile::TempDir,
    root: PathBuf,
    images: [Image; 3],
}

impl Bench {
    fn new() -> (Self, Store, [ImageRecord; 3]) {
        let top = tempfile::tempdir().expect("tempdir");
        let root = top.path().join("store");
        let store = open(&root);
        let base = plain_layer("base", &[1; 30_000])
            .directory("d/closed/", 0o700)
            .file("d/empty", b"")
            .symlink("d/link", "the target")
            .file("d/base", &[2; 30_001])
            .file("d/.wh.gone", b"");
        let dependent = Tar::default().directory("./", 0o755).file("d/upper", b"upper");
        let images = [
            Image::new("one", &[base.clone(), plain_layer("one", &[3; 9000])]),
            Image::new("two", &[base, dependent]),
            Image::new("three", &[plain_layer("three", &[4; 9000])]),
        ];
        let records = ["one", "two", "three"].map(|name| {
            let image = &images[["one", "two", "three"].iter().position(|other| *other == name).expect("one of them")];
            image.pull(&store, &format!("r.example/{name}:1"))
        });
        store.set_pinned(&records[0].id, true).expect("pins");
        (Self { _top: top, root, images }, store, records)
    }

    fn layer(&self, image: &ImageRecord, number: usize) -> PathBuf {
        self.root.join("layers").join(image.layers[number].to_string())
    }
}

/// A change of the base layer's directory, the least depth that finds it, and words of the report.
type Damage = (&'static str, fn(&Path), Depth, &'static str);

const DAMAGES: &[Damage] = &[
    ("everything is gone", |layer| fs::remove_dir_all(layer).expect("deletes"), Depth::Sizes, "its directory is gone"),
    ("the tree is gone", |layer| fs::remove_dir_all(layer.join("fs")).expect("deletes"), Depth::Sizes, "is gone"),
    ("a file is gone", |layer| fs::remove_file(layer.join("fs/d/base")).expect("deletes"), Depth::Sizes, "is gone"),
    (
        "a file is shorter",
        |layer| fs::write(layer.join("fs/d/base"), [2; 30_000]).expect("writes"),
        Depth::Sizes,
        "not what it was",
    ),
    ("no recipe", |layer| fs::remove_file(layer.join("recipe.zst")).expect("deletes"), Depth::Sizes, "has no recipe"),
    ("a torn recipe", |layer| tear(&layer.join("recipe.zst")), Depth::Sizes, ""),
    ("one bit", |layer| flip(&layer.join("fs/d/base")), Depth::Digest, "instead of sha256:"),
    ("a replaced file", |layer| flip(&layer.join("replaced/0")), Depth::Digest, "instead of sha256:"),
    (
        "an empty file is gone",
        |layer| fs::remove_file(layer.join("fs/d/empty")).expect("deletes"),
        Depth::Files,
        "\"fs/d/empty\" is gone",
    ),
    (
        "a file too many",
        |layer| fs::write(layer.join("fs/d/x"), "").expect("writes"),
        Depth::Files,
        "\"fs/d/x\" is not of this layer",
    ),
    (
        "a mode",
        |layer| mode(&layer.join("fs/d/closed"), 0o755),
        Depth::Files,
        "the mode of \"fs/d/closed\" is 755 instead of 700",
    ),
    ("a link", |layer| relink(&layer.join("fs/d/link")), Depth::Files, "\"fs/d/link\""),
    (
        "a whiteout",
        |layer| fs::remove_file(layer.join("fs/d/gone")).expect("deletes"),
        Depth::Files,
        "\"fs/d/gone\" is gone",
    ),
    ("an attribute", |layer| attribute(&layer.join("fs/d/base")), Depth::Files, "the attribute \"user.x\""),
];

const IMAGE_DAMAGES: &[Damage] = &[
    ("everything is gone", |layer| fs::remove_dir_all(layer).expect("deletes"), Depth::Sizes, "its directory is gone"),
    ("the image is gone", |layer| fs::remove_file(layer.join(IMAGE)).expect("deletes"), Depth::Sizes, "is gone"),
    ("the image is shorter", |layer| tear(&layer.join(IMAGE)), Depth::Sizes, "the image is damaged"),
    ("no recipe", |layer| fs::remove_file(layer.join("recipe.zst")).expect("deletes"), Depth::Sizes, "has no recipe"),
    ("a torn recipe", |layer| tear(&layer.join("recipe.zst")), Depth::Sizes, ""),
    ("the superblock", |layer| exchange(layer, b"", b"", 1100), Depth::Sizes, "checksum"),
    ("one bit", |layer| exchange(layer, &[2; 4096], &[3], 0), Depth::Digest, "instead of sha256:"),
    ("a replaced file", |layer| exchange(layer, &[1; 4096], &[3], 0), Depth::Digest, "instead of sha256:"),
    ("a name", |layer| exchange(layer, b"closed", b"closee", 0), Depth::Files, "\"d/closee\" is not of this layer"),
    (
        "a mode",
        // A directory of mode 0700 in its inode.
        |layer| exchange(layer, &0o40700_u16.to_le_bytes(), &0o40755_u16.to_le_bytes(), 0),
        Depth::Files,
        "the mode of \"d/closed\" is 755 instead of 700",
    ),
    ("a target", |layer| exchange(layer, b"the target", b"another", 0), Depth::Files, "the target of \"d/link\""),
];

const IMAGE: &str = "layer.erofs";

/// Puts other bytes where these are for the first time behind the superblock, or the opposite of the byte at a place.
fn exchange(layer: &Path, from: &[u8], to: &[u8], at: usize) {
    let path = layer.join(IMAGE);
    let mut bytes = fs::read(&path).expect("readable");
    if from.is_empty() {
        bytes[at] ^= 0xff;
    } else {
        let found = bytes.windows(from.len()).position(|part| part == from).expect("it is there");
        bytes[found..found + to.len()].copy_from_slice(to);
    }
    fs::write(path, bytes).expect("writes");
}

fn tear(path: &Path) {
    let bytes = fs::read(path).expect("readable");
    fs::write(path, &bytes[..bytes.len() - 3]).expect("writes");
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).expect("readable");
    bytes[17] ^= 1;
    fs::write(path, bytes).expect("writes");
}

/// Damages a file in `d/` that has these bytes again and again.
fn spoil(layer: &Path, name: &str, byte: u8) {
    if in_directories() { flip(&layer.join("fs/d").join(name)) } else { exchange(layer, &[byte; 4096], &[!byte], 0) }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("sets");
}

fn relink(path: &Path) {
    fs::remove_file(path).expect("deletes");
    std::os::unix::fs::symlink("else", path).expect("links");
}

fn attribute(path: &Path) {
    rustix::fs::setxattr(path, "user.x", b"y", rustix::fs::XattrFlags::empty()).expect("sets");
}

#[test]
fn damaged_layer_is_found_removed_and_pulled_again() {
    for (name, damage, depth, words) in if in_directories() { DAMAGES } else { IMAGE_DAMAGES } {
        let (bench, store, [one, two, three]) = Bench::new();
        for depth in [Depth::Sizes, Depth::Digest, Depth::Files] {
            assert_eq!(run_check(&store, depth, true).problems, [], "{name}: nothing is wrong yet, {depth:?}");
        }
        damage(&bench.layer(&one, 0));
        if *depth > Depth::Sizes {
            let weaker = if *depth == Depth::Files { Depth::Digest } else { Depth::Sizes };
            assert_eq!(run_check(&store, weaker, true).problems, [], "{name}: {weaker:?} cannot see it");
        }
        let report = run_check(&store, *depth, false);
        let [problem] = report.problems.as_slice() else { panic!("{name}: {report:?}") };
        assert!(matches!(problem.kind, ProblemKind::DamagedLayer | ProblemKind::MissingLayer), "{name}: {problem:?}");
        assert!(problem.detail.contains(words) && !problem.repaired, "{name}: {problem:?}");
        let mut both = [one.id.to_string(), two.id.to_string()];
        both.sort();
        assert_eq!(problem.images, both, "{name}");

        let report = run_check(&store, *depth, true);
        assert!(report.problems.iter().all(|problem| problem.repaired), "{name}: {report:?}");
        assert_eq!(report.incomplete_images, both, "{name}");
        assert!(!store.image_is_whole(&one), "{name}: absent");
        assert!(store.image_is_whole(&three), "{name}");
        assert!(!bench.layer(&one, 0).exists(), "{name}: its files are gone");
        assert!(bench.layer(&one, 1).exists() && bench.layer(&two, 1).exists(), "{name}: what is whole stays");
        let again = run_check(&store, Depth::Files, true);
        assert_eq!((again.problems, again.incomplete_images), (vec![], both.to_vec()), "{name}");
        // Nor is it forgotten by a restart.
        drop(store);
        let store = open(&bench.root);
        assert!(!store.image_is_whole(&two) && store.image_is_whole(&three), "{name}");

        // The next pull fetches one layer, and heals both images.
        let healed = bench.images[0].pull(&store, "r.example/one:1");
        assert_eq!((healed.layers[1], healed.pinned), (one.layers[1], true), "{name}");
        assert_ne!(healed.layers[0], one.layers[0], "{name}");
        let two = store.image(&two.id).expect("readable").expect("there");
        assert!(store.image_is_whole(&two), "{name}");
        let report = run_check(&store, Depth::Files, false);
        assert_eq!((report.problems, report.incomplete_images), (vec![], vec![]), "{name}");
        check_accounts(&store);
        drop(three);
    }
}

/// Changes records of a store that is closed.
pub(super) fn edit(root: &Path, change: impl FnOnce(&redb::WriteTransaction)) {
    let db = redb::Database::open(root.join("meta.redb")).expect("a redb file");
    let transaction = db.begin_write().expect("begins");
    change(&transaction);
    transaction.commit().expect("commits");
}

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const LAYERS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("layers");
const BY_DIFF_ID: TableDefinition<'_, &str, u64> = TableDefinition::new("layers_by_diff_id");
const IMAGES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("images");
const DOCUMENTS: TableDefinition<'_, (&str, u8), &[u8]> = TableDefinition::new("documents");
pub(super) const NAMES: TableDefinition<'_, &str, &str> = TableDefinition::new("names");

/// Changes a record as JSON.
fn edit_json(bytes: &[u8], change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let mut record: serde_json::Value = serde_json::from_slice(&bytes[1..]).expect("JSON");
    change(&mut record);
    let mut bytes = vec![1];
    serde_json::to_writer(&mut bytes, &record).expect("plain data");
    bytes
}

/// A change of the records, and the kinds of problems that it makes.
type Mistake = (&'static str, fn(&redb::WriteTransaction, &[ImageRecord; 3]), &'static [ProblemKind]);

const MISTAKES: &[Mistake] = &[
    ("a count is wrong", |t, [one, ..]| edit_layer(t, one, |r| r["references"] = 7.into()), &[ProblemKind::WrongCount]),
    (
        "a sum is wrong",
        |t, _| {
            let mut meta = t.open_table(META).expect("there");
            meta.insert("totals", &b"\x01{\"bytes\":1,\"inodes\":1,\"images\":1,\"layers\":1}"[..]).expect("inserts");
        },
        &[ProblemKind::WrongCount],
    ),
    (
        "sums cannot be read",
        |t, _| {
            t.open_table(META).expect("there").insert("totals", &b"?"[..]).expect("inserts");
        },
        &[ProblemKind::DamagedRecord],
    ),
    ("a size is wrong", |t, [one, ..]| edit_image(t, one, |r| r["size"] = 1.into()), &[ProblemKind::WrongCount]),
    (
        "a name leads to nothing",
        |t, _| {
            let id = oci::Digest::sha256(b"never").to_string();
            t.open_table(NAMES).expect("there").insert("r.example/x:1", id.as_str()).expect("inserts");
        },
        &[ProblemKind::WrongName],
    ),
    (
        "a name is lost",
        |t, _| {
            t.open_table(NAMES).expect("there").remove("r.example/one:1").expect("removes");
        },
        &[ProblemKind::WrongName],
    ),
    (
        "a name of two",
        |t, [_, two, _]| {
            edit_image(t, two, |r| r["tags"].as_array_mut().expect("a list").push("r.example/one:1".into()));
        },
        &[ProblemKind::WrongName],
    ),
    (
        "a way is lost",
        |t, _| {
            let mut ways = t.open_table(BY_DIFF_ID).expect("there");
            let key = ways.first().expect("readable").expect("one").0.value().to_owned();
            ways.remove(key.as_str()).expect("removes");
        },
        &[ProblemKind::DamagedRecord],
    ),
    (
        "a way leads astray",
        |t, _| {
            t.open_table(BY_DIFF_ID).expect("there").insert("sha256:0", 1).expect("inserts");
        },
        &[ProblemKind::DamagedRecord],
    ),
    (
        "documents of nobody",
        |t, _| {
            t.open_table(DOCUMENTS).expect("there").insert(("sha256:0", 1), &b"{}"[..]).expect("inserts");
        },
        &[ProblemKind::LeftOver],
    ),
];

/// The same, of records without which an image cannot be had any more.
const LOSSES: &[Mistake] = &[
    ("a config is damaged", |t, [.., three]| document(t, three, 0, Some(b"{}")), &[ProblemKind::DamagedDocument]),
    ("a manifest is gone", |t, [.., three]| document(t, three, 1, None), &[ProblemKind::DamagedDocument]),
    (
        "an image's record",
        |t, [.., three]| {
            let id = three.id.to_string();
            t.open_table(IMAGES).expect("there").insert(id.as_str(), &b"\x01{"[..]).expect("inserts");
        },
        &[ProblemKind::DamagedRecord],
    ),
    (
        "a layer's record",
        |t, [.., three]| {
            let id = three.layers[0].to_string().parse::<u64>().expect("a number");
            t.open_table(LAYERS).expect("there").insert(id, &b"\x01{"[..]).expect("inserts");
        },
        &[ProblemKind::DamagedRecord, ProblemKind::DamagedRecord],
    ),
    (
        "a layer's record is gone",
        |t, [.., three]| {
            let id = three.layers[0].to_string().parse::<u64>().expect("a number");
            t.open_table(LAYERS).expect("there").remove(id).expect("removes");
        },
        &[ProblemKind::DamagedRecord, ProblemKind::DamagedRecord, ProblemKind::WrongCount],
    ),
];

fn edit_layer(transaction: &redb::WriteTransaction, image: &ImageRecord, change: impl FnOnce(&mut serde_json::Value)) {
    let id = image.layers[0].to_string().parse::<u64>().expect("a number");
    let mut table = transaction.open_table(LAYERS).expect("there");
    let bytes = edit_json(table.get(id).expect("readable").expect("there").value(), change);
    table.insert(id, bytes.as_slice()).expect("inserts");
}

pub(super) fn edit_image(
    transaction: &redb::WriteTransaction,
    image: &ImageRecord,
    change: impl FnOnce(&mut serde_json::Value),
) {
    let id = image.id.to_string();
    let mut table = transaction.open_table(IMAGES).expect("there");
    let bytes = edit_json(table.get(id.as_str()).expect("readable").expect("there").value(), change);
    table.insert(id.as_str(), bytes.as_slice()).expect("inserts");
}

fn document(transaction: &redb::WriteTransaction, image: &ImageRecord, kind: u8, bytes: Option<&[u8]>) {
    let id = image.id.to_string();
    let mut table = transaction.open_table(DOCUMENTS).expect("there");
    match bytes {
        Some(bytes) => table.insert((id.as_str(), kind), bytes).expect("inserts"),
        None => table.remove((id.as_str(), kind)).expect("removes"),
    };
}

#[test]
fn records_that_are_wrong_are_put_right() {
    for (name, change, expected) in MISTAKES.iter().chain(LOSSES) {
        let (bench, store, records) = Bench::new();
        let (ids, totals) = (store.images().expect("readable"), store.totals().expect("readable"));
        drop(store);
        edit(&bench.root, |transaction| change(transaction, &records));
        let is_loss = LOSSES.iter().any(|(loss, ..)| loss == name);
        let store = open(&bench.root);
        let found = run_check(&store, Depth::Sizes, false);
        assert_eq!(kinds(&found), *expected, "{name}: {:#?}", found.problems);
        let repaired = run_check(&store, Depth::Sizes, true);
        assert!(repaired.problems.iter().all(|problem| problem.repaired), "{name}: {:#?}", repaired.problems);
        assert_eq!(
            run_check(&store, Depth::Files, false),
            CheckReport { problems: vec![], ..run_check(&store, Depth::Files, false) }
        );
        assert_eq!(run_check(&store, Depth::Files, false).problems, [], "{name}");
        check_accounts(&store);
        if is_loss {
            let there: Vec<_> = store.images().expect("readable").into_iter().map(|image| image.id).collect();
            let rest: Vec<_> = ids.iter().map(|image| image.id.clone()).filter(|id| *id != records[2].id).collect();
            assert_eq!(there, rest, "{name}: one image is absent, the others are there");
        } else {
            assert_eq!(
                (store.images().expect("readable"), store.totals().expect("readable")),
                (ids.clone(), totals),
                "{name}"
            );
        }
        bench.images[2].pull(&store, "r.example/three:1");
        assert_eq!(store.images().expect("readable").len(), 3, "{name}: and can be pulled again");
        check_accounts(&store);
    }
}

#[test]
fn unreferenced_files_are_removed_and_files_in_use_stay() {
    let (bench, store, [one, ..]) = Bench::new();
    for directory in ["layers/900/fs", "layers/strange", "ingest/700/fs", "ingest/trash-4"] {
        fs::create_dir_all(bench.root.join(directory)).expect("creates");
    }
    // A pull in flight, and a layer that only a lease keeps.
    let lease = store.lease();
    let new = super::support::unpack(&store, &lease, &plain_layer("new", b"new").bytes());
    let (diff_id, _) = &bench.images[2].layers[0];
    store.find_layer(&lease, diff_id, diff_id).expect("readable").expect("there");
    store.remove_image(&bench.images[2].id()).expect("removes");
    let before = (list(&bench.root.join("layers")), list(&bench.root.join("ingest")));
    let found = run_check(&store, Depth::Digest, false);
    let mut subjects: Vec<&str> = found.problems.iter().map(|problem| problem.subject.as_str()).collect();
    subjects.sort_unstable();
    assert_eq!(subjects, ["ingest/700", "ingest/trash-4", "layers/900", "layers/strange"]);
    assert_eq!((list(&bench.root.join("layers")), list(&bench.root.join("ingest"))), before, "a look changes nothing");
    let repaired = run_check(&store, Depth::Digest, true);
    assert_eq!(repaired.problems.len(), 4);
    assert_eq!((list(&bench.root.join("layers")).len(), list(&bench.root.join("ingest")).len()), (4, 1));
    assert_eq!(run_check(&store, Depth::Digest, true).problems, []);
    assert!(store.image_is_whole(&one));
    drop((lease, new));
    check_accounts(&store);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_damaged_layer_that_is_mounted_stays_until_it_is_unmounted() {
    let (bench, store, [.., three]) = Bench::new();
    let target = bench.root.parent().expect("a parent").join("target");
    fs::create_dir(&target).expect("creates");
    store.mount_image(&three, &target, None).expect("mounts");
    spoil(&bench.layer(&three, 0), "three", 4);
    let report = run_check(&store, Depth::Digest, true);
    assert_eq!(kinds(&report), [ProblemKind::DamagedLayer]);
    assert!(!store.image_is_whole(&three));
    assert!(target.join("d/three").exists(), "what is in use is not taken away");
    assert_eq!(run_check(&store, Depth::Digest, true).problems, []);
    let healed = bench.images[2].pull(&store, "r.example/three:1");
    assert!(store.image_is_whole(&healed));
    store.unmount_image(&target).expect("unmounts");
    assert!(!bench.layer(&three, 0).exists(), "then it goes");
    check_accounts(&store);
}

#[test]
fn a_pull_that_relied_on_a_layer_that_is_repaired_away_gets_it_again() {
    let (bench, store, [one, ..]) = Bench::new();
    let image = Image::new("four", &[bench_tar(&bench), plain_layer("four", b"4")]);
    let lease = store.lease();
    let layers = image.sources(&store, &lease);
    spoil(&bench.layer(&one, 0), "base", 2);
    assert_eq!(kinds(&run_check(&store, Depth::Digest, true)), [ProblemKind::DamagedLayer]);
    let commit = imagelet_store::ImageCommit { layers, ..image.commit(Some("r.example/four:1")) };
    let error = store.commit_image(&lease, commit).expect_err("the layer is not there any more");
    assert!(matches!(error, imagelet_store::CommitError::LayerTaken { .. }), "{error:?}");
    drop(lease);
    image.pull(&store, "r.example/four:1");
    assert_eq!(run_check(&store, Depth::Files, false).problems, []);
    check_accounts(&store);
}

/// The base layer of the first two images.
fn bench_tar(bench: &Bench) -> Tar {
    Tar::of(&bench.images[0].layers[0].1)
}

#[test]
fn a_check_can_be_given_up_and_tells_how_far_it_is() {
    let (_bench, store, _) = Bench::new();
    let asked = AtomicU64::new(0);
    let cancelled = || asked.fetch_add(1, Ordering::Relaxed) > 3;
    let options = CheckOptions {
        depth: Depth::Files,
        repair: true,
        recent_only: false,
        cancelled: &cancelled,
        progress: &|_| {},
    };
    assert!(matches!(store.check(&options), Err(CheckError::Cancelled)));
    let greatest = base::lock::Mutex::new(None);
    let progress = |now| *greatest.lock() = Some(now);
    let report = store.check(&CheckOptions { cancelled: &|| false, progress: &progress, ..options }).expect("ends");
    let last = greatest.into_inner().expect("told");
    assert_eq!((last.layers, last.layers_total, last.bytes), (4, 4, report.bytes_checked));
    assert!(last.bytes_total > 0 && report.bytes_checked > last.bytes_total, "headers come on top: {last:?}");
    check_accounts(&store);
}

#[test]
fn removals_and_pulls_work_during_a_check() {
    let (bench, store, _) = Bench::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..40 {
                let image = &bench.images[round % 3];
                store.remove_image(&image.id()).expect("removes");
                image.pull(&store, &format!("r.example/{round}:1"));
            }
        });
        for _ in 0..40 {
            let report = run_check(&store, Depth::Files, true);
            assert_eq!(report.problems, [], "nothing is ever wrong");
        }
    });
    check_accounts(&store);
}

#[test]
fn an_unclean_stop_is_seen_until_what_was_written_last_was_looked_at() {
    let recent = |store: &Store| {
        let (cancelled, progress) = (&|| false, &|_| {});
        let options = CheckOptions { depth: Depth::Digest, repair: true, recent_only: true, cancelled, progress };
        store.check(&options).expect("comes to an end")
    };
    let (bench, store, _) = Bench::new();
    assert!(!store.was_unclean());
    assert_eq!(recent(&store), CheckReport::default(), "there is nothing to look at");
    drop(store);
    let store = open(&bench.root);
    assert!(!store.was_unclean(), "a clean end");
    // One more image, and the process is killed: its lock is released, the text of its lock file stays.
    let last = Image::new("last", &[plain_layer("last", &[7; 5000])]).pull(&store, "r.example/last:1");
    let words = fs::read(bench.root.join("lock")).expect("readable");
    drop(store);
    fs::write(bench.root.join("lock"), &words).expect("writes");
    spoil(&bench.layer(&last, 0), "last", 7);
    let store = open(&bench.root);
    assert!(store.was_unclean());
    // This store is closed before it has checked anything.
    drop(store);
    let store = Store::open(&bench.root, OpenOptions { durability: Durability::Relaxed, ..options() }).expect("opens");
    assert!(store.was_unclean(), "nobody has looked yet");
    let report = recent(&store);
    assert_eq!((report.layers_checked, kinds(&report)), (1, vec![ProblemKind::DamagedLayer]), "{report:?}");
    assert!(!store.was_unclean() && !store.image_is_whole(&last));
    drop(store);
    assert!(!open(&bench.root).was_unclean());
    assert!(fs::read(bench.root.join("lock")).expect("readable").iter().all(|byte| *byte == b' '));
}
