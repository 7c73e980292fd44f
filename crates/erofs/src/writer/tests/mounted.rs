//! An EROFS file as the kernel and `fsck.erofs` see it.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use super::model::{Builder, Model, What};
use crate::format::superblock::{LENGTH, OFFSET, Superblock};
use crate::{Reader, Special, WrittenImage};

/// An EROFS file that is mounted without a place in the tree.
pub(super) struct Mounted(OwnedFd);

impl Mounted {
    pub(super) fn new(image: &Path) -> Self {
        Self::with(image, &[])
    }

    /// With further devices.
    pub(super) fn with(image: &Path, devices: &[PathBuf]) -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test mounts: run it as root");
        let context = rustix::mount::fsopen("erofs", FsOpenFlags::FSOPEN_CLOEXEC).unwrap_or_else(|error| {
            assert!(error != Errno::NODEV, "this kernel has no EROFS: this test needs Linux 6.12 or later with it");
            panic!("cannot open EROFS: {error}")
        });
        rustix::mount::fsconfig_set_string(&context, "source", image).unwrap();
        for device in devices {
            rustix::mount::fsconfig_set_string(&context, "device", device).unwrap();
        }
        rustix::mount::fsconfig_create(&context).unwrap_or_else(|error| {
            let hint = "this kernel mounts no EROFS file without a device: this test needs Linux 6.12 or later";
            assert!(error != Errno::NOTBLK, "{hint}");
            let mut said = [0; 4096];
            let length = rustix::io::read(&context, &mut said).unwrap_or(0);
            panic!("the kernel refuses {}: {error} {}", image.display(), String::from_utf8_lossy(&said[..length]))
        });
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY;
        Self(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).unwrap())
    }

    /// A way to it for as long as it is mounted.
    pub(super) fn root(&self) -> OwnedFd {
        open_dir(&self.0, OsStr::new("."))
    }
}

fn open_dir(at: &OwnedFd, name: &OsStr) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty()).unwrap()
}

/// A path to a name in a directory that needs no long path.
pub(super) fn through(dir: &OwnedFd, name: &OsStr) -> PathBuf {
    Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name)
}

/// Finishes an EROFS file, has `fsck.erofs` look at it, mounts it and compares all of it.
pub(super) fn check(builder: Builder<File>, image: &Path) -> (WrittenImage, Model) {
    let (file, written, model) = builder.finish().unwrap();
    assert_eq!(file.metadata().unwrap().len(), written.size);
    check_again(image, &model);
    let links = model.links();
    let is_dir = |node: &usize| matches!(model.nodes[*node].what, What::Dir(_));
    assert_eq!(written.inodes, links.len() as u64);
    assert_eq!(written.directories, links.keys().filter(|node| is_dir(node)).count() as u64);
    (written, model)
}

/// The same, of an EROFS file that is finished.
pub(super) fn check_again(image: &Path, model: &Model) {
    check_all(image, &[], model);
}

/// The same, of an EROFS file whose files have their blocks on devices, and so other numbers.
pub(super) fn check_elsewhere(image: &Path, devices: &[PathBuf], model: &Model) {
    check_all(image, devices, model);
}

fn check_all(image: &Path, devices: &[PathBuf], model: &Model) {
    fsck_with(image, devices);
    let links = model.links();
    // The reader refuses files on further devices: of those the kernel is the judge.
    if devices.is_empty() {
        let checked = Reader::open(File::open(image).unwrap()).and_then(|image| image.check()).unwrap();
        assert_eq!(checked.inodes, links.len() as u64, "inodes that the reader finds");
    }
    let mounted = Mounted::with(image, devices);
    let mut superblock = [0; LENGTH];
    File::open(image).unwrap().read_exact_at(&mut superblock, OFFSET as u64).unwrap();
    assert_eq!(Superblock::decode(&superblock).inodes, links.len() as u64, "inodes of the image");
    let mut seen = HashSet::new();
    let mut left = vec![(mounted.root(), 0, Vec::new())];
    while let Some((dir, node, path)) = left.pop() {
        let What::Dir(entries) = &model.nodes[node].what else { panic!("no directory") };
        compare(&dir, OsStr::new("."), &path, node, model, &links);
        let listed = list(&dir);
        let expected: Vec<_> = entries.keys().cloned().collect();
        assert!(listed == expected, "{}: {} names are not {}", shown(&path), listed.len(), expected.len());
        for (name, child) in entries {
            let path = [&path[..], b"/", name].concat();
            let name = OsStr::from_bytes(name);
            if matches!(model.nodes[*child].what, What::Dir(_)) {
                left.push((open_dir(&dir, name), *child, path));
                continue;
            }
            let number = fs::symlink_metadata(through(&dir, name)).unwrap().ino();
            if devices.is_empty() {
                assert_eq!(number, model.nid(*child).0, "{}", shown(&path));
            }
            // One inode is looked at under one of its names.
            if seen.insert(*child) {
                compare(&dir, name, &path, *child, model, &links);
            }
        }
    }
}

fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    text.chars().take(300).collect()
}

fn list(dir: &OwnedFd) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(through(dir, OsStr::new("."))).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_vec()).collect();
    // They come sorted, as they are in the EROFS file, but for the two that std leaves out.
    assert!(names.is_sorted());
    names.sort();
    names
}

fn compare(dir: &OwnedFd, name: &OsStr, shown_path: &[u8], node: usize, model: &Model, links: &BTreeMap<usize, u64>) {
    let what = shown(shown_path);
    let path = through(dir, name);
    let meta = fs::symlink_metadata(&path).unwrap_or_else(|error| panic!("{what}: {error}"));
    let node_is = &model.nodes[node];
    let attributes = &node_is.attributes;
    assert_eq!(meta.mode() & 0o7777, attributes.mode, "{what}");
    assert_eq!((meta.uid(), meta.gid()), (attributes.uid, attributes.gid), "{what}");
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (attributes.mtime.0, i64::from(attributes.mtime.1)), "{what}");
    assert_eq!(meta.nlink(), links[&node], "names of {what}");
    assert_eq!(xattrs(&path), sorted(&attributes.xattrs), "{what}");
    match &node_is.what {
        What::Dir(_) => assert!(meta.is_dir(), "{what}"),
        What::File(pieces, size) => {
            assert!(meta.is_file(), "{what}");
            assert_eq!(meta.len(), *size, "{what}");
            compare_content(&path, pieces, *size, &what);
        }
        What::Symlink(target) => {
            assert!(meta.is_symlink(), "{what}");
            assert_eq!(fs::read_link(&path).unwrap().as_os_str().as_bytes(), &target[..], "{what}");
        }
        What::Special(special) => {
            let kind = meta.file_type();
            let device = |major, minor| rustix::fs::makedev(major, minor);
            let (is, number) = match special {
                Special::Char(major, minor) => (kind.is_char_device(), device(*major, *minor)),
                Special::Block(major, minor) => (kind.is_block_device(), device(*major, *minor)),
                Special::Fifo => (kind.is_fifo(), 0),
                Special::Socket => (kind.is_socket(), 0),
            };
            assert!(is, "{what}");
            assert_eq!(meta.rdev(), number, "{what}");
        }
    }
}

/// Compares all bytes of short files; of long ones the data, the bytes next to it, and samples of the zeros.
fn compare_content(path: &Path, pieces: &[(u64, Vec<u8>)], size: u64, what: &str) {
    let file = File::open(path).unwrap();
    if size <= 4 << 20 {
        let mut expected = vec![0; usize::try_from(size).unwrap()];
        for (at, data) in pieces {
            let at = usize::try_from(*at).unwrap();
            expected[at..at + data.len()].copy_from_slice(data);
        }
        let there = fs::read(path).unwrap();
        assert!(there == expected, "the content of {what} ({size} bytes) is another");
        return;
    }
    let zeros = |from: u64, to: u64| {
        for at in [from, from + (to - from) / 2, to.saturating_sub(5000).max(from)] {
            let mut buffer = vec![1; usize::try_from((to - at).min(5000)).unwrap()];
            file.read_exact_at(&mut buffer, at).unwrap_or_else(|error| panic!("{what} at {at}: {error}"));
            assert!(buffer.iter().all(|byte| *byte == 0), "{what} has no zeros at {at}");
        }
    };
    let mut end = 0;
    for (at, data) in pieces {
        zeros(end, *at);
        let mut buffer = vec![0; data.len()];
        file.read_exact_at(&mut buffer, *at).unwrap();
        assert!(buffer == *data, "{what} differs at {at}");
        end = at + data.len() as u64;
    }
    zeros(end, size);
}

fn sorted(xattrs: &[(Vec<u8>, Vec<u8>)]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    xattrs.iter().cloned().collect()
}

pub(super) fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    let length = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(error) => panic!("listing attributes: {error}"),
    };
    let mut all = BTreeMap::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..])
            .unwrap_or_else(|error| panic!("attribute {}: {error}", String::from_utf8_lossy(name)));
        value.truncate(length);
        let other = all.insert(name.to_vec(), value);
        assert!(other.is_none(), "{} comes twice", String::from_utf8_lossy(name));
    }
    all
}

/// Debian's checker accepts the EROFS file, and its dumper reads it.
pub(super) fn fsck_with(image: &Path, devices: &[PathBuf]) {
    let given: Vec<String> = devices.iter().map(|device| format!("--device={}", device.display())).collect();
    for (program, arguments) in [("fsck.erofs", &[][..]), ("dump.erofs", &["-s", "-S"][..])] {
        let arguments: Vec<&str> = arguments.iter().copied().chain(given.iter().map(String::as_str)).collect();
        let output = run(program, &arguments, image);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{program} {arguments:?}: {said}");
        assert!(!said.contains("<E>") && !said.contains("<W>"), "{program} {arguments:?}: {said}");
    }
}

#[expect(clippy::disallowed_methods, reason = "others judge what is written")]
fn run(program: &str, arguments: &[&str], image: &Path) -> std::process::Output {
    let output = std::process::Command::new(program).args(arguments).arg(image).output();
    output.unwrap_or_else(|error: io::Error| panic!("{program} is of Debian's erofs-utils: {error}"))
}

/// A file for an EROFS file.
pub(super) fn image(dir: &tempfile::TempDir) -> (File, PathBuf) {
    let path = dir.path().join("image.erofs");
    (File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap(), path)
}
