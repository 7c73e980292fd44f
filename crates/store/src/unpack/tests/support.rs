//! A layer directory to unpack into, and a picture of the result.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};

use crate::disk::beneath::Beneath;
use crate::disk::confine::confined;
use crate::disk::layer::Shape;
use crate::disk::layout::EROFS_FILE;
use crate::tar::Limits;
use crate::unpack::{Below, PathLookup};
use crate::unpack::{UnpackError, UnpackOptions, UnpackOutcome, unpack_beneath, unpack_erofs};

/// A private directory, with `fs/` in it if the layer is a directory, and next to it a canary that no layer may reach.
pub(crate) struct Layer {
    dir: tempfile::TempDir,
    pub(crate) shape: Shape,
    pub(crate) privileged: bool,
    pub(crate) limits: Limits,
    pub(crate) stepwise: bool,
    /// Files get no content.
    pub(crate) hollow: bool,
}

impl Layer {
    pub(crate) fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "these tests need root");
        Self::of(Shape::Dir)
    }

    pub(crate) fn of(shape: Shape) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("layer")).unwrap();
        if shape == Shape::Dir {
            fs::create_dir(dir.path().join("layer/fs")).unwrap();
        }
        fs::create_dir(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("outside/canary"), "alive").unwrap();
        Self { dir, shape, privileged: true, limits: Limits::default(), stepwise: false, hollow: false }
    }

    pub(crate) fn plain() -> Self {
        Self { privileged: false, ..Self::new() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("layer")
    }

    pub(crate) fn fs(&self) -> PathBuf {
        self.path().join("fs")
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    pub(crate) fn unpack(&self, tar: &[u8]) -> Result<UnpackOutcome, UnpackError> {
        let dir = File::open(self.path()).unwrap();
        let (privileged, hollow) = (self.privileged, self.hollow);
        let unpack = || {
            let options = UnpackOptions {
                limits: &self.limits,
                privileged,
                cancelled: &|| false,
                write_back: Some(&|_| ()),
                hollow,
                nested: false,
            };
            let beneath = if self.stepwise { Beneath::stepwise() } else { Beneath::default() };
            match self.shape {
                Shape::Dir => unpack_beneath(&mut &tar[..], dir.as_fd(), &options, beneath),
                Shape::Erofs => unpack_erofs(&mut &tar[..], dir.as_fd(), &options),
            }
        };
        // As the ingest does it, so that all these tests run under that confinement.
        let outcome = confined(dir.as_fd(), dir.as_fd(), unpack).unwrap();
        self.check_canary();
        outcome
    }

    /// On this thread, without the second wall.
    pub(crate) fn unpack_unconfined(&self, tar: &[u8], stepwise: bool) -> Result<UnpackOutcome, UnpackError> {
        let dir = File::open(self.path()).unwrap();
        let (limits, cancelled) = (&self.limits, &|| false);
        let options =
            UnpackOptions { limits, privileged: true, cancelled, write_back: None, hollow: false, nested: false };
        let beneath = if stepwise { Beneath::stepwise() } else { Beneath::default() };
        unpack_beneath(&mut &tar[..], dir.as_fd(), &options, beneath)
    }

    /// Nothing outside was touched.
    pub(crate) fn check_canary(&self) {
        let outside: Vec<_> = fs::read_dir(self.outside()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(outside, ["canary"], "something was made outside of the layer");
        assert_eq!(fs::read(self.outside().join("canary")).unwrap(), b"alive");
        let meta = fs::symlink_metadata(self.outside().join("canary")).unwrap();
        assert_eq!((meta.nlink(), meta.uid(), meta.mode() & 0o7777 & !0o022), (1, 0, 0o644), "the canary was changed");
        let top: Vec<_> = fs::read_dir(self.dir.path()).unwrap().collect();
        assert_eq!(top.len(), 2, "something was created next to the layer");
    }

    /// The bytes that the recipe makes.
    pub(crate) fn rebuild(&self) -> Vec<u8> {
        let dir = File::open(self.path()).unwrap();
        let mut out = Vec::new();
        crate::recipe::rebuild(dir.as_fd(), &mut out).expect("rebuilds");
        out
    }

    pub(crate) fn picture(&self) -> BTreeMap<String, String> {
        self.inspect(picture)
    }

    /// Inspects the tree, which is mounted for it where it is an EROFS file.
    pub(crate) fn inspect<T>(&self, inspect: impl FnOnce(&Path) -> T) -> T {
        match self.shape {
            Shape::Dir => inspect(&self.fs()),
            Shape::Erofs => inspect(&Mounted::new(&self.path().join(EROFS_FILE)).0),
        }
    }

    pub(crate) fn find(&self, path: &[u8]) -> PathLookup {
        self.shape.find(File::open(self.path()).unwrap().as_fd(), path).unwrap()
    }

    pub(crate) fn patch(&self, implicit: &[Vec<u8>], below: Below<'_>) {
        self.shape.patch(File::open(self.path()).unwrap().as_fd(), implicit, below, true).unwrap();
    }

    /// The difference that a check reports between a layer and its copy.
    pub(crate) fn difference(&self, copy: &Layer, implicit: &[Vec<u8>]) -> Option<String> {
        let (there, copy) = (File::open(self.path()).unwrap(), File::open(copy.path()).unwrap());
        self.shape.difference(there.as_fd(), copy.as_fd(), implicit, &|| false).unwrap()
    }

    pub(crate) fn deferred(&self) -> Vec<serde_json::Value> {
        match fs::read_to_string(self.path().join("deferred.jsonl")) {
            Ok(text) => text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
            Err(_) => Vec::new(),
        }
    }
}

/// An EROFS file, mounted on a directory next to it until this is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path) -> Self {
        let target = image.with_file_name("mounted");
        fs::create_dir_all(&target).unwrap();
        rustix::mount::mount(image, &target, "erofs", MountFlags::RDONLY, c"").unwrap();
        Self(target)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, UnmountFlags::DETACH).unwrap();
        fs::remove_dir(&self.0).unwrap();
    }
}

/// Describes every path in a line: kind, mode, owner where it is not root, content, target, device, attributes.
pub(crate) fn picture(root: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![root.to_path_buf()];
    all.insert(".".to_owned(), describe(root));
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().escape_ascii().to_string();
            all.insert(name, describe(&path));
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                dirs.push(path);
            }
        }
    }
    all
}

pub(crate) fn describe(path: &Path) -> String {
    let meta = fs::symlink_metadata(path).unwrap();
    let kind = meta.file_type();
    let rdev = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    let mut text = if kind.is_char_device() && meta.rdev() == 0 {
        "whiteout".to_owned()
    } else if kind.is_dir() {
        format!("dir {:04o}", meta.mode() & 0o7777)
    } else if kind.is_symlink() {
        format!("-> {}", fs::read_link(path).unwrap().into_os_string().into_vec().escape_ascii())
    } else if kind.is_file() {
        let data = fs::read(path).unwrap();
        let data = if data.len() > 40 { format!("{} bytes", data.len()) } else { data.escape_ascii().to_string() };
        format!("file {:04o} {data}", meta.mode() & 0o7777)
    } else if kind.is_fifo() {
        format!("fifo {:04o}", meta.mode() & 0o7777)
    } else {
        let word = if kind.is_char_device() { "char" } else { "block" };
        format!("{word} {:04o} {}:{}", meta.mode() & 0o7777, rdev.0, rdev.1)
    };
    if (meta.uid(), meta.gid()) != (0, 0) {
        text += &format!(" {}:{}", meta.uid(), meta.gid());
    }
    for (name, value) in xattrs(path) {
        text += &format!(" {name}={}", value.escape_ascii());
    }
    text
}

pub(crate) fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0_u8; 65536];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..len].split(|b| *b == 0).filter(|n| !n.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0_u8; 65536];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(len);
        value
    };
    names.map(|name| (String::from_utf8_lossy(name).into_owned(), value(name))).collect()
}

/// A picture from a list, for comparison.
pub(crate) fn want(lines: &[(&str, &str)]) -> BTreeMap<String, String> {
    lines.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

/// Runs one test of this program again with uid 65534, with a directory in a variable.
#[expect(clippy::disallowed_methods, reason = "another user needs another process")]
pub(crate) fn run_again_as_unprivileged_user(test: &str, variable: &str, directory: &Path) {
    use std::os::unix::process::CommandExt;
    // That user may have no access to the directory of the program itself.
    let copy = directory.join("test-program");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let status = std::process::Command::new(&copy)
        .args(["--exact", test, "--include-ignored", "--nocapture"])
        .env(variable, directory)
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .status()
        .unwrap();
    fs::remove_file(copy).unwrap();
    assert!(status.success(), "the test failed as nobody");
}
