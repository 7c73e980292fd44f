//! Podman on images of our store: the view of the store that `imagelet podman-store` makes. Debian's podman lists and runs images
//! that imagelet pulled; the images that it uses are neither removed nor collected; the view follows every change, and is restored
//! after kills and after damage.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::images::{self, Image, Layer};
use crate::support::podman::Podman;
use crate::support::process::wait;
use crate::support::random::Random;
use crate::support::scene::Scene;
use crate::support::{Imagelet, Packing};

/// A scene with the view, and podman.
pub(super) struct Stage {
    pub(super) podman: Podman,
    pub(super) s: Scene,
    pub(super) view: PathBuf,
}

impl Stage {
    fn new() -> Self {
        Self::of(Scene::new())
    }

    pub(super) fn of(s: Scene) -> Self {
        let view = s.scratch.join("store/podman");
        let podman = Podman::with_additional_store(&s.scratch, &view);
        assert_eq!(
            s.imagelet.ok(&["podman-store", "--graph-root", &podman.graph_root()]),
            format!("{}\n", view.display())
        );
        Self { podman, s, view }
    }

    /// A layer of busybox.
    pub(super) fn base(&self) -> Layer {
        let tree = self.s.scratch.directory("base");
        images::busybox_tree(&tree);
        images::write(&tree.join("hidden/file"), "below\n");
        images::write(&tree.join("opaque/old"), "below\n");
        images::write(&tree.join("etc/word"), "below\n");
        images::settle(&tree);
        self.s.layout.layer(&tree, Packing::Gzip)
    }

    /// A layer that hides things of the base.
    pub(super) fn upper(&self, word: &str) -> Layer {
        let tree = self.s.scratch.directory(&format!("upper-{word}"));
        images::write(&tree.join(".wh.hidden"), "");
        images::write(&tree.join("opaque/.wh..wh..opq"), "");
        images::write(&tree.join("opaque/new"), "above\n");
        images::write(&tree.join("etc/word"), format!("{word}\n"));
        images::settle(&tree);
        self.s.layout.layer(&tree, Packing::Zstd)
    }

    pub(super) fn pull(&self, image: &Image, name: &str) -> String {
        let name = self.s.registry.push(&self.s.layout, image, name);
        self.s.imagelet.ok(&["pull", &name]);
        name
    }

    /// Asserts that the view has these images and nothing else, and that every one is whole.
    #[track_caller]
    pub(super) fn check(&self, context: &str) -> Vec<String> {
        let rows = |path: &str| -> Vec<Value> {
            let path = self.view.join(path);
            let text = fs::read(&path).unwrap_or_else(|e| panic!("{context}: {}: {e}", path.display()));
            serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{context}: {}: {e}", path.display()))
        };
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let (layers, images) = (rows("overlay-layers/layers.json"), rows("overlay-images/images.json"));
        let ids: BTreeSet<String> = layers.iter().map(|row| text(row, "id")).collect();
        for row in &layers {
            let (id, parent) = (text(row, "id"), text(row, "parent"));
            assert!(parent.is_empty() || ids.contains(&parent), "{context}: {id} has no parent");
            let directory = self.view.join("overlay").join(&id);
            let link = fs::read_to_string(directory.join("link")).unwrap_or_else(|e| panic!("{context}: {id}: {e}"));
            let linked = fs::canonicalize(self.view.join("overlay/l").join(link)).expect("a link");
            assert_eq!(linked, fs::canonicalize(directory.join("diff")).expect("a layer"), "{context}");
            let lower = fs::read_to_string(directory.join("lower")).unwrap_or_default();
            assert_eq!(parent.is_empty(), lower.is_empty(), "{context}: {id}: {lower}");
            for lower in lower.split_terminator(':') {
                assert!(self.view.join("overlay").join(lower).join(".").is_dir(), "{context}: {id}: {lower}");
            }
        }
        for row in &images {
            let id = text(row, "id");
            assert!(ids.contains(&text(row, "layer")), "{context}: {id} has no layer");
            let documents = fs::read_dir(self.view.join("overlay-images").join(&id)).expect("documents").count();
            assert_eq!(documents, row["big-data-names"].as_array().expect("names").len(), "{context}: {id}");
        }
        let names = |path: &str| -> BTreeSet<String> {
            let entries = fs::read_dir(self.view.join(path)).expect("a directory");
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
        };
        let with = |all: &BTreeSet<String>, more: &[&str]| -> BTreeSet<String> {
            all.iter().cloned().chain(more.iter().map(|name| (*name).to_owned())).collect()
        };
        let listed: BTreeSet<String> = images.iter().map(|row| text(row, "id")).collect();
        assert_eq!(names("overlay"), with(&ids, &["l"]), "{context}");
        assert_eq!(names("overlay/l").len(), ids.len(), "{context}");
        assert_eq!(names("overlay-images"), with(&listed, &["images.json", "images.lock"]), "{context}");
        let mut all: Vec<String> = listed.into_iter().map(|id| format!("sha256:{id}")).collect();
        all.sort();
        all
    }
}

pub(super) const SHOW: [&str; 3] =
    ["sh", "-c", "cat /etc/word; ls /opaque; ls -d /hidden; stat -c '%a %u' / /tmp; echo x > /tmp/x && cat /tmp/x"];

pub(super) fn run<'a>(image: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    ["run", "--rm", image].into_iter().chain(rest.iter().copied()).collect()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn podman_lists_and_runs_what_imagelet_pulled() {
    let t = Stage::new();
    let base = t.base();
    let one = t.s.layout.image(&[base.clone(), t.upper("one")]);
    let two = t.s.layout.image(&[base, t.upper("two")]);
    assert_eq!(t.podman.images(), Vec::<String>::new());
    let name = t.pull(&one, "podman/one:1");
    let host = name.trim_end_matches("/podman/one:1").to_owned();
    let line = |name: &str, image: &Image| format!("{host}/{name} {} {} true", image.manifest.digest, image.id);
    assert_eq!(t.podman.images(), [line("podman/one:1", &one)]);
    t.check("one");

    // Whiteouts, opaque directories and the mode of the root are those of the image; writes are stored elsewhere.
    let shown = t.podman.command(&run(&name, &SHOW)).output().expect("start podman");
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "one\nnew\n755 0\n1777 0\nx\n", "{shown:?}");
    assert!(String::from_utf8_lossy(&shown.stderr).contains("/hidden: No such file"), "{shown:?}");
    let by_digest = format!("{host}/podman/one@{}", one.manifest.digest);
    assert_eq!(t.podman.ok(&run(&by_digest, &["cat", "/etc/word"])), "one\n");
    assert_eq!(t.podman.ok(&run(&one.id[7..19], &["cat", "/etc/word"])), "one\n");
    t.s.imagelet.ok(&["check", "--deep"]);

    // Two images share a layer, which is stored once; nothing was copied, and podman has no image of its own.
    let second = t.pull(&two, "podman/two:1");
    assert_eq!(t.podman.images(), [line("podman/one:1", &one), line("podman/two:1", &two)]);
    assert_eq!(fs::read_dir(t.view.join("overlay")).expect("layers").count(), 1 + 3);
    assert_eq!(t.podman.ok(&run(&second, &["cat", "/etc/word"])), "two\n");
    let podman_layers = fs::read_dir(Path::new(&t.podman.graph_root()).join("overlay")).expect("its layers");
    let own = podman_layers.filter(|entry| entry.as_ref().expect("an entry").file_name().len() == 64).count();
    assert_eq!(own, 0, "podman copied layers");

    // Names are added and removed, and a removal takes the image from podman; the layer of the other image stays.
    t.s.imagelet.ok(&["tag", &name, &format!("{host}/podman/more:3")]);
    assert_eq!(t.podman.images().len(), 3);
    t.s.imagelet.ok(&["untag", &name, &format!("{host}/podman/more:3")]);
    assert_eq!(t.podman.images(), [line("podman/one:1", &one), line("podman/two:1", &two)]);
    t.podman.fails(&["rmi", &name]);
    t.s.imagelet.ok(&["rmi", &name]);
    assert_eq!(t.podman.images(), [line("podman/two:1", &two)]);
    assert_eq!(t.check("one is gone"), std::slice::from_ref(&two.id));
    t.podman.fails(&["run", "--rm", "--pull=never", &name]);
    assert_eq!(t.podman.ok(&run(&second, &["cat", "/etc/word"])), "two\n");
    t.s.imagelet.ok(&["rmi", &second]);
    assert_eq!(t.check("both are gone"), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn what_podman_uses_stays() {
    let t = Stage::new();
    let base = t.base();
    let one = t.s.layout.image(&[base.clone(), t.upper("one")]);
    let (name, alone) = (t.pull(&one, "podman/used:1"), t.pull(&t.s.layout.image(&[base]), "podman/base:1"));
    let agent = t.s.imagelet.serve(&t.s.scratch.join("cri.sock"));
    let refused = |why: &str| {
        let said = t.s.imagelet.fails(1, &["rmi", &name]);
        assert!(said.contains("is used by podman or CRI-O (") && said.contains(why), "{said}");
        let said = t.s.imagelet.fails(1, &["podman-store", "--remove"]);
        assert!(said.contains("podman uses layers of it"), "{said}");
        let done = t.s.imagelet.ok(&["gc", "--all-unused", "--min-age", "0s"]);
        assert!(done.contains("Nothing was removed") || done.contains("podman/base"), "{done}");
        assert_eq!(t.podman.images().iter().filter(|line| line.contains("podman/used:1")).count(), 1);
    };
    // A running container: its mount.
    t.podman.ok(&["run", "--detach", "--name", "c", &name, "sleep", "1000"]);
    refused("/merged");
    let planned = t.s.imagelet.ok(&["gc", "--all-unused", "--min-age", "0s", "--dry-run", "-o", "json"]);
    assert!(planned.contains("in use by podman (") || planned.contains("\"podman ("), "{planned}");
    assert_eq!(t.podman.ok(&["exec", "c", "cat", "/etc/word"]), "one\n");
    let said = t.s.imagelet.run(&["convert", "--to", "erofs", &name]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    // A stopped one, which starts again.
    t.podman.ok(&["stop", "--time", "0", "c"]);
    refused("/overlay/");
    t.podman.ok(&["start", "c"]);
    assert_eq!(t.podman.ok(&["exec", "c", "cat", "/etc/word"]), "one\n");
    t.podman.remove_containers();
    // One that was only created.
    t.podman.ok(&["create", "--name", "d", &name, "true"]);
    refused("/overlay/");
    t.podman.remove_containers();
    // An image that was built on ours.
    t.podman.ok(&["run", "--name", "e", &name, "sh", "-c", "echo built > /built"]);
    t.podman.ok(&["commit", "--quiet", "e", "localhost/built:1"]);
    t.podman.remove_containers();
    refused("/overlay/");
    assert_eq!(t.podman.ok(&run("localhost/built:1", &["cat", "/built", "/etc/word"])), "built\none\n");
    t.podman.ok(&["rmi", "localhost/built:1"]);
    // An image of podman's that has our layers: it had nothing to copy.
    let archive = t.s.scratch.join("archive.tar").display().to_string();
    t.s.imagelet.ok(&["save", &name, "--format", "docker-archive", "-o", &archive]);
    t.podman.ok(&["load", "--quiet", "--input", &archive]);
    t.s.imagelet.fails(1, &["rmi", &name]);
    t.podman.ok(&["rmi", "--force", &name]);

    drop(agent);
    t.s.imagelet.ok(&["rmi", &name]);
    let _ = t.s.imagelet.run(&["rmi", &alone]);
    assert_eq!(t.check("nobody uses anything"), Vec::<String>::new());
    t.s.imagelet.ok(&["podman-store", "--remove"]);
    assert!(!t.view.exists());
    // As the page says.
    assert!(t.podman.fails(&["images"]).contains("can't stat imageStore dir"));
    t.s.imagelet.ok(&["podman-store"]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn layers_that_podman_uses_survive_a_store_without_their_records() {
    let t = Stage::new();
    let one = t.s.layout.image(&[t.base(), t.upper("one")]);
    let name = t.pull(&one, "podman/kept:1");
    t.podman.ok(&["run", "--detach", "--name", "c", &name, "sleep", "1000"]);
    // As after a kill between the transaction of a removal and its end: no record, and a container that began meanwhile.
    let root = t.s.scratch.join("store");
    let empty = t.s.scratch.join("empty");
    let (other, _) = t.s.push_file("podman/other:1", "file", "content");
    Imagelet::on(&empty).ok(&["pull", &other]);
    Imagelet::on(&empty).ok(&["rmi", &other]);
    fs::remove_file(root.join("meta.redb")).expect("remove");
    fs::copy(empty.join("meta.redb"), root.join("meta.redb")).expect("copy");
    assert_eq!(t.s.imagelet.ids(), Vec::<String>::new());
    assert_eq!(t.podman.images(), Vec::<String>::new());
    assert_eq!(t.podman.ok(&["exec", "c", "cat", "/etc/word", "/opaque/new"]), "one\nabove\n");
    t.podman.ok(&["stop", "--time", "0", "c"]);
    assert_eq!(t.s.imagelet.ids(), Vec::<String>::new());
    t.podman.ok(&["start", "c"]);
    assert_eq!(t.podman.ok(&["exec", "c", "cat", "/etc/word", "/opaque/new"]), "one\nabove\n");
    t.podman.remove_containers();
    t.s.imagelet.ok(&["images"]);
    t.s.imagelet.ok(&["images"]);
    assert_eq!(t.check("the container is gone"), Vec::<String>::new());
    assert_eq!(fs::read_dir(root.join("layers")).expect("layers").count(), 0);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn the_shape_of_layers_follows_podman() {
    let s = Scene::new();
    let (name, _) = s.push_file("podman/shape:1", "file", "content");
    s.imagelet.clone().global("--layer-format", "erofs").ok(&["pull", &name]);
    let view = s.scratch.join("store/podman");
    let made = s.imagelet.run(&["podman-store"]);
    assert_eq!((made.code, made.stdout), (Some(0), format!("{}\n", view.display())));
    let left_out = format!(
        "{name} is left out: its layers are EROFS files, and podman takes directories: `imagelet convert --to dir` makes them"
    );
    assert!(made.stderr.contains(&left_out) && made.stderr.contains("podman is shown 0 of 1 image"), "{}", made.stderr);
    let podman = Podman::with_additional_store(&s.scratch, &view);
    assert_eq!(podman.images(), Vec::<String>::new());
    s.imagelet.ok(&["convert", "--to", "dir", "--all"]);
    assert_eq!(podman.images().len(), 1);
    let report: Value = serde_json::from_str(&s.imagelet.ok(&["podman-store", "-o", "json"])).expect("JSON");
    assert_eq!(report, serde_json::json!({"directory": view, "images": 1, "hidden": []}));
    s.imagelet.ok(&["convert", "--to", "erofs", "--all"]);
    assert_eq!(podman.images(), Vec::<String>::new());
    // Where it may choose, imagelet makes directories from now on, also in an agent that was started before.
    s.imagelet.ok(&["podman-store", "--remove"]);
    let agent = s.imagelet.serve(&s.scratch.join("cri.sock"));
    s.imagelet.ok(&["podman-store"]);
    let (second, _) = s.push_file("podman/second:1", "other", "content");
    s.imagelet.ok(&["pull", &second]);
    assert_eq!(podman.images().len(), 1);
    drop(agent);
}

/// Damage to a view, with its description.
type Damage = (&'static str, fn(&Path));

fn first_of(view: &Path, directory: &str) -> PathBuf {
    let entries = fs::read_dir(view.join(directory)).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries.filter(|path| path.file_name().is_some_and(|name| name.len() == 64)).min().expect("an entry")
}

const DAMAGES: [Damage; 16] = [
    ("no list of images", |view| fs::remove_file(view.join("overlay-images/images.json")).expect("remove")),
    ("no list of layers", |view| fs::remove_file(view.join("overlay-layers/layers.json")).expect("remove")),
    ("half a list", |view| fs::write(view.join("overlay-images/images.json"), "[{\"id\":").expect("write")),
    ("an empty list", |view| fs::write(view.join("overlay-layers/layers.json"), "").expect("write")),
    ("a directory for a list", |view| {
        fs::remove_file(view.join("overlay-images/images.json")).expect("remove");
        fs::create_dir(view.join("overlay-images/images.json")).expect("make");
    }),
    ("no locks", |view| {
        fs::remove_file(view.join("overlay-images/images.lock")).expect("remove");
        fs::remove_file(view.join("overlay-layers/layers.lock")).expect("remove");
    }),
    ("no layers", |view| fs::remove_dir_all(view.join("overlay")).expect("remove")),
    ("no documents", |view| fs::remove_dir_all(first_of(view, "overlay-images")).expect("remove")),
    ("another document", |view| fs::write(first_of(view, "overlay-images").join("manifest"), "{}").expect("write")),
    ("a directory for a layer's link", |view| {
        let diff = first_of(view, "overlay").join("diff");
        fs::remove_file(&diff).expect("remove");
        fs::create_dir_all(diff.join("etc")).expect("make");
    }),
    ("a layer elsewhere", |view| {
        let diff = first_of(view, "overlay").join("diff");
        fs::remove_file(&diff).expect("remove");
        symlink("/nowhere", diff).expect("link");
    }),
    ("another name of a layer", |view| fs::write(first_of(view, "overlay").join("link"), "OTHER").expect("write")),
    ("no short names", |view| fs::remove_dir_all(view.join("overlay/l")).expect("remove")),
    ("a layer of nobody", |view| {
        let nobody = view.join("overlay").join("0".repeat(64));
        fs::create_dir(&nobody).expect("make");
        fs::write(nobody.join("link"), "NOBODY").expect("write");
        symlink("../../../layers/1/fs", nobody.join("diff")).expect("link");
        symlink(format!("../{}/diff", "0".repeat(64)), view.join("overlay/l/NOBODY")).expect("link");
    }),
    ("an image of nobody", |view| fs::create_dir_all(view.join("overlay-images").join("f".repeat(64))).expect("make")),
    ("a half of everything", |view| {
        fs::write(view.join("overlay-images/images.new"), "[").expect("write");
        fs::write(first_of(view, "overlay").join("link.new"), "A").expect("write");
        symlink("/nowhere", first_of(view, "overlay").join("diff.new")).expect("link");
    }),
];

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn damaged_view_is_rebuilt() {
    let t = Stage::new();
    let one = t.s.layout.image(&[t.base(), t.upper("one")]);
    let name = t.pull(&one, "podman/damaged:1");
    let before = t.podman.images();
    for (what, damage) in DAMAGES {
        damage(&t.view);
        let listed = t.s.imagelet.run(&["images", "-q", "--no-trunc"]);
        assert_eq!((listed.code, listed.stdout), (Some(0), format!("{}\n", one.id)), "{what}: {}", listed.stderr);
        if what == "a directory for a list" {
            // Nothing that is not ours is removed: it is said, and nothing else fails.
            assert!(listed.stderr.contains("the view for podman could not be written"), "{what}: {}", listed.stderr);
            fs::remove_dir(t.view.join("overlay-images/images.json")).expect("remove");
            t.s.imagelet.ok(&["images"]);
        }
        // An incomplete file stays until the view is made again.
        let _ = fs::remove_file(t.view.join("overlay-images/images.new"));
        assert_eq!(t.check(what), std::slice::from_ref(&one.id));
        assert_eq!(t.podman.images(), before, "{what}");
        assert_eq!(t.podman.ok(&run(&name, &["cat", "/etc/word"])), "one\n", "{what}");
    }
    // A store that was moved.
    t.s.imagelet.ok(&["podman-store", "--remove"]);
    t.s.imagelet.ok(&["podman-store"]);
    let elsewhere = t.s.scratch.join("elsewhere");
    fs::rename(t.s.scratch.join("store"), &elsewhere).expect("move");
    assert_eq!(Imagelet::on(&elsewhere).ids(), std::slice::from_ref(&one.id));
    let podman = Podman::with_additional_store(&t.s.scratch, &elsewhere.join("podman"));
    assert_eq!(podman.ok(&run(&name, &["cat", "/etc/word"])), "one\n", "moved");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn what_is_not_ours_is_left_alone() {
    let s = Scene::new();
    let (name, _) = s.push_file("podman/foreign:1", "file", "content");
    let (store, view) = (s.scratch.join("store"), s.scratch.join("store/podman"));
    s.imagelet.ok(&["pull", &name]);
    let foreign = format!("{} is there, and imagelet did not make it: move it away", view.display());
    let refused = |what: &str, args: &[&str]| {
        assert_eq!(s.imagelet.fails(1, args), format!("error: {what} for podman: {foreign}"));
    };
    let lists = || assert_eq!(s.imagelet.images().len(), 1);
    // A directory with something in it, a file, and a link to a directory.
    images::write(&view.join("mine"), "mine\n");
    refused("make a view", &["podman-store"]);
    refused("remove the view", &["podman-store", "--remove"]);
    lists();
    assert_eq!(fs::read_to_string(view.join("mine")).expect("it is there"), "mine\n");
    fs::remove_dir_all(&view).expect("remove");
    fs::write(&view, "mine\n").expect("write");
    refused("make a view", &["podman-store"]);
    lists();
    fs::remove_file(&view).expect("remove");
    let other = s.scratch.directory("other");
    symlink(&other, &view).expect("link");
    refused("make a view", &["podman-store"]);
    lists();
    assert_eq!(fs::read_dir(&other).expect("readable").count(), 0);
    fs::remove_file(&view).expect("remove");
    // Leftovers of a kill between the first two steps are ours.
    fs::create_dir(&view).expect("make");
    s.imagelet.ok(&["podman-store"]);
    // Of a later version, nothing is known.
    let switch = view.join("imagelet.json");
    let text = fs::read_to_string(&switch).expect("it is there");
    fs::write(&switch, text.replace("\"version\":1", "\"version\":2")).expect("write");
    let listed = s.imagelet.run(&["images", "-q"]);
    assert!(listed.code == Some(0) && listed.stderr.contains("only 1 is known"), "{listed:?}");
    fs::write(&switch, text).expect("write");
    // Foreign files next to the layers stay.
    images::write(&view.join("overlay/mine"), "mine\n");
    s.imagelet.ok(&["rmi", &name]);
    assert_eq!(fs::read_to_string(view.join("overlay/mine")).expect("it is there"), "mine\n");
    s.imagelet.ok(&["podman-store", "--remove"]);
    s.imagelet.ok(&["podman-store", "--remove"]);
    assert!(!view.exists() && store.exists());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn pull_succeeds_although_the_view_cannot_be_written() {
    let s = Scene::new();
    let (name, image) = s.push_file("podman/unwritable:1", "file", "content");
    s.imagelet.ok(&["podman-store"]);
    let view = s.scratch.join("store/podman");
    for directory in ["overlay", "overlay-layers", "overlay-images"] {
        fs::remove_dir_all(view.join(directory)).expect("remove");
        fs::write(view.join(directory), "").expect("write");
    }
    let pulled = s.imagelet.run(&["pull", &name]);
    assert_eq!(pulled.code, Some(0), "{}", pulled.stderr);
    assert!(pulled.stderr.contains("the view for podman could not be written"), "{}", pulled.stderr);
    assert_eq!(s.imagelet.ids(), std::slice::from_ref(&image.id));
    // The images that podman uses are unknown: nothing is removed.
    let said = s.imagelet.fails(1, &["rmi", &name]);
    assert!(said.contains("store/podman"), "{said}");
    for directory in ["overlay", "overlay-layers", "overlay-images"] {
        fs::remove_file(view.join(directory)).expect("remove");
    }
    s.imagelet.ok(&["rmi", &name]);
}

#[test]
#[ignore = "needs root and a package: scripts/test.sh"]
fn the_store_of_an_ordinary_user_has_no_view() {
    let s = Scene::new();
    let root = s.scratch.directory("user");
    fs::set_permissions(s.scratch.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    std::os::unix::fs::chown(&root, Some(1000), Some(1000)).expect("chown");
    let user = Imagelet::on(&root).user(1000);
    assert_eq!(
        user.fails(77, &["podman-store"]),
        "error: make a view for podman: the store of an ordinary user has owners and devices of files only on record, and podman \
         would show others: use a store of root"
    );
    assert!(!root.join("podman").exists());
}

const ROUNDS: usize = 24;
const SEED: u64 = 0x1DEA_2026_1125;

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn kills_in_the_middle_leave_a_view_that_heals() {
    let t = Stage::new();
    let base = t.base();
    let layers: Vec<Layer> = (0..6).map(|n| t.upper(&format!("layer{n}"))).collect();
    let stays = t.s.layout.image(&[base.clone(), layers[0].clone()]);
    let comes: Vec<Layer> = std::iter::once(base).chain(layers).collect();
    let comes = t.s.layout.image(&comes);
    let name = t.pull(&stays, "podman/stays:1");
    let other = t.s.registry.push(&t.s.layout, &comes, "podman/comes:1");
    let timed = |args: &[&str]| {
        let from = Instant::now();
        t.s.imagelet.ok(args);
        from.elapsed()
    };
    let mut times = [
        timed(&["pull", &other]),
        timed(&["rmi", &other]),
        timed(&["podman-store", "--remove"]),
        timed(&["podman-store"]),
    ];
    let commands: [&[&str]; 4] =
        [&["pull", &other], &["rmi", &other], &["podman-store", "--remove"], &["podman-store"]];
    let mut random = Random(SEED);
    let mut killed = 0;
    for round in 0..ROUNDS {
        let at = round % commands.len();
        // The end is where the view is written.
        let moment: Duration = times[at].mul_f64(0.5 + random.next() * 0.6);
        let context = format!("round {round}, {:?} killed after {moment:?} of {:?}", commands[at], times[at]);
        let from = Instant::now();
        let mut child = t.s.imagelet.spawn(commands[at]);
        if wait(&mut child, moment).is_none() {
            killed += 1;
        } else {
            // The machine has less to do than it had.
            times[at] = from.elapsed();
        }
        let _ = child.kill();
        child.wait().expect("it is our child");
        let ids = t.s.imagelet.ids();
        assert!(ids.contains(&stays.id), "{context}: {ids:?}");
        if t.view.exists() {
            // A view that was switched on or off half is switched on again.
            if !t.view.join("imagelet.json").exists() {
                t.s.imagelet.ok(&["podman-store"]);
            }
            assert_eq!(t.check(&context), ids, "{context}");
            assert_eq!(t.podman.ok(&run(&name, &["cat", "/etc/word"])), "layer0\n", "{context}");
        } else {
            assert!(at >= 2, "{context}: there is no view");
            t.s.imagelet.ok(&["podman-store"]);
            assert_eq!(t.check(&context), ids, "{context}");
        }
        if ids.contains(&comes.id) {
            assert_eq!(t.podman.ok(&run(&other, &["cat", "/etc/word"])), "layer5\n", "{context}");
        }
    }
    assert!(killed >= ROUNDS / 3, "only {killed} of {ROUNDS} kills came in time");
    let left = fs::read_dir(t.s.scratch.join("store/ingest")).expect("readable").count();
    assert!(left == 0, "{left} left");
}
