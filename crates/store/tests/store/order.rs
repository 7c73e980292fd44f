//! Layers are independent of each other: whatever they contain, and in whichever order and with however many threads they are
//! unpacked, the mounted image is the result of applying them one after the other. Against a model of the specification's rules
//! that knows nothing of overlays. Needs root.

use base::lock::Mutex;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use imagelet_store::{Durability, ImageCommit, LayerSource, OpenOptions, Store};
use proptest::prelude::*;

use super::support::{Image, Tar, options, unpack};

/// A line of a layer.
#[derive(Clone, Debug)]
enum Line {
    Directory(String, Attributes),
    File(String, u8),
    Whiteout(String),
    Opaque(String),
}

/// Mode, owner, modification time.
type Attributes = (u32, (u32, u32), u32);

/// Attributes of an implicit directory that is in no layer below.
const BARE: Attributes = (0o755, (0, 0), 0);

/// The file at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Directory(Attributes),
    File(Vec<u8>),
}

/// By path; the root is the empty one.
type Tree = BTreeMap<String, Node>;

/// Lines that do not contradict each other: in one layer a name is that of directories or that of files. In the next layer
/// it may be the other way round.
fn layer() -> impl Strategy<Value = Vec<Line>> {
    prop::sample::select(vec![(["a", "b"], ["f", "g"]), (["a", "f"], ["b", "g"]), (["g", "b"], ["a", "f"])])
        .prop_flat_map(|(directories, files)| prop::collection::vec(line(&directories, &files), 0..9))
        .prop_shuffle()
}

fn line(directories: &[&'static str], files: &[&'static str]) -> impl Strategy<Value = Line> + use<> {
    let (directories, files) = (directories.to_vec(), files.to_vec());
    let directory = prop::collection::vec(prop::sample::select(directories), 1..4).prop_map(|parts| parts.join("/"));
    let file = (directory.clone(), prop::sample::select(files), any::<bool>())
        .prop_map(|(dir, name, top)| if top { name.to_owned() } else { format!("{dir}/{name}") });
    let attributes = (prop::sample::select(vec![0o755, 0o1777, 0o700, 0o2750]), (0..3_u32, 0..3_u32), 1..5_u32);
    prop_oneof![
        1 => attributes.clone().prop_map(|a| Line::Directory(String::new(), a)),
        3 => (directory.clone(), attributes).prop_map(|(path, a)| Line::Directory(path, a)),
        5 => (file.clone(), any::<u8>()).prop_map(|(path, content)| Line::File(path, content)),
        2 => prop_oneof![directory.clone(), file].prop_map(Line::Whiteout),
        1 => directory.prop_map(Line::Opaque),
    ]
}

fn tar(lines: &[Line], number: usize) -> Tar {
    let mark = |path: &str, name: &str| match path.rsplit_once('/') {
        Some((dir, leaf)) => format!("{dir}/{}", name.replace("LEAF", leaf)),
        None => name.replace("LEAF", path),
    };
    let tar = lines.iter().fold(Tar::default(), |tar, line| match line {
        Line::Directory(path, (mode, owner, mtime)) => tar.directory_with(&format!("{path}/"), *mode, *owner, *mtime),
        Line::File(path, content) => tar.file(path, &[*content]),
        Line::Whiteout(path) => tar.file(&mark(path, ".wh.LEAF"), b""),
        Line::Opaque(path) => tar.file(&format!("{path}/.wh..wh..opq"), b""),
    });
    // No two layers of an image are one.
    tar.file(&format!("layer-{number}"), b"")
}

/// The path and everything above it, the root excluded.
fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at]).chain([path]).filter(|path| !path.is_empty())
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns true if a layer may have this line. A whiteout in a directory of which nothing is below has nothing to hide, and
/// overlayfs does not check for whiteouts there: its listing would name what cannot be found. No builder writes that.
fn is_sensible(tree: &Tree, line: &Line) -> bool {
    let Line::Whiteout(path) = line else { return true };
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    matches!(tree.get(directory), Some(Node::Directory(_)))
}

/// Applies a layer to what the layers below it gave.
fn apply(tree: &mut Tree, lines: &[Line], number: usize) {
    let is_hidden = |path: &str| {
        lines.iter().any(|line| match line {
            Line::Whiteout(hidden) => path == hidden || is_below(path, hidden),
            Line::Opaque(directory) => is_below(path, directory),
            _ => false,
        })
    };
    tree.retain(|path, _| !is_hidden(path));
    let directory = |tree: &mut Tree, path: &str| {
        if !matches!(tree.get(path), Some(Node::Directory(_))) {
            tree.insert(path.to_owned(), Node::Directory(BARE));
        }
    };
    for line in lines {
        let (path, is_mark) = match line {
            Line::Directory(path, _) => (path.as_str(), false),
            Line::File(path, _) => (path.rsplit_once('/').map_or("", |(dir, _)| dir), false),
            Line::Whiteout(path) => (path.rsplit_once('/').map_or("", |(dir, _)| dir), true),
            Line::Opaque(path) => (path.as_str(), true),
        };
        for prefix in prefixes(path) {
            // A directory that only holds marks is present unless the layer hides it.
            if !is_mark || !is_hidden(prefix) {
                directory(tree, prefix);
            }
        }
    }
    for line in lines {
        match line {
            Line::Directory(path, attributes) => drop(tree.insert(path.clone(), Node::Directory(*attributes))),
            Line::File(path, content) => {
                tree.retain(|other, _| !is_below(other, path));
                tree.insert(path.clone(), Node::File(vec![*content]));
            }
            Line::Whiteout(_) | Line::Opaque(_) => {}
        }
    }
    tree.insert(format!("layer-{number}"), Node::File(Vec::new()));
}

/// Without the time of the root: a layer that implies nothing but a root like any other is shared by all stacks, whatever
/// the time of the root below.
fn but_for_the_roots_time(mut tree: Tree) -> Tree {
    if let Some(Node::Directory((_, _, mtime))) = tree.get_mut("") {
        *mtime = 0;
    }
    tree
}

fn read(root: &Path) -> Tree {
    fn visit(root: &Path, path: &Path, tree: &mut Tree) {
        let meta = fs::symlink_metadata(path).expect("it is listed");
        let name = path.strip_prefix(root).expect("below").to_str().expect("text").to_owned();
        if meta.is_dir() {
            let mtime = u32::try_from(meta.mtime()).expect("a small time");
            tree.insert(name, Node::Directory((meta.mode() & 0o7777, (meta.uid(), meta.gid()), mtime)));
            for entry in fs::read_dir(path).expect("a directory") {
                visit(root, &entry.expect("an entry").path(), tree);
            }
        } else {
            tree.insert(name, Node::File(fs::read(path).expect("a file")));
        }
    }
    let mut tree = Tree::new();
    visit(root, root, &mut tree);
    tree
}

/// Unmounts the path, also if the test fails.
struct Unmounts<'a>(&'a Path);

impl Drop for Unmounts<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// Unpacks the layers in this order on so many threads, commits them as one image and reads its mount.
fn mounted(store: &Store, image: &Image, order: &[usize], threads: usize, target: &Path) -> Tree {
    let lease = store.lease();
    let work = Mutex::new(order.iter());
    let made = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = work.lock().next();
                    let Some(&n) = next else { break };
                    let layer = unpack(store, &lease, &image.layers[n].1);
                    made.lock().insert(n, Arc::clone(&layer));
                }
            });
        }
    });
    let made = made.into_inner();
    let sources = made.into_iter().zip(&image.layers);
    let layers = sources.map(|((_, layer), (diff_id, _))| LayerSource::New { layer, diff_id: diff_id.clone() });
    let commit = ImageCommit { layers: layers.collect(), ..image.commit(None) };
    let record = store.commit_image(&lease, commit).expect("commits");
    store.mount_image(&record, target, None).expect("mounts");
    let mounted = Unmounts(target);
    let tree = read(target);
    drop(mounted);
    store.mounts().expect("looks at what is mounted");
    store.remove_image(&record.id).expect("removes");
    tree
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn any_order_and_number_of_threads_gives_what_the_specification_says() {
    assert!(rustix::process::geteuid().is_root(), "this test mounts: run it as root");
    let top = tempfile::tempdir().expect("tempdir");
    let options = OpenOptions { durability: Durability::Relaxed, ..options() };
    let store = Store::open(&top.path().join("store"), options).expect("opens");
    let target = top.path().join("target");
    fs::create_dir(&target).expect("creates");
    let orders = Just(vec![0_usize, 1, 2, 3]).prop_shuffle();
    let cases = (prop::collection::vec(layer(), 2..=4), orders, 1..4_usize);
    proptest!(ProptestConfig::with_cases(60), |((mut layers, order, threads) in cases)| {
        let mut expected = Tree::from([(String::new(), Node::Directory(BARE))]);
        for (number, lines) in layers.iter_mut().enumerate() {
            lines.retain(|line| number > 0 && is_sensible(&expected, line) || !matches!(line, Line::Whiteout(_)));
            apply(&mut expected, lines, number);
        }
        let tars: Vec<Tar> = layers.iter().enumerate().map(|(number, lines)| tar(lines, number)).collect();
        let image = Image::new("order", &tars);
        let order: Vec<usize> = order.into_iter().filter(|&n| n < layers.len()).collect();
        let got = mounted(&store, &image, &order, threads, &target);
        prop_assert_eq!(but_for_the_roots_time(got), but_for_the_roots_time(expected));
    });
}
