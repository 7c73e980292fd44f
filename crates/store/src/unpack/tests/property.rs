//! Properties: an overlay mount shows the files that the image specification demands, for any order of whiteouts; and for any
//! archive, its recipe rebuilds it, the accounting is right and nothing outside is touched.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use proptest::prelude::*;
use rustix::mount::{MountFlags, UnmountFlags};

use super::support::{Layer, picture};
use crate::disk::layer::Shape;
use crate::tar::build::{Item, Tar};
use crate::unpack::{Largest, UnpackOutcome};

/// A line of a layer whose entries never contradict each other: `a`, `b` are directories, `f`, `g` are files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    Directory(String),
    File(String),
    Whiteout(String),
    Opaque(String),
}

fn directory() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b"]), 1..4).prop_map(|parts| parts.join("/"))
}

fn file() -> impl Strategy<Value = String> {
    (directory(), prop::sample::select(vec!["f", "g"]), any::<bool>())
        .prop_map(|(dir, name, top)| if top { name.to_owned() } else { format!("{dir}/{name}") })
}

fn line() -> impl Strategy<Value = Line> {
    prop_oneof![
        2 => directory().prop_map(Line::Directory),
        3 => file().prop_map(Line::File),
        2 => prop_oneof![directory(), file()].prop_map(Line::Whiteout),
        1 => directory().prop_map(Line::Opaque),
    ]
}

fn archive(lines: &[Line]) -> Vec<u8> {
    let mark = |path: &str, name: &str| match path.rsplit_once('/') {
        Some((dir, leaf)) => format!("{dir}/{}", name.replace("LEAF", leaf)),
        None => name.replace("LEAF", path),
    };
    let tar = lines.iter().fold(Tar::new(), |tar, line| match line {
        Line::Directory(path) => tar.dir(path),
        Line::File(path) => tar.file(path, "new"),
        Line::Whiteout(path) => tar.file(mark(path, ".wh.LEAF"), ""),
        Line::Opaque(path) => tar.file(format!("{path}/.wh..wh..opq"), ""),
    });
    tar.end()
}

/// The path and everything above it.
fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at]).chain([path])
}

/// The paths of the layer below: everything that the strategies can name.
fn below() -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        for name in ["a", "b", "f", "g"] {
            let path = if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") };
            if matches!(name, "a" | "b") && path.len() < 6 {
                dirs.push(path.clone());
            }
            if matches!(name, "f" | "g") || path.len() < 6 {
                paths.insert(path);
            }
        }
    }
    paths
}

/// The specification: entries are present; files from below are present unless a whiteout names them or a parent, or a parent is
/// opaque. Directories that hold only whiteouts are present if nothing hides them.
fn expected(lines: &[Line], below: &BTreeSet<String>) -> BTreeSet<String> {
    let is_hidden = |path: &str| {
        lines.iter().any(|line| match line {
            Line::Whiteout(hidden) => prefixes(path).any(|prefix| prefix == hidden),
            Line::Opaque(dir) => path.len() > dir.len() && prefixes(path).any(|prefix| prefix == dir),
            _ => false,
        })
    };
    let mut paths: BTreeSet<String> = below.iter().filter(|path| !is_hidden(path)).cloned().collect();
    for line in lines {
        let (path, mark) = match line {
            Line::Directory(path) | Line::File(path) => (path.as_str(), false),
            Line::Opaque(path) => (path.as_str(), true),
            Line::Whiteout(path) => (path.rsplit_once('/').map_or("", |(dir, _)| dir), true),
        };
        for prefix in prefixes(path).filter(|prefix| !prefix.is_empty()) {
            if !mark || !is_hidden(prefix) {
                paths.insert(prefix.to_owned());
            }
        }
    }
    paths
}

fn walk(root: &Path) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let mut dirs = vec![root.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            paths.insert(entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    paths
}

/// Takes the numbers of links out of a picture.
fn without_links(picture: &mut BTreeMap<String, String>) {
    for text in picture.values_mut() {
        if let Some(at) = text.rfind(" links") {
            let begin = text[..at].rfind(' ').map_or(0, |space| space + 1);
            text.replace_range(begin..at, "?");
        }
    }
}

/// Everything that shows, times and numbers of names among it; of whiteouts that they are ones.
fn whole_picture(root: &Path) -> BTreeMap<String, String> {
    let mut all = picture(root);
    for (path, text) in &mut all {
        let meta = fs::symlink_metadata(root.join(path)).unwrap();
        if text.starts_with("whiteout") {
            text.truncate("whiteout".len());
            continue;
        }
        *text += &format!(" @{}.{:09}", meta.mtime(), meta.mtime_nsec());
        if !meta.is_dir() {
            *text += &format!(" {} links", meta.nlink());
        }
        if meta.is_file() {
            let data = fs::read(root.join(path)).unwrap();
            *text += &format!(" {} {}", data.len(), oci::Digest::sha256(&data));
        }
    }
    all
}

/// A mount that is removed when this is dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        rustix::mount::unmount(self.0, UnmountFlags::DETACH).unwrap();
    }
}

/// The paths in an overlay of the two.
fn merged(top: &Layer, below: &Layer) -> BTreeSet<String> {
    let target = top.path().join("merged");
    fs::create_dir(&target).unwrap();
    let options = format!("lowerdir={}:{}", top.fs().display(), below.fs().display());
    let options = std::ffi::CString::new(options).unwrap();
    rustix::mount::mount("overlay", &target, "overlay", MountFlags::RDONLY, options.as_c_str()).unwrap();
    let _mounted = Mounted(&target);
    walk(&target)
}

/// Entries that may contradict each other in every way.
fn any_item() -> impl Strategy<Value = Tar> {
    let name = || prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "..", ".", ""]), 0..4);
    let leaf = prop::sample::select(vec!["a", "b", "c", ".wh.a", ".wh.b", ".wh..wh..opq", ".wh..wh.x", "."]);
    let path = move || (name(), leaf.clone()).prop_map(|(dir, leaf)| [dir, vec![leaf]].concat().join("/"));
    let flag = prop::sample::select(b"000005552211346".to_vec());
    let data = prop_oneof![Just(0_usize), 1..2000_usize, Just(300_000)];
    (flag, path(), path(), data, 0..0o10000_u32, 0..3_u64, any::<bool>()).prop_map(
        |(flag, path, link, len, mode, owner, xattr)| {
            let mut item = Item::new(flag, path).mode(mode).owner(owner, owner);
            match flag {
                b'0' => item = item.data(vec![b'd'; len]),
                b'1' | b'2' => item = item.link(link),
                b'3' => item = item.device(u32::try_from(owner).unwrap(), 0),
                _ => {}
            }
            let tar = if xattr { Tar::new().pax(&[("SCHILY.xattr.user.x", b"1")]) } else { Tar::new() };
            tar.item(&item)
        },
    )
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_mount_shows_what_the_specification_says() {
    let low = Layer::new();
    let below = below();
    let dirs = below.iter().filter(|path| path.ends_with(['a', 'b'])).cloned().map(Line::Directory);
    let files = below.iter().filter(|path| path.ends_with(['f', 'g'])).cloned().map(Line::File);
    low.unpack(&archive(&dirs.chain(files).collect::<Vec<_>>())).unwrap();
    let lines = prop::collection::vec(line(), 0..12).prop_shuffle();
    proptest!(ProptestConfig::with_cases(200), |(lines in lines)| {
        let top = Layer::new();
        top.unpack(&archive(&lines)).unwrap();
        prop_assert_eq!(merged(&top, &low), expected(&lines, &below));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    #[ignore = "needs root: scripts/test.sh"]
    fn every_archive_that_unpacks_can_be_rebuilt(
        items in prop::collection::vec(any_item(), 0..14), trailing in 0..2000_usize, privileged: bool, stepwise: bool
    ) {
        let mut tar = items.into_iter().fold(Tar::new(), |tar, item| tar.raw(&item.bytes)).end();
        tar.extend(std::iter::repeat_n(b't', trailing));
        let mut layer = Layer::new();
        (layer.privileged, layer.stepwise) = (privileged, stepwise);
        if let Ok(outcome) = layer.unpack(&tar) {
            prop_assert!(outcome.exact);
            prop_assert!(layer.rebuild() == tar, "the rebuilt archive differs");
            let mut usage = super::attributes::usage(&layer.fs());
            if layer.path().join("replaced").exists() {
                let replaced = super::attributes::usage(&layer.path().join("replaced"));
                usage = (usage.0 + replaced.0, usage.1 + replaced.1);
            }
            prop_assert_eq!((outcome.disk_bytes, outcome.inodes), usage);

            // A check finds no fault in it: no file is missing, and a copy without content is the same apart from that.
            let open = |layer: &Layer| fs::File::open(layer.path()).unwrap();
            prop_assert_eq!(crate::recipe::examine(open(&layer).as_fd()).unwrap(), tar.len() as u64);
            let mut copy = Layer::new();
            (copy.privileged, copy.hollow) = (privileged, true);
            let hollow = copy.unpack(&tar).unwrap();
            prop_assert_eq!(&hollow.implicit_dirs, &outcome.implicit_dirs);
            let (there, made) = (open(&layer), open(&copy));
            let found = crate::layers::compare::difference(there.as_fd(), made.as_fd(), &hollow.implicit_dirs, &|| false);
            prop_assert_eq!(found.unwrap(), None);
        }
    }

    #[test]
    #[ignore = "needs root: scripts/test.sh"]
    fn both_shapes_are_the_same_tree(items in prop::collection::vec(any_item(), 0..20)) {
        let tar = items.into_iter().fold(Tar::new(), |tar, item| tar.raw(&item.bytes)).end();
        let [dir, image] = Shape::ALL.map(Layer::of);
        let told = |error: crate::unpack::UnpackError| error.to_string();
        let (one, other) = (dir.unpack(&tar).map_err(told), image.unpack(&tar).map_err(told));
        let (one, other) = match (one, other) {
            (Ok(one), Ok(other)) => (one, other),
            (one, other) => {
                prop_assert_eq!(one.err(), other.err());
                return Ok(());
            }
        };
        // The disk usage of a tree is counted during the unpack; that of an EROFS file is measured when it is written.
        prop_assert_eq!(UnpackOutcome { disk_bytes: 0, inodes: 0, largest: Largest::default(), ..one.clone() }, other);
        let (mut one_tree, mut other_tree) = (dir.inspect(whole_picture), image.inspect(whole_picture));
        if dir.path().join("replaced").exists() {
            // A layer of directories keeps what was replaced, for the rebuilt archive: hard links into it count.
            [&mut one_tree, &mut other_tree].into_iter().for_each(without_links);
        }
        prop_assert_eq!(one_tree, other_tree);
        prop_assert!(image.rebuild() == tar, "the rebuilt archive differs");
        let open = fs::File::open(image.path()).unwrap();
        prop_assert_eq!(Shape::Erofs.examine(open.as_fd()).unwrap(), tar.len() as u64);
        let mut copy = Layer::of(Shape::Erofs);
        copy.hollow = true;
        copy.unpack(&tar).unwrap();
        prop_assert_eq!(image.difference(&copy, &one.implicit_dirs), None);
    }

    /// Bytes that were an archive before something happened to them.
    #[test]
    #[ignore = "needs root: scripts/test.sh"]
    fn damaged_archives_do_no_harm(
        items in prop::collection::vec(any_item(), 1..6), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
    ) {
        let mut tar = items.into_iter().fold(Tar::new(), |tar, item| tar.raw(&item.bytes)).end();
        for (at, byte) in changes {
            let at = at.index(tar.len());
            tar[at] = byte;
        }
        let layer = Layer::new();
        if layer.unpack(&tar).is_ok() {
            prop_assert!(layer.rebuild() == tar, "the rebuilt archive differs");
        }
    }
}
