//! Parts of volumes. A container that can write to a volume can change any path in it at any moment, so a runtime must not
//! be handed one: what is at the path is opened once, without ever leaving the volume, and mounted at a place that only
//! this program can write to, `volume-subpaths/VOLUME/CONTAINER/NUMBER`. The runtime gets that place.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags};

use super::place::{OpenDirectory, PRIVATE};
use super::walk::{SymlinkPolicy, attributes, by_descriptor, find, kind, mount_id, place};

const SUB_PATHS: &str = "volume-subpaths";

/// Mount point of a part of a volume.
pub(super) struct SubPathMount<'a> {
    pub(super) pod: &'a OpenDirectory,
    pub(super) volume: &'a str,
    pub(super) container: &'a str,
    /// Which of the container's mounts it is for.
    pub(super) number: usize,
    /// True if mounts that the container makes in it are to be seen on the node.
    pub(super) both_ways: bool,
}

/// Opens `path` of a volume. Missing directories are made with the mode of the volume's own.
pub(super) fn open(volume: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, String> {
    let mode = rustix::fs::fstat(volume).map_err(|error| std::io::Error::from(error).to_string())?.st_mode;
    let make = Some(Mode::from_raw_mode(mode & 0o7777));
    find(volume, Path::new(path), SymlinkPolicy::Within, make).map_err(|error| error.to_string())
}

impl SubPathMount<'_> {
    /// Mounts `source` at this place, unless it is mounted already, and returns the path.
    pub(super) fn mount(&self, source: BorrowedFd<'_>) -> Result<PathBuf, String> {
        let said = |what: &str, error: std::io::Error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => format!("{what}: only root may mount a part of a volume"),
            _ => format!("{what}: {error}"),
        };
        let directory = self.directory().map_err(|error| said("make its place", error))?;
        let name = self.number.to_string();
        let target = self.target(&directory, &name, source).map_err(|error| said("make its place", error))?;
        let Some(target) = target else { return Ok(directory.path().join(name)) };
        rustix::mount::mount_bind(by_descriptor(source), by_descriptor(target.as_fd()))
            .map_err(|error| said("mount it", error.into()))?;
        let mounted = place(directory.as_fd(), OsStr::new(&name)).map_err(|error| said("find it", error.into()))?;
        if !self.both_ways {
            // An unmount in it later must not unmount the source as well.
            rustix::mount::mount_change(by_descriptor(mounted.as_fd()), MountPropagationFlags::DOWNSTREAM)
                .map_err(|error| said("separate it from where it came from", error.into()))?;
        }
        if is_same(mounted.as_fd(), source).map_err(|error| said("find it", error))? {
            Ok(directory.path().join(name))
        } else {
            Err("something else was mounted in its place".to_owned())
        }
    }

    fn directory(&self) -> std::io::Result<OpenDirectory> {
        self.pod.made(SUB_PATHS, PRIVATE)?.made(self.volume, PRIVATE)?.made(self.container, PRIVATE)
    }

    /// Returns a free mount point of the right type, or `None` if the source is mounted already.
    fn target(
        &self,
        directory: &OpenDirectory,
        name: &str,
        source: BorrowedFd<'_>,
    ) -> std::io::Result<Option<OwnedFd>> {
        let wants_directory = kind(&attributes(source, StatxFlags::TYPE)?) == FileType::Directory;
        // Remove whatever an earlier run left there, layer by layer.
        for _ in 0..16 {
            let found = match place(directory.as_fd(), OsStr::new(name)) {
                Ok(found) => found,
                Err(Errno::NOENT) if wants_directory => {
                    directory.made(name, PRIVATE)?;
                    continue;
                }
                Err(Errno::NOENT) => {
                    directory.new_file(name, 0o640)?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if mount_id(found.as_fd())? != mount_id(directory.as_fd())? {
                if is_same(found.as_fd(), source)? {
                    return Ok(None);
                }
                detach(found.as_fd())?;
            } else if (kind(&attributes(found.as_fd(), StatxFlags::TYPE)?) == FileType::Directory) == wants_directory {
                return Ok(Some(found));
            } else {
                let flags = if wants_directory { AtFlags::empty() } else { AtFlags::REMOVEDIR };
                rustix::fs::unlinkat(directory, name, flags)?;
            }
        }
        Err(std::io::Error::other("what an earlier container had there does not go away"))
    }
}

/// Makes a mount one that nothing passes out of or into.
pub(super) fn separate(mounted: BorrowedFd<'_>) -> std::io::Result<()> {
    Ok(rustix::mount::mount_change(by_descriptor(mounted), MountPropagationFlags::PRIVATE)?)
}

/// Takes a mount away without touching those that it was made from.
pub(super) fn detach(mounted: BorrowedFd<'_>) -> std::io::Result<()> {
    separate(mounted)?;
    Ok(rustix::mount::unmount(by_descriptor(mounted), UnmountFlags::DETACH)?)
}

fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> std::io::Result<bool> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}
