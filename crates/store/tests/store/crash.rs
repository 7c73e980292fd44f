//! A process that pulls and removes is killed at points of its work, and the store opened again: images are whole or
//! absent, what was answered stays answered, and nothing is left over.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use imagelet_store::Store;
use imagelet_store::check::Depth;

use super::support::{Image, Tar, check_accounts, list, open, options, plain_layer, run, run_check};

const ROOT: &str = "IMAGELET_STORE_CRASH_ROOT";
const WORK: &str = "IMAGELET_STORE_CRASH_WORK";

/// Six images which share layers, one of which depends on what is below.
fn images() -> Vec<Image> {
    let base = |mode| Tar::default().directory("./", 0o755).directory("d/", mode).file("d/base", b"base");
    let dependent = Tar::default().directory("./", 0o755).file("d/upper", b"upper");
    (0..6_u8)
        .map(|n| {
            // A file that all of these layers have, in addition to their own.
            let mut own = plain_layer("own", &[n; 300_000]).file("d/common", &[7; 20_000]);
            for file in 0..30 {
                own = own.file(&format!("d/{file}"), &[n; 200]);
            }
            Image::new(&format!("image {n}"), &[base(0o700 + u32::from(n % 2)), dependent.clone(), own]).with_blobs()
        })
        .collect()
}

/// The process that is killed.
#[test]
#[ignore = "a process of other tests, which start it: scripts/test.sh"]
fn child() {
    #[expect(clippy::disallowed_methods, reason = "the parent test tells its child by the environment")]
    let root = std::env::var_os(ROOT).map(PathBuf::from).expect("started by another test");
    #[expect(clippy::disallowed_methods, reason = "the parent test tells its child by the environment")]
    let work = std::env::var(WORK).expect("the parent says what to do");
    let store = Store::open(&root, options()).expect("opens");
    let say = |step: &str| writeln!(std::io::stdout(), "STEP {step}").expect("the parent reads");
    match work.as_str() {
        PULL_AND_REMOVE => pull_and_remove(&store),
        REMOVE_MANY => {
            let ids: Vec<_> = store.images().expect("readable").into_iter().map(|image| image.id).collect();
            say("ready");
            for removed in store.remove_images(&ids) {
                removed.expect("removes");
            }
            say("done");
        }
        _ => say("ready"),
    }
    loop {
        std::thread::park();
    }
}

const PULL_AND_REMOVE: &str = "pull and remove";
const REMOVE_MANY: &str = "remove many";
/// Only to have the store open.
pub(crate) const HOLD: &str = "hold";

fn pull_and_remove(store: &Store) {
    let images = images();
    let mut out = std::io::stdout().lock();
    for round in 0.. {
        let n = (round * 5 + round / 7) % images.len();
        let image = &images[n];
        if store.image(&image.id()).expect("readable").is_some() {
            writeln!(out, "STEP removing {n}").expect("the parent reads");
            store.remove_image(&image.id()).expect("removes");
            writeln!(out, "STEP removed {n}").expect("the parent reads");
        } else {
            writeln!(out, "STEP pulling {n}").expect("the parent reads");
            image.pull(store, &format!("docker.io/library/image:{n}"));
            writeln!(out, "STEP pulled {n}").expect("the parent reads");
        }
    }
}

/// As the test program names its tests.
fn this_module() -> &'static str {
    module_path!().split_once("::").expect("it is no crate").1
}

pub(crate) fn start(root: &Path, work: &str) -> Child {
    let program = std::env::current_exe().expect("a test is a program");
    #[expect(clippy::disallowed_methods, reason = "a crash needs a process of its own")]
    Command::new(program)
        .args([&format!("{}::child", this_module()), "--exact", "--ignored", "--nocapture"])
        .env(ROOT, root)
        .env(WORK, work)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts")
}

#[test]
fn a_kill_leaves_images_whole_or_absent() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let images = images();
    // Images that are certainly present, over all rounds.
    let mut there = BTreeSet::new();
    let (mut came_about, mut came_to_nothing) = (0, 0);
    // The long form is asked for by the environment.
    #[expect(clippy::disallowed_methods, reason = "the long form of a test is asked for by the environment")]
    let rounds = std::env::var("IMAGELET_KILLS").map_or(25, |kills| kills.parse::<usize>().expect("a number of kills"));
    for round in 0..rounds {
        let mut child = start(&root, PULL_AND_REMOVE);
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut unsure = None;
        // The kill follows after so many lines; while the last one is read, the child continues.
        for _ in 0..1 + (round * 7) % 11 {
            let mut line = String::new();
            while !line.contains("STEP ") {
                line.clear();
                assert_ne!(lines.read_line(&mut line).expect("readable"), 0, "the child ended by itself");
            }
            unsure = note(&line, &mut there);
        }
        // Let it run into the step, a little further each round.
        let until = std::time::Instant::now()
            + std::time::Duration::from_micros(500 * (round % 25) as u64 + 37 * (round / 25) as u64 % 500);
        while std::time::Instant::now() < until {
            std::hint::spin_loop();
        }
        child.kill().expect("kills");
        child.wait().expect("is gone");
        let mut line = String::new();
        while lines.read_line(&mut line).expect("readable") > 0 {
            if line.contains("STEP ") && line.ends_with('\n') {
                unsure = note(&line, &mut there);
            }
            line.clear();
        }

        let store = open(&root);
        check_accounts(&store);
        for (n, image) in images.iter().enumerate() {
            let found = store.resolve(&format!("image:{n}").into()).expect("resolves");
            if unsure == Some(n) {
                if found.is_some() {
                    there.insert(n);
                    came_about += 1;
                } else {
                    there.remove(&n);
                    came_to_nothing += 1;
                }
            } else {
                assert_eq!(found.is_some(), there.contains(&n), "round {round}: image {n}");
            }
            let Some(record) = found else { continue };
            assert_eq!(record.config, image.config);
            for (layer, (_, tar)) in store.image_layers(&record).expect("readable").iter().zip(&image.layers) {
                let mut stream = Vec::new();
                store.export_layer(layer, &mut stream).expect("exports");
                assert!(stream == *tar, "round {round}: layer {} of image {n} is as it came", layer.id);
            }
        }
    }
    println!(
        "{rounds} kills of pulls and removals: what was going on left the image there {came_about} times, absent {came_to_nothing} times; \
         0 half images, 0 bytes that no image has"
    );
}

/// Handles one line; returns the image whose fate it leaves open.
fn note(line: &str, there: &mut BTreeSet<usize>) -> Option<usize> {
    let mut words = line.split("STEP ").nth(1).expect("a step").split_whitespace();
    let (step, n) = (words.next().expect("a word"), words.next().expect("a number").parse().expect("a number"));
    match step {
        "pulled" => there.insert(n),
        "removed" => there.remove(&n),
        _ => return Some(n),
    };
    None
}

/// Waits until the child says that it is so far.
pub(crate) fn wait_for(child: &mut Child, step: &str) -> BufReader<std::process::ChildStdout> {
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.ends_with(&format!("STEP {step}\n")) {
        line.clear();
        assert_ne!(lines.read_line(&mut line).expect("readable"), 0, "the child ended by itself");
    }
    lines
}

#[test]
fn a_kill_within_a_removal_of_many_leaves_each_image_whole_or_absent() {
    let top = tempfile::tempdir().expect("tempdir");
    let whole = top.path().join("whole");
    let store = open(&whole);
    let shared = plain_layer("shared", &[9; 30_000]);
    // Two transactions' worth.
    for number in 0..90 {
        let mut own = plain_layer("own", format!("{number}").as_bytes());
        for file in 0..8 {
            own = own.file(&format!("d/{number} {file}"), &[1; 5000]);
        }
        Image::new(&format!("image {number}"), &[shared.clone(), own]).pull(&store, &format!("r.example/i:{number}"));
    }
    drop(store);
    let mut seen = BTreeSet::new();
    // The kill follows as soon as so few layers are in their old place: at the beginning, within the first transaction's files,
    // at their end, within those of the second, and when all is done.
    for (round, kill_at) in [91, 60, 27, 10, 1].into_iter().enumerate() {
        let root = top.path().join(format!("round {round}"));
        run("cp", &["-a", whole.to_str().expect("text"), root.to_str().expect("text")]);
        let mut child = start(&root, REMOVE_MANY);
        let mut lines = wait_for(&mut child, "ready");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while list(&root.join("layers")).len() > kill_at {
            assert!(std::time::Instant::now() < until, "it does not get on");
        }
        child.kill().expect("kills");
        child.wait().expect("is gone");
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut lines, &mut rest).expect("readable");
        let done = rest.contains("STEP done");

        let store = open(&root);
        assert!(store.was_unclean());
        check_accounts(&store);
        let report = run_check(&store, Depth::Digest, false);
        assert_eq!((report.problems, report.incomplete_images), (vec![], vec![]), "round {round}");
        let left = store.images().expect("readable").len();
        assert!([90, 26, 0].contains(&left), "round {round}: whole transactions, {left} are left");
        assert!(!done || left == 0);
        seen.insert(left);
        drop(store);
        std::fs::remove_dir_all(&root).expect("removes");
    }
    assert!(seen.len() > 1, "the kills came at different times: {seen:?}");
}
