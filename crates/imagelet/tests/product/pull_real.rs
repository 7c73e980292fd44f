//! Pulls of real images from a real registry: what is listed afterwards, what was read from the registry, and that the
//! pulled image runs.

use std::fs;

use serde_json::{Value, json};

use crate::support::Packing;
use crate::support::images::{self, Image, Layer};
use crate::support::process::{run, tool};
use crate::support::scene::{Scene, blobs_in};

fn busybox(s: &Scene) -> (Image, String) {
    let tree = s.scratch.directory("busybox");
    images::busybox_tree(&tree);
    let image = s.layout.image(&[s.layout.layer(&tree, Packing::Gzip)]);
    let name = s.registry.push(&s.layout, &image, "test/busybox:1.0");
    (image, name)
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn busybox_is_listed_as_cri_wants_it_and_runs() {
    let s = Scene::new();
    let (image, name) = busybox(&s);
    let shown = s.imagelet.ok(&["pull", &name]);
    assert!(shown.contains(&image.id), "pull answers the image id:\n{shown}");

    let listed = s.only_image();
    assert_eq!(listed["id"], json!(image.id));
    assert_eq!(listed["repoTags"], json!([name]));
    let digest = format!("{}@{}", s.registry.name("test/busybox"), image.manifest.digest);
    assert_eq!(listed["repoDigests"], json!([digest]));
    assert_eq!(s.imagelet.ok(&["images", "-q", "--no-trunc"]).trim(), image.id);

    let mounted = s.imagelet.mount(&name, s.scratch.join("mnt"));
    let said = run(tool("chroot").arg(&mounted).args(["/bin/sh", "-c", "echo $((6 * 7)); stat -c %a /tmp"]));
    assert_eq!(said, "42\n1777\n");
    let refused = fs::write(mounted.join("new"), "x").expect_err("mounted read-only");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    s.imagelet.ok(&["unmount", &mounted.display().to_string()]);
    assert_eq!(fs::read_dir(&mounted).expect("a directory").count(), 0);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_writable_mount_leaves_the_image_as_it_was() {
    let s = Scene::new();
    let (_, name) = busybox(&s);
    s.imagelet.ok(&["pull", &name]);
    let (mounted, upper) = (s.scratch.directory("mnt"), s.scratch.directory("upper"));
    let (at, writable) = (mounted.display().to_string(), upper.display().to_string());
    s.imagelet.ok(&["mount", "--writable", &writable, &name, &at]);
    images::write(&mounted.join("etc/motd"), "hello\n");
    fs::remove_file(mounted.join("etc/passwd")).expect("a writable mount");
    s.imagelet.ok(&["unmount", &at]);
    let fresh = s.imagelet.mount(&name, s.scratch.join("fresh"));
    assert!(fresh.join("etc/passwd").exists() && !fresh.join("etc/motd").exists());
    s.imagelet.ok(&["unmount", &fresh.display().to_string()]);
    s.imagelet.ok(&["mount", "--writable", &writable, &name, &at]);
    assert_eq!(fs::read_to_string(mounted.join("etc/motd")).expect("kept from the earlier mount"), "hello\n");
    assert!(!mounted.join("etc/passwd").exists());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_debian_root_file_system_runs_python() {
    let s = Scene::new();
    let tar = images::debian_tar();
    let image = s.layout.image(&[s.layout.layer_from_tar(&tar, Packing::Zstd)]);
    let name = s.registry.push(&s.layout, &image, "test/debian:bookworm");
    let peak = s.imagelet.peak_memory(&["pull", &name]);
    assert!(peak < 44 << 20, "a layer of 66 MB, 218 MB unpacked, needs {} MiB of memory", peak >> 20);
    let mounted = s.imagelet.mount(&name, s.scratch.join("mnt"));
    let program = "import json, hashlib; print(json.dumps(sum(range(10))), hashlib.sha256(b'').hexdigest()[:8])";
    assert_eq!(run(tool("chroot").arg(&mounted).args(["/usr/bin/python3", "-c", program])), "45 e3b0c442\n");
    let capability = run(tool("getcap").arg(mounted.join("usr/bin/ping")));
    assert!(capability.trim_end().ends_with("cap_net_raw=ep"), "{capability}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn memory_does_not_grow_with_a_layer() {
    let s = Scene::new();
    let peaks: Vec<u64> = [4_u64, 512]
        .iter()
        .map(|mebibytes| {
            let tree = s.scratch.directory(&format!("zeros-{mebibytes}"));
            fs::File::create(tree.join("zeros")).and_then(|f| f.set_len(mebibytes << 20)).expect("make a file");
            images::settle(&tree);
            let image = s.layout.image(&[s.layout.layer(&tree, Packing::Gzip)]);
            let name = s.registry.push(&s.layout, &image, &format!("test/zeros:{mebibytes}"));
            s.imagelet.peak_memory(&["pull", &name])
        })
        .collect();
    assert!(peaks[1] < peaks[0] + (24 << 20), "peaks in bytes for 4 MiB and 512 MiB: {peaks:?}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn sixty_layers_stack_in_order() {
    let s = Scene::new();
    let layers: Vec<Layer> = (1..=60)
        .map(|i| {
            let tree = s.scratch.directory(&format!("l{i}"));
            images::write(&tree.join(format!("data/{i}/mark")), format!("{i}\n"));
            images::write(&tree.join("shared/last"), format!("{i}\n"));
            if i > 1 {
                images::write(&tree.join(format!("data/.wh.{}", i - 1)), "");
            }
            images::settle(&tree);
            s.layout.layer(&tree, Packing::Gzip)
        })
        .collect();
    let image = s.layout.image(&layers);
    let name = s.registry.push(&s.layout, &image, "test/many:60");
    s.imagelet.ok(&["pull", &name]);
    let mounted = s.imagelet.mount(&name, s.scratch.join("mnt"));
    assert_eq!(fs::read_to_string(mounted.join("shared/last")).expect("a file"), "60\n");
    let left: Vec<_> =
        fs::read_dir(mounted.join("data")).expect("a directory").map(|e| e.expect("an entry").file_name()).collect();
    assert_eq!(left, ["60"]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_layer_that_is_here_is_not_fetched_again() {
    let s = Scene::new();
    let first = s.file_layer("a", "one\n", Packing::Gzip);
    let image = s.layout.image(&[first.clone(), s.file_layer("b/c", "two\n", Packing::Gzip)]);
    let name = s.registry.push(&s.layout, &image, "test/first:1");
    let asked = s.reads_while(&["pull", &name]);
    assert_eq!(blobs_in(&asked), 3, "the config and two layers: {asked:?}");
    let more = s.layout.image(&[first, s.file_layer("b/d", "three\n", Packing::Gzip)]);
    let name = s.registry.push(&s.layout, &more, "test/more:1");
    let asked = s.reads_while(&["pull", &name]);
    assert_eq!(blobs_in(&asked), 2, "the config and the one new layer: {asked:?}");
    let mounted = s.imagelet.mount(&name, s.scratch.join("mnt"));
    assert_eq!(fs::read_to_string(mounted.join("b/d")).expect("a file"), "three\n");
    assert!(mounted.join("a").exists() && !mounted.join("b/c").exists());
    let again = s.reads_while(&["pull", &name]);
    assert_eq!(blobs_in(&again), 0, "{again:?}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn packing_does_not_matter_and_layers_are_stored_once() {
    let s = Scene::new();
    let layers = |packing| [s.file_layer("a", "one\n", packing), s.file_layer("b/c", "two\n", packing)];
    for packing in [Packing::Gzip, Packing::Zstd, Packing::Plain] {
        let name = format!("test/packed:{packing:?}").to_lowercase();
        let name = s.registry.push(&s.layout, &s.layout.image(&layers(packing)), &name);
        s.imagelet.ok(&["pull", &name]);
        let stored = fs::read_dir(s.scratch.join("store/layers")).expect("the store's layers").count();
        assert_eq!(stored, 2, "after {name}");
    }
    let listed = s.only_image();
    assert_eq!(listed["repoTags"].as_array().map(Vec::len), Some(3), "one image by three names: {listed}");
    assert_eq!(listed["repoDigests"].as_array().map(Vec::len), Some(3), "the manifests differ: {listed}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_index_gives_the_platform_of_this_machine() {
    let s = Scene::new();
    let ours = s.layout.image(&[s.file_layer("mine", "yes\n", Packing::Gzip)]);
    let other = json!({"architecture": "s390x", "os": "linux"});
    let theirs = s.layout.image_for(&[s.file_layer("theirs", "yes\n", Packing::Gzip)], &json!({}), &other);
    let windows = json!({"architecture": "amd64", "os": "windows"});
    let index = s.layout.index(&[(&theirs, other), (&theirs, windows), (&ours, images::platform())]);
    let name = s.registry.push(&s.layout, &index, "test/multi:1");
    s.imagelet.ok(&["pull", &name]);
    let listed = s.only_image();
    assert_eq!(listed["id"], json!(ours.id));
    let digest = format!("{}@{}", s.registry.name("test/multi"), index.manifest.digest);
    assert_eq!(listed["repoDigests"], json!([digest]), "by the digest that the name stands for: the index");
    let by_digest = s.reads_while(&["pull", &digest]);
    assert_eq!(blobs_in(&by_digest), 0, "{by_digest:?}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn removal_gives_back_what_no_other_image_uses() {
    let s = Scene::new();
    let shared = s.file_layer("shared", "s".repeat(100_000), Packing::Gzip);
    let images: Vec<String> = ["one", "two"]
        .iter()
        .map(|n| {
            let own = s.file_layer(n, n.repeat(50_000), Packing::Gzip);
            s.registry.push(&s.layout, &s.layout.image(&[shared.clone(), own]), &format!("test/{n}:1"))
        })
        .collect();
    for name in &images {
        s.imagelet.ok(&["pull", name]);
    }
    s.imagelet.ok(&["rmi", &images[0]]);
    let mounted = s.imagelet.mount(&images[1], s.scratch.join("mnt"));
    assert!(mounted.join("shared").exists() && mounted.join("two").exists());
    s.imagelet.ok(&["unmount", &mounted.display().to_string()]);
    s.imagelet.ok(&["rmi", &images[1]]);
    assert_eq!(s.imagelet.images(), Vec::<Value>::new());
    let left = fs::read_dir(s.scratch.join("store/layers")).expect("the store's layers").count();
    assert_eq!(left, 0, "no layer is left on disk");
}
