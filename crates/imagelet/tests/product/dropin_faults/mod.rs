//! Our engine before a containerd whose store it fills, under faults: kills, a containerd that has ended, full disks, other clients
//! that pull and remove at the same time, power cuts. After each: an image is present and starts, or is absent; and nothing is left.

mod full;
mod kills;
mod mounted;
mod origins;
mod others;
mod power;
mod restarts;
mod strange;
mod undone;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::support::containerd::Setup;
use super::support::disk::LoopFs;
use super::support::images::{self, Layer};
use super::support::process::{eventually, run};
use super::support::random::noise_of;
use super::support::scene::Scene;
use super::support::tree::{self, Tree};
use super::support::{Containerd, Imagelet, Packing};

const PAUSE: &str = "infra/pause:1";

/// A containerd on a disk of its own, imagelet in front of it, and a registry.
struct Harbour {
    /// Pulls by our engine only.
    imagelet: Imagelet,
    /// Pulls by containerd.
    plain: Imagelet,
    containerd: Containerd,
    disk: PathBuf,
    /// The lowest layer of images that run.
    base: Layer,
    s: Scene,
}

/// An image of the registry.
struct Pushed {
    name: String,
    id: String,
    /// Chain ids, the lowest first, and blobs.
    chains: Vec<(String, String)>,
}

/// Blobs that a pull asked the registry for.
struct Asked {
    read: Vec<String>,
    heads: Vec<String>,
}

/// A snapshot, as `ctr snapshots list` shows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    key: String,
    parent: String,
    kind: String,
}

impl Harbour {
    fn new(mebibytes: u64) -> Self {
        Self::with_disk(LoopFs::ext4(mebibytes))
    }

    fn with_disk(disk: LoopFs) -> Self {
        let s = Scene::new();
        let disk = disk.mount(&s.scratch, "disk");
        Self::on(s, disk)
    }

    /// On this file system.
    fn on(s: Scene, disk: PathBuf) -> Self {
        let setup = Setup {
            root: Some(disk.join("containerd")),
            sandbox_image: Some(s.registry.name(PAUSE)),
            ..Setup::default()
        };
        let containerd = Containerd::with(s.registry.host(), setup);
        let with = |engine: &str| {
            s.imagelet.clone().global("--image-endpoint", &containerd.endpoint()).global("--pull-engine", engine)
        };
        let (imagelet, plain) = (with("embedded"), with("runtime"));
        let root = tempfile::tempdir_in(s.scratch.path()).expect("a directory");
        images::busybox_tree(root.path());
        let base = s.layout.layer(root.path(), Packing::Gzip);
        // A small image for tests that start pods.
        s.registry.push(
            &s.layout,
            &s.layout.image_for(std::slice::from_ref(&base), &idle(), &images::platform()),
            PAUSE,
        );
        Self { imagelet, plain, containerd, disk, base, s }
    }

    /// Layers of a few small files each; every third has no entry for a directory that it is in.
    fn layers(&self, name: &str, count: usize, bytes: usize) -> Vec<Layer> {
        (0..count).map(|number| self.layer(name, number, bytes)).collect()
    }

    fn layer(&self, name: &str, number: usize, bytes: usize) -> Layer {
        let tree = tempfile::tempdir_in(self.s.scratch.path()).expect("a directory");
        let directory = tree.path().join("opt").join(name);
        for file in 0..8 {
            images::write(&directory.join(format!("l{number}/f{file}")), format!("{name} {number} {file} ").repeat(40));
        }
        images::write(&directory.join(format!("big{number}")), noise_of(&format!("{name} {number}"), bytes));
        images::settle(tree.path());
        match number % 3 {
            2 => self.s.layout.layer_with(tree.path(), Packing::Gzip, &[&format!("./opt/{name}/big{number}")]),
            _ => self.s.layout.layer(tree.path(), Packing::Gzip),
        }
    }

    /// An image that runs and does nothing, with these layers on top, pushed.
    fn push(&self, name: &str, more: &[Layer]) -> Pushed {
        let layers = [std::slice::from_ref(&self.base), more].concat();
        let image = self.s.layout.image_for(&layers, &idle(), &images::platform());
        Pushed { name: self.s.registry.push(&self.s.layout, &image, name), chains: chains(&layers), id: image.id }
    }

    fn staging_root(&self) -> PathBuf {
        self.disk.join("containerd/io.containerd.snapshotter.v1.overlayfs/imagelet")
    }

    fn ctr(&self, args: &[&str]) -> String {
        run(self.containerd.ctr().args(args))
    }

    fn snapshots(&self) -> BTreeSet<Row> {
        let row = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [key, kind] => Row { key: key.to_owned(), parent: String::new(), kind: kind.to_owned() },
            [key, parent, kind] => Row { key: key.to_owned(), parent: parent.to_owned(), kind: kind.to_owned() },
            // Ours have words in them.
            _ => {
                let mut words: Vec<&str> = line.split_whitespace().collect();
                let kind = words.pop().unwrap_or_default().to_owned();
                Row { key: words.join(" "), parent: String::new(), kind }
            }
        };
        self.ctr(&["snapshots", "list"]).lines().skip(1).map(row).collect()
    }

    fn committed(&self) -> BTreeSet<String> {
        self.snapshots().into_iter().filter(|row| row.kind == "Committed").map(|row| row.key).collect()
    }

    /// Leases of ours, as they are listed.
    fn leases(&self) -> Vec<String> {
        let list = self.ctr(&["leases", "list"]);
        list.lines().filter(|line| line.contains("imagelet.io/workplace")).map(str::to_owned).collect()
    }

    /// Directories of layers that are unpacked and not in their places.
    fn ingests(&self) -> Vec<String> {
        let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
        entries(&self.staging_root())
            .flat_map(|place| entries(&place.path().join("ingest")).collect::<Vec<_>>())
            .map(|entry| entry.path().display().to_string())
            .collect()
    }

    /// Asserts that there is no lease of ours, no uncommitted snapshot, and no unpacked leftover.
    #[track_caller]
    fn nothing_on_the_way(&self, context: &str) {
        assert_eq!(self.leases(), Vec::<String>::new(), "{context}");
        eventually(&format!("{context}: what a lease held goes with it"), || {
            self.snapshots().iter().all(|row| row.kind == "Committed")
        });
        assert_eq!(self.ingests(), Vec::<String>::new(), "{context}");
    }

    /// Removes everything: then containerd has no snapshot and no blob, and no lease of ours.
    #[track_caller]
    fn empty(&self, context: &str) {
        for id in self.plain.ids() {
            self.plain.ok(&["rmi", &id]);
        }
        eventually(
            &format!("{context}: nothing is left: {:?} {}", self.snapshots(), self.ctr(&["content", "list"])),
            || self.snapshots().is_empty() && self.ctr(&["content", "list", "-q"]).trim().is_empty(),
        );
        self.nothing_on_the_way(context);
    }

    /// The files of an image, as a container has them.
    #[track_caller]
    fn tree(&self, name: &str) -> Tree {
        let on = self.s.scratch.directory("shown");
        let on_text = on.display().to_string();
        // A containerd that was killed while it made a snapshot fails once with the next one.
        if self.containerd.ctr().args(["images", "mount", name, &on_text]).output().is_ok_and(|o| !o.status.success()) {
            self.ctr(&["images", "mount", name, &on_text]);
        }
        let tree = tree::read(&on);
        self.ctr(&["images", "unmount", "--rm", &on_text]);
        tree
    }

    /// The images that containerd's CRI lists, by their names.
    fn visible(&self) -> BTreeSet<String> {
        let names = |image: &serde_json::Value| {
            let names = image["repoTags"].as_array().expect("a list").iter();
            names.filter_map(|name| name.as_str().map(str::to_owned)).collect::<Vec<_>>()
        };
        self.plain.images().iter().flat_map(names).collect()
    }

    /// Every image that is listed is whole: `good` has the files of those that there may be.
    #[track_caller]
    fn visible_are_whole(&self, good: &[(&str, &Tree)], context: &str) -> BTreeSet<String> {
        let visible = self.visible();
        for name in &visible {
            if let Some((_, good)) = good.iter().find(|(known, _)| known == name) {
                assert_eq!(differences(good, &self.tree(name)), Vec::<String>::new(), "{context}: {name}");
            }
        }
        visible
    }

    /// Pulls an image by our engine. Answers with the blobs that were asked for.
    #[track_caller]
    fn pull(&self, name: &str) -> Asked {
        let requests = {
            let before = self.s.registry.requests().len();
            self.imagelet.ok(&["pull", name]);
            self.s.registry.requests().split_off(before)
        };
        let of = |method: &str| {
            let digest = |request: &String| Some(request.strip_prefix(method)?.split_once("/blobs/")?.1.to_owned());
            requests.iter().filter_map(digest).collect()
        };
        Asked { read: of("GET "), heads: of("HEAD ") }
    }
}

/// The config of an image that runs and does nothing.
fn idle() -> serde_json::Value {
    json!({"Entrypoint": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]})
}

/// Differences of two trees but for times, in which containerd's unpacking and ours differ where directories are concerned, and for the
/// number of links, which layers on several chains share.
fn differences(good: &Tree, tree: &Tree) -> Vec<String> {
    let counts = |line: &String| ![": mtime: ", ": links: "].iter().any(|left_out| line.contains(left_out));
    tree::differences(good, tree).into_iter().filter(counts).collect()
}

/// Chain ids of the layers of an image, the lowest first, and the blobs that they are made of.
fn chains(layers: &[Layer]) -> Vec<(String, String)> {
    let mut below: Option<oci::Digest> = None;
    let chain = |layer: &Layer| {
        let chain = oci::chain_id(below.as_ref(), &layer.diff_id);
        below = Some(chain.clone());
        (chain.to_string(), layer.blob.digest.to_string())
    };
    layers.iter().map(chain).collect()
}
