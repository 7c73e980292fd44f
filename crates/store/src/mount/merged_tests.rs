//! Layers in one EROFS file: the same tree as overlayfs shows of them, on every kernel, with what is above and below; more of them than
//! overlayfs takes; and what is left where it fails. Needs root and mkfs.erofs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::bench::{Bench, EVERYTHING, KERNELS, mkfs};
use super::*;
use crate::disk::layer::LayerId;
use crate::disk::layer::Shape;
use crate::view::Stack;
use oci::Digest;

/// Layers as they lie in a store, lowest first.
struct Layers {
    bench: Bench,
    lower: Vec<Lower>,
    shapes: Vec<Shape>,
}

impl Layers {
    fn new() -> Self {
        Self { bench: Bench::new(), lower: Vec::new(), shapes: Vec::new() }
    }

    fn root(&self) -> &Path {
        self.bench.top.path()
    }

    /// Adds a layer of what `fill` puts into a directory.
    fn add(&mut self, shape: Shape, fill: impl FnOnce(&Path)) {
        let directory = self.root().join(LAYERS).join(self.lower.len().to_string());
        let tree = directory.join("fs");
        fs::create_dir_all(&tree).expect("creates");
        fill(&tree);
        if shape == Shape::Erofs {
            mkfs(&directory.join("layer.erofs"), &tree);
            fs::remove_dir_all(&tree).expect("removes");
        }
        self.lower.push(shape.lower(&directory));
        self.shapes.push(shape);
    }

    fn stack(&self) -> Stack {
        let digest: Digest = format!("sha256:{}", "0".repeat(64)).parse().expect("a digest");
        let numbered = (0_u64..).map(LayerId).zip(&self.shapes);
        let mut layers: Vec<_> = numbered.map(|(number, shape)| (number, digest.clone(), *shape)).collect();
        layers.reverse();
        Stack::from_parts(digest, layers)
    }

    fn mount(&self, writable: Option<&Path>, ways: KernelFeatures) -> Result<(), MountError> {
        let stack = self.stack();
        let compose = Some((self.root(), &stack));
        let assembly = OverlayAssembly { userxattr: false, points: Some(&self.bench.points), compose, ways };
        assembly.mount(&self.lower, &self.bench.target, writable)
    }

    /// The kind of what is mounted.
    fn kind(&self) -> String {
        let mounts = mounts_lenient().expect("readable");
        let mount = topmost(&mounts, &self.bench.target).expect("mounted");
        assert!(is_ours(mount), "{mount:?}");
        mount.kind.clone()
    }
}

/// A tree in words.
fn tree(top: &Path, path: &Path, links: bool, into: &mut BTreeMap<PathBuf, String>) {
    let meta = fs::symlink_metadata(path).expect("there");
    let content = if meta.is_file() {
        format!("{:?}", blake(&fs::read(path).expect("readable")))
    } else if meta.is_symlink() {
        format!("{:?}", fs::read_link(path).expect("readable"))
    } else {
        meta.rdev().to_string()
    };
    let mut names = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, &mut names[..]).expect("readable");
    let mut named: Vec<String> =
        names[..length].split(|b| *b == 0).map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    named.sort();
    let size = if meta.is_dir() { 0 } else { meta.size() };
    let count = if meta.is_dir() || !links { 0 } else { meta.nlink() };
    let time = (meta.mtime(), meta.mtime_nsec());
    let word = format!("{:o} {}:{} {size} {count} {time:?} {named:?} {content}", meta.mode(), meta.uid(), meta.gid());
    into.insert(path.strip_prefix(top).expect("below").to_owned(), word);
    if meta.is_dir() {
        for entry in fs::read_dir(path).expect("readable") {
            tree(top, &entry.expect("readable").path(), links, into);
        }
    }
}

fn blake(bytes: &[u8]) -> (usize, u64) {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    (bytes.len(), hasher.finish())
}

fn noise(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|n| n.to_le_bytes()[n % 2].wrapping_mul(31).wrapping_add(seed)).collect()
}

fn whiteout(path: &Path) {
    rustix::fs::mknodat(CWD, path, rustix::fs::FileType::CharacterDevice, Mode::empty(), 0).expect("makes a whiteout");
}

fn mark(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).expect("sets an attribute");
}

/// Everything that layers do to each other. The one in the middle has this shape.
fn story(middle: Shape) -> Layers {
    let mut layers = Layers::new();
    layers.add(Shape::Erofs, |top| {
        for directory in ["d/deep/er", "hidden", "file-then-dir", "gone/below"] {
            fs::create_dir_all(top.join(directory)).expect("creates");
        }
        for (n, size) in [0, 1, 3000, 4096, 5000, 8192, 70_000, 1 << 20].into_iter().enumerate() {
            fs::write(top.join(format!("d/base-{size}")), noise(n.to_le_bytes()[0], size)).expect("writes");
        }
        fs::write(top.join("hidden/old"), "old").expect("writes");
        fs::write(top.join("gone/below/x"), "x").expect("writes");
        fs::write(top.join("dir-then-file"), "a file").expect("writes");
        fs::hard_link(top.join("d/base-5000"), top.join("d/deep/link")).expect("links");
        fs::hard_link(top.join("d/base-5000"), top.join("linked and gone")).expect("links");
        symlink("deep/er", top.join("d/way")).expect("links");
        mark(&top.join("d/base-4096"), "user.some", b"value");
        mark(&top.join("d"), "trusted.other", b"below");
        let sparse = fs::File::create(top.join("d/sparse")).expect("creates");
        sparse.set_len(10 << 20).expect("sets");
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", 5 << 20).expect("writes");
    });
    layers.add(middle, |top| {
        for directory in ["d/deep", "hidden", "dir-then-file/new"] {
            fs::create_dir_all(top.join(directory)).expect("creates");
        }
        whiteout(&top.join("gone"));
        whiteout(&top.join("linked and gone"));
        whiteout(&top.join("d/base-1"));
        mark(&top.join("hidden"), "trusted.overlay.opaque", b"y");
        fs::write(top.join("hidden/new"), noise(9, 9000)).expect("writes");
        fs::write(top.join("d/deep/middle"), noise(8, 20_000)).expect("writes");
        fs::write(top.join("file-then-dir"), "now a file").expect("writes");
        let sparse = fs::File::create(top.join("d/deep/sparse")).expect("creates");
        sparse.set_len(3 << 20).expect("sets");
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", 1 << 20).expect("writes");
        fs::set_permissions(top.join("d"), fs::Permissions::from_mode(0o751)).expect("sets");
        mark(&top.join("d"), "trusted.other", b"middle");
    });
    layers.add(Shape::Erofs, |top| {
        fs::create_dir_all(top.join("gone")).expect("creates");
        fs::write(top.join("gone/again"), noise(3, 4097)).expect("writes");
        fs::create_dir_all(top.join("hidden")).expect("creates");
        fs::write(top.join("hidden/on top"), "top").expect("writes");
        rustix::fs::mknodat(CWD, top.join("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).expect("makes a pipe");
        std::os::unix::fs::chown(top.join("pipe"), Some(70_000), Some(3)).expect("sets");
    });
    layers
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn one_image_shows_what_overlayfs_shows() {
    for middle in [Shape::Erofs, Shape::Dir] {
        let layers = story(middle);
        let target = &layers.bench.target;
        layers.mount(None, EVERYTHING).expect("mounts");
        assert_eq!(layers.kind(), "overlay");
        let (mut want, mut linked) = (BTreeMap::new(), BTreeMap::new());
        tree(target, target, false, &mut want);
        assert!(want.len() > 20 && !want.contains_key(Path::new("d/base-1")), "{want:?}");
        layers.bench.unmount();
        for ways in KERNELS {
            // A mixed one is composed by hand: it would not be without need.
            let stack = layers.stack();
            let merged = merged::mount(layers.root(), &stack, &layers.bench.points, ways).expect("composes");
            match merged.attach(target).expect("attaches") {
                None => assert_eq!(layers.kind(), "erofs"),
                Some(mounted) => {
                    assert!(!ways.from_file);
                    let attach = rustix::mount::MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
                    rustix::mount::move_mount(&mounted, "", CWD, target, attach).expect("attaches");
                }
            }
            let mut got = BTreeMap::new();
            tree(target, target, false, &mut got);
            for (path, word) in &want {
                assert_eq!(got.get(path), Some(word), "{} {ways:?}", path.display());
            }
            assert_eq!(got.len(), want.len());
            linked.clear();
            tree(target, target, true, &mut linked);
            assert!(linked[Path::new("d/deep/link")].contains(" 5000 2 "), "the names that are left");
            assert_eq!(
                fs::metadata(target.join("d/deep/link")).expect("there").ino(),
                fs::metadata(target.join("d/base-5000")).expect("there").ino()
            );
            let blocks = fs::metadata(target.join("d/deep/sparse")).expect("there").size();
            assert_eq!(blocks, 3 << 20);
            rustix::mount::unmount(target, UnmountFlags::empty()).expect("unmounts");
            layers.bench.assert_nothing_left();
        }
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn layers_of_images_are_put_into_one_from_a_number_on() {
    let layers = story(Shape::Erofs);
    let writable = layers.root().join("writable");
    fs::create_dir(&writable).expect("creates");
    for ways in KERNELS.map(|ways| KernelFeatures { many: 3, ..ways }) {
        layers.mount(None, ways).unwrap_or_else(|error| panic!("{ways:?}: {error:?}"));
        assert_eq!(layers.kind(), if ways.from_file { "erofs" } else { "overlay" }, "{ways:?}");
        assert_eq!(layers.bench.mounts(), std::slice::from_ref(&layers.bench.target), "all that is seen");
        assert_eq!(layers.bench.loops().len(), if ways.from_file { 0 } else { 3 + 1 }, "{ways:?}");
        assert_eq!(layers.bench.read("hidden/on top"), "top");
        fs::write(layers.bench.target.join("f"), "x").expect_err("read-only");
        layers.bench.unmount();
        layers.bench.assert_nothing_left();

        layers.mount(Some(&writable), ways).expect("mounts");
        assert_eq!(layers.kind(), "overlay");
        let file = layers.bench.target.join("d/base-70000");
        let mut content = fs::read(&file).expect("readable");
        content[69_999] ^= 1;
        fs::write(&file, &content).expect("writes");
        assert_eq!(fs::read(&file).expect("readable"), content);
        assert!(!layers.bench.target.join("linked and gone").exists());
        layers.bench.unmount();
        layers.bench.assert_nothing_left();
        fs::remove_dir_all(&writable).expect("removes");
        fs::create_dir(&writable).expect("creates");
    }
    layers.mount(None, KernelFeatures { many: 4, ..EVERYTHING }).expect("mounts");
    assert_eq!(layers.kind(), "overlay", "three are not four");
    layers.bench.unmount();
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn more_layers_than_overlayfs_takes() {
    // As most programs begin.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let low = rustix::process::Rlimit { current: Some(1024), ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, low).expect("sets");
    let mut layers = Layers::new();
    layers.add(Shape::Erofs, |top| fs::write(top.join("lowest"), noise(1, 9000)).expect("writes"));
    layers.add(Shape::Dir, |top| fs::write(top.join("plain"), "plain").expect("writes"));
    let one = layers.root().join(LAYERS).join("0/layer.erofs");
    for number in 2..1050 {
        let directory = layers.root().join(LAYERS).join(number.to_string());
        fs::create_dir(&directory).expect("creates");
        fs::hard_link(&one, directory.join("layer.erofs")).expect("links");
        layers.lower.push(Shape::Erofs.lower(&directory));
        layers.shapes.push(Shape::Erofs);
    }
    layers.add(Shape::Erofs, |top| whiteout(&top.join("lowest")));
    layers.add(Shape::Dir, |top| fs::write(top.join("upmost"), noise(2, 90_000)).expect("writes"));
    layers.mount(None, EVERYTHING).expect("mounts");
    assert_eq!(layers.kind(), "erofs");
    assert_eq!(layers.bench.read("plain"), "plain");
    assert_eq!(fs::read(layers.bench.target.join("upmost")).expect("readable"), noise(2, 90_000));
    assert!(!layers.bench.target.join("lowest").exists());
    layers.bench.unmount();
    layers.bench.assert_nothing_left();
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_failure_while_one_image_is_composed_leaves_nothing() {
    let ways = KernelFeatures { many: 2, ..EVERYTHING };
    let layers = story(Shape::Erofs);
    let file = layers.root().join(LAYERS).join("1/layer.erofs");
    let good = fs::read(&file).expect("readable");
    let mut spoiled = good.clone();
    // Overwrites its inodes.
    spoiled[4096..].fill(0xff);
    for (what, content) in [("short", &good[..100]), ("spoiled", &spoiled)] {
        fs::write(&file, content).expect("writes");
        let error = layers.mount(None, ways).expect_err(what);
        assert!(matches!(error, MountError::Io { .. }), "{what}: {error:?}");
        layers.bench.assert_nothing_left();
        assert!(!fs::exists(layers.root().join("mounts/0")).expect("looks"), "{what}");
    }
    fs::write(&file, &good).expect("writes");
    let stack = layers.stack();
    let compose = Some((layers.root(), &stack));
    let assembly = OverlayAssembly { userxattr: false, points: Some(&layers.bench.points), compose, ways };
    assembly.mount(&layers.lower, &layers.root().join("nowhere"), None).expect_err("no such place");
    layers.bench.assert_nothing_left();
    // The leftovers of a killed process.
    let point = layers.bench.points.empty().expect("has a place");
    fs::write(point.path.join(points::IMAGE), "half").expect("writes");
    fs::write(point.path.join(points::SPILL), "half").expect("writes");
    std::mem::forget(point);
    layers.bench.points.sweep().expect("sweeps");
    assert!(!layers.root().join("mounts").exists());
}

const LAYERS: &str = crate::disk::layout::LAYERS;
