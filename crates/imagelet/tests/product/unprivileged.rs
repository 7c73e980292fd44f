//! An ordinary user: pulls into the user's own data directory; what only root can create is recorded beside the data,
//! told in one line, and not lost.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;

use crate::support::images::{self, Image};
use crate::support::process::{run, tool};
use crate::support::scene::Scene;
use crate::support::tree;
use crate::support::{Imagelet, Packing};

const NOBODY: u32 = 65534;

/// A directory of nobody's that nobody can reach, which the target directory need not be.
pub(crate) struct Home(tempfile::TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        let home = tempfile::Builder::new().prefix("imagelet-nobody-").tempdir().expect("a directory");
        chown(home.path(), Some(NOBODY), Some(NOBODY)).expect("chown");
        let program = home.path().join("imagelet");
        fs::copy(crate::support::cli::PROGRAM, &program).expect("copy the program");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("chmod");
        Self(home)
    }

    pub(crate) fn imagelet(&self) -> Imagelet {
        Imagelet::bare()
            .program(self.0.path().join("imagelet"))
            .user(NOBODY)
            .env("XDG_DATA_HOME", &self.data().display().to_string())
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Directories of a layer may be closed to their own user, whose test this is; root removes them all the same.
        let _ = fs::remove_dir_all(self.data());
    }
}

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
fn an_ordinary_user_pulls_lists_and_removes() {
    let s = Scene::new();
    let (name, image) = privileged_image(&s);
    let home = Home::new();
    let imagelet = home.imagelet();
    let done = imagelet.run(&["pull", &name]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let told = done.stderr.lines().filter(|l| l.contains("root")).count();
    assert_eq!(told, 1, "one line says what could not be created:\n{}", done.stderr);
    assert_eq!(imagelet.ids(), [image.id.as_str()]);
    let root = home.data().join("imagelet");
    let meta = fs::metadata(&root).expect("the store lies in the data directory");
    assert_eq!(meta.permissions().mode() & 0o777, 0o700);

    let mnt = home.data().join("mnt");
    fs::create_dir_all(&mnt).expect("mkdir");
    let said = imagelet.fails(77, &["mount", &name, &mnt.display().to_string()]);
    assert!(said.contains("root") || said.contains("CAP_SYS_ADMIN"), "it says what mounting needs: {said}");

    imagelet.ok(&["rmi", &name]);
    assert_eq!(imagelet.ids(), Vec::<String>::new());
    assert_eq!(fs::read_dir(root.join("layers")).expect("the store").count(), 0);
}

#[test]
fn what_an_ordinary_user_exports_is_whole_for_root() {
    let s = Scene::new();
    let (name, image) = privileged_image(&s);
    let home = Home::new();
    home.imagelet().ok(&["pull", &name]);
    let out = home.data().join("out");
    home.imagelet().ok(&["export", &name, "--output", &out.display().to_string()]);

    let root = Imagelet::on(&s.scratch.join("from-export"));
    root.ok(&["import", &out.display().to_string(), "--name", &name]);
    assert_eq!(root.ids(), [image.id.as_str()], "config and diff ids are the same, bit for bit");
    let through = tree::read(&root.mount(&name, s.scratch.join("through")));
    s.imagelet.ok(&["pull", &name]);
    let direct = tree::read(&s.imagelet.mount(&name, s.scratch.join("direct")));
    assert_eq!(tree::differences(&through, &direct), Vec::<String>::new());
}
