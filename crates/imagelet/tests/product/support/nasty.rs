//! An image with everything that layers can hold, made with the machine's own tools: what trees are compared on. Its
//! layers are small, so that it can be pulled in many ways.

use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::Path;

use super::images::{self, Layer, Layout, Packing};
use super::process::{run, tool};
use super::random::noise_of;
use super::scratch::Scratch;

/// The layers of the image, lowest first. The last one is sparse in GNU tar's old form, which not every reader supports.
#[track_caller]
pub(crate) fn layers(scratch: &Scratch, layout: &Layout, packing: Packing) -> Vec<Layer> {
    let tree = |name: &str| {
        let tree = scratch.join(&format!("nasty-{name}"));
        // Made once, packed in several ways.
        let is_new = !tree.exists();
        fs::create_dir_all(&tree).expect("create a directory");
        (tree, is_new)
    };
    let parts: [(&str, Fill, Pack); 7] = [
        ("first", fill_first, |layout, root, packing| layout.layer(root, packing)),
        ("second", fill_second, pack_second),
        ("third", fill_third, pack_third),
        ("gnu", fill_formats, |l, r, p| l.layer_as(r, p, &["formats"], &["--format=gnu"])),
        ("pax", fill_sparse, |l, r, p| l.layer_as(r, p, &["sparse"], &["--format=posix", "--sparse"])),
        ("ustar", fill_ustar, |l, r, p| l.layer_as(r, p, &["formats/ustar"], &["--format=ustar"])),
        ("old", fill_old, |l, r, p| l.layer_as(r, p, &["old-sparse"], &["--format=gnu", "--sparse"])),
    ];
    let make = |(name, fill, pack): (&str, Fill, Pack)| {
        let (root, is_new) = tree(name);
        if is_new {
            fill(&root);
        }
        pack(layout, &root, packing)
    };
    parts.into_iter().map(make).collect()
}

type Fill = fn(&Path);
type Pack = fn(&Layout, &Path, Packing) -> Layer;

/// Whole seconds and nanoseconds, as touch takes them.
fn touch(path: &Path, time: &str) {
    run(tool("touch").args(["-h", "-d", time]).arg(path));
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

fn set_attribute(path: &Path, name: &str, value: &str) {
    run(tool("setfattr").args(["-n", name, "-v", value]).arg(path));
}

/// Everything that a layer can hold.
fn fill_first(root: &Path) {
    images::busybox_tree(root);
    let file = |path: &str, content: &str| images::write(&root.join(path), content);

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
    mode(&root.join("modes/set-uid"), 0o4755);
    mode(&root.join("modes/set-gid"), 0o2755);
    mode(&root.join("modes/nothing"), 0);
    fs::create_dir_all(root.join("modes/sticky")).expect("mkdir");
    mode(&root.join("modes/sticky"), 0o3777);
    fs::create_dir_all(root.join("modes/closed")).expect("mkdir");
    file("modes/closed/file", "inside");
    mode(&root.join("modes/closed"), 0o500);
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
        set_attribute(&root.join(path), name, value);
    }
    file("attributes/ping", "x");
    mode(&root.join("attributes/ping"), 0o755);
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
    mode(&root.join("implicit"), 0o1770);
    chown(root.join("implicit/parent"), Some(44), Some(45)).expect("chown");
    mode(&root.join("implicit/parent"), 0o700);
    set_attribute(&root.join("implicit/parent"), "user.kept", "below");

    images::settle(root);
    touch(&root.join("links/one"), "2001-02-03 04:05:06.789012345 UTC");
    touch(&root.join("links/dangling"), "2011-12-13 14:15:16.171819202 UTC");
    touch(&root.join("modes/set-uid"), "1969-12-31 23:59:58 UTC");
    touch(&root.join("names/empty"), "2038-01-19 03:14:08.5 UTC");
    touch(&root.join("gone"), "2002-02-02 02:02:02 UTC");
    touch(&root.join("implicit/parent"), "2003-03-03 03:03:03.000000003 UTC");
}

/// Removes, replaces and hides, with an entry for every directory on the way.
fn fill_second(root: &Path) {
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
    mode(&root.join("changed/mode"), 0o600);
    file("links/two", "no longer linked\n");
    file("etc/.wh.group", "");
    images::settle(root);
    touch(&root.join("gone"), "2012-12-12 12:12:12.121212121 UTC");
}

fn pack_second(layout: &Layout, root: &Path, packing: Packing) -> Layer {
    layout.layer_with(root, packing, &["=.", "back", "changed", "etc", "gone", "links", "opaque", "turned"])
}

/// Files and whiteouts whose parents have no entry.
fn fill_third(root: &Path) {
    let file = |path: &str, content: &str| images::write(&root.join(path), content);
    file("implicit/parent/new", "new\n");
    file("implicit/parent/.wh.old", "");
    file("back/again", "from the third layer\n");
    file("nobody/knows/this", "parents that no layer has\n");
    images::settle(root);
}

fn pack_third(layout: &Layout, root: &Path, packing: Packing) -> Layer {
    let paths = ["implicit/parent/new", "implicit/parent/.wh.old", "back/again", "nobody/knows/this"];
    layout.layer_with(root, packing, &paths)
}

/// Writes the extensions of GNU tar: long names and link targets, great numbers.
fn fill_formats(root: &Path) {
    let file = |path: &str, content: &str| images::write(&root.join(path), content);
    let (long, longer) = ("l".repeat(101), format!("{}/{}", "p".repeat(150), "q".repeat(140)));
    file(&format!("formats/{long}"), "a name of 101 bytes below\n");
    file(&format!("formats/{longer}"), "a path of more than 256 bytes\n");
    symlink(format!("../{}", "t".repeat(180)), root.join("formats/long-target")).expect("symlink");
    fs::hard_link(root.join(format!("formats/{longer}")), root.join("formats/linked-to-long")).expect("link");
    file("formats/great-owner", "x");
    chown(root.join("formats/great-owner"), Some(2_097_152), Some(4_294_967_293)).expect("chown");
    fs::create_dir_all(root.join("formats/ustar")).expect("mkdir");
    mode(&root.join("formats/ustar"), 0o2771);
    images::settle(root);
}

/// Holes as POSIX tar writes them: a map before the content.
fn fill_sparse(root: &Path) {
    fs::create_dir_all(root.join("sparse")).expect("mkdir");
    holes(&root.join("sparse/holes"));
    fs::File::create(root.join("sparse/only-a-hole")).and_then(|f| f.set_len(1 << 20)).expect("make a file");
    images::settle(root);
}

fn fill_old(root: &Path) {
    fs::create_dir_all(root.join("old-sparse")).expect("mkdir");
    holes(&root.join("old-sparse/holes"));
    images::settle(root);
}

/// A file of islands.
fn holes(path: &Path) {
    let file = fs::File::create(path).expect("create a file");
    for n in 0..6_u64 {
        file.write_all_at(&noise_of("holes", 5000), n * 300_000 + 4096).expect("write");
    }
    file.set_len(2_000_001).expect("make it longer");
}

/// The oldest of formats, with its split of long paths; its directory is the one of the layer of GNU's.
fn fill_ustar(root: &Path) {
    images::write(&root.join(format!("formats/ustar/{}/{}", "u".repeat(80), "v".repeat(90))), "split\n");
    images::write(&root.join("formats/ustar/plain"), "plain\n");
    images::settle(root);
}
