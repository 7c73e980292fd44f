//! An ordinary user: pulls into the user's own data directory. Entries that only root can create are in the layer all the same, or
//! recorded next to the data and reported in one line. They are not lost.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};

use super::FORMAT;
use crate::support::home::Home;
use crate::support::images::{self, Image};
use crate::support::process::{run, tool};
use crate::support::scene::Scene;
use crate::support::tree;
use crate::support::{Imagelet, Packing};

/// An image with what only root can make.
fn privileged_image(s: &Scene) -> (String, Image) {
    let tree = s.scratch.directory("privileged");
    images::busybox_tree(&tree);
    images::write(&tree.join("etc/owned"), "owned\n");
    chown(tree.join("etc/owned"), Some(1234), Some(5678)).expect("chown");
    fs::create_dir_all(tree.join("closed")).expect("mkdir");
    images::write(&tree.join("closed/file"), "inside\n");
    fs::set_permissions(tree.join("closed"), fs::Permissions::from_mode(0o500)).expect("chmod");
    run(tool("mknod").arg(tree.join("dev/null")).args(["c", "1", "3"]));
    run(tool("setcap").arg("cap_net_raw+ep").arg(tree.join("bin/busybox")));
    images::settle(&tree);
    let upper = s.scratch.directory("upper");
    images::write(&upper.join("etc/.wh.group"), "");
    images::write(&upper.join("new"), "new\n");
    images::settle(&upper);
    let layers = [s.layout.layer(&tree, Packing::Gzip), s.layout.layer(&upper, Packing::Gzip)];
    let image = s.layout.image(&layers);
    (s.registry.push(&s.layout, &image, "user/image:1"), image)
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_ordinary_user_pulls_lists_and_removes() {
    let s = Scene::shaped(FORMAT);
    let (name, image) = privileged_image(&s);
    let home = Home::new();
    let imagelet = home.imagelet().global("--layer-format", FORMAT);
    let done = imagelet.run(&["pull", &name]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let told = done.stderr.lines().filter(|l| l.contains("root")).count();
    assert_eq!(told, 1, "one line says what could not be created, or where it is:\n{}", done.stderr);
    assert_eq!(imagelet.ids(), [image.id.as_str()]);
    let root = home.data().join("imagelet");
    let meta = fs::metadata(&root).expect("the store lies in the data directory");
    assert_eq!(meta.permissions().mode() & 0o777, 0o700);

    let mnt = home.data().join("mnt");
    fs::create_dir_all(&mnt).expect("mkdir");
    let said = imagelet.fails(77, &["mount", &name, &mnt.display().to_string()]);
    assert!(said.contains("root") || said.contains("CAP_SYS_ADMIN"), "it says what mounting needs: {said}");
    // Entries that only root can make are shown as the image has them.
    s.imagelet.ok(&["pull", &name]);
    let listed = |imagelet: &Imagelet| imagelet.ok(&["ls", "-R", "-o", "json", &name]);
    assert_eq!(listed(&imagelet), listed(&s.imagelet), "as an ordinary user | as root");

    imagelet.ok(&["rmi", &name]);
    assert_eq!(imagelet.ids(), Vec::<String>::new());
    assert_eq!(fs::read_dir(root.join("layers")).expect("the store").count(), 0);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn what_an_ordinary_user_exports_is_whole_for_root() {
    let s = Scene::shaped(FORMAT);
    let (name, image) = privileged_image(&s);
    let home = Home::new();
    home.imagelet().global("--layer-format", FORMAT).ok(&["pull", &name]);
    let out = home.data().join("out");
    home.imagelet().ok(&["export", &name, "--output", &out.display().to_string()]);

    let root = Imagelet::shaped(FORMAT, &s.scratch.join("from-export"));
    root.ok(&["import", &out.display().to_string(), "--name", &name]);
    assert_eq!(root.ids(), [image.id.as_str()], "config and diff ids are the same, bit for bit");
    let through = tree::read(&root.mount(&name, s.scratch.join("through")));
    s.imagelet.ok(&["pull", &name]);
    let direct = tree::read(&s.imagelet.mount(&name, s.scratch.join("direct")));
    assert_eq!(tree::differences(&through, &direct), Vec::<String>::new());
}
