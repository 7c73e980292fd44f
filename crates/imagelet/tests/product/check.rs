//! `imagelet check`: what is damaged on the disk is found, said and repaired by making images absent, and the next ensure
//! heals them. What is whole stays.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::FORMAT;
use crate::support::cli::Done;
use crate::support::images;
use crate::support::manifests::{Manifests, Pod};
use crate::support::process::eventually;
use crate::support::random::noise;
use crate::support::scene::Scene;
use crate::support::{Imagelet, Packing};

/// A store with two images on one base.
struct Fixture {
    s: Scene,
    names: [String; 2],
}

impl Fixture {
    fn new() -> Self {
        let s = Scene::shaped(FORMAT);
        let base = s.file_layer("base/file", noise(300_000), Packing::Gzip);
        let images = ["left", "right"].map(|name| {
            let tree = s.scratch.directory(name);
            images::write(&tree.join(format!("{name}/file")), format!("what {name} has\n").repeat(5000));
            images::write(&tree.join(format!("{name}/empty")), "");
            images::settle(&tree);
            let own = s.layout.layer(&tree, Packing::Gzip);
            // A mark that only the config contains.
            let config = json!({"Cmd": ["/bin/sh"], "Labels": {"mark": format!("mark-of-{name}-in-its-config")}});
            s.layout.image_for(&[base.clone(), own], &config, &images::platform())
        });
        let names =
            [0, 1].map(|n| s.registry.push(&s.layout, &images[n], &format!("check/{}:1", ["left", "right"][n])));
        s.imagelet.ok(&["pull", &names[0], &names[1]]);
        Self { s, names }
    }

    /// Returns the file of the store's layers with the content of an image's file whose path ends so: that file, or the EROFS file
    /// of its layer.
    #[track_caller]
    fn file(&self, end: &str) -> PathBuf {
        fn below(directory: &Path, is_it: &dyn Fn(&Path) -> bool, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(directory).expect("a directory").map(|e| e.expect("an entry").path()) {
                if entry.is_dir() {
                    below(&entry, is_it, found);
                } else if is_it(&entry) {
                    found.push(entry);
                }
            }
        }
        let has = |path: &Path| match FORMAT {
            "dir" => path.ends_with(end),
            _ => path.ends_with("layer.erofs") && place(&fs::read(path).expect("a layer"), end).is_some(),
        };
        let mut found = Vec::new();
        below(&self.s.scratch.join("store/layers"), &has, &mut found);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    /// The name of the layer that has it.
    #[track_caller]
    fn layer(&self, end: &str) -> PathBuf {
        let layers = self.s.scratch.join("store/layers");
        let below = self.file(end).strip_prefix(&layers).expect("it is one of them").to_owned();
        below.components().next().expect("a layer").as_os_str().into()
    }

    /// Changes one byte of an image's file, and none of the inode's attributes.
    #[track_caller]
    fn flip(&self, end: &str) {
        let path = self.file(end);
        let mut bytes = fs::read(&path).expect("readable");
        let at = if FORMAT == "dir" { bytes.len() / 2 } else { place(&bytes, end).expect("it is in there") + 2000 };
        bytes[at] ^= 0x20;
        overwrite(&path, at, &bytes[at..=at]);
    }

    fn check(&self, args: &[&str]) -> (Done, Value) {
        let done = self.s.imagelet.run(&[&["check", "-o", "json"], args].concat());
        let report = serde_json::from_str(&done.stdout).unwrap_or_default();
        (done, report)
    }

    #[track_caller]
    fn is_sound(&self) {
        for args in [&[][..], &["--deep"]] {
            let (done, report) = self.check(args);
            assert_eq!((done.code, &report["problems"]), (Some(0), &json!([])), "{args:?}: {}", done.stderr);
            assert!(report["imagesChecked"].as_u64() >= Some(1), "{report:#}");
        }
    }

    /// Something is damaged: it is found, and touched only when that is asked for; then these images are absent.
    #[track_caller]
    fn is_found_and_repaired(&self, kind: &str, absent: &[usize]) {
        self.is_found_and_repaired_by(&[], kind, absent);
    }

    #[track_caller]
    fn is_found_and_repaired_by(&self, args: &[&str], kind: &str, absent: &[usize]) {
        let ids = self.s.imagelet.ids();
        let (done, report) = self.check(args);
        assert_eq!(done.code, Some(1), "{report:#}{}", done.stderr);
        let problems = report["problems"].as_array().expect("a list").clone();
        assert!(problems.iter().any(|problem| problem["kind"] == kind), "no {kind} in {report:#}");
        assert_eq!(self.s.imagelet.ids(), ids, "to look changes nothing");
        let table = self.s.imagelet.run(&[&["check"], args].concat());
        assert_eq!(table.code, Some(1), "{}{}", table.stdout, table.stderr);

        let (done, report) = self.check(&[args, &["--repair"]].concat());
        assert_eq!(done.code, Some(0), "{report:#}{}", done.stderr);
        // Removed images are reported as absent.
        for n in 0..2 {
            let there = self.s.imagelet.run(&["inspect", &self.names[n]]).code == Some(0);
            assert_eq!(there, !absent.contains(&n), "{report:#}");
        }
        self.is_sound();

        // A layer that both lack is fetched with the first of them.
        self.ensure(absent[0], "pulled");
        self.is_sound();
        for n in 0..2 {
            self.ensure(n, "present");
            self.shows(n);
        }
    }

    #[track_caller]
    fn ensure(&self, n: usize, result: &str) {
        let pod = Pod { namespace: "shop", name: "web", image: &self.names[n], policy: "IfNotPresent", secrets: &[] };
        let file = Manifests::new().pod(pod).write(&self.s.scratch.join("pod.yaml"));
        let done = self.s.imagelet.json(&["ensure", "-f", &file]);
        assert_eq!(done["containers"][0]["result"], result, "{done:#}");
    }

    #[track_caller]
    fn shows(&self, n: usize) {
        let name = ["left", "right"][n];
        let mounted = self.s.imagelet.mount(&self.names[n], self.s.scratch.join("mnt"));
        let text = fs::read_to_string(mounted.join(format!("{name}/file"))).expect("a file");
        assert_eq!(text, format!("what {name} has\n").repeat(5000));
        assert_eq!(fs::read(mounted.join("base/file")).expect("a file"), noise(300_000));
        self.s.imagelet.ok(&["unmount", &mounted.display().to_string()]);
    }
}

/// The content of a file of the images.
fn content(end: &str) -> Vec<u8> {
    match end.split_once('/') {
        Some(("base", _)) => noise(300_000),
        Some((name, "file")) => format!("what {name} has\n").repeat(5000).into_bytes(),
        _ => panic!("no such file: {end}"),
    }
}

/// Where a file of the images begins in its layer's EROFS file. Names without content stand among the names of their directory.
fn place(layer: &[u8], end: &str) -> Option<usize> {
    let block = &content(end)[..4096];
    layer.chunks(4096).position(|chunk| chunk == block).map(|n| n * 4096)
}

/// Writes in the middle of a file, and leaves its times.
fn overwrite(path: &Path, at: usize, bytes: &[u8]) {
    use std::os::unix::fs::FileExt as _;
    let modified = fs::metadata(path).and_then(|m| m.modified()).expect("stat");
    let file = fs::File::options().write(true).open(path).expect("open");
    file.write_all_at(bytes, at as u64).expect("write");
    file.set_modified(modified).expect("set the time back");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn untouched_store_passes_the_check() {
    let w = Fixture::new();
    w.is_sound();
    let report = w.check(&[]).1;
    assert_eq!((&report["imagesChecked"], &report["layersChecked"]), (&json!(2), &json!(3)), "{report:#}");
    assert!(report["bytesChecked"].as_u64() > Some(300_000), "{report:#}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_flipped_byte_makes_one_image_absent() {
    let w = Fixture::new();
    w.flip("left/file");
    w.is_found_and_repaired("damagedLayer", &[0]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_flipped_byte_of_a_shared_layer_makes_all_its_images_absent() {
    let w = Fixture::new();
    w.flip("base/file");
    w.is_found_and_repaired("damagedLayer", &[0, 1]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_deleted_file_makes_its_image_absent() {
    let w = Fixture::new();
    fs::remove_file(w.file("right/file")).expect("remove a file");
    // The removed file is one file of a directory layer, or the whole EROFS layer.
    w.is_found_and_repaired(if FORMAT == "dir" { "damagedLayer" } else { "missingLayer" }, &[1]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn what_has_no_content_is_looked_at_file_by_file() {
    let w = Fixture::new();
    if FORMAT == "dir" {
        fs::remove_file(w.s.scratch.join("store/layers").join(w.layer("right/file")).join("fs/right/empty"))
            .expect("remove a file");
    } else {
        let layer = w.file("right/file");
        let bytes = fs::read(&layer).expect("readable");
        let at = bytes.windows(5).position(|window| window == b"empty").expect("the name of a file");
        overwrite(&layer, at, b"other");
    }
    w.is_found_and_repaired_by(&["--deep"], "damagedLayer", &[1]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_truncated_file_makes_its_image_absent() {
    let w = Fixture::new();
    fs::File::options().write(true).open(w.file("right/file")).and_then(|f| f.set_len(100)).expect("truncate");
    w.is_found_and_repaired("damagedLayer", &[1]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn missing_layer_makes_its_image_absent() {
    let w = Fixture::new();
    fs::remove_dir_all(w.s.scratch.join("store/layers").join(w.layer("left/file"))).expect("remove a layer");
    w.is_found_and_repaired("missingLayer", &[0]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_damaged_document_makes_its_image_absent() {
    let w = Fixture::new();
    let database = w.s.scratch.join("store/meta.redb");
    let mut bytes = fs::read(&database).expect("read the database");
    let (mark, other) = (b"mark-of-left-in-its-config", b"mark-of-left-in-its-c0nfig");
    let places: Vec<usize> = bytes.windows(mark.len()).enumerate().filter(|(_, w)| w == mark).map(|(n, _)| n).collect();
    assert!(!places.is_empty(), "the config stands in the database");
    for place in places {
        bytes[place..place + mark.len()].copy_from_slice(other);
    }
    fs::write(&database, bytes).expect("write the database");
    w.is_found_and_repaired("damagedDocument", &[0]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn unknown_directory_is_swept() {
    let w = Fixture::new();
    // Beneath an agent that runs: what opens the store sweeps anyway.
    let agent = w.s.imagelet.serve(&w.s.scratch.join("cri.sock"));
    let orphan = w.s.scratch.join("store/layers/999999");
    images::write(&orphan.join("fs/file"), "nobody's");
    let (done, report) = w.check(&[]);
    assert_eq!((done.code, &report["problems"][0]["kind"]), (Some(1), &json!("orphan")), "{report:#}{}", done.stderr);
    assert!(orphan.exists());
    let (done, report) = w.check(&["--repair"]);
    assert_eq!((done.code, &report["problems"][0]["repaired"]), (Some(0), &json!(true)), "{report:#}{}", done.stderr);
    assert!(!orphan.exists());
    w.is_sound();
    drop(agent);
    assert_eq!(w.s.imagelet.ids().len(), 2);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn what_was_written_last_before_a_kill_is_looked_at_by_the_next() {
    let w = Fixture::new();
    w.s.imagelet.ok(&["rmi", &w.names[0]]);
    let agent = w.s.imagelet.serve(&w.s.scratch.join("cri.sock"));
    let through = Imagelet::remote(&format!("unix://{}", w.s.scratch.join("cri.sock").display()));
    through.ok(&["pull", &w.names[0]]);
    agent.kill();
    // As a power cut may leave a file whose blocks were not on the disk.
    w.flip("left/file");
    let agent = w.s.imagelet.serve(&w.s.scratch.join("cri.sock"));
    eventually("the damaged image is absent", || through.run(&["inspect", &w.names[0]]).code != Some(0));
    through.ok(&["inspect", &w.names[1]]);
    through.ok(&["pull", &w.names[0]]);
    w.is_sound();
    drop(agent);
    w.shows(0);
}
