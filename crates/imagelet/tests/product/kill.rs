//! `kill -9` at random moments of a pull, and of a removal. After each: the store opens, an image is whole or absent, content that
//! was committed before is used again, there are no leftovers, and the next pull or removal succeeds. Layers are of either shape in
//! turn. An interrupted pull leaves nothing, its whole layers, or all received bytes for the next one; then these are the only
//! leftovers, `df` reports them to the byte, and whole layers are not fetched again.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::support::images::{self, Image};
use crate::support::process::wait;
use crate::support::random::{Random, noise_of};
use crate::support::scene::Scene;
use crate::support::tree::{self, Tree};
use crate::support::{Imagelet, Packing};

const ROUNDS: usize = 50;
const SEED: u64 = 0x1DEA_2026_1121;

const FORMATS: [&str; 2] = ["erofs", "dir"];

/// A layer of a few hundred files, big and small.
fn layer(s: &Scene, number: usize) -> images::Layer {
    let tree = tempfile::tempdir_in(s.scratch.path()).expect("a directory");
    for i in 0..200 {
        let content = format!("{number} {i} ").repeat(20 + i * 3);
        images::write(&tree.path().join(format!("layer-{number}/d{}/f{i}", i % 7)), content);
    }
    // The received part of a blob is kept for the next pull from a mebibyte on.
    let big = format!("layer-{number}/big");
    let content = if number % 2 == 1 { noise_of(&big, 5 << 18) } else { format!("{number}").repeat(2 << 20).into() };
    images::write(&tree.path().join(big), content);
    images::settle(tree.path());
    s.layout.layer(tree.path(), Packing::Gzip)
}

fn shown(s: &Scene, name: &str) -> Tree {
    let mounted = s.imagelet.mount(name, s.scratch.join("mnt"));
    let tree = tree::read(&mounted);
    s.imagelet.ok(&["unmount", &mounted.display().to_string()]);
    tree
}

fn entries(path: &Path) -> usize {
    fs::read_dir(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).count()
}

/// Kills it after this long unless it has ended. Returns true if it was killed.
fn kill_after(mut child: Child, after: Duration) -> bool {
    let ended = wait(&mut child, after).is_some();
    let _ = child.kill();
    child.wait().expect("it is our child");
    !ended
}

/// The disk space of a directory and of everything below, in bytes.
fn measure(path: &Path) -> u64 {
    let metadata = fs::symlink_metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut bytes = metadata.blocks() * 512;
    if metadata.is_dir() {
        for entry in fs::read_dir(path).expect("readable") {
            bytes += measure(&entry.expect("an entry").path());
        }
    }
    bytes
}

/// The state of the store after a kill.
struct StoreState {
    /// The image is in the store.
    present: bool,
    /// Blobs of the layers that were whole already.
    whole: BTreeSet<String>,
    /// Blobs that are present in part.
    parts: u64,
}

/// The images of a store: one that stays, and one that is pulled and removed in turn.
struct Store<'a> {
    path: &'a Path,
    base: &'a str,
    all: &'a str,
    /// Number of layers of the second image; the first of them is shared with the first image.
    layers: usize,
}

impl Store<'_> {
    /// Asserts that the store holds what the records say, and nothing else.
    #[track_caller]
    fn check(&self, imagelet: &Imagelet, context: &str) -> StoreState {
        let usage = imagelet.json(&["df"]);
        let ids: Vec<&str> =
            usage["images"].as_array().expect("a list").iter().filter_map(|image| image["id"].as_str()).collect();
        assert!(ids.contains(&self.base), "{context}: the image from before is gone: {ids:?}");
        let present = ids.contains(&self.all);
        let on_disk = entries(&self.path.join("layers"));
        let expected = if present { self.layers } else { 1 };
        assert_eq!(on_disk, expected, "{context}: layers on disk, image there: {present}");

        let ingest = self.path.join("ingest");
        let list = fs::read_dir(&ingest).expect("readable");
        let names: Vec<String> =
            list.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        let told = |what: &str| usage["unfinished"][what].as_u64().unwrap_or(0);
        let (whole, parts) = (told("layers"), told("blobs"));
        assert!(parts == 0, "{context}: a part is left, of a line that is not slow: {names:?}");
        assert_eq!(names.len() as u64, 2 * (whole + parts), "{context}: {whole} layers and {parts} parts: {names:?}");
        let taken: u64 = names.iter().map(|name| measure(&ingest.join(name))).sum();
        let bytes = told("bytes");
        assert!(taken <= bytes + 4096 * whole, "{context}: {taken} bytes lie there, and {bytes} are told of {names:?}");
        let record = |name: &String| {
            let record = fs::read(ingest.join(name)).expect("a record");
            let record: serde_json::Value = serde_json::from_slice(&record).expect("JSON");
            record["blob"].as_str().expect("a digest").to_owned()
        };
        let whole = names.iter().filter(|name| name.ends_with(".layer")).map(record).collect();
        StoreState { present, whole, parts }
    }
}

/// A number that the environment may say: in decimals, or after 0x.
fn from_environment(name: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "the long form of a test is asked for by the environment")]
    let text = std::env::var(name).ok()?;
    let number = text.strip_prefix("0x").map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    Some(number.expect("a number"))
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn fifty_kills_leave_images_whole_or_absent() {
    let s = Scene::on_a_disk();
    let layers: Vec<images::Layer> = (0..5).map(|n| layer(&s, n)).collect();
    let base: Image = s.layout.image(&layers[..1]);
    let all: Image = s.layout.image(&layers);
    let base_name = s.registry.push(&s.layout, &base, "kill/base:1");
    let name = s.registry.push(&s.layout, &all, "kill/all:1");
    let shared = format!("/blobs/{}", layers[0].blob.digest);

    s.imagelet.ok(&["pull", &base_name]);
    let path = s.scratch.join("disk/store");
    let store = Store { path: &path, base: &base.id, all: &all.id, layers: layers.len() };
    let bytes_of_base = measure(&path.join("layers"));
    let shaped = FORMATS.map(|format| s.imagelet.clone().global("--layer-format", format));
    let (mut good, mut removal) = (None, Duration::ZERO);
    let mut wholes = shaped.each_ref().map(|imagelet| {
        let from = Instant::now();
        imagelet.ok(&["pull", &name]);
        let whole = from.elapsed();
        let tree = shown(&s, &name);
        let good = good.get_or_insert_with(|| tree.clone());
        assert_eq!(tree::differences(good, &tree), Vec::<String>::new(), "{FORMATS:?}");
        let from = Instant::now();
        s.imagelet.ok(&["rmi", &name]);
        removal = from.elapsed();
        whole
    });
    let good = good.expect("two of them");
    assert!(good.len() > 1000, "only {} entries", good.len());
    // The registry is asked about it if another repository provided it, and it is fetched once.
    let fetched = || s.registry.requests().iter().filter(|r| r.starts_with("GET ") && r.contains(&shared)).count();
    let fetched_before = fetched();

    let seed = from_environment("IMAGELET_SEED").unwrap_or(SEED);
    let rounds = from_environment("IMAGELET_KILLS").map_or(ROUNDS, |kills| usize::try_from(kills).expect("a number"));
    let mut random = Random(seed.max(1));
    let (mut killed, mut survived) = (0, 0);
    let (mut cut_removals, mut removed) = (0, 0);
    let (mut whole_layers, mut parts) = (0, 0);
    for round in 0..rounds {
        // Every other kill aims at the last third: that is where the commit is.
        let least = if round % 2 == 0 { 0.0 } else { 0.66 };
        let shape = round / 2 % 2;
        let (imagelet, whole) = (&shaped[shape], wholes[shape]);
        let moment = whole.mul_f64(least + random.next() * (1.05 - least));
        let format = FORMATS[shape];
        let round_is = format!("seed {seed:#x}, round {round}, {format}");
        let context = format!("{round_is}, killed after {moment:?} of {whole:?}");
        let in_time = kill_after(imagelet.spawn(&["pull", &name]), moment);
        killed += usize::from(in_time);
        if !in_time {
            // The machine is less busy than it was.
            wholes[shape] = wholes[shape].mul_f64(0.9);
        }

        let left = store.check(imagelet, &context);
        if left.present {
            survived += 1;
            assert_eq!(
                tree::differences(&good, &shown(&s, &name)),
                Vec::<String>::new(),
                "{context}: listed, but not whole"
            );
        }
        whole_layers += left.whole.len();
        parts += left.parts;

        // The machine may be busier now than it was: the next kill is timed by this pull.
        let before = s.registry.requests().len();
        let from = Instant::now();
        imagelet.ok(&["pull", &name]);
        if !left.present && left.whole.is_empty() {
            wholes[shape] = from.elapsed();
        }
        let asked = s.registry.requests().split_off(before);
        let again: Vec<&String> = left.whole.iter().filter(|blob| asked.iter().any(|r| r.contains(*blob))).collect();
        assert!(again.is_empty(), "{context}: layers that were whole are fetched again: {again:?}");
        assert_eq!(entries(&path.join("ingest")), 0, "{context}: something is left by the pull after it");
        if round % 5 == 0 {
            assert_eq!(
                tree::differences(&good, &shown(&s, &name)),
                Vec::<String>::new(),
                "{context}: the pull after the kill"
            );
        }
        // A removal takes next to no time: what it does, it does at its end.
        let moment = removal.mul_f64(0.3 + random.next());
        let context = format!("{round_is}, removal killed after {moment:?}");
        cut_removals += usize::from(kill_after(imagelet.spawn(&["rmi", &name]), moment));
        let left = store.check(imagelet, &context);
        assert!(left.whole.is_empty(), "{context}: layers are left of a removal");
        if round % 10 == 9 {
            let report = s.imagelet.json(&["check"]);
            assert_eq!(report["problems"], serde_json::json!([]), "{context}");
        }
        if left.present {
            let from = Instant::now();
            s.imagelet.ok(&["rmi", &name]);
            removal = (removal + from.elapsed()) / 2;
        } else {
            removed += 1;
            removal = removal.mul_f64(0.95);
        }
        assert_eq!(measure(&path.join("layers")), bytes_of_base, "{context}: bytes that no image has");
    }
    assert_eq!(fetched(), fetched_before, "the layer that was committed before is never fetched again");
    assert!(killed >= rounds / 2, "seed {seed:#x}: only {killed} of {rounds} kills came in time");
    println!(
        "seed {seed:#x}: {killed} kills of {rounds} pulls, {survived} times the image was there already; {cut_removals} kills of {rounds} \
         removals, {removed} times it was gone; {whole_layers} whole layers and {parts} parts of others used by the next pull; 0 half images, \
         0 bytes that nothing has, 0 committed layers fetched again"
    );
}
