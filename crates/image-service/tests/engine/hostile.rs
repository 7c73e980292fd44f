//! Hostile images on their whole way: pulled, imported, mounted and copied, in both shapes of layers. What stands outside of the
//! store is looked at after each step, and nothing of it may have changed or be seen.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use cri_api::Kind;
use cri_api::engine::ImportOptions;
use oci::Reference;
use registry::testing::{BuiltImage, Entry, EntryKind, LayerBuilder};
use store::LayerFormat;
use store::view::View;
use store::view::copy::CopyOptions;

use crate::support::{Node, image, layer};

/// Directory that no image may reach.
struct Outside(PathBuf);

impl Outside {
    fn next_to(node: &Node) -> Self {
        let path = node.directory.path().join("outside");
        fs::create_dir(&path).expect("creates");
        fs::write(path.join("canary"), "alive").expect("writes");
        fs::set_permissions(path.join("canary"), fs::Permissions::from_mode(0o640)).expect("sets");
        Self(path)
    }

    fn text(&self) -> &str {
        self.0.to_str().expect("text")
    }

    /// Nothing was made, changed, removed or linked.
    fn check(&self, after: &str) {
        let names: Vec<_> =
            fs::read_dir(&self.0).expect("a directory").map(|e| e.expect("an entry").file_name()).collect();
        assert_eq!(names, ["canary"], "{after}");
        let canary = fs::symlink_metadata(self.0.join("canary")).expect("is there");
        assert!(canary.is_file(), "{after}");
        let own = rustix::process::geteuid().as_raw();
        assert_eq!((canary.mode() & 0o7777, canary.uid(), canary.nlink()), (0o640, own, 1), "{after}");
        assert_eq!(fs::read(self.0.join("canary")).expect("reads"), b"alive", "{after}");
    }
}

/// An image that can be unpacked, with all in it that wants out or wants to be taken for something else.
fn crafty(outside: &str) -> BuiltImage {
    let climb = format!("{}{}", "../".repeat(30), &outside[1..]);
    let lowest = LayerBuilder::new()
        .dir("base/")
        .file_mode("base/secret", "of the image", 0o600)
        .symlink("way", outside)
        .symlink("climb", &climb)
        .symlink("canary", &format!("{outside}/canary"))
        .symlink("ring", "ring")
        .file("file", "a file")
        .char_device("null", 1, 3)
        .block_device("disk", 8, 0)
        .file_mode("set-user-id", "#!/bin/sh\n", 0o6755)
        .fifo("pipe");
    let hidden = |name: &str, value: &str| Entry::new("red/", EntryKind::Dir).xattr(name, value.as_bytes().to_vec());
    let meta = |prefix: &str| {
        Entry::new(format!("meta-{prefix}"), EntryKind::File(b"its own".to_vec()))
            .xattr(&format!("{prefix}.overlay.metacopy"), Vec::new())
            .xattr(&format!("{prefix}.overlay.redirect"), b"/base/secret".to_vec())
            .xattr(&format!("{prefix}.overlay.origin"), b"x".to_vec())
    };
    let opaque = Entry::new("base/", EntryKind::Dir)
        .xattr("trusted.overlay.opaque", b"y".to_vec())
        .xattr("user.overlay.opaque", b"y".to_vec());
    let upper = LayerBuilder::new()
        // Through links that only the layer below has, and through its own.
        .file("way/canary", "of the image")
        .file("climb/new", "of the image")
        .whiteout("canary")
        .symlink("own", outside)
        .file("own/canary", "of the image")
        .whiteout("own/canary")
        .entry(Entry::new("own", EntryKind::Dir).mode(0).owner(9, 9))
        .entry(opaque)
        .entry(hidden("trusted.overlay.redirect", "/base"))
        .entry(meta("trusted"))
        .entry(meta("user"))
        // What a file below hides, and the other way round.
        .file("file/deep", "a directory now")
        .hardlink("linked", "meta-user");
    image()
        .layer(lowest)
        .layer(upper)
        .user("4294967296:0")
        .working_dir("/../../..")
        .label("io.kubernetes.pod.name", "../../x")
        .run("Volumes", serde_json::json!({ "/../../etc": {}, "C:\\..": {} }))
        .build()
}

/// Layers that are refused, each with a word of why.
fn refused(outside: &str) -> Vec<(LayerBuilder, &'static str)> {
    let tar = LayerBuilder::new;
    let climb = format!("../../../..{outside}/canary");
    vec![
        (tar().file(&climb, "dead"), "leads out of the layer"),
        (tar().hardlink("mine", &climb).file("mine", "dead"), "leads out of the layer"),
        (tar().hardlink("mine", &format!("{outside}/canary")).file("mine", "dead"), "is not in the layer"),
        (tar().symlink("l", outside).hardlink("mine", "l/canary").file("mine", "dead"), "is not in the layer"),
        (tar().symlink(".", outside).file("canary", "dead"), "the root of the layer"),
        (tar().dir("a").file("a/.wh...", ""), "leads out of its directory"),
        (tar().entry(Entry::new("a", EntryKind::File(Vec::new())).pax("path", climb.as_bytes().to_vec())), "leads out"),
        (tar().entry(Entry::new("a", EntryKind::File(Vec::new())).pax("size", b"-1".to_vec())), "no valid value"),
        (tar().file(&"d/".repeat(300), ""), "over the limit"),
        (
            tar().entry(Entry::new("s", EntryKind::File(Vec::new())).pax("GNU.sparse.map", b"0,1,".repeat(70_000))),
            "over the limit",
        ),
        (
            tar().entry(Entry::new("a", EntryKind::File(Vec::new())).pax("comment", vec![b'x'; 2 << 20])),
            "over the limit",
        ),
    ]
}

/// Every file that can be reached below a directory, without following links.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut left = vec![root.to_owned()];
    let mut files = Vec::new();
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let entry = entry.expect("an entry");
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files
}

/// Checks that every file shown of the crafty image is its own.
fn check_tree(root: &Path) {
    let read = |path: &str| fs::read(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(read("base/secret"), b"of the image", "an attribute of overlayfs hides nothing");
    assert_eq!(read("way/canary"), b"of the image");
    assert_eq!(fs::read_dir(root.join("red")).expect("a directory").count(), 0, "nor does it move anything");
    for name in ["meta-trusted", "meta-user", "linked"] {
        assert_eq!(read(name), b"its own");
    }
    for file in files(root) {
        assert_ne!(fs::read(&file).expect("reads"), b"alive", "{}", file.display());
    }
}

fn copy(view: &View, to: &Path) {
    fs::create_dir(to).expect("creates");
    let options = CopyOptions { privileged: true, whole: true, cancelled: &|| false };
    view.copy(&view.root().expect("a root"), to, None, options).expect("copies");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: scripts/test.sh"]
async fn a_hostile_image_reaches_nothing_outside() {
    for format in [LayerFormat::Dir, LayerFormat::Erofs] {
        let node = Node::with(|options| options.store.layer_format = format).await;
        let outside = Outside::next_to(&node);
        for (bad, word) in refused(outside.text()) {
            let bad = image().layer(bad).build();
            node.registry.push("bad", "v1", &bad);
            let error = node.pull("bad:v1").await.expect_err(word);
            assert!(error.message().contains(word), "{format:?}: {error} has no {word:?}");
            outside.check(word);
            let layout = node.directory.path().join("bad");
            bad.write_layout(&layout, "r.example/bad:v1").expect("writes");
            let error = node.engine.import(&layout, ImportOptions::default()).await.expect_err(word);
            assert!(error.message().contains(word), "{format:?}, imported: {error} has no {word:?}");
            outside.check(word);
            fs::remove_dir_all(layout).expect("removes");
        }
        node.check_clean().await;

        let crafty = crafty(outside.text());
        node.registry.push("crafty", "v1", &crafty);
        node.pull("crafty:v1").await.expect("it can be pulled");
        outside.check("a pull");
        let layout = node.directory.path().join("layout");
        crafty.write_layout(&layout, "r.example/crafty:v1").expect("writes");
        let name = Reference::parse("r.example/again:v1").expect("a reference");
        let options = ImportOptions { name: Some(name), ..ImportOptions::default() };
        node.engine.import(&layout, options).await.expect("it can be imported");
        outside.check("an import");

        let status = node.status("crafty:v1").await.expect("is there");
        assert_eq!((status.uid, status.username.as_str()), (None, "4294967296"), "beyond int32 it is no uid");
        let store = node.engine.store();
        let record = store.resolve(&node.name("crafty:v1").into()).expect("resolves").expect("is there");
        let target = node.directory.path().join("target");
        fs::create_dir(&target).expect("creates");
        store.mount_image(&record, &target, None).expect("mounts");
        check_tree(&target);
        let devices = fs::symlink_metadata(target.join("disk")).expect("is there");
        assert_eq!(devices.rdev(), device_number(8, 0));
        store.unmount_image(&target).expect("unmounts");
        outside.check("a mount");

        let copied = node.directory.path().join("copied");
        copy(&node.view(&node.name("crafty:v1")), &copied);
        check_tree(&copied);
        outside.check("a copy");
    }
}

/// The number of a device as `stat` has it.
fn device_number(major: u64, minor: u64) -> u64 {
    (major << 8) | minor
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_are_deep_or_name_other_places() {
    let node = Node::start().await;
    let outside = Outside::next_to(&node);
    let good = image().layer(layer("a/x", 1, 100)).build();
    node.registry.push("bad", "good", &good);
    let manifest = "application/vnd.oci.image.manifest.v1+json";
    let text = String::from_utf8(good.manifest.to_vec()).expect("text");
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let digest = good.layers[0].descriptor.digest.to_string();
    let cases = [
        (text.replacen('{', &format!("{{\"x\":{},", deep(100_000)), 1), "not a manifest"),
        (text.replace(&digest, "sha256:../../../../outside/canary"), "not a manifest"),
        (text.replace(&digest, &digest[..70]), "not a manifest"),
        (text.replace(&digest, &digest.to_uppercase()), "not a manifest"),
        (text.replace(&digest, "md5:d41d8cd98f00b204e9800998ecf8427e"), "not a manifest"),
    ];
    for (bytes, word) in cases {
        let digest = node.registry.push_manifest("bad", manifest, bytes.into_bytes());
        node.registry.tag("bad", "v1", &digest);
        let error = node.pull("bad:v1").await.expect_err(word);
        assert!(matches!(error.kind(), Kind::InvalidArgument | Kind::DataLoss), "{word}: {} {error}", error.kind());
        assert!(error.message().contains(word) && error.message().len() < 1000, "{error}");
        outside.check(word);
    }
    let asked: Vec<_> = node.registry.requests_for("outside").into_iter().collect();
    assert!(asked.is_empty(), "nothing is asked for by what is no digest");
    node.check_clean().await;
}
