//! The mounted tree, entry by entry, beside what umoci and containerd make of the same image. What differs is listed in
//! `docs/differences.md` with its reason, and asserted here as the exact list.

use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::path::Path;

use crate::support::images::{self, Image, Layer};
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

    let imagelet = Imagelet::on(&scratch.join("store"));
    imagelet.ok(&["pull", &name]);
    let mounted = imagelet.mount(&name, scratch.join("imagelet"));
    let ours = read(&mounted);

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
fn compared(ours: &Tree, theirs: &Tree) -> Vec<String> {
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

/// Whole seconds and nanoseconds, as touch takes them.
fn touch(path: &Path, time: &str) {
    run(tool("touch").args(["-h", "-d", time]).arg(path));
}

/// Everything that a layer can hold.
fn first_layer(layout: &Layout, root: &Path) -> Layer {
    images::busybox_tree(root);
    let file = |path: &str, content: &str| images::write(&root.join(path), content);
    let mode =
        |path: &str, mode: u32| fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).expect("chmod");

    file("links/one", "linked\n");
    fs::hard_link(root.join("links/one"), root.join("links/two")).expect("link");
    fs::hard_link(root.join("links/one"), root.join("etc/three")).expect("link");
    symlink("/etc/passwd", root.join("links/absolute")).expect("symlink");
    symlink("../etc/passwd", root.join("links/relative")).expect("symlink");
    symlink("nowhere", root.join("links/dangling")).expect("symlink");
    symlink("../../../../../../etc", root.join("links/outside")).expect("symlink");
    lchown(root.join("links/dangling"), Some(4), Some(5)).expect("lchown");
    fs::hard_link(root.join("links/relative"), root.join("links/relative-again")).expect("link to a symlink");

    file("modes/set-uid", "x");
    file("modes/set-gid", "x");
    file("modes/nothing", "secret");
    chown(root.join("modes/set-uid"), Some(1234), Some(5678)).expect("chown");
    chown(root.join("modes/set-gid"), Some(3_000_000), Some(4_000_000_000)).expect("chown");
    mode("modes/set-uid", 0o4755);
    mode("modes/set-gid", 0o2755);
    mode("modes/nothing", 0);
    fs::create_dir_all(root.join("modes/sticky")).expect("mkdir");
    mode("modes/sticky", 0o3777);
    fs::create_dir_all(root.join("modes/closed")).expect("mkdir");
    file("modes/closed/file", "inside");
    mode("modes/closed", 0o500);
    chown(root.join("modes/closed"), Some(1000), Some(1000)).expect("chown");

    for (name, kind, numbers) in [("null", "c", ["1", "3"]), ("loop0", "b", ["7", "0"])] {
        run(tool("mknod").arg(root.join("dev").join(name)).arg(kind).args(numbers));
    }
    run(tool("mkfifo").arg(root.join("dev/fifo")));

    file("attributes/file", "x");
    fs::create_dir_all(root.join("attributes/directory")).expect("mkdir");
    for (path, name, value) in [
        ("attributes/file", "user.plain", "value"),
        ("attributes/file", "user.empty", ""),
        ("attributes/file", "user.bytes", "0x00ff0a3d"),
        ("attributes/directory", "user.directory", "yes"),
        ("attributes/file", "trusted.kept", "for root"),
    ] {
        run(tool("setfattr").args(["-n", name, "-v", value]).arg(root.join(path)));
    }
    file("attributes/ping", "x");
    mode("attributes/ping", 0o755);
    run(tool("setcap").arg("cap_net_raw+ep").arg(root.join("attributes/ping")));

    file(&format!("names/{}", "n".repeat(255)), "long\n");
    file(&format!("names/{}/{}/{}/end", "a".repeat(120), "b".repeat(120), "c".repeat(120)), "deep\n");
    file("names/with blank, \"quotes\" and = signs\nand a line", "odd\n");
    let latin1 = std::ffi::OsString::from_vec(b"caf\xe9".to_vec());
    images::write(&root.join("names").join(latin1), "not UTF-8\n");
    file("names/empty", "");
    images::write(&root.join("names/big"), vec![7_u8; 3 << 20]);

    for gone in [
        "gone/file",
        "gone/directory/below",
        "opaque/old",
        "opaque/deep/old",
        "turned/file-to-directory",
        "turned/directory-to-file/x",
        "turned/directory-to-symlink/x",
        "turned/symlink-target/x",
        "back/again",
        "changed/content",
        "changed/mode",
    ] {
        file(gone, "from the first layer\n");
    }
    symlink("symlink-target", root.join("turned/symlink-to-directory")).expect("symlink");

    fs::create_dir_all(root.join("implicit/parent")).expect("mkdir");
    file("implicit/parent/old", "old\n");
    chown(root.join("implicit"), Some(42), Some(43)).expect("chown");
    mode("implicit", 0o1770);
    chown(root.join("implicit/parent"), Some(44), Some(45)).expect("chown");
    mode("implicit/parent", 0o700);
    run(tool("setfattr").args(["-n", "user.kept", "-v", "below"]).arg(root.join("implicit/parent")));

    images::settle(root);
    touch(&root.join("links/one"), "2001-02-03 04:05:06.789012345 UTC");
    touch(&root.join("links/dangling"), "2011-12-13 14:15:16.171819202 UTC");
    touch(&root.join("modes/set-uid"), "1969-12-31 23:59:58 UTC");
    touch(&root.join("names/empty"), "2038-01-19 03:14:08.5 UTC");
    touch(&root.join("gone"), "2002-02-02 02:02:02 UTC");
    touch(&root.join("implicit/parent"), "2003-03-03 03:03:03.000000003 UTC");
    layout.layer(root, Packing::Gzip)
}

/// Removes, replaces and hides, with an entry for every directory on the way.
fn second_layer(layout: &Layout, root: &Path) -> Layer {
    let file = |path: &str, content: &str| images::write(&root.join(path), content);
    file("gone/.wh.file", "");
    file("gone/.wh.directory", "");
    file("opaque/.wh..wh..opq", "");
    file("opaque/new", "new\n");
    file("opaque/deep/new", "new\n");
    file("turned/file-to-directory/now", "a directory\n");
    file("turned/directory-to-file", "a file\n");
    symlink("elsewhere", root.join("turned/directory-to-symlink")).expect("symlink");
    file("turned/symlink-to-directory/real", "a directory\n");
    file("back/.wh.again", "");
    file("changed/content", "from the second layer\n");
    file("changed/mode", "from the first layer\n");
    fs::set_permissions(root.join("changed/mode"), fs::Permissions::from_mode(0o600)).expect("chmod");
    file("links/two", "no longer linked\n");
    file("etc/.wh.group", "");
    images::settle(root);
    touch(&root.join("gone"), "2012-12-12 12:12:12.121212121 UTC");
    layout.layer_with(root, Packing::Gzip, &["=.", "back", "changed", "etc", "gone", "links", "opaque", "turned"])
}

/// Files and whiteouts whose parents have no entry.
fn third_layer(layout: &Layout, root: &Path) -> Layer {
    let file = |path: &str, content: &str| images::write(&root.join(path), content);
    file("implicit/parent/new", "new\n");
    file("implicit/parent/.wh.old", "");
    file("back/again", "from the third layer\n");
    file("nobody/knows/this", "parents that no layer has\n");
    images::settle(root);
    let paths = ["implicit/parent/new", "implicit/parent/.wh.old", "back/again", "nobody/knows/this"];
    layout.layer_with(root, Packing::Gzip, &paths)
}

#[test]
fn everything_that_layers_can_hold_comes_out_as_elsewhere() {
    need_root();
    let scratch = Scratch::new();
    let layout = Layout::at(&scratch.join("layout"));
    let layers = [
        first_layer(&layout, &scratch.directory("first")),
        second_layer(&layout, &scratch.directory("second")),
        third_layer(&layout, &scratch.directory("third")),
    ];
    let image = layout.image(&layers);
    let trees = trees(&scratch, &layout, &image, Packing::Gzip);
    assert!(trees.imagelet.len() > 300, "only {} entries", trees.imagelet.len());
    let containerd = [
        "/: mtime: (1700000000, 0) | now",
        "/back: mtime: (1700000000, 0) | now",
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
        "/: mtime: (1700000000, 0) | now",
        &format!("/attributes/file: xattrs: {ours} | {theirs}"),
        "/etc/three: links: 3 | 2",
        "/links/one: links: 3 | 2",
        "/nobody: mtime: (0, 0) | now",
        "/nobody/knows: mtime: (0, 0) | now",
    ];
    assert_eq!(compared(&trees.imagelet, &trees.umoci), umoci, "imagelet | umoci");
}

#[test]
fn a_debian_root_file_system_comes_out_as_elsewhere() {
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
fn a_zstd_layer_comes_out_as_in_containerd() {
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
