//! Compares the mounted tree, entry by entry, with the trees that umoci and containerd make of the same image. Differences are listed
//! in `docs/differences.md` with their reasons, and asserted here as the exact list. Both shapes of layers show the same.

use crate::support::images::{self, Image};
use crate::support::nasty;
use crate::support::process::{need_root, run, tool};
use crate::support::tree::{Tree, differences, read};
use crate::support::{Containerd, DockerRegistry, Imagelet, Layout, Packing, Scratch};

/// The same image as three engines show it.
struct Trees {
    imagelet: Tree,
    umoci: Tree,
    containerd: Tree,
}

/// Pushes an image, and has each engine unpack it from the registry.
fn trees(scratch: &Scratch, layout: &Layout, image: &Image, packing: Packing) -> Trees {
    let registry = DockerRegistry::start(&scratch.join("registry"));
    let name = registry.push(layout, image, "test/tree:1");

    let [ours, in_directories] = ["erofs", "dir"].map(|format| {
        let imagelet = Imagelet::shaped(format, &scratch.join(&format!("store-{format}")));
        imagelet.ok(&["pull", &name]);
        read(&imagelet.mount(&name, scratch.join(&format!("imagelet-{format}"))))
    });
    assert_eq!(differences(&ours, &in_directories), Vec::<String>::new(), "EROFS files | directories");

    // umoci 0.4 reads gzip and plain tar only.
    let umoci = if packing == Packing::Zstd {
        Tree::new()
    } else {
        let copy = format!("oci:{}:copy", scratch.join("copy").display());
        run(tool("skopeo").args(["copy", "-q", "--src-tls-verify=false", &format!("docker://{name}"), &copy]));
        let bundle = scratch.join("bundle");
        run(tool("umoci")
            .args(["unpack", "--image"])
            .arg(format!("{}:copy", scratch.join("copy").display()))
            .arg(&bundle));
        read(&bundle.join("rootfs"))
    };

    let daemon = Containerd::start(registry.host());
    let shown = scratch.join("containerd");
    daemon.mount(&name, &shown);
    let containerd = read(&shown);
    Trees { imagelet: ours, umoci, containerd }
}

/// Differences with times of the test's own making, which no run has like another, written as `now`.
pub(crate) fn compared(ours: &Tree, theirs: &Tree) -> Vec<String> {
    let now_from = 1_750_000_000;
    let masked = |line: String| match line.split_once(": mtime: ") {
        Some((path, times)) => {
            let one = |time: &str| {
                let seconds: i64 =
                    time.trim_matches('(').split(',').next().and_then(|s| s.parse().ok()).expect("a time");
                if seconds > now_from { "now".to_owned() } else { time.to_owned() }
            };
            let (left, right) = times.split_once(" | ").expect("two times");
            format!("{path}: mtime: {} | {}", one(left), one(right))
        }
        None => line,
    };
    differences(ours, theirs).into_iter().map(masked).collect()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn all_kinds_of_entries_are_copied_as_other_tools_copy_them() {
    need_root();
    let scratch = Scratch::new();
    let layout = Layout::at(&scratch.join("layout"));
    let layers = nasty::layers(&scratch, &layout, Packing::Gzip);
    // Both refuse holes as GNU tar used to write them.
    let (_, but_for_the_last) = layers.split_last().expect("it has layers");
    let trees = trees(&scratch, &layout, &layout.image(but_for_the_last), Packing::Gzip);
    assert!(trees.imagelet.len() > 300, "only {} entries", trees.imagelet.len());
    let containerd = [
        "/: mtime: (0, 0) | now",
        "/back: mtime: (1700000000, 0) | now",
        "/formats: mtime: (1700000000, 0) | now",
        "/implicit: mtime: (1700000000, 0) | now",
        "/implicit/parent: mtime: (1046660583, 3) | now",
        "/modes/set-uid: mtime: (-2, 0) | (0, 0)",
        "/nobody: mtime: (0, 0) | now",
        "/nobody/knows: mtime: (0, 0) | now",
    ];
    assert_eq!(compared(&trees.imagelet, &trees.containerd), containerd, "imagelet | containerd");
    let ours = r#"{"user.bytes": [0, 255, 10, 61], "user.empty": [], "user.plain": [118, 97, 108, 117, 101]}"#;
    let theirs = r#"{"trusted.kept": [102, 111, 114, 32, 114, 111, 111, 116], "user.bytes": [0, 255, 10, 61], "user.plain": [118, 97, 108, 117, 101]}"#;
    let umoci = [
        "/: mtime: (0, 0) | now",
        &format!("/attributes/file: xattrs: {ours} | {theirs}"),
        "/etc/three: links: 3 | 2",
        "/links/one: links: 3 | 2",
        "/nobody: mtime: (0, 0) | now",
        "/nobody/knows: mtime: (0, 0) | now",
    ];
    assert_eq!(compared(&trees.imagelet, &trees.umoci), umoci, "imagelet | umoci");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn debian_root_file_system_is_copied_as_other_tools_copy_it() {
    need_root();
    let scratch = Scratch::new();
    let layout = Layout::at(&scratch.join("layout"));
    let image = layout.image(&[layout.layer_from_tar(&images::debian_tar(), Packing::Gzip)]);
    let trees = trees(&scratch, &layout, &image, Packing::Gzip);
    assert!(trees.imagelet.len() > 5000, "only {} entries", trees.imagelet.len());
    assert_eq!(
        compared(&trees.imagelet, &trees.containerd),
        ["/: mtime: (1700000000, 0) | now"],
        "imagelet | containerd"
    );
    assert_eq!(compared(&trees.imagelet, &trees.umoci), Vec::<String>::new(), "imagelet | umoci");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn zstd_layer_is_unpacked_as_containerd_unpacks_it() {
    need_root();
    let scratch = Scratch::new();
    let layout = Layout::at(&scratch.join("layout"));
    let tree = scratch.directory("tree");
    images::busybox_tree(&tree);
    let image = layout.image(&[layout.layer(&tree, Packing::Zstd)]);
    let trees = trees(&scratch, &layout, &image, Packing::Zstd);
    assert_eq!(
        compared(&trees.imagelet, &trees.containerd),
        ["/: mtime: (1700000000, 0) | now"],
        "imagelet | containerd"
    );
}
