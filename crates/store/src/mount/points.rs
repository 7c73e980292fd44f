//! Private mount points, for kernels whose overlayfs takes directories by path only: `mounts/<n>` in the store's root. A mount is
//! present while an overlay is put together, and no longer, since an overlay holds its layers by itself. Mounts that a crash left
//! are removed by the next sweep. Knows nothing of images.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, UnmountFlags, move_mount};

use super::failure::Failure;
use super::own_mounts::SOURCE;

/// The directory of the store in which the places are.
pub(crate) const DIRECTORY: &str = "mounts";

/// The composed EROFS file, by a name that shows in the table of mounts.
pub(super) const IMAGE: &str = SOURCE;

/// The file next to it to which names spill.
pub(super) const SPILL: &str = "names";

/// Files that are made there on the way to a mount.
const LEFT: [&str; 2] = [IMAGE, SPILL];

/// The places of a store.
#[derive(Clone, Debug)]
pub(super) struct Points {
    directory: PathBuf,
}

impl Points {
    pub(super) fn of(root: &Path) -> Self {
        Self { directory: root.join(DIRECTORY) }
    }

    /// A place where nothing is mounted yet.
    pub(super) fn empty(&self) -> Result<Point, Failure> {
        let failed = |path: &Path, error: Errno| Failure::at("create a place to mount a layer for", path, error);
        match rustix::fs::mkdirat(CWD, &self.directory, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(&self.directory, error)),
        }
        for number in 0_u32.. {
            let path = self.directory.join(number.to_string());
            match rustix::fs::mkdirat(CWD, &path, Mode::RWXU) {
                Ok(()) => return Ok(Point { path }),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(&path, error)),
            }
        }
        Err(failed(&self.directory, Errno::NOSPC))
    }

    /// Puts a mount that has no place into one.
    pub(super) fn place(&self, mounted: &OwnedFd) -> Result<Point, Failure> {
        let point = self.empty()?;
        move_mount(mounted, "", CWD, &point.path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|error| Failure::at("mount a layer for", &point.path, error))?;
        Ok(point)
    }

    /// Removes the mounts and files of a process that was killed while it mounted something. No other thread may mount meanwhile.
    pub(super) fn sweep(&self) -> io::Result<()> {
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            let point = Point { path };
            point.unmount();
            for left in LEFT {
                match rustix::fs::unlinkat(CWD, point.path.join(left), AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        match rustix::fs::unlinkat(CWD, &self.directory, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOTEMPTY) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A private mount point. Dropping it unmounts whatever is mounted there, and removes the directory.
#[derive(Debug)]
pub(super) struct Point {
    pub(super) path: PathBuf,
}

impl Point {
    /// Unmounts one after the other, and lazily: an overlay may be made of it.
    fn unmount(&self) {
        while rustix::mount::unmount(&self.path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_ok() {}
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        self.unmount();
        if let Err(error) = rustix::fs::unlinkat(CWD, &self.path, AtFlags::REMOVEDIR) {
            tracing::warn!(%error, path = %self.path.display(), "a place of a mount could not be taken away");
        }
    }
}
