//! The system calls of an overlayfs mount: the new mount API, which takes any path and layers that are mounted nowhere, and
//! mount(2) where the kernel has not got it. More layers than overlayfs takes are put together in two steps. Decides
//! nothing; [`super`] says what is mounted where.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use erofs::NESTED_ROOT;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, fsconfig_create, fsconfig_set_fd,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};

use super::failure::Failure;
use super::kernel_features::KernelFeatures;
use super::own_mounts::SOURCE;
use super::points::{Point, Points};

/// Bytes that fit into a string of the mount API, the end included.
pub(super) const STRING_BYTES: usize = 256;
/// Bytes that fit into the options of mount(2), the end included.
const PAGE_BYTES: usize = 4096;
/// So many layers overlayfs takes (`OVL_MAX_STACK`).
pub(super) const MOST: usize = 500;
/// So many are put together in two steps.
pub(super) const MOST_IN_TWO: usize = 2 * MOST - 1;
/// So many fit into the options of mount(2), whatever their descriptors' numbers.
const MOST_CLASSIC: usize = 200;

/// A layer as overlayfs is given it.
#[derive(Debug)]
pub(super) enum Layer {
    /// A directory.
    At(PathBuf),
    /// A detached mount.
    Mounted(OwnedFd),
    /// A detached mount with the tree in a directory of it.
    Nested {
        /// The mount.
        mounted: OwnedFd,
        /// The directory.
        tree: OwnedFd,
    },
    /// A mount in a private place.
    Placed(Point),
    /// A mount in a private place with the tree in a directory of it, which has this path.
    PlacedTree { path: PathBuf, _point: Point },
}

impl Layer {
    /// Where it is, if anywhere.
    fn path(&self) -> Option<&Path> {
        match self {
            Self::At(path) | Self::Placed(Point { path }) | Self::PlacedTree { path, .. } => Some(path),
            Self::Mounted(_) | Self::Nested { .. } => None,
        }
    }

    /// Descriptor of its root, if it is mounted nowhere.
    fn descriptor(&self) -> Option<&OwnedFd> {
        match self {
            Self::Mounted(tree) | Self::Nested { tree, .. } => Some(tree),
            Self::At(_) | Self::Placed(_) | Self::PlacedTree { .. } => None,
        }
    }

    /// The layer of a detached mount whose tree is nested.
    pub(super) fn nested(mounted: OwnedFd) -> rustix::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let tree = rustix::fs::openat(&mounted, NESTED_ROOT, flags, Mode::empty())?;
        Ok(Self::Nested { mounted, tree })
    }

    /// Attributes of its root.
    pub(super) fn stat(&self) -> rustix::io::Result<rustix::fs::Stat> {
        match self {
            Self::At(path) | Self::Placed(Point { path }) | Self::PlacedTree { path, .. } => rustix::fs::stat(path),
            Self::Mounted(tree) | Self::Nested { tree, .. } => rustix::fs::statat(tree, "", AtFlags::EMPTY_PATH),
        }
    }

    /// Puts it into a place if it has none.
    fn place(&mut self, points: &Points) -> Result<(), Failure> {
        match self {
            Self::Mounted(mounted) => *self = Self::Placed(points.place(mounted)?),
            Self::Nested { mounted, .. } => {
                let point = points.place(mounted)?;
                let tree = point.path.join(NESTED_ROOT);
                *self = Self::PlacedTree { path: tree, _point: point };
            }
            Self::At(_) | Self::Placed(_) | Self::PlacedTree { .. } => {}
        }
        Ok(())
    }
}

/// An overlay.
#[derive(Debug)]
pub(super) struct Overlay<'a> {
    /// Topmost first; two at least, or one with an upper directory.
    pub(super) lower: Vec<Layer>,
    /// Upper and work directory.
    pub(super) upper: Option<(PathBuf, PathBuf)>,
    /// The layers were made by an ordinary user: their marks are `user.overlay.*`.
    pub(super) userxattr: bool,
    /// Where mounts may be put meanwhile.
    pub(super) points: Option<&'a Points>,
}

fn failed(operation: &'static str) -> impl Fn(Errno) -> Failure {
    move |error| Failure { operation, source: error.into() }
}

/// Mounts an overlay on `target`, by whichever way the kernel has.
pub(super) fn mount(overlay: Overlay<'_>, target: &Path, ways: KernelFeatures) -> Result<(), Failure> {
    let mut overlay = overlay;
    if ways.new_overlay {
        let first = match mount_new(&overlay, target, ways) {
            Ok(()) => return Ok(()),
            Err(NewError::Missing) => None,
            Err(NewError::Unseen(failure)) => Some(failure),
            Err(NewError::Failed(failure)) => return Err(failure),
        };
        // Linux before 6.15 takes no mount that is nowhere.
        overlay.place_all(first)?;
        match mount_new(&overlay, target, KernelFeatures { unseen: false, ..ways }) {
            Ok(()) => return Ok(()),
            Err(NewError::Missing) => {}
            Err(NewError::Unseen(failure) | NewError::Failed(failure)) => return Err(failure),
        }
    }
    overlay.place_all(None)?;
    mount_classic(&overlay, target)
}

/// Returns true if this process may mount overlays at all.
pub(super) fn is_permitted() -> bool {
    !matches!(fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC), Err(Errno::PERM))
}

/// An empty read-only file tree, for an image without layers.
pub(super) fn mount_nothing(target: &Path) -> Result<(), Failure> {
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(SOURCE, target, "tmpfs", flags, c"mode=0755").map_err(failed("mount an empty file tree on"))
}

/// How the new way can end.
#[derive(Debug)]
enum NewError {
    /// The kernel has not got it, or not yet for overlayfs.
    Missing,
    /// Given a mount that is nowhere, and may not like that.
    Unseen(Failure),
    Failed(Failure),
}

impl From<Failure> for NewError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Overlay<'_> {
    /// Options that are not paths.
    fn options(&self) -> &'static [(&'static str, &'static str)] {
        // Nothing in a layer may point elsewhere, and a layer may be part of many mounts.
        if self.upper.is_some() { &[("index", "off"), ("metacopy", "off")] } else { &[("metacopy", "off")] }
    }

    /// Attaches every mount to a private place. Returns `why` if there are no places.
    fn place_all(&mut self, why: Option<Failure>) -> Result<(), Failure> {
        match (self.points, why) {
            (Some(points), _) => self.lower.iter_mut().try_for_each(|layer| layer.place(points)),
            (None, Some(failure)) => Err(failure),
            (None, None) => Ok(()),
        }
    }

    /// The layers as they are handed over: those on top, and the lowest ones where they are too many to be handed over
    /// with them. Nothing lies below those, so that what one of them hides in another need not be seen from outside.
    fn parts(&self, most: usize) -> Result<(&[Layer], &[Layer]), Failure> {
        let count = self.lower.len();
        if count <= most {
            return Ok((&self.lower, &[]));
        }
        // An overlay may be part of another one, and that of none.
        if count > 2 * most - 1 {
            let text = format!("{count} layers are more than this kernel can take, which are {}", 2 * most - 1);
            let source = io::Error::new(io::ErrorKind::ArgumentListTooLong, text);
            return Err(Failure { operation: "mount an overlay on", source });
        }
        Ok(self.lower.split_at(count - most))
    }

    fn set_options(&self, context: &OwnedFd) -> Result<(), Failure> {
        let explained = |error| explain(context, "configure overlayfs for", error);
        fsconfig_set_string(context, "source", SOURCE).map_err(explained)?;
        for (key, value) in self.options() {
            fsconfig_set_string(context, *key, *value).map_err(explained)?;
        }
        if self.userxattr {
            fsconfig_set_flag(context, "userxattr").map_err(|error| explain(context, "set userxattr for", error))?;
        }
        Ok(())
    }

    /// An overlay of these layers that is mounted nowhere yet.
    fn create<'l>(
        &self,
        lower: impl Iterator<Item = &'l Layer>,
        upper: Option<&(PathBuf, PathBuf)>,
        ways: KernelFeatures,
    ) -> Result<OwnedFd, NewError> {
        let context = match fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC) {
            Ok(context) => context,
            Err(Errno::NOSYS) => return Err(NewError::Missing),
            Err(error) => return Err(NewError::Failed(failed("open overlayfs for")(error))),
        };
        self.set_options(&context)?;
        let mut names = Names::default();
        let (mut first, mut unseen) = (true, false);
        let refused = |operation, error, unseen| match explain(&context, operation, error) {
            failure if unseen && error == Errno::INVAL => NewError::Unseen(failure),
            failure => NewError::Failed(failure),
        };
        for layer in lower {
            let added = match (layer.descriptor(), layer.path()) {
                (Some(tree), _) if ways.unseen => {
                    unseen = true;
                    fsconfig_set_fd(&context, "lowerdir+", tree)
                }
                (Some(_), _) => Err(Errno::INVAL),
                (_, path) => {
                    let name = names.short(path.expect("all but mounts without a place have one"))?;
                    fsconfig_set_string(&context, "lowerdir+", name.as_os_str())
                }
            };
            match added {
                Ok(()) => {}
                // Kernels before 6.7 do not know this key.
                Err(Errno::INVAL) if first && !unseen => return Err(NewError::Missing),
                Err(error) => return Err(refused("add a layer for", error, unseen)),
            }
            first = false;
        }
        if let Some((upper, work)) = upper {
            for (key, path) in [("upperdir", upper), ("workdir", work)] {
                let name = names.short(path)?;
                fsconfig_set_string(&context, key, name.as_os_str())
                    .map_err(|error| explain(&context, "configure overlayfs for", error))?;
            }
        }
        fsconfig_create(&context).map_err(|error| refused("create an overlay for", error, unseen))?;
        let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        if upper.is_none() {
            attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
            .map_err(|error| NewError::Failed(explain(&context, "mount an overlay for", error)))
    }

    fn data(
        &self,
        lower: &[&Layer],
        upper: Option<&(PathBuf, PathBuf)>,
        names: &mut Names,
    ) -> Result<CString, Failure> {
        let mut data = String::from("lowerdir=");
        for (at, layer) in lower.iter().enumerate() {
            if at > 0 {
                data.push(':');
            }
            match (layer.descriptor(), layer.path()) {
                (Some(tree), _) => data.push_str(&by_descriptor(tree)),
                (_, path) => data.push_str(&names.descriptor(path.expect("all but mounts without a place have one"))?),
            }
        }
        if let Some((upper, work)) = upper {
            data.push_str(&format!(",upperdir={},workdir={}", names.descriptor(upper)?, names.descriptor(work)?));
        }
        for (key, value) in self.options() {
            data.push_str(&format!(",{key}={value}"));
        }
        if self.userxattr {
            data.push_str(",userxattr");
        }
        if data.len() >= PAGE_BYTES {
            let source = io::Error::from(io::ErrorKind::ArgumentListTooLong);
            return Err(Failure { operation: "mount an overlay on", source });
        }
        Ok(CString::new(data).expect("made of digits and fixed words"))
    }
}

fn mount_new(overlay: &Overlay<'_>, target: &Path, ways: KernelFeatures) -> Result<(), NewError> {
    let (top, bottom) = overlay.parts(MOST)?;
    let below = match bottom {
        [] => None,
        _ => {
            let mut below = Layer::Mounted(overlay.create(bottom.iter(), None, ways)?);
            if !ways.unseen
                && let Some(points) = overlay.points
            {
                below.place(points)?;
            }
            Some(below)
        }
    };
    let mounted = overlay.create(top.iter().chain(&below), overlay.upper.as_ref(), ways)?;
    move_mount(&mounted, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|error| NewError::Failed(failed("attach the overlay to")(error)))
}

/// The old way. All paths go through file descriptors, so that none needs an escape and all are short.
fn mount_classic(overlay: &Overlay<'_>, target: &Path) -> Result<(), Failure> {
    let (top, bottom) = overlay.parts(MOST_CLASSIC)?;
    let mount_on = |target: &Path, lower: &[&Layer], upper: Option<&(PathBuf, PathBuf)>| {
        let mut names = Names::default();
        let data = overlay.data(lower, upper, &mut names)?;
        let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
        if upper.is_none() {
            flags |= MountFlags::RDONLY;
        }
        rustix::mount::mount(SOURCE, target, "overlay", flags, data.as_c_str()).map_err(failed("mount an overlay on"))
    };
    let mut lower: Vec<&Layer> = top.iter().collect();
    let below;
    if !bottom.is_empty() {
        let points = overlay.points.ok_or_else(|| Failure {
            operation: "mount an overlay on",
            source: io::Error::from(io::ErrorKind::ArgumentListTooLong),
        })?;
        let point = points.empty()?;
        mount_on(&point.path, &bottom.iter().collect::<Vec<_>>(), None)?;
        below = Layer::Placed(point);
        lower.push(&below);
    }
    mount_on(target, &lower, overlay.upper.as_ref())
}

/// The names by which directories are given to the kernel, and what must stay open for them.
#[derive(Default)]
pub(super) struct Names {
    open: Vec<OwnedFd>,
}

impl Names {
    /// The path itself, unless it is too long or has a character that overlayfs reads in its own way.
    fn short(&mut self, path: &Path) -> Result<PathBuf, Failure> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() < STRING_BYTES && !bytes.iter().any(|b| matches!(b, b':' | b',' | b'\\')) {
            // Checked here, so that an error can name it.
            open(path)?;
            return Ok(path.to_owned());
        }
        self.descriptor(path).map(PathBuf::from)
    }

    /// Returns the path of a file, or a shorter one that is valid as long as `self`. A link is not followed.
    pub(super) fn file(&mut self, path: &Path) -> Result<PathBuf, Failure> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|error| Failure::at("open a layer for", path, error))?;
        if path.as_os_str().len() < STRING_BYTES {
            return Ok(path.to_owned());
        }
        let name = by_descriptor(&file);
        self.open.push(file);
        Ok(name.into())
    }

    fn descriptor(&mut self, path: &Path) -> Result<String, Failure> {
        let directory = open(path)?;
        let name = by_descriptor(&directory);
        self.open.push(directory);
        Ok(name)
    }
}

fn by_descriptor(directory: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd())
}

fn open(path: &Path) -> Result<OwnedFd, Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|error| Failure::at("open a layer for", path, error))
}

/// Returns the failure of an operation on the context of a file system, with the kernel's reasons.
fn explain(context: &OwnedFd, operation: &'static str, error: Errno) -> Failure {
    Failure { operation, source: base::explain(context, error) }
}

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
