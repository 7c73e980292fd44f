//! Podman on layers that are EROFS files, which the host mounts in the view: the same trees as with directories, an error for a layer that
//! is not mounted, the mounts of a start of the machine, and no mount that outlives its image.

use std::fs;
use std::path::{Path, PathBuf};

use base::layer_mount::{LayerMount, linked_layers};
use base::mount::mounts_below;

use crate::podman::{SHOW, Stage, run};
use crate::support::images::Image;
use crate::support::process::tool;
use crate::support::scene::Scene;

/// A scene in which layers are EROFS files.
fn stage() -> Stage {
    let scene = Scene::new();
    Stage::of(Scene { imagelet: scene.imagelet.clone().global("--runtime-layers", "erofs"), ..scene })
}

/// The layers of the view that are EROFS files.
fn linked(stage: &Stage) -> Vec<LayerMount> {
    linked_layers(&stage.view.join("overlay"), "diff").expect("a directory of layers")
}

/// The mount points in the view.
fn mounted(stage: &Stage) -> Vec<PathBuf> {
    let view = fs::canonicalize(stage.s.scratch.join("store")).expect("a store");
    mounts_below(&view).expect("mounts").into_iter().map(|mount| mount.target).collect()
}

/// EROFS files and trees of the store's own layers.
fn shapes(stage: &Stage) -> (usize, usize) {
    let layers = fs::read_dir(stage.s.scratch.join("store/layers")).expect("layers");
    let layers: Vec<PathBuf> = layers.map(|entry| entry.expect("an entry").path()).collect();
    let count = |name: &str| layers.iter().filter(|layer| layer.join(name).exists()).count();
    (count("layer.erofs"), count("fs"))
}

fn images(stage: &Stage) -> [Image; 2] {
    let base = stage.base();
    ["one", "two"].map(|word| stage.s.layout.image(&[base.clone(), stage.upper(word)]))
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn podman_runs_images_whose_layers_are_mounted() {
    let t = stage();
    let [one, two] = images(&t);
    let (first, second) = (t.pull(&one, "podman/one:1"), t.pull(&two, "podman/two:1"));
    assert_eq!(shapes(&t), (3, 0));
    let layers = linked(&t);
    assert_eq!((layers.len(), mounted(&t).len()), (3, 3));
    assert!(layers.iter().all(LayerMount::is_mounted));
    t.check("mounted");
    let shown = t.podman.command(&run(&first, &SHOW)).output().expect("start podman");
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "one\nnew\n755 0\n1777 0\nx\n", "{shown:?}");
    assert!(String::from_utf8_lossy(&shown.stderr).contains("/hidden: No such file"), "{shown:?}");
    assert_eq!(t.podman.ok(&run(&second, &["cat", "/etc/word"])), "two\n");
    t.s.imagelet.ok(&["check", "--deep"]);
    assert!(t.s.imagelet.ok(&["status"]).contains("CONDITION"));

    // The store's own commands read the nested trees.
    assert_eq!(t.s.imagelet.ok(&["cat", &first, "/etc/word"]), "one\n");
    let at = t.s.imagelet.mount(&first, t.s.scratch.join("own"));
    assert_eq!(fs::read_to_string(at.join("etc/word")).expect("a file"), "one\n");
    assert!(at.join("opaque/new").exists() && !at.join("opaque/old").exists() && !at.join("hidden").exists());
    t.s.imagelet.ok(&["unmount", &at.display().to_string()]);

    // A removal takes the mounts with it, and those of the other image stay.
    t.podman.ok(&["run", "--detach", "--name", "c", &second, "sleep", "1000"]);
    assert!(t.s.imagelet.fails(1, &["rmi", &second]).contains("is used by podman or CRI-O ("));
    t.s.imagelet.ok(&["rmi", &first]);
    assert_eq!((linked(&t).len(), mounted(&t).len()), (2, 2));
    assert_eq!(t.podman.ok(&["exec", "c", "cat", "/etc/word"]), "two\n");
    t.podman.remove_containers();
    t.s.imagelet.ok(&["rmi", &second]);
    assert_eq!((linked(&t).len(), mounted(&t)), (0, Vec::new()));
    assert_eq!(t.check("both are removed"), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn unmounted_layer_is_an_error_until_the_next_start() {
    let t = stage();
    let [one, _] = images(&t);
    let name = t.pull(&one, "podman/one:1");
    let unmount = || {
        for layer in linked(&t) {
            let point = layer.file().with_file_name("mnt");
            assert!(tool("umount").arg(&point).status().expect("start umount").success());
        }
    };
    unmount();
    assert_eq!(mounted(&t), Vec::<PathBuf>::new());
    t.podman.fails(&run(&name, &["true"]));
    // As the unit does at a start of the machine.
    t.s.imagelet.ok(&["mounts", "--all"]);
    assert_eq!(mounted(&t).len(), 2);
    assert_eq!(t.podman.ok(&run(&name, &["cat", "/etc/word"])), "one\n");
    // Every opening of the store does the same, and repairs what is damaged.
    unmount();
    let damaged = linked(&t).remove(0);
    fs::remove_file(damaged.file()).expect("remove a file");
    t.s.imagelet.ok(&["images"]);
    assert!(damaged.is_mounted() && damaged.file().exists());
    assert_eq!(t.podman.ok(&run(&name, &["cat", "/etc/word"])), "one\n");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn image_of_a_layer_that_cannot_be_mounted_is_left_out() {
    let t = stage();
    let base = t.base();
    let one = t.s.layout.image(&[base.clone(), t.upper("one")]);
    let (name, other) = (t.pull(&one, "podman/one:1"), t.pull(&t.s.layout.image(&[base]), "podman/base:1"));
    let of_one = |layer: &&LayerMount| fs::read_to_string(layer.tree().join("etc/word")).expect("a file") == "one\n";
    let upper = linked(&t).into_iter().find(|layer| of_one(&layer)).expect("a layer");
    let number = fs::read_to_string(upper.file().with_file_name("store-layer")).expect("a number");
    upper.release().expect("unmounts");
    let file = t.s.scratch.join("store/layers").join(number).join("layer.erofs");
    let length = fs::metadata(&file).expect("a file").len();
    fs::write(&file, vec![0; usize::try_from(length).expect("a short file")]).expect("damage");
    let said = t.s.imagelet.run(&["podman-store"]);
    assert!(said.stderr.contains(&format!("{name} is left out")), "{}", said.stderr);
    t.podman.fails(&["run", "--rm", "--pull=never", &name]);
    assert_eq!(t.podman.ok(&run(&other, &["cat", "/etc/word"])), "below\n");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn conversion_and_removal_of_the_view_unmount() {
    let t = stage();
    let [one, _] = images(&t);
    let name = t.pull(&one, "podman/one:1");
    t.s.imagelet.ok(&["convert", "--to", "dir", "--all"]);
    assert_eq!((linked(&t).len(), mounted(&t)), (0, Vec::new()));
    assert_eq!(t.podman.ok(&run(&name, &["cat", "/etc/word"])), "one\n");
    t.s.imagelet.ok(&["convert", "--to", "erofs", "--all"]);
    assert_eq!((linked(&t).len(), mounted(&t).len()), (2, 2));
    assert_eq!(t.podman.ok(&run(&name, &["cat", "/etc/word"])), "one\n");
    t.s.imagelet.ok(&["podman-store", "--remove"]);
    assert_eq!(mounted(&t), Vec::<PathBuf>::new());
    assert!(!Path::new(&t.view).exists());
}
