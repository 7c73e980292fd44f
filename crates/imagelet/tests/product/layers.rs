//! Layers are unpacked in parallel, in any order, with the same result: directories that a layer only implies have the attributes
//! of the layer below, and whiteouts hide entries. Compares with containerd's result for layers that it is given one by one, which
//! is how its parallel unpacking works: see `docs/differences.md`.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use cri_api::{ImageService as _, PullImageRequest};
use image_service::{Engine, EngineOptions};
use store::LayerFormat;

use super::tree::compared;
use crate::support::images::{self, Image, Layer, Layout, Packing};
use crate::support::process::{run, tool};
use crate::support::random::noise_of;
use crate::support::scene::Scene;
use crate::support::tree::{Tree, differences, read};
use crate::support::{Containerd, Imagelet};

/// Directories with modes, owners, attributes and times for which no layer above the first one has an entry, and files that
/// are removed in many ways.
struct Stack {
    base: PathBuf,
    second: PathBuf,
    third: PathBuf,
}

const SECOND: [&str; 5] = ["tmp/x", "srv/deep/er/second", "gone/new", "opaque/.wh..wh..opq", "opaque/deep/new"];
const THIRD: [&str; 5] =
    ["srv/deep/er/third", "gone/.wh.file", "opaque/deep/third", "srv/.wh.old", "hidden/.wh.directory"];

impl Stack {
    fn new(s: &Scene) -> Self {
        let stack = Self {
            base: s.scratch.directory("base"),
            second: s.scratch.directory("second"),
            third: s.scratch.directory("third"),
        };
        let base = |path: &str| stack.base.join(path);
        for path in ["gone/file", "opaque/old", "opaque/deep/old", "srv/old", "hidden/directory/file", "tmp/base"] {
            images::write(&base(path), "base\n");
        }
        fs::create_dir_all(base("srv/deep/er")).expect("mkdir");
        for (path, mode, owner) in [
            ("tmp", 0o1777, (0, 0)),
            ("srv", 0o2750, (42, 43)),
            ("srv/deep", 0o700, (0, 44)),
            ("srv/deep/er", 0o3711, (45, 0)),
            ("gone", 0o711, (46, 47)),
            ("opaque", 0o1770, (48, 49)),
            ("opaque/deep", 0o500, (50, 51)),
            ("", 0o751, (52, 53)),
        ] {
            chown(base(path), Some(owner.0), Some(owner.1)).expect("chown");
            fs::set_permissions(base(path), fs::Permissions::from_mode(mode)).expect("chmod");
        }
        run(tool("setfattr").args(["-n", "user.kept", "-v", "below"]).arg(base("srv/deep")));
        images::settle(&stack.base);
        run(tool("touch").args(["-d", "2003-03-03 03:03:03.000000003 UTC"]).arg(base("srv/deep/er")));
        for (root, paths) in [(&stack.second, SECOND), (&stack.third, THIRD)] {
            for path in paths {
                images::write(&root.join(path), if path.contains(".wh.") { "" } else { "above\n" });
            }
            images::settle(root);
        }
        stack
    }

    /// Returns the layers, with this many bytes behind the end of each archive to make its blob long.
    fn layers(&self, layout: &Layout, tails: [usize; 3]) -> [Layer; 3] {
        let parts = [(&self.base, &["."][..]), (&self.second, &SECOND), (&self.third, &THIRD)];
        let mut tails = tails.into_iter();
        parts.map(|(root, paths)| {
            let tar = layout.tar(root, paths);
            let tail = noise_of(&root.display().to_string(), tails.next().expect("one each"));
            let mut file = fs::File::options().append(true).open(&tar).expect("open a tar");
            file.write_all(&tail).expect("write a tar");
            layout.layer_from_tar(&tar, Packing::Gzip)
        })
    }
}

/// Asserts mode, owner and time of the directories, and the files: the result that the specification demands for [`Stack`].
#[track_caller]
fn assert_right(root: &Path) {
    let expected = "\
        755 0:0 1700000000 /hidden\n\
        1777 0:0 1700000000 /tmp\n\
        1770 48:49 1700000000 /opaque\n\
        2750 42:43 1700000000 /srv\n\
        3711 45:0 1046660583 /srv/deep/er\n\
        700 0:44 1700000000 /srv/deep\n\
        711 46:47 1700000000 /gone\n\
        751 52:53 1700000000 /\n\
        755 0:0 0 /opaque/deep\n";
    let found = run(tool("find").current_dir(root).args([".", "-type", "d", "-printf", "%m %U:%G %Ts /%P\n"]));
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&found), sorted(expected), "directories");
    let found = run(tool("find").current_dir(root).args([".", "-type", "f", "-printf", "/%P\n"]));
    let files =
        "/gone/new\n/opaque/deep/new\n/opaque/deep/third\n/srv/deep/er/second\n/srv/deep/er/third\n/tmp/base\n/tmp/x\n";
    assert_eq!(sorted(&found), sorted(files), "files");
    assert_eq!(run(tool("getfattr").args(["--only-values", "-n", "user.kept"]).arg(root.join("srv/deep"))), "below");
}

/// Pulls with the engine as a library, so many layers at a time: no setting has that.
#[track_caller]
fn pull(root: &Path, name: &str, format: &str, parallel: usize) {
    let mut options = EngineOptions {
        root: root.to_owned(),
        hosts_roots: Vec::new(),
        max_parallel_layers: parallel,
        ..EngineOptions::default()
    };
    options.store.layer_format = if format == "dir" { LayerFormat::Dir } else { LayerFormat::Erofs };
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let engine = Engine::open(options).await.expect("open a store");
        engine.pull_image(PullImageRequest::new(name)).await.expect("a pull");
        engine.shutdown().await;
    });
}

/// Digests of the layers in the order in which they were asked for.
fn asked(s: &Scene, image: &Image, from: usize) -> Vec<usize> {
    let requests = s.registry.requests().split_off(from);
    let place = |request: &String| image.blobs.iter().position(|blob| request.contains(&blob.digest.to_string()));
    requests.iter().filter(|r| r.contains("/blobs/")).filter_map(place).filter(|n| *n < 3).collect()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn in_any_order_layers_give_the_same_tree() {
    let s = Scene::new();
    let stack = Stack::new(&s);
    let mut first: Option<Tree> = None;
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (n, order) in orders.into_iter().enumerate() {
        // The largest one is fetched first; none is small enough to be fetched in addition to the others.
        let mut tails = [0; 3];
        for (place, &layer) in order.iter().enumerate() {
            tails[layer] = (3 - place) * 300_000;
        }
        let image = s.layout.image(&stack.layers(&s.layout, tails));
        let name = s.registry.push(&s.layout, &image, &format!("test/order:{n}"));
        for parallel in [1, 8] {
            let root = s.scratch.join(&format!("store-{n}-{parallel}"));
            let format = if (n % 2 == 0) == (parallel == 1) { "dir" } else { "erofs" };
            let imagelet = Imagelet::shaped(format, &root);
            let before = s.registry.requests().len();
            pull(&root, &name, format, parallel);
            if parallel == 1 {
                assert_eq!(asked(&s, &image, before), order, "biggest first");
            }
            let mounted = imagelet.mount(&name, s.scratch.join(&format!("mounted-{n}-{parallel}")));
            assert_right(&mounted);
            let tree = read(&mounted);
            let first = first.get_or_insert_with(|| tree.clone());
            assert_eq!(differences(first, &tree), Vec::<String>::new(), "{order:?}, {parallel} at a time, {format}");
        }
    }
}

/// Layers that containerd unpacks one after the other, each on top of those below, have the directories of the layers
/// below. With `max_concurrent_unpacks` of 2 and more (from containerd 2.2 on) it passes layers to its applier
/// without the layers below. The applier of Debian's containerd is the same, and gets the same mounts here.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn containerds_layers_without_their_parents_are_wrong() {
    let s = Scene::new();
    let stack = Stack::new(&s);
    let image = s.layout.image(&stack.layers(&s.layout, [0; 3]));
    let name = s.registry.push(&s.layout, &image, "test/alone:1");
    s.imagelet.ok(&["pull", &name]);
    let ours = read(&s.imagelet.mount(&name, s.scratch.join("ours")));

    let daemon = Containerd::start(s.registry.host());
    let shown = s.scratch.join("one-by-one");
    daemon.mount(&name, &shown);
    let but_for_times = |theirs: &Tree| -> Vec<String> {
        let is_time = |line: &String| line.contains(": mtime: ") && line.ends_with("| now");
        compared(&ours, theirs).into_iter().filter(|line| !is_time(line)).collect()
    };
    let one_by_one = [
        // It passes over the entry of the root.
        "/: mode: 751 | 755",
        "/: owner: (52, 53) | (0, 0)",
        // It takes them from a directory that the layer itself has hidden.
        "/opaque/deep: mode: 755 | 500",
        "/opaque/deep: owner: (0, 0) | (50, 51)",
    ];
    assert_eq!(but_for_times(&read(&shown)), one_by_one, "imagelet | containerd, one layer after the other");

    // As versions with the mend of whiteouts do: an overlay with nothing below.
    let overlay = applied_alone(&s, &daemon, &image, "overlay");
    let expected = [
        "/: mode: 751 | 755",
        "/: owner: (52, 53) | (0, 0)",
        "/gone: mode: 711 | 755",
        "/gone: owner: (46, 47) | (0, 0)",
        "/opaque: mode: 1770 | 755",
        "/opaque: owner: (48, 49) | (0, 0)",
        "/srv: mode: 2750 | 755",
        "/srv: owner: (42, 43) | (0, 0)",
        "/srv/deep: mode: 700 | 755",
        "/srv/deep: owner: (0, 44) | (0, 0)",
        r#"/srv/deep: xattrs: {"user.kept": [98, 101, 108, 111, 119]} | {}"#,
        "/srv/deep/er: mode: 3711 | 755",
        "/srv/deep/er: owner: (45, 0) | (0, 0)",
        "/tmp: mode: 1777 | 755",
    ];
    assert_eq!(but_for_times(&overlay), expected, "imagelet | containerd's applier, without parents");

    // As the versions before do: a plain directory, in which a whiteout says nothing to the layer below.
    let bind = applied_alone(&s, &daemon, &image, "bind");
    let back: Vec<String> = compared(&ours, &bind).into_iter().filter(|line| line.contains("absent | ")).collect();
    let expected = [
        "/gone/file: absent | file",
        "/hidden/directory: absent | directory",
        "/hidden/directory/file: absent | file",
        "/opaque/deep/old: absent | file",
        "/opaque/old: absent | file",
        "/srv/old: absent | file",
    ];
    assert_eq!(back, expected, "files that are back");
}

/// Each layer applied by containerd into a directory of its own, and the directories stacked.
fn applied_alone(s: &Scene, daemon: &Containerd, image: &Image, kind: &str) -> Tree {
    let mut stack = Vec::new();
    for (n, blob) in image.blobs.iter().take(3).enumerate() {
        let directory = s.scratch.directory(&format!("{kind}-{n}"));
        let path = directory.display().to_string();
        let options = match kind {
            "overlay" => vec![format!("upperdir={path}")],
            _ => vec!["rbind".to_owned(), "rw".to_owned()],
        };
        // The lowest one is a plain directory in either case.
        let (kind, options) = if n == 0 { ("bind", vec!["rbind".into(), "rw".into()]) } else { (kind, options) };
        daemon.apply(blob, kind, &path, &options);
        stack.insert(0, path);
    }
    let mounted = s.scratch.directory(&format!("{kind}-stacked"));
    let lower = format!("lowerdir={}", stack.join(":"));
    run(tool("mount").args(["-t", "overlay", "overlay", "-o", &lower]).arg(&mounted));
    read(&mounted)
}

/// A whiteout in a directory that no layer below has. No builder writes one; overlayfs looks for whiteouts only where layers
/// meet, and lists this one. See `docs/differences.md`.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_whiteout_that_hides_nothing_is_listed_and_not_found_as_in_containerd() {
    let s = Scene::new();
    let (base, above) = (s.scratch.directory("base"), s.scratch.directory("above"));
    images::write(&base.join("etc/file"), "base\n");
    for path in ["new/.wh.ghost", "new/file", "etc/.wh.ghost"] {
        images::write(&above.join(path), "");
    }
    let layers = [s.layout.layer(&base, Packing::Gzip), s.layout.layer(&above, Packing::Gzip)];
    let name = s.registry.push(&s.layout, &s.layout.image(&layers), "test/ghost:1");
    s.imagelet.ok(&["pull", &name]);
    let daemon = Containerd::start(s.registry.host());
    let theirs = s.scratch.join("theirs");
    daemon.mount(&name, &theirs);
    for root in [s.imagelet.mount(&name, s.scratch.join("ours")), theirs] {
        let listed = run(tool("bash").args(["-c", "echo $1/new/* $1/etc/*", "bash"]).arg(&root));
        let below = format!("{}/", root.display());
        assert_eq!(listed.replace(&below, ""), "new/file new/ghost etc/file\n");
        assert!(fs::symlink_metadata(root.join("new/ghost")).is_err());
    }
}
