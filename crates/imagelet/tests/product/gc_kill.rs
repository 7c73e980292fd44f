//! `kill -9` at random moments of a collection. After each: the store is consistent, what was kept is whole, the usage history
//! and the pins are what they were, `check` finds nothing, and the next pull and the next collection succeed.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use crate::support::Packing;
use crate::support::gc::{decision, gone};
use crate::support::images::{self, Layer};
use crate::support::process::wait;
use crate::support::random::Random;
use crate::support::scene::Scene;
use crate::support::tree;

const ROUNDS: usize = 30;
const SEED: u64 = 0x1DEA_2026_1123;
const KEEPER: &str = "kill/keeper:1";

/// A layer of many small files: removing it takes a while.
fn layer(s: &Scene, name: &str) -> Layer {
    let tree = tempfile::tempdir_in(s.scratch.path()).expect("a directory");
    for i in 0..150 {
        images::write(&tree.path().join(format!("{name}/d{}/f{i}", i % 7)), format!("{name} {i} ").repeat(i % 90));
    }
    images::settle(tree.path());
    s.layout.layer(tree.path(), Packing::Gzip)
}

/// When each image was first seen, by id.
fn since(plan: &serde_json::Value) -> BTreeMap<String, String> {
    let text = |value: &serde_json::Value| value.as_str().expect("it is known").to_owned();
    let images = plan["images"].as_array().expect("a list");
    images.iter().map(|image| (text(&image["id"]), text(&image["firstDetected"]))).collect()
}

#[test]
fn thirty_kills_leave_a_store_that_is_sound() {
    let mut s = Scene::on_a_disk();
    s.imagelet = s.imagelet.clone().hasty();
    let base = layer(&s, "base");
    let mut names = vec![s.registry.push(&s.layout, &s.layout.image(&[base.clone(), layer(&s, "keeper")]), KEEPER)];
    for number in 0..4 {
        let own = layer(&s, &format!("own-{number}"));
        // Two on the base that stays, two by themselves.
        let layers =
            if number % 2 == 0 { vec![base.clone(), own] } else { vec![own, layer(&s, &format!("more-{number}"))] };
        names.push(s.registry.push(&s.layout, &s.layout.image(&layers), &format!("kill/image-{number}:1")));
    }
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let pull = || s.imagelet.ok(&[&["pull"], &all[..]].concat());
    pull();
    s.imagelet.ok(&["pin", &names[0]]);
    let keeper = s.imagelet.json(&["pins"])["pins"][0]["images"][0]["id"].as_str().expect("an id").to_owned();
    let shown = || {
        let mounted = s.imagelet.mount(&names[0], s.scratch.join("mnt"));
        let tree = tree::read(&mounted);
        s.imagelet.ok(&["unmount", &mounted.display().to_string()]);
        tree
    };
    let good = shown();
    let kept_since = since(&s.imagelet.plan(&["--all-unused"]))[&keeper].clone();

    let collect = ["gc", "--all-unused"];
    let from = Instant::now();
    s.imagelet.ok(&collect);
    let mut whole = from.elapsed();
    assert_eq!(s.imagelet.ids(), [keeper.as_str()]);

    let mut random = Random(SEED);
    // By how many images were left.
    let mut found = [0; 6];
    for round in 0..ROUNDS {
        pull();
        let before = since(&s.imagelet.plan(&["--all-unused"]));
        let moment = whole.mul_f64(random.next());
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
        found[after.len()] += 1;
        // The next kill comes nearer to where images go: later where none went, earlier where all did.
        match after.len() {
            1 => whole = whole.mul_f64(0.8),
            5 => whole = whole.mul_f64(1.3),
            _ => {}
        }
        assert_eq!((after.get(&keeper), decision(&plan, KEEPER)), (Some(&kept_since), "pinned"), "{context}");
        for (id, since) in &after {
            assert_eq!(since, &before[id], "{context}: when {id} was first seen");
        }
        let ingest = fs::read_dir(s.scratch.join("disk/store/ingest")).expect("the store").count();
        assert_eq!(ingest, 0, "{context}: something half is left");
        if round % 6 == 0 {
            assert_eq!(tree::differences(&good, &shown()), Vec::<String>::new(), "{context}: what was kept");
        }
    }
    pull();
    let done = s.imagelet.collect(&["--all-unused"]);
    assert_eq!((gone(&done).len(), s.imagelet.ids()), (4, vec![keeper]));
    println!("seed {SEED:#x}: kills that left so many images: {found:?}");
    assert!(found[1] < ROUNDS - 3 && found[5] < ROUNDS - 3, "the kills came too early or too late: {found:?}");
    assert!(whole < Duration::from_secs(20), "a collection takes {whole:?}");
}
