//! Compares, entry by entry, the snapshots that imagelet's engine put into containerd's store with those of containerd's own pull of
//! the same image into another root: each layer by itself, as overlayfs stacks it, and the image as a container sees it. The
//! differences are asserted as the exact list, and are the same with every version of containerd. With the erofs snapshotter
//! (`CONTAINERD_SNAPSHOTTER`) the image is compared with containerd's own pull into overlayfs: containerd's EROFS files have
//! directories of mode 0777 (docs/differences.md).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use cri_api::{ImageService as _, PullImageRequest};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, connect_image_service};

use super::tree::compared;
use crate::support::cli::are_files;
use crate::support::containerd::Setup;
use crate::support::containerd_config;
use crate::support::images::{self, Layer, Packing};
use crate::support::nasty;
use crate::support::process::{run, tool};
use crate::support::scene::Scene;
use crate::support::tree::read;
use crate::support::{Containerd, Imagelet};

const OVERLAYFS: &str = "overlayfs";

/// A containerd with one image.
struct Store {
    containerd: Containerd,
    /// Directories of the image's layers, lowest first.
    layers: Vec<PathBuf>,
    /// The layers as a container sees them.
    merged: PathBuf,
}

impl Store {
    /// The store of a containerd that has this image.
    #[track_caller]
    fn of(s: &Scene, containerd: Containerd, snapshotter: &str, name: &str, layers: &[Layer]) -> Self {
        let top = layers.iter().fold(None, |below, layer| Some(oci::chain_id(below.as_ref(), &layer.diff_id)));
        let top = top.expect("it has layers").to_string();
        let snapshots =
            |args: &[&str]| run(containerd.ctr().args(["snapshots", "--snapshotter", snapshotter]).args(args));
        // In the place of a view, which nothing would keep from collection.
        snapshots(&["prepare", name, &top]);
        let merged = s.scratch.directory(name);
        let mount = snapshots(&["mounts", &merged.display().to_string(), name]);
        // A layer that is an EROFS file is a link to its tree.
        let resolved = |path: PathBuf| fs::canonicalize(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let directories: Vec<PathBuf> = directories_of(&mount).into_iter().map(resolved).collect();
        assert_eq!(directories.len(), layers.len(), "{mount}");
        run(tool("bash").args(["-c", &mount]));
        Self { containerd, layers: directories, merged }
    }
}

/// The directories of a mount command, lowest first: `mount -t overlay overlay TARGET -o …,lowerdir=TOP:…:BOTTOM` or, of one layer,
/// `mount -t bind DIRECTORY TARGET -o ro,rbind`.
fn directories_of(mount: &str) -> Vec<PathBuf> {
    let options = mount.trim().split("lowerdir=").nth(1).map(|rest| rest.split([',', ' ']).next().unwrap_or_default());
    match options {
        Some(lower) => lower.split(':').rev().map(PathBuf::from).collect(),
        None => mount.split_ascii_whitespace().nth(3).map(PathBuf::from).into_iter().collect(),
    }
}

/// The attributes in which overlayfs keeps its books: opaque directories, most of all.
fn marks(layer: &Path) -> BTreeMap<String, Vec<String>> {
    let mut list = tool("getfattr");
    let said = run(list.current_dir(layer).args(["-R", "-P", "-h", "-d", "-m", r"^trusted\.overlay\.", "."]));
    let entries = said.split("\n\n").filter_map(|entry| {
        let mut lines = entry.lines();
        let path = lines.next()?.strip_prefix("# file: ")?;
        Some((path.to_owned(), lines.map(str::to_owned).collect()))
    });
    entries.collect()
}

/// Pulls an image with the engine into one containerd and with another containerd into its own store, and compares both.
#[track_caller]
fn differences(s: &Scene, layers: &[Layer]) -> Vec<String> {
    let name = s.registry.push(&s.layout, &s.layout.image(layers), "test/engines:1");
    let ours = Containerd::start(s.registry.host());
    let engine = Imagelet::remote(&ours.endpoint()).global("--pull-engine", "embedded");
    let engine = engine.global("--root", &s.scratch.join("engine").display().to_string());
    engine.ok(&["pull", &name]);
    let snapshotter = containerd_config::snapshotter();
    let ours = Store::of(s, ours, &snapshotter, "ours", layers);
    let theirs = Containerd::with(s.registry.host(), Setup { snapshotter: Some(OVERLAYFS), ..Setup::default() });
    pull_by_itself(&theirs, &name);
    let theirs = Store::of(s, theirs, OVERLAYFS, "theirs", layers);

    let mut found = Vec::new();
    let layers = if snapshotter == OVERLAYFS { &ours.layers[..] } else { &[] };
    for (number, (left, right)) in layers.iter().zip(&theirs.layers).enumerate() {
        let (left_marks, right_marks) = (marks(left), marks(right));
        if left_marks != right_marks {
            found.push(format!("layer {number}: marks of overlayfs: {left_marks:?} | {right_marks:?}"));
        }
        let lines = compared(&read(left), &read(right));
        // Whiteouts of a layer that is an EROFS file are one inode.
        let counts =
            |line: &String| !(are_files() && [": links: ", ": same file: "].iter().any(|part| line.contains(part)));
        found.extend(lines.into_iter().filter(counts).map(|line| format!("layer {number}: {line}")));
    }
    let merged = compared(&read(&ours.merged), &read(&theirs.merged));
    found.extend(merged.into_iter().map(|line| format!("merged: {line}")));
    // The scratch removes a mount that outlives its containerd.
    drop((ours.containerd, theirs.containerd));
    found
}

/// Pulls with nothing of imagelet's engine in between.
#[track_caller]
fn pull_by_itself(containerd: &Containerd, name: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let endpoint = Endpoint::parse(&containerd.endpoint()).expect("an endpoint");
        let images = connect_image_service(&endpoint, ClientOptions::default()).await.expect("connect");
        images.pull_image(PullImageRequest::new(name)).await.expect("containerd pulls");
    });
}

/// Differences in the times that containerd gives to entries of its own making: the root, parents without an entry, whiteouts.
fn but_for_times_of_its_own(found: Vec<String>) -> Vec<String> {
    found.into_iter().filter(|line| !(line.contains(": mtime: ") && line.ends_with("| now"))).collect()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn everything_that_layers_can_hold_is_placed_as_containerd_places_it() {
    let s = Scene::new();
    let layers = nasty::layers(&s.scratch, &s.layout, Packing::Gzip);
    // containerd refuses holes as GNU tar used to write them.
    let (_, layers) = layers.split_last().expect("it has layers");
    // containerd knows no time before 1970 (docs/differences.md).
    let line = "/modes/set-uid: mtime: (-2, 0) | (0, 0)";
    let [layer, merged] = ["layer 0", "merged"].map(|of| format!("{of}: {line}"));
    let expected = if containerd_config::snapshotter() == OVERLAYFS { vec![layer, merged] } else { vec![merged] };
    assert_eq!(but_for_times_of_its_own(differences(&s, layers)), expected, "engine | containerd");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_debian_root_file_system_that_is_changed_is_placed_as_containerd_places_it() {
    let s = Scene::new();
    let changes = s.scratch.directory("changes");
    for (path, content) in [("etc/hostname", "changed\n"), ("usr/share/.wh.doc", ""), ("var/lib/.wh..wh..opq", "")] {
        images::write(&changes.join(path), content);
    }
    images::settle(&changes);
    let layers = [
        s.layout.layer_from_tar(&images::debian_tar(), Packing::Zstd),
        s.layout.layer_with(&changes, Packing::Gzip, &["etc/hostname", "usr/share/.wh.doc", "var/lib/.wh..wh..opq"]),
    ];
    assert_eq!(but_for_times_of_its_own(differences(&s, &layers)), Vec::<String>::new(), "engine | containerd");
}

/// containerd passes over what a layer says of the root directory; `/` of a container is the root of the top layer.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn roots_of_layers_are_placed_as_containerd_places_them() {
    let s = Scene::new();
    let mut layers = Vec::new();
    for (number, (mode, owner)) in [(0o751, 52), (0o1777, 0), (0o700, 3_000_000)].into_iter().enumerate() {
        let root = s.scratch.directory(&format!("root-{number}"));
        images::write(&root.join(format!("file-{number}")), "content\n");
        run(tool("setfattr").args(["-n", "user.root", "-v", "mine"]).arg(&root));
        chown(&root, Some(owner), Some(owner)).expect("chown");
        fs::set_permissions(&root, fs::Permissions::from_mode(mode)).expect("chmod");
        images::settle(&root);
        layers.push(s.layout.layer(&root, Packing::Gzip));
    }
    assert_eq!(but_for_times_of_its_own(differences(&s, &layers)), Vec::<String>::new(), "engine | containerd");
}

#[test]
fn directories_are_read_from_both_forms_of_mounts() {
    let overlay = "mount -t overlay overlay /target -o index=off,lowerdir=/s/3/fs:/s/2/fs:/s/1/fs,userxattr\n";
    assert_eq!(directories_of(overlay), ["/s/1/fs", "/s/2/fs", "/s/3/fs"].map(PathBuf::from));
    assert_eq!(directories_of("mount -t bind /s/1/fs /target -o ro,rbind\n"), [PathBuf::from("/s/1/fs")]);
}
