//! Layers of containerd's default snapshotter that are EROFS files: what can happen to a file, its mount and its link, how images
//! are removed, a start of the machine, and conversions.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::{Harbour, Pushed, differences};
use crate::support::Imagelet;
use crate::support::disk::LoopFs;
use crate::support::images;
use crate::support::manifests::{Manifests, Pod};
use crate::support::process::{eventually, run, tool};
use crate::support::tree::{self, Tree};

/// A name, and a change of the directory of a layer.
type Harm<'a> = (&'static str, &'a dyn Fn(&PathBuf));

/// A harbour whose engine makes EROFS files, and an image that was pulled into it.
struct Mounted {
    h: Harbour,
    imagelet: Imagelet,
    app: Pushed,
    good: Tree,
}

impl Mounted {
    fn new() -> Self {
        Self::with_disk(LoopFs::ext4(256))
    }

    fn with_disk(disk: LoopFs) -> Self {
        let h = Harbour::with_disk(disk);
        let layers = h.layers("mounted", 4, 20_000);
        let app = h.push("mounted/app:1", &layers);
        h.plain.ok(&["pull", &app.name]);
        let good = h.tree(&app.name);
        h.empty("before");
        let imagelet = h.imagelet.clone().global("--runtime-layers", "erofs");
        imagelet.ok(&["pull", &app.name]);
        let mounted = Self { h, imagelet, app, good };
        mounted.is_whole("after the pull");
        assert_eq!(mounted.linked().len(), mounted.app.chains.len());
        mounted
    }

    fn snapshots(&self) -> PathBuf {
        self.h.staging_root().with_file_name("snapshots")
    }

    /// Directories of snapshots whose layers are EROFS files.
    fn linked(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.snapshots()).expect("snapshots").filter_map(Result::ok);
        let mut found: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(|layer| fs::read_link(layer.join("fs")).is_ok()).collect();
        // The lowest layer is the first.
        found.sort_by_key(|layer| {
            let number = layer.file_name().and_then(|name| name.to_str());
            number
                .and_then(|number| number.parse::<u64>().ok())
                .expect("the name of a snapshot's directory is a number")
        });
        found
    }

    /// Mount points of layers, with what is mounted below them in other places.
    fn mounts(&self) -> Vec<String> {
        let snapshots = self.snapshots().display().to_string();
        let all = fs::read_to_string("/proc/self/mountinfo").expect("read the mounts");
        let points = all.lines().filter_map(|line| line.split(' ').nth(4));
        points.filter(|point| point.starts_with(&snapshots)).map(str::to_owned).collect()
    }

    #[track_caller]
    fn is_whole(&self, context: &str) {
        assert_eq!(differences(&self.good, &self.h.tree(&self.app.name)), Vec::<String>::new(), "{context}");
    }

    /// Ensures the image for a pod whose policy is `IfNotPresent`.
    #[track_caller]
    fn ensure(&self) -> String {
        let pod = Pod { namespace: "m", name: "m", image: &self.app.name, policy: "IfNotPresent", secrets: &[] };
        let pod = Manifests::new().pod(pod).write(&self.h.s.scratch.join("pod.yaml"));
        self.imagelet.ok(&["ensure", "-f", &pod])
    }

    #[track_caller]
    fn unmount(&self, layer: &std::path::Path) {
        run(tool("umount").arg(layer.join("mnt")));
    }

    /// Bytes of images, as the front reports them.
    #[track_caller]
    fn image_bytes(&self) -> u64 {
        let status: serde_json::Value =
            serde_json::from_str(&self.imagelet.ok(&["status", "-o", "json"])).expect("JSON");
        let used = &status["imageFs"]["imagesBytes"];
        used.as_u64().unwrap_or_else(|| panic!("no used bytes in {status:#}"))
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_layer_that_cannot_be_used_makes_its_image_absent_until_it_is_repaired() {
    let m = Mounted::new();
    let layers = m.linked();
    let harm: [Harm<'_>; 7] = [
        ("unmounted", &|layer| m.unmount(layer)),
        ("unmounted, with a tree under the mount point", &|layer| {
            m.unmount(layer);
            fs::create_dir_all(layer.join("mnt").join("root").join("forged")).expect("create");
        }),
        ("without its file", &|layer| fs::remove_file(layer.join("layer.erofs")).expect("remove")),
        ("unmounted and without its file", &|layer| {
            m.unmount(layer);
            fs::remove_file(layer.join("layer.erofs")).expect("remove");
        }),
        ("unmounted, with a damaged file", &|layer| {
            m.unmount(layer);
            fs::write(layer.join("layer.erofs"), vec![0x5a; 8192]).expect("write");
        }),
        ("with another link", &|layer| {
            fs::remove_file(layer.join("fs")).expect("remove");
            symlink("/etc", layer.join("fs")).expect("link");
        }),
        ("with a link that leads nowhere", &|layer| {
            fs::remove_file(layer.join("fs")).expect("remove");
            symlink("mnt/other", layer.join("fs")).expect("link");
        }),
    ];
    for (what, harm) in harm {
        for place in [0, 2, layers.len() - 1] {
            let context = format!("layer {place} {what}");
            harm(&layers[place]);
            let pulled = m.ensure();
            m.is_whole(&context);
            assert_eq!(m.linked(), layers, "{context}: {pulled}");
            assert!(fs::metadata(layers[place].join("fs/forged")).is_err(), "{context}");
            assert_eq!(m.mounts().len(), layers.len(), "{context}: {:?}", m.mounts());
            m.h.nothing_on_the_way(&context);
        }
    }
    m.imagelet.ok(&["rmi", &m.app.name]);
    assert_eq!(m.mounts(), Vec::<String>::new());
    m.h.empty("at the end");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn layers_that_any_client_removes_are_unmounted_and_freed() {
    let m = Mounted::new();
    let files: u64 =
        m.linked().iter().map(|layer| fs::metadata(layer.join("layer.erofs")).expect("a file").len()).sum();
    assert!(m.image_bytes() >= files, "{} bytes are reported, the files have {files}", m.image_bytes());
    let freed = || m.mounts().is_empty() && fs::read_dir(m.snapshots()).expect("snapshots").next().is_none();

    // A removal needs no policy.
    let policy = m.h.s.scratch.join("no policy.json").display().to_string();
    m.imagelet.clone().global("--signature-policy", &policy).ok(&["rmi", &m.app.name]);
    assert!(freed(), "removed by imagelet: {:?}", m.mounts());

    // By other clients: an agent finds it out.
    for remover in ["crictl", "ctr"] {
        m.imagelet.ok(&["pull", &m.app.name]);
        let mut agent = m.imagelet.serve(&m.h.s.scratch.join("front.sock"));
        match remover {
            "crictl" => drop(m.h.plain.ok(&["rmi", &m.app.name])),
            _ => {
                for name in m.h.ctr(&["images", "list", "-q"]).lines() {
                    m.h.ctr(&["images", "remove", "--sync", name]);
                }
            }
        }
        eventually(&format!("removed by {remover}: {:?}", m.mounts()), freed);
        agent.stop();
    }
    assert!(fs::read_dir(m.h.staging_root().join("0/ingest")).expect("a staging slot").next().is_none());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn layers_are_mounted_from_the_links_alone_when_the_machine_starts() {
    let mut m = Mounted::new();
    let layers = m.linked();
    m.h.containerd.stop();
    layers.iter().for_each(|layer| m.unmount(layer));
    assert_eq!(m.mounts(), Vec::<String>::new());
    let listed = m.imagelet.ok(&["mounts"]);
    assert!(listed.contains(&m.snapshots().display().to_string()), "{listed}");
    m.imagelet.ok(&["mounts", "--all"]);
    assert_eq!(m.mounts().len(), layers.len());
    // Once more changes nothing.
    m.imagelet.ok(&["mounts", "--all"]);
    assert_eq!(m.mounts().len(), layers.len());
    m.h.containerd.start_again();
    m.is_whole("after a start");

    // A layer that cannot be mounted keeps no other one from it, and is named.
    layers.iter().for_each(|layer| m.unmount(layer));
    fs::write(layers[1].join("layer.erofs"), "no layer").expect("write");
    let done = m.imagelet.run(&["mounts", "--all"]);
    assert_eq!(done.code, Some(1));
    let said = done.stderr;
    assert!(said.contains(&layers[1].display().to_string()), "{said}");
    assert_eq!(m.mounts().len(), layers.len() - 1);
    // An unmounted layer is an error of containerd and no empty layer.
    let top = m.app.chains.last().expect("layers").0.clone();
    m.unmount(layers.last().expect("layers"));
    let prepared = m.h.containerd.ctr().args(["snapshots", "prepare", "x", &top]).output().expect("ctr starts");
    assert!(!prepared.status.success(), "{prepared:?}");
    m.ensure();
    m.is_whole("after a repair");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn layers_are_converted_both_ways_while_they_are_in_use() {
    let m = Mounted::new();
    let shown = m.h.s.scratch.directory("in-use");
    let in_use = shown.display().to_string();
    let used = |context: &str| {
        assert_eq!(differences(&m.good, &tree::read(&shown)), Vec::<String>::new(), "{context}: in use");
    };
    m.h.ctr(&["images", "mount", &m.app.name, &in_use]);
    // An attempt that was cut off before its exchange.
    images::write(&m.linked()[0].join("fs.directory/part"), "part\n");
    m.imagelet.ok(&["convert", "--to", "dir", &m.app.name]);
    assert_eq!((m.linked(), m.mounts()), (Vec::new(), Vec::new()), "directories");
    used("directories");
    m.is_whole("directories");
    // Nothing is left to convert.
    assert!(m.imagelet.ok(&["convert", "--to", "dir", "--all", "-o", "json"]).contains("\"layers\": 0"));
    m.h.ctr(&["images", "unmount", "--rm", &in_use]);

    fs::create_dir_all(&shown).expect("create");
    m.h.ctr(&["images", "mount", &m.app.name, &in_use]);
    m.imagelet.ok(&["convert", "--to", "erofs", "--all"]);
    assert_eq!(m.linked().len(), m.app.chains.len(), "files");
    m.is_whole("files");
    used("files");
    // The directories stay for those that use them, and are removed afterwards.
    let replaced = || m.linked().iter().filter(|layer| layer.join("fs.replaced").exists()).count();
    assert_eq!(replaced(), m.app.chains.len());
    // Back, as long as they are in use; and not once more.
    m.imagelet.ok(&["convert", "--to", "dir", "--all"]);
    assert_eq!((m.linked(), replaced()), (Vec::new(), 0));
    used("directories again");
    m.is_whole("directories again");
    let refused = m.imagelet.run(&["convert", "--to", "erofs", "--all"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("containers use a directory that it had before"), "{}", refused.stderr);
    used("refused");
    m.h.ctr(&["images", "unmount", "--rm", &in_use]);
    // A namespace of mounts that another test has just made may have a copy of the mount.
    eventually("the directories are not in use any more", || {
        m.imagelet.run(&["convert", "--to", "erofs", "--all"]).code == Some(0)
    });
    assert_eq!(m.linked().len(), m.app.chains.len(), "files again");
    let mut agent = m.imagelet.serve(&m.h.s.scratch.join("front.sock"));
    eventually("the replaced directories are removed", || replaced() == 0);
    agent.stop();
    m.is_whole("at the end");
    m.imagelet.ok(&["rmi", &m.app.name]);
    assert_eq!(m.mounts(), Vec::<String>::new());
    m.h.empty("at the end");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_check_finds_damaged_layers_and_the_next_pull_repairs_them() {
    let m = Mounted::new();
    let layers = m.linked();
    m.imagelet.ok(&["check"]);
    // The root directory's entries, which follow the superblock.
    let file = fs::OpenOptions::new().write(true).open(layers[1].join("layer.erofs")).expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 512], 4096).expect("write");
    drop(file);
    let found = m.imagelet.run(&["check"]);
    assert_eq!(found.code, Some(1), "{}", found.stdout);
    assert!(found.stdout.contains(&layers[1].display().to_string()), "{}", found.stdout);
    m.imagelet.run(&["check", "--repair"]);
    m.ensure();
    m.is_whole("after the repair");
    m.imagelet.ok(&["check"]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn converted_layers_count_with_the_bytes_that_they_take() {
    let m = Mounted::new();
    m.imagelet.ok(&["rmi", &m.app.name]);
    let directories = m.h.imagelet.clone().global("--runtime-layers", "dir");
    directories.ok(&["pull", &m.app.name]);
    m.imagelet.ok(&["convert", "--to", "erofs", "--all"]);
    let files: u64 =
        m.linked().iter().map(|layer| fs::metadata(layer.join("layer.erofs")).expect("a file").len()).sum();
    assert!(files > 0);
    // containerd keeps the figure of the directories, and adds up its figures once in a second.
    eventually("the files count, and not the directories that they replaced", || {
        let counted = m.image_bytes();
        (files..files + files / 4).contains(&counted)
    });
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_failure_to_mount_is_no_damage() {
    let m = Mounted::new();
    let layers = m.linked();
    layers.iter().for_each(|layer| m.unmount(layer));
    // Without loop devices, nothing can be said about the layers.
    let unshare = tool("unshare").get_program().display().to_string();
    let script = "mount --make-private /dev; mount --bind /dev/null /dev/loop-control && exec \"$@\"";
    let without =
        m.imagelet.clone().through(&[&unshare, "--mount", "--propagation", "unchanged", "sh", "-c", script, "sh"]);
    for args in [&["check", "--repair"][..], &["mounts", "--all"], &["pull", &m.app.name]] {
        let before = m.h.s.registry.requests().len();
        let done = without.run(args);
        assert_eq!(done.code, Some(1), "{args:?}: {}{}", done.stdout, done.stderr);
        assert!(done.stderr.contains("loop-control"), "{args:?}: {}", done.stderr);
        let asked = m.h.s.registry.requests().split_off(before);
        assert!(asked.iter().all(|request| !request.contains("/blobs/")), "{args:?}: {asked:?}");
    }
    assert!(layers.iter().all(|layer| layer.join("layer.erofs").is_file()));
    m.imagelet.ok(&["check"]);
    m.is_whole("with loop devices");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn layers_work_on_xfs_and_btrfs() {
    for disk in [LoopFs::xfs(512), LoopFs::btrfs(512)] {
        let mut m = Mounted::with_disk(disk);
        let layers = m.linked();
        let files: u64 =
            layers.iter().map(|layer| fs::metadata(layer.join("layer.erofs")).expect("a file").len()).sum();
        assert!(m.image_bytes() >= files, "{disk:?}");
        // A start of the machine.
        m.h.containerd.stop();
        layers.iter().for_each(|layer| m.unmount(layer));
        m.imagelet.ok(&["mounts", "--all"]);
        m.h.containerd.start_again();
        m.is_whole(&format!("{disk:?}: mounted again"));
        // A damaged file.
        m.unmount(&layers[1]);
        fs::write(layers[1].join("layer.erofs"), vec![0x5a; 8192]).expect("write");
        m.ensure();
        m.is_whole(&format!("{disk:?}: repaired"));
        // Both ways.
        m.imagelet.ok(&["convert", "--to", "dir", "--all"]);
        assert_eq!((m.linked(), m.mounts()), (Vec::new(), Vec::new()), "{disk:?}");
        m.is_whole(&format!("{disk:?}: directories"));
        m.imagelet.ok(&["convert", "--to", "erofs", "--all"]);
        assert_eq!(m.linked().len(), layers.len(), "{disk:?}");
        m.is_whole(&format!("{disk:?}: files"));
        m.imagelet.ok(&["rmi", &m.app.name]);
        assert_eq!(m.mounts(), Vec::<String>::new(), "{disk:?}");
        m.h.empty(&format!("{disk:?}: at the end"));
    }
}
