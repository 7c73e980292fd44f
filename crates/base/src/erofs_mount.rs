//! [`mount_erofs`]: a new mount of an EROFS file system, attached nowhere. Knows no layers and decides nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
};

/// Settings of a mount.
#[derive(Clone, Copy, Debug)]
pub struct ErofsMount<'a> {
    /// The source: a block device, or a file where the kernel mounts files (Linux 6.12).
    pub source: &'a Path,
    /// Block devices or files with further data.
    pub devices: &'a [PathBuf],
    /// Reads a source that is a file past its page cache (Linux 6.13; 6.12 does so anyway).
    pub direct: bool,
    /// The security context of all files, where SELinux is in use.
    pub context: Option<&'a str>,
}

/// The step of a mount that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErofsMountStep {
    /// Opening the file system: the kernel has none, or the right to mount is missing.
    Open,
    /// Configuring it.
    Configure,
    /// Reading the source.
    Create,
    /// Making the mount.
    Mount,
}

/// A failed mount.
#[derive(Debug)]
pub struct ErofsMountError {
    /// The step that failed.
    pub step: ErofsMountStep,
    /// The number of the error.
    pub number: Errno,
    /// The error, with the kernel's reasons.
    pub source: io::Error,
}

impl From<ErofsMountError> for io::Error {
    fn from(error: ErofsMountError) -> Self {
        error.source
    }
}

/// Makes a read-only mount on which set-user-id bits and devices have no effect.
///
/// # Errors
/// The kernel refused.
pub fn mount_erofs(mount: ErofsMount<'_>) -> Result<OwnedFd, ErofsMountError> {
    let failed = |step| move |number: Errno| ErofsMountError { step, number, source: number.into() };
    let fs = fsopen("erofs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(failed(ErofsMountStep::Open))?;
    let explained = |step| {
        let fs = &fs;
        move |number| ErofsMountError { step, number, source: explain(fs, number) }
    };
    // A kernel without this option reads files directly, or mounts none.
    if mount.direct {
        let _ = fsconfig_set_flag(&fs, "directio");
    }
    // A device that cannot be written can only be mounted read-only.
    fsconfig_set_flag(&fs, "ro")
        .and_then(|()| fsconfig_set_string(&fs, "source", mount.source))
        .and_then(|()| mount.devices.iter().try_for_each(|device| fsconfig_set_string(&fs, "device", device)))
        .and_then(|()| mount.context.map_or(Ok(()), |context| fsconfig_set_string(&fs, "context", context)))
        .map_err(explained(ErofsMountStep::Configure))?;
    fsconfig_create(&fs).map_err(explained(ErofsMountStep::Create))?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(explained(ErofsMountStep::Mount))
}

/// Returns the error with the reasons that the kernel wrote into the context of a file system, one line each: `e overlay: …`.
#[must_use]
pub fn explain(context: &OwnedFd, error: Errno) -> io::Error {
    let source = io::Error::from(error);
    let mut line = [0_u8; 1024];
    let mut reasons = Vec::new();
    while let Ok(length) = rustix::io::read(context, &mut line) {
        if length == 0 || reasons.len() > 16 {
            break;
        }
        let text = String::from_utf8_lossy(&line[..length]);
        reasons.push(text.trim().trim_start_matches(['e', 'w', 'i']).trim().to_owned());
    }
    if reasons.is_empty() {
        return source;
    }
    io::Error::new(source.kind(), format!("{source}: {}", reasons.join("; ")))
}
