//! The mount of a single EROFS file: from the file where the kernel can (Linux 6.12), through a loop device otherwise. The
//! mount has no place yet; it goes, and a loop device with it, when nothing holds it any more. What it is for is
//! [`super`]'s business.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use base::{LoopDevice, LoopFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
};

use super::failure::Failure;
use super::kernel_features::KernelFeatures;
use super::overlay::{Names, explain};
use crate::recipe;

/// How a loop device shows a layer: by blocks of EROFS.
const LAYER_DEVICE: LoopFlags = LoopFlags { block_bytes: 4096, read_only: true, direct: false };

/// Why an EROFS file was not mounted.
#[derive(Debug)]
pub(super) enum ErofsFailure {
    /// The kernel has no EROFS, or can have it from no file.
    NoErofs(io::Error),
    /// The right to do it is missing.
    NotPermitted(io::Error),
    /// The file is not there, or not what it should be; or the kernel refused something.
    Failed(Failure),
}

/// Mounts the file, read-only and nowhere.
pub(super) fn mount(path: &Path, ways: KernelFeatures) -> Result<OwnedFd, ErofsFailure> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|error| ErofsFailure::Failed(Failure::at("open a layer for", path, error)))?;
    let devices = devices_beside(path).map_err(ErofsFailure::Failed)?;
    mount_open(&File::from(file), path, &devices, ways)
}

/// The files with blocks of other layers that a layer's EROFS file needs.
pub(super) fn devices_beside(erofs: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut devices = Vec::new();
    loop {
        let device = erofs.with_file_name(recipe::device_name(devices.len() + 1));
        match rustix::fs::lstat(&device) {
            Ok(_) => devices.push(device),
            Err(Errno::NOENT) => return Ok(devices),
            Err(error) => return Err(Failure::at("open a layer for", &device, error)),
        }
    }
}

/// The same for a file that is open, and is called `path` in errors, with its further devices, which are EROFS file files too.
pub(super) fn mount_open(
    file: &File,
    path: &Path,
    devices: &[PathBuf],
    ways: KernelFeatures,
) -> Result<OwnedFd, ErofsFailure> {
    if ways.from_file {
        // Whatever the path: the kernel takes no long ones.
        let name = format!("/proc/self/fd/{}", file.as_raw_fd());
        match mount_files(Path::new(&name), path, devices) {
            Err(Refused::NeedsDevice) => {}
            Err(Refused::Otherwise(failure)) => return Err(failure),
            Ok(mounted) => return Ok(mounted),
        }
    }
    mount_by_loop(file, path, devices)
}

/// The same by the file's own name, which then is the mount's source; `false` where it is not, because the kernel wants devices.
pub(super) fn mount_named(
    path: &Path,
    file: &File,
    devices: &[PathBuf],
    ways: KernelFeatures,
) -> Result<(OwnedFd, bool), ErofsFailure> {
    if ways.from_file {
        match mount_files(path, path, devices) {
            Err(Refused::NeedsDevice) => {}
            Err(Refused::Otherwise(failure)) => return Err(failure),
            Ok(mounted) => return Ok((mounted, true)),
        }
    }
    mount_by_loop(file, path, devices).map(|mounted| (mounted, false))
}

fn mount_files(source: &Path, path: &Path, devices: &[PathBuf]) -> Result<OwnedFd, Refused> {
    let mut names = Names::default();
    let failed = |failure| Refused::Otherwise(ErofsFailure::Failed(failure));
    let devices = devices.iter().map(|device| names.file(device)).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    mount_source(source, path, &devices)
}

fn mount_by_loop(file: &File, path: &Path, devices: &[PathBuf]) -> Result<OwnedFd, ErofsFailure> {
    let show = |file: &File| {
        LoopDevice::new(file, LAYER_DEVICE).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => ErofsFailure::NotPermitted(source),
            io::ErrorKind::NotFound => ErofsFailure::NoErofs(source),
            _ => ErofsFailure::Failed(Failure { operation: "set a loop device up for", source }),
        })
    };
    let device = show(file)?;
    let mut further = Vec::with_capacity(devices.len());
    for path in devices {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|error| ErofsFailure::Failed(Failure::at("open a layer for", path, error)))?;
        further.push(show(&File::from(file))?);
    }
    let paths: Vec<PathBuf> = further.iter().map(|device| device.path().to_owned()).collect();
    match mount_source(device.path(), path, &paths) {
        Err(Refused::NeedsDevice) => Err(ErofsFailure::Failed(Failure::at("mount a layer for", path, Errno::NOTBLK))),
        Err(Refused::Otherwise(failure)) => Err(failure),
        // The file system keeps the device from now on.
        Ok(mounted) => Ok(mounted),
    }
}

enum Refused {
    /// This kernel mounts block devices only, or this file not as it is.
    NeedsDevice,
    Otherwise(ErofsFailure),
}

fn mount_source(source: &Path, layer: &Path, devices: &[PathBuf]) -> Result<OwnedFd, Refused> {
    let failed = |failure: Failure| Refused::Otherwise(ErofsFailure::Failed(failure));
    let context = fsopen("erofs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|error| {
        Refused::Otherwise(match error {
            Errno::NODEV | Errno::NOSYS => ErofsFailure::NoErofs(error.into()),
            Errno::PERM => ErofsFailure::NotPermitted(error.into()),
            error => ErofsFailure::Failed(Failure { operation: "open EROFS for", source: error.into() }),
        })
    })?;
    // A device that cannot be written is mounted by who does not want to.
    fsconfig_set_flag(&context, "ro")
        .and_then(|()| fsconfig_set_string(&context, "source", source))
        .and_then(|()| devices.iter().try_for_each(|device| fsconfig_set_string(&context, "device", device)))
        .map_err(|error| failed(explain(&context, "configure EROFS for", error).naming(layer)))?;
    // No direct I/O: what is read may be in memory twice then, but a layer that has just been written need not come from the
    // disk, and the file's own read-ahead makes small files come twice as fast from there (docs/performance.md).
    fsconfig_create(&context).map_err(|error| match error {
        Errno::NOTBLK => Refused::NeedsDevice,
        Errno::PERM => Refused::Otherwise(ErofsFailure::NotPermitted(error.into())),
        error => failed(explain(&context, "mount a layer for", error).naming(layer)),
    })?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .map_err(|error| failed(explain(&context, "mount a layer for", error).naming(layer)))
}
