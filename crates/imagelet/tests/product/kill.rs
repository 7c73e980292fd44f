//! `kill -9` at random moments of a pull, and of a removal. After each: the store opens, an image is whole or absent, what was
//! committed before is used again, nothing lies about, and the next pull or removal succeeds. Layers are of either shape in turn.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::support::Packing;
use crate::support::images::{self, Image};
use crate::support::process::wait;
use crate::support::random::Random;
use crate::support::scene::Scene;
use crate::support::tree::{self, Tree};

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
    images::write(&tree.path().join(format!("layer-{number}/big")), format!("{number}").repeat(2 << 20));
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

/// Kills it `after` this long unless it has come to its end. True: it was killed.
fn kill_after(mut child: Child, after: Duration) -> bool {
    let ended = wait(&mut child, after).is_some();
    let _ = child.kill();
    child.wait().expect("it is our child");
    !ended
}

#[test]
fn fifty_kills_leave_images_whole_or_absent() {
    let s = Scene::new();
    let layers: Vec<images::Layer> = (0..5).map(|n| layer(&s, n)).collect();
    let base: Image = s.layout.image(&layers[..1]);
    let all: Image = s.layout.image(&layers);
    let base_name = s.registry.push(&s.layout, &base, "kill/base:1");
    let name = s.registry.push(&s.layout, &all, "kill/all:1");
    let shared = format!("/blobs/{}", layers[0].blob.digest);
    let expected = layers.len();

    s.imagelet.ok(&["pull", &base_name]);
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
    let asked_before = s.registry.requests().iter().filter(|r| r.contains(&shared)).count();

    let mut random = Random(SEED);
    let (mut killed, mut survived) = (0, 0);
    let (mut cut_removals, mut removed) = (0, 0);
    #[expect(clippy::disallowed_methods, reason = "the long form of a test is asked for by the environment")]
    let rounds = std::env::var("IMAGELET_KILLS").map_or(ROUNDS, |kills| kills.parse().expect("a number of kills"));
    for round in 0..rounds {
        // Every other kill aims at the last third: that is where the commit is.
        let least = if round % 2 == 0 { 0.0 } else { 0.66 };
        let shape = round / 2 % 2;
        let (imagelet, whole) = (&shaped[shape], wholes[shape]);
        let moment = whole.mul_f64(least + random.next() * (1.05 - least));
        let context =
            format!("seed {SEED:#x}, round {round}, {}, killed after {moment:?} of {whole:?}", FORMATS[shape]);
        killed += usize::from(kill_after(imagelet.spawn(&["pull", &name]), moment));

        let ids = s.imagelet.ids();
        assert!(ids.contains(&base.id), "{context}: the image from before is gone: {ids:?}");
        assert_eq!(entries(&s.scratch.join("store/ingest")), 0, "{context}: something half is left");
        let present = ids.contains(&all.id);
        let on_disk = entries(&s.scratch.join("store/layers"));
        assert_eq!(on_disk, if present { expected } else { 1 }, "{context}: layers on disk, image there: {present}");
        if present {
            survived += 1;
            assert_eq!(
                tree::differences(&good, &shown(&s, &name)),
                Vec::<String>::new(),
                "{context}: listed, but not whole"
            );
        }

        // The machine may be busier now than it was: the next kill goes by how long this pull takes.
        let from = Instant::now();
        imagelet.ok(&["pull", &name]);
        if !present {
            wholes[shape] = from.elapsed();
        }
        if round % 5 == 0 {
            assert_eq!(
                tree::differences(&good, &shown(&s, &name)),
                Vec::<String>::new(),
                "{context}: the pull after the kill"
            );
        }
        // A removal takes next to no time: what it does, it does at its end.
        let moment = removal.mul_f64(0.3 + random.next());
        let context = format!("seed {SEED:#x}, round {round}, {}, removal killed after {moment:?}", FORMATS[shape]);
        cut_removals += usize::from(kill_after(s.imagelet.spawn(&["rmi", &name]), moment));
        let present = s.imagelet.ids().contains(&all.id);
        assert_eq!(entries(&s.scratch.join("store/ingest")), 0, "{context}: something half is left");
        let on_disk = entries(&s.scratch.join("store/layers"));
        assert_eq!(on_disk, if present { expected } else { 1 }, "{context}: layers on disk, image there: {present}");
        if round % 10 == 9 {
            let report = s.imagelet.json(&["check"]);
            assert_eq!(report["problems"], serde_json::json!([]), "{context}");
        }
        if present {
            let from = Instant::now();
            s.imagelet.ok(&["rmi", &name]);
            removal = (removal + from.elapsed()) / 2;
        } else {
            removed += 1;
            removal = removal.mul_f64(0.95);
        }
    }
    let asked = s.registry.requests().iter().filter(|r| r.contains(&shared)).count();
    assert_eq!(asked, asked_before, "the layer that was committed before is never fetched again");
    assert!(killed >= rounds / 2, "seed {SEED:#x}: only {killed} of {rounds} kills came in time");
    println!(
        "seed {SEED:#x}: {killed} kills of {rounds} pulls, {survived} times the image was there already; {cut_removals} kills of {rounds} \
         removals, {removed} times it was gone; 0 half images, 0 layers that no image has, 0 committed layers fetched again"
    );
}
