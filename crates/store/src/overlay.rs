//! The system calls of an overlayfs mount: the new mount API, which takes any number of layers and any path, and
//! mount(2) where the kernel has not got it. Decides nothing; [`crate::mount`] says what is mounted where.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};

use crate::mountinfo::SOURCE;

/// What fits into a string of the mount API, its end included.
const STRING_BYTES: usize = 256;
/// What fits into the options of mount(2), their end included.
const PAGE_BYTES: usize = 4096;

/// One overlay.
#[derive(Debug)]
pub(crate) struct Overlay<'a> {
    /// Topmost first; two at least, or one with an upper directory.
    pub(crate) lower: &'a [PathBuf],
    /// Upper and work directory.
    pub(crate) upper: Option<(PathBuf, PathBuf)>,
    /// The layers were made by an ordinary user: their marks are `user.overlay.*`.
    pub(crate) userxattr: bool,
}

/// What failed, and what the kernel had to say about it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) operation: &'static str,
    pub(crate) source: io::Error,
}

fn failed(operation: &'static str) -> impl Fn(Errno) -> Failure {
    move |error| Failure { operation, source: error.into() }
}

/// Options of an overlay that are not paths.
fn options(overlay: &Overlay<'_>) -> Vec<(&'static str, &'static str)> {
    // Nothing in a layer may point elsewhere, and a layer may be part of many mounts.
    if overlay.upper.is_some() { vec![("index", "off"), ("metacopy", "off")] } else { vec![("metacopy", "off")] }
}

/// Mounts an overlay on `target`, by whichever way the kernel has.
pub(crate) fn mount(overlay: &Overlay<'_>, target: &Path) -> Result<(), Failure> {
    match mount_new(overlay, target) {
        Err(NewError::Missing) => mount_classic(overlay, target),
        Err(NewError::Failed(failure)) => Err(failure),
        Ok(()) => Ok(()),
    }
}

/// An empty read-only file tree, for an image without layers.
pub(crate) fn mount_nothing(target: &Path) -> Result<(), Failure> {
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(SOURCE, target, "tmpfs", flags, c"mode=0755").map_err(failed("mount an empty file tree on"))
}

/// How the new way can end.
#[derive(Debug)]
pub(crate) enum NewError {
    /// The kernel has not got it, or not yet for overlayfs.
    Missing,
    Failed(Failure),
}

pub(crate) fn mount_new(overlay: &Overlay<'_>, target: &Path) -> Result<(), NewError> {
    let context = match fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC) {
        Ok(context) => context,
        Err(Errno::NOSYS) => return Err(NewError::Missing),
        Err(error) => return Err(NewError::Failed(failed("open overlayfs for")(error))),
    };
    let set = |key: &'static str, value: &std::ffi::OsStr| {
        fsconfig_set_string(&context, key, value)
            .map_err(|error| NewError::Failed(explain(&context, "configure overlayfs for", error)))
    };
    set("source", SOURCE.as_ref())?;
    for (key, value) in options(overlay) {
        set(key, value.as_ref())?;
    }
    if overlay.userxattr {
        fsconfig_set_flag(&context, "userxattr")
            .map_err(|error| NewError::Failed(explain(&context, "set userxattr for", error)))?;
    }
    let mut names = Names::default();
    let mut first = true;
    for lower in overlay.lower {
        let name = names.short(lower).map_err(NewError::Failed)?;
        match fsconfig_set_string(&context, "lowerdir+", name.as_os_str()) {
            Ok(()) => {}
            // Kernels before 6.7 do not know this key.
            Err(Errno::INVAL) if first => return Err(NewError::Missing),
            Err(error) => return Err(NewError::Failed(explain(&context, "add a layer for", error))),
        }
        first = false;
    }
    if let Some((upper, work)) = &overlay.upper {
        for (key, path) in [("upperdir", upper), ("workdir", work)] {
            let name = names.short(path).map_err(NewError::Failed)?;
            set(key, name.as_os_str())?;
        }
    }
    fsconfig_create(&context).map_err(|error| NewError::Failed(explain(&context, "create an overlay for", error)))?;
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    if overlay.upper.is_none() {
        attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    let mounted = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .map_err(|error| NewError::Failed(explain(&context, "mount an overlay for", error)))?;
    move_mount(&mounted, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|error| NewError::Failed(failed("attach the overlay to")(error)))
}

/// The old way. All paths go through file descriptors, so that none needs an escape and all are short.
pub(crate) fn mount_classic(overlay: &Overlay<'_>, target: &Path) -> Result<(), Failure> {
    let mut names = Names::default();
    let mut data = String::from("lowerdir=");
    for (at, lower) in overlay.lower.iter().enumerate() {
        if at > 0 {
            data.push(':');
        }
        data.push_str(&names.descriptor(lower)?);
    }
    if let Some((upper, work)) = &overlay.upper {
        data.push_str(&format!(",upperdir={},workdir={}", names.descriptor(upper)?, names.descriptor(work)?));
    }
    for (key, value) in options(overlay) {
        data.push_str(&format!(",{key}={value}"));
    }
    if overlay.userxattr {
        data.push_str(",userxattr");
    }
    if data.len() >= PAGE_BYTES {
        let source = io::Error::new(
            io::ErrorKind::ArgumentListTooLong,
            format!("{} layers are more than this kernel can take; Linux 6.7 can", overlay.lower.len()),
        );
        return Err(Failure { operation: "mount an overlay on", source });
    }
    let data = CString::new(data).expect("made of digits and fixed words");
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if overlay.upper.is_none() {
        flags |= MountFlags::RDONLY;
    }
    rustix::mount::mount(SOURCE, target, "overlay", flags, data.as_c_str()).map_err(failed("mount an overlay on"))
}

/// The names by which directories are given to the kernel, and what must stay open for them.
#[derive(Default)]
struct Names {
    open: Vec<OwnedFd>,
}

impl Names {
    /// The path itself, unless it is too long or has a character that overlayfs reads in its own way.
    fn short(&mut self, path: &Path) -> Result<PathBuf, Failure> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() < STRING_BYTES && !bytes.iter().any(|b| matches!(b, b':' | b',' | b'\\')) {
            // Looked at here, so that an error can name it.
            open(path)?;
            return Ok(path.to_owned());
        }
        self.descriptor(path).map(PathBuf::from)
    }

    fn descriptor(&mut self, path: &Path) -> Result<String, Failure> {
        let directory = open(path)?;
        let name = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd());
        self.open.push(directory);
        Ok(name)
    }
}

fn open(path: &Path) -> Result<OwnedFd, Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|error| Failure {
        operation: "open a layer for",
        source: io::Error::new(io::Error::from(error).kind(), format!("{}: {error}", path.display())),
    })
}

/// The kernel writes its reasons into the context, one line a read: `e overlay: …`.
fn explain(context: &OwnedFd, operation: &'static str, error: Errno) -> Failure {
    let source = io::Error::from(error);
    let mut line = [0_u8; 1024];
    let mut said = Vec::new();
    while let Ok(length) = rustix::io::read(context, &mut line) {
        if length == 0 || said.len() > 16 {
            break;
        }
        let text = String::from_utf8_lossy(&line[..length]);
        said.push(text.trim().trim_start_matches(['e', 'w', 'i']).trim().to_owned());
    }
    if said.is_empty() {
        return Failure { operation, source };
    }
    Failure { operation, source: io::Error::new(source.kind(), format!("{source}: {}", said.join("; "))) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Two layers and a place to mount on, which is unmounted in the end.
    struct Bench {
        lower: Vec<PathBuf>,
        target: PathBuf,
        top: tempfile::TempDir,
    }

    impl Bench {
        fn new(layers: usize) -> Self {
            assert!(rustix::process::geteuid().is_root(), "this test mounts: run it as root");
            let top = tempfile::tempdir().expect("tempdir");
            let make = |name: String| {
                let path = top.path().join(name);
                fs::create_dir(&path).expect("creates");
                path
            };
            let target = make("target".into());
            let lower: Vec<PathBuf> = (0..layers).map(|n| make(format!("layer {n}, with: odd\\characters"))).collect();
            for (n, layer) in lower.iter().enumerate() {
                fs::write(layer.join(format!("f{n}")), "x").expect("writes");
            }
            Self { lower, target, top }
        }

        fn files(&self) -> usize {
            fs::read_dir(&self.target).expect("readable").count()
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            while rustix::mount::unmount(&self.target, rustix::mount::UnmountFlags::DETACH).is_ok() {}
        }
    }

    #[test]
    fn the_old_way_takes_many_layers_and_any_path() {
        let bench = Bench::new(100);
        let overlay = Overlay { lower: &bench.lower, upper: None, userxattr: false };
        mount_classic(&overlay, &bench.target).expect("mounts");
        assert_eq!(bench.files(), 100);
        fs::write(bench.target.join("new"), "x").expect_err("read-only");
    }

    #[test]
    fn the_old_way_can_be_written_to() {
        let bench = Bench::new(1);
        let (upper, work) = (bench.top.path().join("upper"), bench.top.path().join("work"));
        fs::create_dir(&upper).expect("creates");
        fs::create_dir(&work).expect("creates");
        let overlay = Overlay { lower: &bench.lower, upper: Some((upper.clone(), work)), userxattr: true };
        mount_classic(&overlay, &bench.target).expect("mounts");
        fs::write(bench.target.join("new"), "x").expect("writable");
        assert!(upper.join("new").exists());
    }

    #[test]
    fn the_old_way_says_when_there_are_too_many_layers() {
        let bench = Bench::new(300);
        let overlay = Overlay { lower: &bench.lower, upper: None, userxattr: false };
        let failure = mount_classic(&overlay, &bench.target).expect_err("too many");
        assert!(failure.source.to_string().contains("300 layers"), "{failure:?}");
    }

    #[test]
    fn what_the_kernel_says_is_passed_on() {
        let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).expect("root may do this");
        let error = fsconfig_set_string(&context, "nonsense", "x").expect_err("no such option");
        let failure = explain(&context, "configure overlayfs for", error);
        let text = failure.source.to_string();
        assert!(text.contains("Invalid argument") && text.contains("Unknown parameter 'nonsense'"), "{text}");
    }

    #[test]
    fn one_layer_is_not_enough() {
        let bench = Bench::new(1);
        let overlay = Overlay { lower: &bench.lower, upper: None, userxattr: false };
        let Err(NewError::Failed(failure)) = mount_new(&overlay, &bench.target) else { panic!("the caller adds one") };
        assert_eq!(failure.source.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(bench.files(), 0);
    }
}
