//! `imagelet explain` changes nothing, on the disk or in the registry, whatever its arguments and the state of the store.

use std::fs;
use std::path::Path;

use crate::support::manifests::{Manifests, Pod, PullSecret};
use crate::support::scene::Scene;
use crate::support::tree::{self, Tree};

/// A tree without the files that every process changes when it opens a store: the lock, which names its holder, and the database,
/// which records whether it was closed.
fn contents(root: &Path) -> Tree {
    let mut tree = tree::read(root);
    // The root itself had a socket in it for a moment.
    tree.retain(|path, _| ![Path::new(""), Path::new("lock"), Path::new("meta.redb")].contains(&path.as_path()));
    tree
}

fn manifest(s: &Scene, image: &str) -> String {
    let pod = |name, policy| Pod { namespace: "shop", name, image, policy, secrets: &["pull"] };
    let (registry, user, password) = (s.registry.host(), "keeper", "portcullis");
    Manifests::new()
        .pod(pod("if-not-present", "IfNotPresent"))
        .pod(pod("always", "Always"))
        .pod(pod("never", "Never"))
        .secret(PullSecret { namespace: "shop", name: "pull", uid: "uid-of-pull", registry, user, password })
        .write(&s.scratch.join("pods.yaml"))
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn where_nothing_is_nothing_appears() {
    let s = Scene::new();
    let (name, _) = s.push_file("explained/app:1", "a", "a");
    let file = manifest(&s, &name);
    for args in [&["-f", &file][..], &[&name, "--policy", "Always"]] {
        let said = s.imagelet.ok(&[&["explain"], args].concat());
        assert!(said.contains(&name), "{said}");
        assert!(!s.scratch.join("store").exists(), "{args:?} made {:?}", tree::read(&s.scratch.join("store")).keys());
    }
    let decisions = s.imagelet.ok(&["explain", "-q", "-f", &file]);
    assert_eq!(decisions.lines().collect::<Vec<_>>(), ["pull", "pull", "refuse"]);
    assert_eq!(s.registry.requests(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn what_is_there_stays_as_it_is() {
    let s = Scene::new();
    let (name, _) = s.push_file("explained/app:1", "a", "a");
    let (other, _) = s.push_file("explained/other:1", "a", "b");
    let file = manifest(&s, &name);
    s.imagelet.run(&["ensure", "-f", &manifest(&s, &other)]);
    s.imagelet.ok(&["pull", &name]);
    let asked = s.registry.requests().len();
    let store = s.scratch.join("store");
    let before = contents(&store);
    for _ in 0..2 {
        s.imagelet.ok(&["explain", "-f", &file]);
        s.imagelet.ok(&["explain", &other]);
    }
    assert_eq!(tree::differences(&before, &contents(&store)), Vec::<String>::new());
    assert_eq!(s.registry.requests().len(), asked, "{:?}", s.registry.requests());
    // Nor where it may not write.
    fs::write(store.join("image_manager/pulling/left"), "x").expect("a foreign file");
    s.imagelet.ok(&["explain", "-f", &file]);
    assert!(store.join("image_manager/pulling/left").exists());
}
