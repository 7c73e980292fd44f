//! The mount of a single EROFS file. A layer is mounted from a loop device that all its mounts on the node share: they are one
//! file system then, and their pages are in memory once. Where there is no loop device, and for files that are mounted only once,
//! the mount is made from the file, where the kernel can (Linux 6.12). Either reads past the page cache of the file itself, which
//! would hold everything a second time. The mount is not attached yet; it is removed, and a loop device with it, when nothing
//! holds it any more. [`super`] decides what it is used for.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Once;

use base::{ErofsMount, ErofsMountError, ErofsMountStep, LAYER_DEVICE, LoopDevice, mount_erofs};
use erofs::{ReadError, Reader};
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::Errno;

use super::failure::Failure;
use super::kernel_features::KernelFeatures;
use super::overlay::{Layer, Names};

/// A process says once that layers are not shared.
static SAID: Once = Once::new();

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

/// Mounts the file of a layer, read-only and nowhere.
pub(super) fn mount_layer(path: &Path, ways: KernelFeatures) -> Result<Layer, ErofsFailure> {
    let mounted = mount(path, ways)?;
    if !is_nested(path) {
        return Ok(Layer::Mounted(mounted));
    }
    Layer::nested(mounted)
        .map_err(|error| ErofsFailure::Failed(Failure::at("open the tree of a layer for", path, error)))
}

/// Returns true if the tree lies in a directory of the file.
pub(super) fn is_nested(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| Reader::open(&file).is_ok_and(|reader| reader.is_nested()))
}

/// Mounts the file, read-only and nowhere.
pub(super) fn mount(path: &Path, ways: KernelFeatures) -> Result<OwnedFd, ErofsFailure> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|error| ErofsFailure::Failed(Failure::at("open a layer for", path, error)))?;
    let file = File::from(file);
    check_devices(&file, path).map_err(ErofsFailure::Failed)?;
    forget_pages(&file);
    let size = file.metadata().map_or(0, |meta| meta.len());
    if size < ways.shared_from {
        return mount_open(&file, path, &[], ways);
    }
    match mount_shared(&file, path) {
        Err(NotShared::NoDevice(error)) if ways.from_file => {
            mount_open(&file, path, &[], ways).inspect(|_| say_no_device(&error))
        }
        Err(NotShared::NoDevice(error)) => Err(no_device(error)),
        Err(NotShared::Otherwise(failure)) => Err(failure),
        Ok(mounted) => Ok(mounted),
    }
}

enum NotShared {
    /// There is no loop device to be had, or this process may not mount from it.
    NoDevice(io::Error),
    Otherwise(ErofsFailure),
}

/// Mounts the file from the loop device that its other mounts use, or a new one.
fn mount_shared(file: &File, path: &Path) -> Result<OwnedFd, NotShared> {
    let device = LoopDevice::shared(file, LAYER_DEVICE).map_err(NotShared::NoDevice)?;
    match mount_source(device.path(), path, &[], ReadMode::Buffered) {
        Ok(mounted) => Ok(mounted),
        Err(MountRefusal::NeedsDevice) => Err(NotShared::NoDevice(Errno::NOTBLK.into())),
        // The device is already mounted in another way, by the root user of another user namespace.
        Err(MountRefusal::Busy(failure)) => Err(NotShared::NoDevice(failure.source)),
        Err(MountRefusal::Otherwise(failure)) => Err(NotShared::Otherwise(failure)),
    }
}

fn say_no_device(error: &io::Error) {
    SAID.call_once(|| {
        tracing::warn!(%error, "no loop device: each mount of an EROFS layer keeps what is read from it in memory for itself");
    });
}

/// Drops the cached pages of the file that its writer or a check has left: they will not be read again.
fn forget_pages(file: &File) {
    if let Err(error) = rustix::fs::fadvise(file, 0, None, Advice::DontNeed) {
        tracing::debug!(%error, "pages of a layer's file stay in memory");
    }
}

/// Refuses a layer whose EROFS file needs further devices. The kernel would mount it without them and show other content.
pub(super) fn check_devices(file: &File, path: &Path) -> Result<(), Failure> {
    match Reader::open(file) {
        Err(error @ ReadError::Unsupported { .. }) => {
            Err(Failure { operation: "mount a layer for", source: error.into() }.naming(path))
        }
        // The kernel says what is wrong with any other file.
        _ => Ok(()),
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
            Err(MountRefusal::NeedsDevice) => {}
            Err(refused) => return Err(refused.into()),
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
            Err(MountRefusal::NeedsDevice) => {}
            Err(refused) => return Err(refused.into()),
            Ok(mounted) => return Ok((mounted, true)),
        }
    }
    mount_by_loop(file, path, devices).map(|mounted| (mounted, false))
}

fn mount_files(source: &Path, path: &Path, devices: &[PathBuf]) -> Result<OwnedFd, MountRefusal> {
    let mut names = Names::default();
    let failed = |failure| MountRefusal::Otherwise(ErofsFailure::Failed(failure));
    let devices = devices.iter().map(|device| names.file(device)).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    mount_source(source, path, &devices, ReadMode::Direct)
}

fn no_device(source: io::Error) -> ErofsFailure {
    match source.kind() {
        io::ErrorKind::PermissionDenied => ErofsFailure::NotPermitted(source),
        io::ErrorKind::NotFound => ErofsFailure::NoErofs(source),
        _ => ErofsFailure::Failed(Failure { operation: "set a loop device up for", source }),
    }
}

fn mount_by_loop(file: &File, path: &Path, devices: &[PathBuf]) -> Result<OwnedFd, ErofsFailure> {
    let show = |file: &File| LoopDevice::new(file, LAYER_DEVICE).map_err(no_device);
    let device = show(file)?;
    let mut further = Vec::with_capacity(devices.len());
    for path in devices {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|error| ErofsFailure::Failed(Failure::at("open a layer for", path, error)))?;
        further.push(show(&File::from(file))?);
    }
    let paths: Vec<PathBuf> = further.iter().map(|device| device.path().to_owned()).collect();
    // The file system keeps the devices from now on.
    mount_source(device.path(), path, &paths, ReadMode::Buffered).map_err(|refused| match refused {
        MountRefusal::NeedsDevice => ErofsFailure::Failed(Failure::at("mount a layer for", path, Errno::NOTBLK)),
        refused => refused.into(),
    })
}

enum MountRefusal {
    /// This kernel mounts block devices only, or this file not as it is.
    NeedsDevice,
    /// The device is mounted in another way.
    Busy(Failure),
    Otherwise(ErofsFailure),
}

impl From<MountRefusal> for ErofsFailure {
    fn from(refused: MountRefusal) -> Self {
        match refused {
            MountRefusal::NeedsDevice => Self::NoErofs(Errno::NOTBLK.into()),
            MountRefusal::Busy(failure) => Self::Failed(failure),
            MountRefusal::Otherwise(failure) => failure,
        }
    }
}

/// How the file system reads its source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadMode {
    /// As the source has it: a loop device reads directly by itself.
    Buffered,
    /// Past the page cache of the file that is its source (Linux 6.13; 6.12 does so anyway).
    Direct,
}

fn mount_source(source: &Path, layer: &Path, devices: &[PathBuf], reading: ReadMode) -> Result<OwnedFd, MountRefusal> {
    let mount = ErofsMount { source, devices, direct: reading == ReadMode::Direct, context: None };
    mount_erofs(mount).map_err(|ErofsMountError { step, number, source }| {
        let failed = |operation, source| ErofsFailure::Failed(Failure { operation, source }.naming(layer));
        MountRefusal::Otherwise(match (step, number) {
            (ErofsMountStep::Open, Errno::NODEV | Errno::NOSYS) => ErofsFailure::NoErofs(source),
            (ErofsMountStep::Open | ErofsMountStep::Create, Errno::PERM) => ErofsFailure::NotPermitted(source),
            (ErofsMountStep::Open, _) => ErofsFailure::Failed(Failure { operation: "open EROFS for", source }),
            (ErofsMountStep::Configure, _) => failed("configure EROFS for", source),
            (ErofsMountStep::Create, Errno::NOTBLK) => return MountRefusal::NeedsDevice,
            (ErofsMountStep::Create, Errno::BUSY) => {
                return MountRefusal::Busy(Failure { operation: "mount a layer for", source }.naming(layer));
            }
            (ErofsMountStep::Create | ErofsMountStep::Mount, _) => failed("mount a layer for", source),
        })
    })
}
