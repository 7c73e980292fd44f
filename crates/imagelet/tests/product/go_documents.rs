//! Images as Go programs write them, with `null` and text that is not Unicode, and a layer of aufs: pulled into the own store in both
//! shapes, by `serve`, and into containerd's store.

use std::fs;

use oci::media_type as types;
use serde_json::{Value, json};

use crate::support::images::{self, Image};
use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet, Packing};

/// An image whose config and manifest have everything that Go's decoder accepts and others may not. `byte` is part of strings.
fn push(s: &Scene, byte: &[u8]) -> (String, Image) {
    let tree = s.scratch.directory("aufs");
    images::write(&tree.join(".wh..wh.plnk/12.34"), "linked");
    fs::hard_link(tree.join(".wh..wh.plnk/12.34"), tree.join("first")).expect("a link");
    fs::hard_link(tree.join(".wh..wh.plnk/12.34"), tree.join("second")).expect("a link");
    images::settle(&tree);
    let layer = s.layout.layer_with(&tree, Packing::Gzip, &[".wh..wh.plnk/12.34", "first", "second"]);
    let mut config = images::platform();
    config["config"] = json!({"Labels": {"a": "LONE", "b": null}, "Env": ["A=BYTE"], "Cmd": null, "User": null});
    config["rootfs"] = json!({"type": "layers", "diff_ids": [layer.diff_id.to_string()]});
    config["history"] = json!([{"created_by": "step LONE", "comment": "BYTE", "created": null, "empty_layer": null}]);
    let config = config.to_string().replace("LONE", r"x\ud83d");
    let (before, rest) = config.split_once("BYTE").expect("it has one");
    let (between, after) = rest.split_once("BYTE").expect("it has two");
    let config = [before, between, after].map(str::as_bytes).join(byte);
    let config = s.layout.add(&config, types::OCI_CONFIG);
    let with_nulls = |mut descriptor: Value| {
        descriptor["urls"] = Value::Null;
        descriptor["annotations"] = json!({"a": null});
        descriptor["platform"] = Value::Null;
        descriptor
    };
    let manifest = json!({
        "schemaVersion": 2, "mediaType": types::OCI_MANIFEST, "annotations": null, "subject": null,
        "config": with_nulls(config.descriptor()), "layers": [with_nulls(layer.blob.descriptor())],
    });
    let manifest = s.layout.add(manifest.to_string().as_bytes(), types::OCI_MANIFEST);
    let image = Image { manifest, id: config.digest.to_string(), blobs: vec![layer.blob, config] };
    (s.registry.push(&s.layout, &image, "go/app:1"), image)
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn documents_that_go_accepts_are_pulled_into_the_own_store() {
    for (shape, byte) in [("dir", &b"x\xff"[..]), ("erofs", b"x")] {
        let s = Scene::shaped(shape);
        let (name, image) = push(&s, byte);
        assert_eq!(s.imagelet.ok(&["pull", &name]).trim(), image.id, "{shape}");
        let inspected = s.imagelet.ok(&["inspect", &name]);
        assert!(inspected.contains("x\u{fffd}"), "{shape}: {inspected}");
        assert!(s.imagelet.ok(&["history", &name]).contains("step x\u{fffd}"), "{shape}");
        let pushed = format!("{}/go/copy:1", s.registry.host());
        let printed = s.imagelet.ok(&["push", &name, &pushed]);
        assert!(printed.contains(&image.manifest.digest.to_string()), "{shape}: {printed}");
        let files = s.imagelet.ok(&["ls", &name]);
        assert!(files.contains("first") && files.contains("second") && !files.contains("plnk"), "{shape}: {files}");
        s.imagelet.ok(&["check"]);
        let archive = s.scratch.join("archive.tar").display().to_string();
        s.imagelet.ok(&["export", &name, "-o", &archive]);
        let other = Imagelet::on(&s.scratch.join("other"));
        other.ok(&["import", &archive]);
        assert_eq!(other.ids(), [image.id], "{shape}: the archive has the same bytes");
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn documents_that_go_accepts_are_pulled_into_containerds_store() {
    for engine in ["runtime", "embedded"] {
        let s = Scene::new();
        let (name, image) = push(&s, b"x\xff");
        let containerd = Containerd::start(s.registry.host());
        let imagelet = Imagelet::remote(&containerd.endpoint()).global("--pull-engine", engine);
        let imagelet = imagelet.global("--root", &s.scratch.join("records").display().to_string());
        let socket = s.scratch.join("cri.sock");
        let _agent = imagelet.serve(&socket);
        let client = Imagelet::remote(&format!("unix://{}", socket.display()));
        assert_eq!(client.ok(&["pull", &name]).trim(), image.id, "{engine}");
        assert_eq!(client.ids(), std::slice::from_ref(&image.id), "{engine}");
    }
}
