//! Mounting an image's file tree with overlayfs, read-only or with a writable directory on top, and taking it away
//! again. Which images are mounted is written down, so that they are not removed; what is written down counts only
//! while the mount is there. Never mounts over a mount of ours, never unmounts one that is not.
//!
//! There is one mount that anybody sees, the overlay. The EROFS files below it are mounted nowhere, or in a private place
//! while the overlay is put together: it holds them, and loop devices where they need some, until it is unmounted, by
//! whatever process. Many layers are put into one image first (`merged`), which is mounted by itself where nothing is written.

mod fuse;
mod image_file;
mod loop_device;
mod merged;
mod mountinfo;
mod overlay;
pub(crate) mod points;
pub(crate) mod probe;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use oci::Digest;
use rustix::fs::{AtFlags, CWD, Mode};
use rustix::mount::UnmountFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::disk::layout::EMPTY;
use crate::error::StoreError;
use crate::layers::shape::Lower;
use crate::records::db::{Records, RecordsMut};
use crate::records::entries::{ImageRecord, LayerId, MountEntry};
use crate::store::open::{Inner, Store, is_privileged};
use crate::view::Stack;
use image_file::ImageFailure;
use mountinfo::Mount;
use overlay::{Failure, Layer, Overlay};
use points::Points;

/// From so many layers on it pays to compose one image of them (docs/layers.md has the figures).
const MANY: usize = 60;

/// Files that a process has open beside those of layers.
const FILES_BESIDE: usize = 256;

/// Why something was not mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The right to mount is missing.
    #[error(
        "mounting on {} needs root (CAP_SYS_ADMIN); as an ordinary user, run it with the same --root in a user namespace of your own: unshare --user --map-root-user --mount",
        target.display()
    )]
    NotPermitted {
        /// Where it should have been mounted.
        target: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The user may not mount what the image's layers are.
    #[error(
        "mounting on {}: {why}; `imagelet ls`, `cat` and `cp` read the image without a mount",
        target.display()
    )]
    NeedsFuse {
        /// Where it should have been mounted.
        target: PathBuf,
        /// What would help.
        why: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel mounts no EROFS file, by whatever way.
    #[error(
        "mounting on {}: this kernel cannot mount EROFS layers; `imagelet convert --to dir` makes directories of them, and `imagelet ls`, `cat` and `cp` read them as they are",
        target.display()
    )]
    NoErofs {
        /// Where it should have been mounted.
        target: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is a mount of ours already.
    #[error("{} has an image mounted already", target.display())]
    AlreadyMounted {
        /// The place.
        target: PathBuf,
    },
    /// Nothing is mounted there.
    #[error("nothing is mounted on {}", target.display())]
    NotMounted {
        /// The place.
        target: PathBuf,
    },
    /// What is mounted there is not an image.
    #[error("what is mounted on {} is not an image, but {kind} from {}", target.display(), found.display())]
    NotOurs {
        /// The place.
        target: PathBuf,
        /// Type of the file system.
        kind: String,
        /// Source of the mount.
        found: PathBuf,
    },
    /// The system refused something.
    #[error("{operation} {}", path.display())]
    Io {
        /// What was done.
        operation: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The database could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A mounted image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageMount {
    /// Where.
    pub target: PathBuf,
    /// Which image.
    pub image: Digest,
    /// Whether it can be written to.
    pub writable: bool,
}

/// What the mounter makes use of: everything, but in tests of what other kernels lack.
#[derive(Clone, Copy, Debug)]
struct Ways {
    /// EROFS from a file (Linux 6.12).
    from_file: bool,
    /// Layers by descriptors of mounts that are nowhere (Linux 6.15).
    unseen: bool,
    /// The new mount API for overlayfs (Linux 6.7).
    new_overlay: bool,
    /// From so many layers on, which are all images, one image is composed of them.
    many: usize,
}

impl Default for Ways {
    fn default() -> Self {
        Self { from_file: true, unseen: true, new_overlay: true, many: MANY }
    }
}

/// Mounts layers, directories or EROFS files, lowest first, on `target`: read-only, or with what is written going to
/// `writable/upper` (`writable/work` is overlayfs's own). Set-user-id bits and devices have no effect there. The store does
/// not learn of it: [`Store::mount_image`] is for images.
///
/// # Errors
/// See [`MountError`].
pub fn mount(layers: &[PathBuf], target: &Path, writable: Option<&Path>) -> Result<(), MountError> {
    let target = absolute(target)?;
    let lower = |path: &PathBuf| {
        if path.is_file() { Lower::Image(path.clone()) } else { Lower::Directory(path.clone()) }
    };
    let layers: Vec<Lower> = layers.iter().map(lower).collect();
    let assembly = Assembly { userxattr: !is_privileged(), points: None, compose: None, ways: Ways::default() };
    assembly.mount(&layers, &target, writable)
}

/// Takes a mount of ours away.
///
/// # Errors
/// See [`MountError`].
pub fn unmount(target: &Path) -> Result<(), MountError> {
    let target = absolute(target)?;
    let mounts = read_mounts()?;
    let of_fuse = match mountinfo::topmost(&mounts, &target) {
        None => return Err(MountError::NotMounted { target }),
        Some(mount) if !mount.is_ours() => {
            let (kind, found) = (mount.kind.clone(), PathBuf::from(&mount.source));
            return Err(MountError::NotOurs { target, kind, found });
        }
        Some(mount) => mount.is_fuse(),
    };
    match rustix::mount::unmount(&target, UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        // An ordinary user's, which a program with the right to it has to take away.
        Err(rustix::io::Errno::PERM) if of_fuse => {
            fuse::unmount(&target).map_err(|source| refused(Failure { operation: "unmount", source }, &target))
        }
        Err(error) => Err(refused(Failure { operation: "unmount", source: error.into() }, &target)),
    }
}

impl Store {
    /// Mounts an image, and keeps it from being removed while it is mounted.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn mount_image(&self, image: &ImageRecord, target: &Path, writable: Option<&Path>) -> Result<(), MountError> {
        let target = absolute(target)?;
        let _mounting = self.inner.mounting.lock();
        if mountinfo::topmost(&read_mounts()?, &target).is_some_and(Mount::is_ours) {
            return Err(MountError::AlreadyMounted { target });
        }
        let layers = self.image_layers(image)?;
        let stack = Stack::of(image.id.clone(), &layers, self.inner.privileged);
        let layers = self.inner.lower_layers(&layers);
        let points = Points::of(&self.inner.layout.path);
        self.inner.sweep_points();
        // Written down first: a mount that nobody knows of could lose its layers.
        self.inner.db.write(|transaction| {
            let entry = transaction.image(&image.id)?.ok_or_else(|| StoreError::NotFound(image.id.clone()))?;
            let entry = MountEntry { image: image.id.clone(), layers: entry.layers, writable: writable.is_some() };
            Ok::<_, StoreError>(transaction.put_mount(&target, &entry)?)
        })?;
        let compose = Some((self.inner.layout.path.as_path(), &stack));
        let userxattr = !self.inner.privileged;
        let assembly = Assembly { userxattr, points: Some(&points), compose, ways: Ways::default() };
        let mounted = assembly.mount(&layers, &target, writable);
        if mounted.is_err() {
            self.inner.forget_mount(&target)?;
        }
        mounted
    }

    /// Takes an image's mount away.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn unmount_image(&self, target: &Path) -> Result<(), MountError> {
        let target = absolute(target)?;
        let _mounting = self.inner.mounting.lock();
        self.inner.sweep_points();
        unmount(&target)?;
        let recorded = self.inner.db.read(|records| Ok::<_, StoreError>(records.mounts()?))?;
        self.inner.forget_mount(&target)?;
        let layers = recorded.into_iter().filter(|(known, _)| *known == target).flat_map(|(_, entry)| entry.layers);
        Ok(self.inner.sweep_unmounted(layers.collect())?)
    }

    /// The images that are mounted, by place. Forgets what is not mounted any more.
    ///
    /// # Errors
    /// The database or the table of mounts could not be read.
    pub fn mounts(&self) -> Result<Vec<ImageMount>, StoreError> {
        let _mounting = self.inner.mounting.lock();
        self.inner.sweep_points();
        let live = self.inner.live_mounts()?;
        let recorded = self.inner.db.read(|records| Ok::<_, StoreError>(records.mounts()?))?;
        for (target, _) in &recorded {
            if !live.iter().any(|(known, _)| known == target) {
                self.inner.forget_mount(target)?;
            }
        }
        Ok(live
            .into_iter()
            .map(|(target, entry)| ImageMount { target, image: entry.image, writable: entry.writable })
            .collect())
    }
}

impl Inner {
    /// Takes away what a process left that was killed while it mounted something: `mounting` is held, or nobody else is there.
    pub(crate) fn sweep_points(&self) {
        if let Err(error) = Points::of(&self.layout.path).sweep() {
            tracing::warn!(%error, root = %self.layout.path.display(), "what an earlier process was mounting stays");
        }
    }

    /// What is written down and still mounted.
    pub(crate) fn live_mounts(&self) -> Result<Vec<(PathBuf, MountEntry)>, StoreError> {
        let mut recorded = self.db.read(|records| Ok::<_, StoreError>(records.mounts()?))?;
        if recorded.is_empty() {
            return Ok(recorded);
        }
        let mounts = mountinfo::read().map_err(|source| StoreError::io("read", "/proc/self/mountinfo", source))?;
        // Another mount may lie over ours, so it need not be the topmost one.
        recorded.retain(|(target, _)| mounts.iter().any(|mount| mount.target == *target && mount.is_ours()));
        Ok(recorded)
    }

    /// Deletes what only a mount has kept: layers that were found damaged meanwhile, and the empty directory that fills
    /// up a mount of one layer.
    fn sweep_unmounted(&self, layers: BTreeSet<LayerId>) -> Result<(), StoreError> {
        let mounts = self.live_mounts()?;
        let mut left = Vec::new();
        for id in layers.into_iter().filter(|id| !mounts.iter().any(|(_, mount)| mount.layers.contains(id))) {
            let entry = self.db.read(|records| Ok::<_, StoreError>(records.layer(id)?))?;
            if entry.is_none_or(|entry| entry.damaged) {
                left.push(id);
            } else if let Err(error) =
                rustix::fs::unlinkat(&self.layout.layers, format!("{id}/{EMPTY}"), AtFlags::REMOVEDIR)
                && error != rustix::io::Errno::NOENT
            {
                tracing::debug!(%error, layer = %id, "the empty directory beside the layer stays");
            }
        }
        self.delete_directories(&left)
    }

    fn forget_mount(&self, target: &Path) -> Result<(), StoreError> {
        self.db.write(|transaction| Ok(transaction.delete_mount(target)?))
    }
}

/// How layers become one file tree.
struct Assembly<'a> {
    userxattr: bool,
    points: Option<&'a Points>,
    /// The store's root and the layers once more, for who wants them in one image.
    compose: Option<(&'a Path, &'a Stack)>,
    ways: Ways,
}

/// What came of an attempt to put layers into one image.
enum OneImage {
    /// It is mounted where it should be.
    Done,
    /// It is to be put below something.
    Below(Layer),
    /// Not here: the kernel or the user's rights are against it.
    Not,
}

impl Assembly<'_> {
    fn mount(&self, layers: &[Lower], target: &Path, writable: Option<&Path>) -> Result<(), MountError> {
        // overlayfs takes a directory once; the upper place of a layer that comes twice is the one that counts.
        let mut stack: Vec<&Lower> = Vec::with_capacity(layers.len());
        for layer in layers.iter().rev() {
            if !stack.contains(&layer) {
                stack.push(layer);
            }
        }
        let failed = |failure| refused(failure, target);
        if stack.is_empty() && writable.is_none() {
            return overlay::mount_nothing(target).map_err(failed);
        }
        allow_files(stack.len());
        if self.is_many(&stack) {
            match self.one_image(target, writable.is_none()).map_err(failed)? {
                OneImage::Done => return Ok(()),
                OneImage::Below(layer) => return self.put_together(vec![layer], &stack, target, writable),
                OneImage::Not => {}
            }
        }
        let opened: Result<Vec<Layer>, ImageFailure> = stack.iter().map(|layer| self.open(layer)).collect();
        let lower = match opened {
            Ok(lower) => lower,
            Err(ImageFailure::Failed(failure)) => return Err(failed(failure)),
            Err(refusal) => {
                check_fuse(refusal, stack.len(), target)?;
                if let ([Lower::Image(only)], None) = (stack.as_slice(), writable) {
                    return fuse::mount(only, target).map_err(failed);
                }
                stack.iter().map(|layer| self.open_by_fuse(layer)).collect::<Result<_, _>>().map_err(failed)?
            }
        };
        self.put_together(lower, &stack, target, writable)
    }

    /// Whether the layers are better put into one image.
    fn is_many(&self, stack: &[&Lower]) -> bool {
        let all_images = stack.iter().all(|layer| matches!(layer, Lower::Image(_)));
        stack.len() > overlay::MOST_IN_TWO || all_images && stack.len() >= self.ways.many
    }

    /// Composes one image. `alone`: nothing is to be put on it.
    fn one_image(&self, target: &Path, alone: bool) -> Result<OneImage, Failure> {
        let (Some((root, stack)), Some(points)) = (self.compose, self.points) else { return Ok(OneImage::Not) };
        let merged = match merged::mount(root, stack, points, self.ways) {
            Ok(merged) => merged,
            Err(ImageFailure::Failed(failure)) => return Err(failure),
            Err(refusal) => {
                tracing::debug!(?refusal, "the layers are not put into one image");
                return Ok(OneImage::Not);
            }
        };
        if !alone {
            return Ok(OneImage::Below(Layer::Mounted(merged.mounted)));
        }
        Ok(merged.attach(target)?.map_or(OneImage::Done, |mounted| OneImage::Below(Layer::Mounted(mounted))))
    }

    /// Puts layers, the topmost first, on each other: those of the stack, or one image with all of them.
    fn put_together(
        &self,
        mut lower: Vec<Layer>,
        stack: &[&Lower],
        target: &Path,
        writable: Option<&Path>,
    ) -> Result<(), MountError> {
        let upper = writable.map(|directory| writable_parts(directory, lower.first())).transpose()?;
        match (lower.len(), stack.first(), writable) {
            (0, _, Some(directory)) => lower.push(Layer::At(empty_directory(directory)?)),
            (1, Some(top), None) => {
                let beside = top.path().parent().unwrap_or(top.path());
                lower.push(Layer::At(empty_directory(beside)?));
            }
            _ => {}
        }
        let overlay = Overlay { lower, upper, userxattr: self.userxattr, points: self.points };
        overlay::mount(overlay, target, self.ways).map_err(|failure| refused(failure, target))
    }

    /// A layer as overlayfs takes it.
    fn open(&self, layer: &Lower) -> Result<Layer, ImageFailure> {
        match layer {
            Lower::Directory(path) => Ok(Layer::At(path.clone())),
            Lower::Image(path) => image_file::mount(path, self.ways).map(Layer::Mounted),
        }
    }

    /// The same where the kernel mounts no EROFS file.
    fn open_by_fuse(&self, layer: &Lower) -> Result<Layer, Failure> {
        let path = match layer {
            Lower::Directory(path) => return Ok(Layer::At(path.clone())),
            Lower::Image(path) => path,
        };
        let points = self.points.ok_or_else(|| Failure {
            operation: "find a place in the store to mount a layer for",
            source: io::ErrorKind::Unsupported.into(),
        })?;
        let point = points.empty()?;
        fuse::mount(path, &point.path)?;
        // Old versions show no opaque directories, and whiteouts in half.
        match rustix::fs::getxattr(&point.path, "user.overlay.opaque", &mut [0_u8; 1][..]) {
            Err(rustix::io::Errno::OPNOTSUPP) => Err(Failure {
                operation: "put layers on each other by erofsfuse for",
                source: io::Error::new(
                    io::ErrorKind::Unsupported,
                    "it shows no extended attributes; erofsfuse 1.8 does",
                ),
            }),
            _ => Ok(Layer::Placed(point)),
        }
    }
}

/// Lets this process have so many files open as layers need, two for each and some beside: programs often begin with a limit that is
/// lower than what they may have.
fn allow_files(layers: usize) {
    let wanted = (2 * layers + FILES_BESIDE) as u64;
    let limit = getrlimit(Resource::Nofile);
    if layers >= FILES_BESIDE / 2 && limit.current.is_some_and(|current| current < wanted) {
        let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit }) {
            tracing::debug!(%error, "the limit of open files stays");
        }
    }
}

/// Whether so many layers can be mounted by erofsfuse, since the kernel has refused one.
fn check_fuse(refusal: ImageFailure, layers: usize, target: &Path) -> Result<(), MountError> {
    let target = || target.to_owned();
    let needs = |why, source| Err(MountError::NeedsFuse { target: target(), why, source });
    match refusal {
        ImageFailure::NoErofs(source) if !fuse::is_installed() => Err(MountError::NoErofs { target: target(), source }),
        ImageFailure::NotPermitted(source) if !fuse::is_installed() => {
            needs("EROFS layers need root (CAP_SYS_ADMIN), or the program erofsfuse", source)
        }
        ImageFailure::NoErofs(source) | ImageFailure::NotPermitted(source)
            if layers > 1 && !overlay::is_permitted() =>
        {
            let why = "more than one layer needs root (CAP_SYS_ADMIN), or a user namespace of your own: \
                       unshare --user --map-root-user --mount";
            needs(why, source)
        }
        _ => Ok(()),
    }
}

/// The upper and the work directory. A new upper one gets the looks of the tree's root, which it stands before.
fn writable_parts(directory: &Path, top: Option<&Layer>) -> Result<(PathBuf, PathBuf), MountError> {
    let directory = absolute(directory)?;
    let (upper, work) = (directory.join("upper"), directory.join("work"));
    let failed =
        |operation, path: &Path, source: io::Error| MountError::Io { operation, path: path.to_owned(), source };
    match rustix::fs::mkdirat(CWD, &upper, Mode::RWXU) {
        Ok(()) => {
            let mut mode = 0o755;
            if let Some(top) = top {
                let stat = top.stat().map_err(|error| failed("look at the top layer for", &upper, error.into()))?;
                mode = stat.st_mode & 0o7777;
                std::os::unix::fs::chown(&upper, Some(stat.st_uid), Some(stat.st_gid))
                    .map_err(|error| failed("set the owner of", &upper, error))?;
            }
            rustix::fs::chmodat(CWD, &upper, Mode::from_raw_mode(mode), AtFlags::empty())
                .map_err(|error| failed("set the mode of", &upper, error.into()))?;
        }
        Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(failed("create", &upper, error.into())),
    }
    match rustix::fs::mkdirat(CWD, &work, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(failed("create", &work, error.into())),
    }
    Ok((upper, work))
}

/// overlayfs wants two lower directories, or an upper one and a lower one: an empty one fills up.
fn empty_directory(parent: &Path) -> Result<PathBuf, MountError> {
    let path = absolute(parent)?.join(EMPTY);
    match rustix::fs::mkdirat(CWD, &path, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(path),
        Err(error) => Err(MountError::Io { operation: "create", path, source: error.into() }),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, MountError> {
    std::fs::canonicalize(path).map_err(|source| MountError::Io { operation: "find", path: path.to_owned(), source })
}

fn read_mounts() -> Result<Vec<Mount>, MountError> {
    mountinfo::read().map_err(|source| MountError::Io {
        operation: "read",
        path: "/proc/self/mountinfo".into(),
        source,
    })
}

fn refused(failure: Failure, target: &Path) -> MountError {
    let Failure { operation, source } = failure;
    if source.kind() == io::ErrorKind::PermissionDenied {
        return MountError::NotPermitted { target: target.to_owned(), source };
    }
    MountError::Io { operation, path: target.to_owned(), source }
}

#[cfg(test)]
#[path = "bench_tests.rs"]
mod bench;
#[cfg(test)]
#[path = "merged_tests.rs"]
mod merged_tests;
#[cfg(test)]
#[path = "mount_tests.rs"]
mod tests;
