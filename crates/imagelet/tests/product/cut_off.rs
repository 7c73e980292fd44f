//! `kill -9` of an `ensure` between intent, pull and pulled record, at many moments. Whatever was on the disk then: no pod gets an
//! image without a right to it, records are whole files, the pod with the right gets the image, and nothing is left over.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::Imagelet;
use crate::support::manifests::{Manifests, Pod, PullSecret};
use crate::support::process::wait;
use crate::support::random::Random;
use crate::support::registry::GuardedRegistry;
use crate::support::scene::Scene;

const ROUNDS: usize = 32;
const WARM_UP: usize = 2;
const SEED: u64 = 0x1DEA_2026_1122;
const USER: (&str, &str) = ("keeper", "portcullis-and-moat");

/// Files of a directory of records, by name, with what is in them.
fn records(root: &Path, directory: &str) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = fs::read_dir(root.join("image_manager").join(directory)) else { return Vec::new() };
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        fs::read(entry.path()).map(|bytes| (name, bytes))
    };
    entries.map(|entry| entry.and_then(read).expect("a record")).collect()
}

/// Asserts that records with their final names are whole, and that all other files are drafts. Returns the number of records.
#[track_caller]
fn whole(root: &Path, directory: &str, context: &str) -> usize {
    let (drafts, finished): (Vec<_>, Vec<_>) =
        records(root, directory).into_iter().partition(|(name, _)| name.ends_with(".tmp"));
    for (name, bytes) in &finished {
        let value: Result<Value, _> = serde_json::from_slice(bytes);
        let kind = value.map(|value| value["kind"].clone());
        assert!(kind.is_ok_and(|kind| kind.is_string()), "{context}: {directory}/{name} is half a file");
    }
    assert!(drafts.len() <= 1, "{context}: {drafts:?}");
    finished.len()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn kill_at_any_moment_grants_no_access() {
    let s = Scene::new();
    s.push_file("cut/app:1", "data", "the keeper's own\n".repeat(100));
    let registry = GuardedRegistry::start(&s.scratch.join("registry"), &[USER]);
    let certs = registry.hosts_file(&s.scratch.join("certs.d"));
    let image = registry.name("cut/app:1");
    let file = |name: &str, policy: &str, secrets: &[&str]| {
        let secret = PullSecret {
            namespace: name,
            name: "pull",
            uid: "uid-of-pull",
            registry: &registry.host,
            user: USER.0,
            password: USER.1,
        };
        let manifests = Manifests::new().pod(Pod { namespace: name, name, image: &image, policy, secrets });
        let manifests = if secrets.is_empty() { manifests } else { manifests.secret(secret) };
        manifests.write(&s.scratch.join(&format!("{name}-{policy}.yaml")))
    };
    let keeper = file("keeper", "IfNotPresent", &["pull"]);
    let keeper_never = file("keeper", "Never", &["pull"]);
    let stranger = file("stranger", "Never", &[]);

    let mut random = Random(SEED);
    let mut took = Duration::ZERO;
    // How often the kill found an intent, an image and the intent, a record and both, and the end.
    let mut found = [0; 4];
    for round in 0..ROUNDS {
        let root = s.scratch.join(&format!("store-{round}"));
        let imagelet = Imagelet::on(&root).global("--registry-config-path", &certs);
        let from = Instant::now();
        let mut child = imagelet.spawn(&["ensure", "-f", &keeper]);
        // The first rounds are not cut off: the last of them measures how long one takes. Then follow moments over that whole time,
        // and moments just after something has appeared on the disk.
        if round >= WARM_UP {
            let watched = ["", "image_manager/pulling", "layers", "image_manager/pulled"][round % 4];
            if watched.is_empty() {
                wait(&mut child, took.mul_f64(random.next()));
            } else {
                let there = || fs::read_dir(root.join(watched)).is_ok_and(|mut entries| entries.next().is_some());
                while !there() && wait(&mut child, Duration::ZERO).is_none() {}
                wait(&mut child, took.mul_f64(random.next() * 0.05));
            }
            let _ = child.kill();
        }
        let status = child.wait().expect("it is our child");
        if round < WARM_UP {
            assert!(status.success(), "the first pulls: {status}");
            took = from.elapsed();
        }
        let (intents, pulled) = (whole(&root, "pulling", "killed"), whole(&root, "pulled", "killed"));
        let context = format!("seed {SEED:#x}, round {round}: {status}, {intents} intents, {pulled} records");
        assert!(intents <= 1 && pulled <= 1, "{context}");

        let done = imagelet.run(&["ensure", "-f", &stranger]);
        assert_eq!(done.code, Some(1), "{context}: a stranger: {}{}", done.stdout, done.stderr);
        assert!(done.stderr.contains("ErrImageNeverPull"), "{context}: {}", done.stderr);
        let present = !imagelet.ids().is_empty();
        match (intents > 0, present, pulled > 0) {
            (false, false, false) => {}
            (true, false, false) => found[0] += 1,
            (true, true, false) => found[1] += 1,
            (true, true, true) => found[2] += 1,
            (false, true, true) => found[3] += 1,
            other => panic!("{context}: intent, image, record: {other:?}"),
        }
        let left = whole(&root, "pulling", &context);
        assert_eq!(left, usize::from(intents > 0 && !present), "{context}: only what may still come has an intent");

        let done = imagelet.run(&["ensure", "-f", &keeper]);
        assert_eq!(done.code, Some(0), "{context}: its owner: {}{}", done.stdout, done.stderr);
        imagelet.ok(&["ensure", "-f", &keeper_never]);
        let done = imagelet.run(&["ensure", "-f", &stranger]);
        assert_eq!(done.code, Some(1), "{context}: a stranger afterwards: {}{}", done.stdout, done.stderr);
        let names = |directory| records(&root, directory).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names("pulling"), Vec::<String>::new(), "{context}: left over");
        assert_eq!(names("pulled").len(), 1, "{context}: {:?}", names("pulled"));
        fs::remove_dir_all(&root).expect("remove a store");
    }
    println!(
        "seed {SEED:#x}: intent {}, and image {}, and record {}, finished {}",
        found[0], found[1], found[2], found[3]
    );
    assert!(found[0] + found[1] + found[2] >= ROUNDS / 3, "too few kills came between intent and record: {found:?}");
}
