//! Mounted EROFS layers are in memory once, however many mounts show a layer; and the loop devices that mounts share exist as long as
//! one of those mounts, and no longer. Memory is counted by pages: those of the readers' cgroup, and those of the layer's own file.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::support::cgroup::Cgroup;
use crate::support::images::debian_tar;
use crate::support::process::{eventually, need_root, run, tool};
use crate::support::scratch::loop_devices_below;
use crate::support::{Imagelet, Layout, Packing, Scratch};

const NAME: &str = "example.org/debian:1";
const PAGE: u64 = 4096;
/// More than any of these tests reads.
const PLENTY: u64 = 4 << 30;

/// An image of one EROFS layer in a store, and how many bytes its files take in memory.
struct Image {
    imagelet: Imagelet,
    content: u64,
    layer: PathBuf,
    scratch: Scratch,
}

impl Image {
    #[track_caller]
    fn new() -> Self {
        need_root();
        let scratch = Scratch::new();
        let layout = Layout::at(&scratch.join("layout"));
        let image = layout.image(&[layout.layer_from_tar(&debian_tar(), Packing::Plain)]);
        layout.name(&image, NAME);
        let imagelet = Imagelet::shaped("erofs", &scratch.join("store"));
        imagelet.ok(&["import", &layout.path().display().to_string()]);
        let layer = scratch.join("store/layers/1/layer.erofs");
        assert!(layer.is_file(), "the image is one EROFS file");
        let mut image = Self { imagelet, content: 0, layer, scratch };
        let shown = image.mount("sizes");
        image.content = pages_of_files(&shown);
        assert!(image.content > 100 << 20, "only {} bytes", image.content);
        image.unmount("sizes");
        image
    }

    fn on(&self, name: &str) -> String {
        self.scratch.join(name).display().to_string()
    }

    #[track_caller]
    fn mount(&self, name: &str) -> PathBuf {
        self.imagelet.mount(NAME, self.scratch.join(name))
    }

    #[track_caller]
    fn unmount(&self, name: &str) {
        self.imagelet.ok(&["unmount", &self.on(name)]);
    }

    /// Loop devices that show the layer.
    fn devices(&self) -> Vec<String> {
        loop_devices_below(&self.layer)
    }

    #[track_caller]
    fn no_device_is_left(&self) {
        // The kernel clears a device behind the unmount.
        eventually("the loop device is free", || self.devices().is_empty());
    }

    /// Bytes that are in memory after all files of these directories were read, all directories at the same time, in hundredths of the content.
    #[track_caller]
    fn held(&self, shown: &[PathBuf]) -> u64 {
        let cgroup = Cgroup::of_memory(&self.scratch, PLENTY);
        let words = cgroup.words();
        let reader = |directory: &PathBuf| {
            let mut command = tool("sh");
            command.args(&words[1..]).args(["sh", "-c", "find \"$0\" -type f -exec cat {} + | cat >/dev/null"]);
            command.arg(directory).spawn().expect("start a reader")
        };
        for mut reader in shown.iter().map(reader).collect::<Vec<_>>() {
            assert!(reader.wait().expect("a reader ends").success());
        }
        (cgroup.cached() + cached_of(&self.layer)) * 100 / self.content
    }
}

/// Bytes of whole pages of all files, each inode once.
fn pages_of_files(root: &Path) -> u64 {
    let mut inodes = std::collections::BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("readable").map(|entry| entry.expect("readable")) {
            let meta = entry.metadata().expect("there");
            if meta.is_dir() {
                directories.push(entry.path());
            } else if meta.is_file() {
                inodes.insert(meta.ino(), meta.len().next_multiple_of(PAGE));
            }
        }
    }
    inodes.values().sum()
}

/// Bytes of a file that are in memory, whichever process read them.
#[track_caller]
fn cached_of(file: &Path) -> u64 {
    run(tool("fincore").args(["--bytes", "--noheadings", "--output", "RES"]).arg(file))
        .trim()
        .parse()
        .expect("a number")
}

/// From the first mount after the import on, whose pages of the layer's file would be there a second time.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn what_one_mount_shows_is_in_memory_once() {
    let image = Image::new();
    let held = image.held(&[image.mount("one")]);
    assert!((80..=115).contains(&held), "{held} % of the content is in memory");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn ten_users_of_a_layer_have_it_in_memory_once() {
    let image = Image::new();
    let shown: Vec<PathBuf> = (0..10).map(|n| image.mount(&format!("user-{n}"))).collect();
    let held = image.held(&shown);
    assert!((80..=115).contains(&held), "{held} % of the content is in memory");
    assert_eq!(image.devices().len(), 1, "{:?}", image.devices());
    for n in 1..10 {
        image.unmount(&format!("user-{n}"));
        assert_eq!(image.devices().len(), 1, "after {n} unmounts");
    }
    image.unmount("user-0");
    image.no_device_is_left();
}

/// The device is the kernel's: the agent that made it need not be there, nor need the unmount be ours.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn loop_device_of_a_killed_agent_is_reused_and_freed_with_its_last_mount() {
    let image = Image::new();
    let agent = image.imagelet.serve(&image.scratch.join("cri.sock"));
    image.mount("before");
    agent.kill();
    assert_eq!(image.devices().len(), 1);
    // How full the disk is decides how the collection ends; what is mounted it leaves.
    image.imagelet.run(&["gc", "--now"]);
    assert_eq!(image.imagelet.images().len(), 1);
    let error = image.imagelet.fails(1, &["rmi", NAME]);
    assert!(error.contains("mounted"), "{error}");
    let held = image.held(&[image.scratch.join("before"), image.mount("after")]);
    assert!((80..=115).contains(&held), "{held} % of the content is in memory");
    assert_eq!(image.devices().len(), 1, "{:?}", image.devices());
    for on in ["before", "after"] {
        run(tool("umount").arg(image.on(on)));
    }
    image.no_device_is_left();
    image.imagelet.ok(&["rmi", NAME]);
    assert!(!image.layer.exists());
}

/// Mounted from the file then, where the kernel can: each mount for itself, but nothing twice.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn without_loop_devices_a_line_says_what_is_lost() {
    let image = Image::new();
    let enter = "mount --bind /dev/null /dev/loop-control && exec \"$@\"";
    let unshare = tool("unshare").get_program().display().to_string();
    let words = [unshare.as_str(), "--mount", "--propagation", "slave", "sh", "-c", enter, "sh"];
    let on = image.scratch.directory("from-the-file");
    let private = image.imagelet.clone().through(&words);
    let done = private.run(&["mount", NAME, &on.display().to_string()]);
    let expected = " WARN no loop device: each mount of an EROFS layer keeps what is read from it in memory for itself \
                    error=/dev/loop-control: Inappropriate ioctl for device (os error 25)\n";
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), expected));
    assert_eq!(image.devices(), Vec::<String>::new());
}
