//! Garbage collection where there is nothing left, no byte or no inode: by a command and by an agent, and by a pull that needs
//! the space. What cannot be helped says how much was needed.

use std::path::PathBuf;

use super::FORMAT;
use crate::support::disk::{Foreign, LoopFs, free};
use crate::support::gc::{decision, going, number, removed_names, row};
use crate::support::manifests::{Manifests, Pod};
use crate::support::process::eventually;
use crate::support::random::noise_of;
use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet, Packing};

/// The resource that a disk has run out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    Bytes,
    AllButAMebibyte,
    Inodes,
}

/// A disk with a store and two images, and then nothing is free.
struct FullDisk {
    s: Scene,
    disk: PathBuf,
    imagelet: Imagelet,
    names: [String; 2],
    ids: [String; 2],
    foreign: Foreign,
    /// Free bytes and inodes before the collection.
    before: (u64, u64),
}

impl FullDisk {
    /// Creates the scene, with pins on this many of the images.
    fn new(disk: LoopFs, full: Full, pins: usize) -> Self {
        let s = Scene::shaped(FORMAT);
        let disk = disk.mount(&s.scratch, "full");
        let imagelet = Imagelet::shaped(FORMAT, &disk.join("store")).hasty();
        let [(first, a), (second, b)] = ["full/first:1", "full/second:1"].map(|name| push_noise(&s, name, 12 << 20));
        imagelet.ok(&["pull", &first]);
        imagelet.ok(&["pull", &second]);
        for name in [&first, &second].into_iter().take(pins) {
            imagelet.ok(&["pin", name]);
        }
        let foreign = match full {
            Full::Bytes => Foreign::leaving(&disk, 0),
            Full::AllButAMebibyte => Foreign::leaving(&disk, 1 << 20),
            Full::Inodes => Foreign::leaving_inodes(&disk, 0),
        };
        let before = free(&disk);
        Self { s, disk, imagelet, names: [first, second], ids: [a, b], foreign, before }
    }

    /// Returns true if the space of one image is free now, less the records of the collection.
    fn is_free(&self, full: Full) -> bool {
        let (bytes, inodes) = free(&self.disk);
        match full {
            Full::Bytes | Full::AllButAMebibyte => bytes > self.before.0 + (10 << 20),
            Full::Inodes => inodes >= self.before.1 + 2,
        }
    }

    fn pod(&self, image: &str) -> String {
        let pod = Pod { namespace: "shop", name: "web", image, policy: "IfNotPresent", secrets: &[] };
        Manifests::new().pod(pod).write(&self.s.scratch.join("pod.yaml"))
    }
}

/// An image whose one layer nothing makes smaller, pushed; its whole name, and its id.
fn push_noise(s: &Scene, name: &str, bytes: usize) -> (String, String) {
    let image = s.layout.image(&[s.file_layer("noise", noise_of(name, bytes), Packing::Plain)]);
    (s.registry.push(&s.layout, &image, name), image.id)
}

fn a_command_frees(disk: LoopFs, full: Full) {
    let f = FullDisk::new(disk, full, 1);
    // A round by the marks: the disk is above the high one.
    let done = f.imagelet.run(&["gc", "-o", "json"]);
    assert!(done.stdout.contains(&f.ids[1]), "{:?}: {}{}", done.code, done.stdout, done.stderr);
    assert_eq!(f.imagelet.ids(), [f.ids[0].as_str()], "what is pinned stays");
    // XFS gives inodes back in the background.
    eventually(&format!("there is room; before {:?}, now {:?}", f.before, free(&f.disk)), || f.is_free(full));
    assert_eq!(f.imagelet.json(&["pins"])["pins"][0]["pattern"], f.names[0], "and the pin");
    // The freed space can be used.
    f.foreign.remove();
    f.imagelet.ok(&["pull", &f.names[1]]);
    assert_eq!(f.imagelet.ids().len(), 2);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_command_frees_an_ext4_without_a_byte() {
    a_command_frees(LoopFs::ext4(64), Full::Bytes);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_command_frees_an_xfs_without_a_byte() {
    a_command_frees(LoopFs::xfs(320), Full::Bytes);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_command_frees_an_ext4_without_an_inode() {
    a_command_frees(LoopFs::ext4(64).inodes(500), Full::Inodes);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_command_frees_an_xfs_without_an_inode() {
    a_command_frees(LoopFs::xfs(320).inodes(2000), Full::Inodes);
}

/// An agent that collects; it learns the containers from a containerd on the same node.
fn agent(imagelet: &Imagelet, containerd: &Containerd) -> Imagelet {
    imagelet.clone().global("--runtime-endpoint", &containerd.endpoint()).flag("--image-gc=true")
}

fn an_agent_frees(disk: LoopFs, full: Full) {
    let f = FullDisk::new(disk, full, 0);
    let containerd = Containerd::start(f.s.registry.host());
    // It starts on the full disk, and its first round is at once.
    let _agent = agent(&f.imagelet, &containerd).serve(&f.s.scratch.join("cri.sock"));
    eventually("the agent has collected", || f.imagelet.ids().len() < 2);
    eventually("there is room", || f.is_free(full));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_agent_frees_an_ext4_without_a_byte() {
    an_agent_frees(LoopFs::ext4(64), Full::Bytes);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_agent_frees_an_xfs_without_an_inode() {
    an_agent_frees(LoopFs::xfs(320).inodes(2000), Full::Inodes);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pull_on_a_full_disk_has_room_made_for_it() {
    let f = FullDisk::new(LoopFs::ext4(64), Full::Bytes, 0);
    let (name, id) = push_noise(&f.s, "full/third:1", 8 << 20);
    let before = f.s.registry.requests().len();
    let said = f.imagelet.run(&["ensure", "-f", &f.pod(&name)]);
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    assert!(f.imagelet.ids().contains(&id), "{:?}", f.imagelet.ids());
    assert!(f.imagelet.ids().len() <= 2, "something made room");
    let manifests = f.s.registry.requests()[before..].iter().filter(|r| r.contains("/third/manifests/")).count();
    assert!(manifests <= 4, "it is tried once more and not again and again: {manifests} requests");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pull_that_nothing_makes_room_for_says_how_much_was_needed() {
    let f = FullDisk::new(LoopFs::ext4(64), Full::AllButAMebibyte, 2);
    let (name, _) = push_noise(&f.s, "full/third:1", 8 << 20);
    let said = f.imagelet.run(&["ensure", "-f", &f.pod(&name)]);
    assert_eq!(said.code, Some(1), "{}{}", said.stdout, said.stderr);
    let error = said.stderr.lines().find(|l| l.starts_with("error")).unwrap_or_default().to_owned();
    assert!(
        error.contains("no space left") && error.contains("8.4MB are needed, "),
        "it does not say how much was needed:\n{}",
        said.stderr
    );
    assert_eq!(f.imagelet.ids().len(), 2, "what is pinned stays");
    assert!(free(&f.disk).0.abs_diff(f.before.0) < 256 << 10, "nothing half is left: {:?}", free(&f.disk));

    // With one of them unpinned, that one is removed.
    f.imagelet.ok(&["unpin", &f.names[1]]);
    f.imagelet.ok(&["ensure", "-f", &f.pod(&name)]);
    let done = f.imagelet.collect(&["--all-unused"]);
    assert_eq!(removed_names(&done), ["full/third:1"]);
    assert!(number(&done, "freedBytes") > 8 << 20);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_clients_pull_on_a_full_disk_has_the_agent_make_room() {
    let s = Scene::shaped(FORMAT);
    let disk = LoopFs::ext4(64).mount(&s.scratch, "disk");
    let containerd = Containerd::start(s.registry.host());
    let imagelet = agent(&Imagelet::shaped(FORMAT, &disk.join("store")).hasty(), &containerd);
    let socket = s.scratch.join("cri.sock");
    let _agent = imagelet.serve(&socket);
    let client = Imagelet::remote(&format!("unix://{}", socket.display()));
    let [(first, a), (second, b)] = ["full/first:1", "full/second:1"].map(|name| push_noise(&s, name, 12 << 20));
    client.ok(&["pull", &first]);
    Foreign::leaving(&disk, 4 << 20);
    client.ok(&["pull", &second]);
    assert_eq!(client.ids(), [b], "{a} made room");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn what_was_pulled_a_moment_ago_is_freed_when_nothing_else_is_left() {
    let s = Scene::shaped(FORMAT);
    let disk = LoopFs::ext4(96).mount(&s.scratch, "disk");
    let imagelet = Imagelet::shaped(FORMAT, &disk.join("store"));
    let names = ["full/first:1", "full/second:1", "full/third:1"].map(|name| push_noise(&s, name, 12 << 20).0);
    imagelet.ok(&["pull", &names[0], &names[1]]);
    // Two of them are old and are not requested any more.
    let later = imagelet.clone().later(7200);
    later.ok(&["pull", &names[2]]);
    Foreign::leaving(&disk, 1 << 20);

    let plan = later.plan(&["--until-free", "8MiB", "--min-age", "0s"]);
    assert_eq!((going(&plan).len(), decision(&plan, "full/third:1")), (1, "protected"), "{plan:#}");
    assert!(row(&plan, "full/third:1")["protectedUntil"].is_string(), "{plan:#}");
    let done = later.collect(&["--until-free", "20MiB", "--min-age", "0s"]);
    assert_eq!(removed_names(&done).len(), 2, "{done:#}");
    assert!(!removed_names(&done).contains(&"full/third:1".to_owned()), "it is the last to go: {done:#}");

    // Nothing else is left. What is said is done, and why.
    let table = later.ok(&["gc", "-n", "--until-free", "30MiB", "--min-age", "0s"]);
    let why =
        "its space is needed, and nothing else suffices, although it was pulled before its use and is protected until ";
    assert!(table.contains(why), "{table}");
    let explained = later.ok(&["gc", "explain", &names[2]]);
    assert!(explained.contains("it stays: pulled "), "{explained}");
    let explained = later.clone().global("--minimum-image-ttl-duration", "0s").flag("--image-gc-high-threshold=100");
    let explained = explained.ok(&["gc", "explain", &names[2]]);
    assert!(explained.contains("; it goes last, where nothing else suffices"), "{explained}");
    // Within the kubelet's two minutes only who says so takes it.
    let line = later.fails(1, &["gc", "--until-free", "30MiB"]);
    assert!(line.contains("1 image (") && line.contains("too young (--now removes them as well)"), "{line}");
    let done = later.collect(&["--until-free", "30MiB", "--min-age", "0s"]);
    assert_eq!(removed_names(&done), ["full/third:1"], "{done:#}");
    assert!(done["removed"][0]["protectedUntil"].is_string(), "{done:#}");
    assert!(free(&disk).0 >= 30 << 20);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn what_was_pulled_ahead_leaves_a_full_disk_by_each_way_of_collecting() {
    for args in [&["gc"][..], &["gc", "--all-unused"], &["gc", "--older-than", "1m"]] {
        let s = Scene::shaped(FORMAT);
        let disk = LoopFs::ext4(64).mount(&s.scratch, "disk");
        let imagelet = Imagelet::shaped(FORMAT, &disk.join("store"));
        let (name, _) = push_noise(&s, "full/ahead:1", 24 << 20);
        imagelet.ok(&["pull", &name]);
        Foreign::leaving(&disk, 0);
        let before = free(&disk).0;
        // A round says that it could not free all that the low threshold takes.
        let later = imagelet.clone().later(180);
        let done = later.run(args);
        assert!(done.stdout.contains("although it was protected until"), "{args:?}: {}{}", done.stdout, done.stderr);
        assert!(imagelet.ids().is_empty() && free(&disk).0 > before + (20 << 20), "{args:?}");
    }
}

/// A pod with a container of each image, which are pulled where they are not here.
fn pod_of(s: &Scene, images: &[&str]) -> String {
    let container = |(number, image): (usize, &&str)| serde_json::json!({"name": format!("c{number}"), "image": image, "imagePullPolicy": "IfNotPresent"});
    let containers: Vec<_> = images.iter().enumerate().map(container).collect();
    let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "both", "namespace": "shop"},
                                 "spec": {"containers": containers}});
    let path = s.scratch.join("both.json");
    std::fs::write(&path, pod.to_string()).expect("written");
    path.display().to_string()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pull_takes_no_image_of_its_own_pod() {
    let f = FullDisk::new(LoopFs::ext4(64), Full::AllButAMebibyte, 0);
    let (third, id) = push_noise(&f.s, "full/third:1", 8 << 20);
    // The first image is the oldest, and would be removed first; the pod needs it.
    let pod = pod_of(&f.s, &[&f.names[0], &third]);
    f.imagelet.ok(&["ensure", "-f", &pod]);
    let mut want = vec![f.ids[0].clone(), id.clone()];
    let mut here = f.imagelet.ids();
    want.sort_unstable();
    here.sort_unstable();
    assert_eq!(here, want);

    // With nothing else to take it fails, and takes none.
    let (fourth, _) = push_noise(&f.s, "full/fourth:1", 15 << 20);
    let pod = pod_of(&f.s, &[&f.names[0], &third, &fourth]);
    f.imagelet.fails(1, &["ensure", "-f", &pod]);
    let mut here = f.imagelet.ids();
    here.sort_unstable();
    assert_eq!(here, want);
    f.imagelet.fails(1, &["pull", &f.names[0], &third, &fourth]);
    let mut here = f.imagelet.ids();
    here.sort_unstable();
    assert_eq!(here, want);
    // By itself it removes images that are not needed now.
    f.imagelet.ok(&["pull", &fourth]);
}
