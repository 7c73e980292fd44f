//! Mounting an image's file tree with overlayfs, read-only or with a writable directory on top, and unmounting it. Mounted images
//! are recorded, so that they are not removed; such a record counts only while the mount exists. Never mounts over a mount of
//! ours, never unmounts a foreign one.
//!
//! One mount is visible, the overlay. The EROFS files below it are mounted nowhere, or in a private place while the overlay is
//! put together: it holds them, and loop devices where they need some, until a process unmounts it. Many layers are put into one
//! EROFS file first (`merged`), which is mounted by itself where nothing is written.

mod erofs_file;
mod failure;
mod fuse;
mod kernel_features;
mod merged;
pub(crate) mod mounts;
mod overlay;
mod own_mounts;
pub(crate) mod points;
pub(crate) mod probe;

use std::io;
use std::path::{Path, PathBuf};

use base::mount::{Mount, mounts_lenient, topmost};
use erofs::NESTED_ROOT;
use erofs_file::ErofsFailure;
use failure::Failure;
use kernel_features::KernelFeatures;
use overlay::{Layer, Overlay};
use own_mounts::{is_fuse, is_ours};
use points::Points;
use rustix::fs::{AtFlags, CWD, Mode};
use rustix::mount::UnmountFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Lower;
use crate::disk::is_privileged;
use crate::disk::layout::EMPTY;
use crate::error::StoreError;
use crate::view::Stack;

/// Files that a process has open in addition to those of layers.
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
        /// The error of the system.
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
        /// The remedy.
        why: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The kernel mounts no EROFS file, in any way.
    #[error(
        "mounting on {}: this kernel cannot mount EROFS layers; `imagelet convert --to dir` makes directories of them, and `imagelet ls`, `cat` and `cp` read them as they are",
        target.display()
    )]
    NoErofs {
        /// Where it should have been mounted.
        target: PathBuf,
        /// The error of the system.
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
    /// A mount that is no image.
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
        /// The operation.
        operation: &'static str,
        /// To what.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The database could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Mounts layers, directories or EROFS files, lowest first, on `target`: read-only, or with what is written going to
/// `writable/upper` (`writable/work` is overlayfs's own). Set-user-id bits and devices have no effect there. The store does
/// not learn of it: [`crate::Store::mount_image`] is for images.
///
/// # Errors
/// See [`MountError`].
pub fn mount(layers: &[PathBuf], target: &Path, writable: Option<&Path>) -> Result<(), MountError> {
    let target = absolute(target)?;
    let lower = |path: &PathBuf| {
        if path.is_file() { Lower::Erofs(path.clone()) } else { Lower::Directory(path.clone()) }
    };
    let layers: Vec<Lower> = layers.iter().map(lower).collect();
    let assembly =
        OverlayAssembly { userxattr: !is_privileged(), points: None, compose: None, ways: KernelFeatures::default() };
    assembly.mount(&layers, &target, writable)
}

/// Takes a mount of ours away.
///
/// # Errors
/// See [`MountError`].
pub fn unmount(target: &Path) -> Result<(), MountError> {
    let target = absolute(target)?;
    let mounts = read_mounts()?;
    let of_fuse = match topmost(&mounts, &target) {
        None => return Err(MountError::NotMounted { target }),
        Some(mount) if !is_ours(mount) => {
            let (kind, found) = (mount.kind.clone(), PathBuf::from(&mount.source));
            return Err(MountError::NotOurs { target, kind, found });
        }
        Some(mount) => is_fuse(mount),
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

/// Returns why layers that are EROFS files in the file system of `directory` cannot be mounted once for all containers, from then on by
/// the kernel alone, or `None` if they can. The directory is made if it is missing.
#[must_use]
pub fn why_no_lasting_mounts(directory: &Path) -> Option<String> {
    probe::why_no_loop_mounts(directory)
}

/// How layers become one file tree.
struct OverlayAssembly<'a> {
    userxattr: bool,
    points: Option<&'a Points>,
    /// The store's root and the layers once more, for callers that want them in one EROFS file.
    compose: Option<(&'a Path, &'a Stack)>,
    ways: KernelFeatures,
}

/// The result of an attempt to merge layers into one EROFS file.
enum MergedErofs {
    /// Mounted where it should be.
    Done,
    /// To be put below something.
    Below(Layer),
    /// Not possible: the kernel or the user's rights do not allow it.
    Not,
}

impl OverlayAssembly<'_> {
    fn mount(&self, layers: &[Lower], target: &Path, writable: Option<&Path>) -> Result<(), MountError> {
        // overlayfs takes a directory once; the upper place of a layer that occurs twice is the one that counts.
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
            match self.merged_erofs(target, writable.is_none()).map_err(failed)? {
                MergedErofs::Done => return Ok(()),
                MergedErofs::Below(layer) => return self.put_together(vec![layer], &stack, target, writable),
                MergedErofs::Not => {}
            }
        }
        let opened: Result<Vec<Layer>, ErofsFailure> = stack.iter().map(|layer| self.open(layer)).collect();
        let lower = match opened {
            Ok(lower) => lower,
            Err(ErofsFailure::Failed(failure)) => return Err(failed(failure)),
            Err(refusal) => {
                check_fuse(refusal, stack.len(), target)?;
                if let ([Lower::Erofs(only)], None) = (stack.as_slice(), writable)
                    && !erofs_file::is_nested(only)
                {
                    return fuse::mount(only, target).map_err(failed);
                }
                stack.iter().map(|layer| self.open_by_fuse(layer)).collect::<Result<_, _>>().map_err(failed)?
            }
        };
        self.put_together(lower, &stack, target, writable)
    }

    /// Returns true if the layers are better put into one EROFS file.
    fn is_many(&self, stack: &[&Lower]) -> bool {
        let all_erofs = stack.iter().all(|layer| matches!(layer, Lower::Erofs(_)));
        stack.len() > overlay::MOST_IN_TWO || all_erofs && stack.len() >= self.ways.many
    }

    /// Composes one EROFS file. `alone`: nothing is to be put on it.
    fn merged_erofs(&self, target: &Path, alone: bool) -> Result<MergedErofs, Failure> {
        let (Some((root, stack)), Some(points)) = (self.compose, self.points) else { return Ok(MergedErofs::Not) };
        let merged = match merged::mount(root, stack, points, self.ways) {
            Ok(merged) => merged,
            Err(ErofsFailure::Failed(failure)) => return Err(failure),
            Err(refusal) => {
                tracing::debug!(?refusal, "the layers are not composed into one EROFS file");
                return Ok(MergedErofs::Not);
            }
        };
        if !alone {
            return Ok(MergedErofs::Below(Layer::Mounted(merged.mounted)));
        }
        Ok(merged.attach(target)?.map_or(MergedErofs::Done, |mounted| MergedErofs::Below(Layer::Mounted(mounted))))
    }

    /// Puts layers, the topmost first, on each other: those of the stack, or one EROFS file with all of them.
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
                let directory = top.path().parent().unwrap_or(top.path());
                lower.push(Layer::At(empty_directory(directory)?));
            }
            _ => {}
        }
        let overlay = Overlay { lower, upper, userxattr: self.userxattr, points: self.points };
        overlay::mount(overlay, target, self.ways).map_err(|failure| refused(failure, target))
    }

    /// A layer as overlayfs takes it.
    fn open(&self, layer: &Lower) -> Result<Layer, ErofsFailure> {
        match layer {
            Lower::Directory(path) => Ok(Layer::At(path.clone())),
            Lower::Erofs(path) => erofs_file::mount_layer(path, self.ways),
        }
    }

    /// The same where the kernel mounts no EROFS file.
    fn open_by_fuse(&self, layer: &Lower) -> Result<Layer, Failure> {
        let path = match layer {
            Lower::Directory(path) => return Ok(Layer::At(path.clone())),
            Lower::Erofs(path) => path,
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
            _ if erofs_file::is_nested(path) => {
                Ok(Layer::PlacedTree { path: point.path.join(NESTED_ROOT), _point: point })
            }
            _ => Ok(Layer::Placed(point)),
        }
    }
}

/// Raises the limit of open files to what the layers need, two for each, and some more: programs often start with a limit that is
/// lower than the one they may have.
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

/// Refuses layers that erofsfuse cannot mount, since the kernel has refused one.
fn check_fuse(refusal: ErofsFailure, layers: usize, target: &Path) -> Result<(), MountError> {
    let target = || target.to_owned();
    let needs = |why, source| Err(MountError::NeedsFuse { target: target(), why, source });
    match refusal {
        ErofsFailure::NoErofs(source) if !fuse::is_installed() => Err(MountError::NoErofs { target: target(), source }),
        ErofsFailure::NotPermitted(source) if !fuse::is_installed() => {
            needs("EROFS layers need root (CAP_SYS_ADMIN), or the program erofsfuse", source)
        }
        ErofsFailure::NoErofs(source) | ErofsFailure::NotPermitted(source)
            if layers > 1 && !overlay::is_permitted() =>
        {
            let why = "more than one layer needs root (CAP_SYS_ADMIN), or a user namespace of your own: \
                       unshare --user --map-root-user --mount";
            needs(why, source)
        }
        _ => Ok(()),
    }
}

/// Returns the upper and the work directory. A new upper one gets the attributes of the tree's root, which it covers.
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
    mounts_lenient().map_err(|source| MountError::Io { operation: "read", path: "/proc/self/mountinfo".into(), source })
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
