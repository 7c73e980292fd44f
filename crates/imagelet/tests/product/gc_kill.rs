//! `kill -9` at random moments of a collection that takes several transactions. After each: the store is consistent, what was
//! kept is whole (of layers of both shapes), the usage history and the pins are what they were, `check` finds nothing, and the next collection succeeds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::Packing;
use crate::support::gc::{decision, removed_names};
use crate::support::images::{self, Layer};
use crate::support::process::wait;
use crate::support::random::Random;
use crate::support::scene::Scene;
use crate::support::tree;

const ROUNDS: usize = 30;
const SEED: u64 = 0x1DEA_2026_1123;
/// Images in addition to the one that is kept: more than two transactions remove.
const IMAGES: usize = 140;
const KEEPER: &str = "r.example/kill/keeper:1";

/// A layer of some small files.
fn layer(s: &Scene, name: &str, files: usize) -> Layer {
    let tree = tempfile::tempdir_in(s.scratch.path()).expect("a directory");
    for i in 0..files {
        images::write(&tree.path().join(format!("{name}/d{}/f{i}", i % 7)), format!("{name} {i} ").repeat(i % 90));
    }
    images::settle(tree.path());
    s.layout.layer(tree.path(), Packing::Plain)
}

/// When each image was first seen, by id.
fn since(plan: &serde_json::Value) -> BTreeMap<String, String> {
    let text = |value: &serde_json::Value| value.as_str().expect("it is known").to_owned();
    let images = plan["images"].as_array().expect("a list");
    images.iter().map(|image| (text(&image["id"]), text(&image["firstDetected"]))).collect()
}

/// Makes `to` what `from` is, with everything that a store needs to be the same.
fn copy(from: &Path, to: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).expect("removed");
    }
    let copied = Command::new("cp").arg("-a").args([from, to]).status().expect("cp runs");
    assert!(copied.success());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn thirty_kills_leave_a_store_that_is_sound() {
    let mut s = Scene::on_a_disk();
    s.imagelet = s.imagelet.clone().hasty();
    let (store, full) = (s.scratch.join("disk/store"), s.scratch.join("disk/full"));
    let base = layer(&s, "base", 60);
    s.layout.name(&s.layout.image(&[base.clone(), layer(&s, "keeper", 60)]), KEEPER);
    for number in 0..IMAGES {
        let own = layer(&s, &format!("own-{number}"), 6);
        // One half on the base that stays, the other by itself.
        let layers = if number % 2 == 0 { vec![base.clone(), own] } else { vec![own] };
        s.layout.name(&s.layout.image(&layers), &format!("r.example/kill/image-{number}:1"));
    }
    s.imagelet.ok(&["import", &s.layout.path().display().to_string()]);
    // One half of either kind is of directories, the other of EROFS files; so is the image that is kept, which has the base.
    let directories =
        (0..IMAGES).filter(|n| n % 4 < 2).map(|n| format!("r.example/kill/image-{n}:1")).collect::<Vec<_>>();
    let convert = ["convert", "--to", "dir"].into_iter().chain(directories.iter().map(String::as_str));
    s.imagelet.ok(&convert.collect::<Vec<_>>());
    let shapes = s.imagelet.json(&["check"])["layerShapes"].clone();
    assert!(shapes["dir"].as_u64() > Some(60) && shapes["erofs"].as_u64() > Some(60), "{shapes}");
    s.imagelet.ok(&["pin", KEEPER]);
    let keeper = s.imagelet.json(&["pins"])["pins"][0]["images"][0]["id"].as_str().expect("an id").to_owned();
    let shown = || {
        let mounted = s.imagelet.mount(KEEPER, s.scratch.join("mnt"));
        let tree = tree::read(&mounted);
        s.imagelet.ok(&["unmount", &mounted.display().to_string()]);
        tree
    };
    let good = shown();
    let before = since(&s.imagelet.plan(&["--all-unused"]));
    assert_eq!(before.len(), IMAGES + 1);
    copy(&store, &full);

    let collect = ["gc", "--all-unused"];
    let from = Instant::now();
    s.imagelet.ok(&collect);
    let whole = from.elapsed();
    assert_eq!(s.imagelet.ids(), [keeper.as_str()]);
    // The kills fall between these moments, which approach the time in which images are removed.
    let (mut early, mut late) = (Duration::ZERO, whole);

    let mut random = Random(SEED);
    let (mut none_went, mut some_went, mut all_went) = (0, 0, 0);
    for round in 0..ROUNDS {
        copy(&full, &store);
        let moment = early + late.saturating_sub(early).mul_f64(random.next());
        let context = format!("seed {SEED:#x}, round {round}, killed after {moment:?} of {whole:?}");
        let mut child = s.imagelet.spawn(&collect);
        wait(&mut child, moment);
        let _ = child.kill();
        child.wait().expect("it is our child");

        let mut check = vec!["check", "-o", "json"];
        // Every file of everything that is left, now and then.
        check.extend((round % 6 == 0).then_some("--deep"));
        let done = s.imagelet.run(&check);
        let report: serde_json::Value = serde_json::from_str(&done.stdout).expect("JSON");
        assert_eq!((done.code, &report["problems"]), (Some(0), &serde_json::json!([])), "{context}: {}", done.stderr);
        let plan = s.imagelet.plan(&["--all-unused"]);
        let after = since(&plan);
        match after.len() {
            1 => {
                all_went += 1;
                late = (late + moment) / 2;
                early = early.min(late.mul_f64(0.7));
            }
            left if left == IMAGES + 1 => {
                none_went += 1;
                early = (early + moment) / 2;
                late = late.max(early.mul_f64(1.3));
            }
            _ => some_went += 1,
        }
        assert_eq!(decision(&plan, "kill/keeper:1"), "pinned", "{context}");
        assert!(after.contains_key(&keeper), "{context}");
        for (id, since) in &after {
            assert_eq!(since, &before[id], "{context}: when {id} was first seen");
        }
        let ingest = fs::read_dir(store.join("ingest")).expect("the store").count();
        assert_eq!(ingest, 0, "{context}: something half is left");
        if round % 6 == 0 {
            assert_eq!(tree::differences(&good, &shown()), Vec::<String>::new(), "{context}: what was kept");
            let rest = s.imagelet.collect(&["--all-unused"]);
            assert_eq!(
                (removed_names(&rest).len(), s.imagelet.ids()),
                (after.len() - 1, vec![keeper.clone()]),
                "{context}"
            );
        }
    }
    println!("seed {SEED:#x}: none went {none_went} times, some {some_went} times, all {all_went} times");
    assert!(some_went > 0, "no kill came in the middle: none went {none_went} times, all {all_went} times");
}
