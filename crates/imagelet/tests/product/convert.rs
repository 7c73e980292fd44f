//! `imagelet convert`: a store of one shape becomes one of the other, here and in an agent; what is mounted stays and is told;
//! nothing is fetched, and mounts show the same.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use serde_json::Value;

use crate::support::Packing;
use crate::support::images;
use crate::support::scene::Scene;
use crate::support::tree::{differences, read};

fn shapes(s: &Scene) -> (usize, usize) {
    let layers =
        fs::read_dir(s.scratch.join("store/layers")).expect("a store").map(|entry| entry.expect("an entry").path());
    layers.fold((0, 0), |(dir, erofs), layer| {
        (dir + usize::from(layer.join("fs").is_dir()), erofs + usize::from(layer.join("layer.erofs").is_file()))
    })
}

#[test]
fn images_become_erofs_files_and_directories_again() {
    let mut s = Scene::new();
    s.imagelet = s.imagelet.global("--layer-format", "dir");
    let tree = s.scratch.directory("tree");
    images::busybox_tree(&tree);
    images::settle(&tree);
    let base = s.layout.layer(&tree, Packing::Gzip);
    let upper = s.scratch.directory("upper");
    images::write(&upper.join("etc/.wh.group"), "");
    images::write(&upper.join("opt/new"), "new\n");
    images::settle(&upper);
    let image = s.layout.image(&[base.clone(), s.layout.layer(&upper, Packing::Gzip)]);
    let name = s.registry.push(&s.layout, &image, "convert/image:1");
    let other = s.registry.push(&s.layout, &s.layout.image(&[base]), "convert/base:1");
    s.imagelet.ok(&["pull", &name, &other]);
    let mounted = s.imagelet.mount(&name, s.scratch.join("before"));
    let before = read(&mounted);
    let requests = s.registry.requests().len();

    // Both layers are mounted.
    let done = s.imagelet.run(&["convert", "--to", "erofs", "--all"]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains(&mounted.display().to_string()), "it says where: {}", done.stderr);
    assert_eq!(shapes(&s), (2, 0));
    s.imagelet.ok(&["unmount", &mounted.display().to_string()]);

    let report: Value =
        serde_json::from_str(&s.imagelet.ok(&["-o", "json", "convert", "--to", "erofs", &name])).expect("JSON");
    assert_eq!((&report["to"], &report["images"][0]["layers"]), (&"erofs".into(), &2.into()), "{report:#}");
    assert_eq!(shapes(&s), (0, 2), "also of the other image");
    let mounted = s.imagelet.mount(&name, s.scratch.join("after"));
    assert_eq!(differences(&before, &read(&mounted)), Vec::<String>::new());
    assert!(fs::metadata(mounted.join("opt/new")).is_ok_and(|file| file.len() == 4 && file.nlink() == 1));
    s.imagelet.fails(1, &["rmi", &name]);
    s.imagelet.ok(&["unmount", &mounted.display().to_string()]);
    s.imagelet.ok(&["check", "--deep"]);

    let agent = s.imagelet.serve(&s.scratch.join("cri.sock"));
    let said = s.imagelet.ok(&["convert", "--to", "dir", "--all"]);
    assert!(said.contains("Converted 2 layers to dir"), "{said}");
    assert_eq!(shapes(&s), (2, 0));
    drop(agent);
    let mounted = s.imagelet.mount(&name, s.scratch.join("again"));
    assert_eq!(differences(&before, &read(&mounted)), Vec::<String>::new());
    s.imagelet.ok(&["unmount", &mounted.display().to_string()]);
    s.imagelet.ok(&["check", "--deep"]);
    assert_eq!(s.registry.requests().len(), requests, "nothing is fetched");
    s.imagelet.fails(2, &["convert", "--to", "erofs"]);
    s.imagelet.fails(1, &["convert", "--to", "erofs", "convert/unknown:1"]);
}
