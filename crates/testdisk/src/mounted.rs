//! File systems that are mounted in no namespace: they are reached through an open descriptor, and are unmounted with it. If
//! another process must find one, it is attached to a path for that time.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount, unmount,
};

use base::LoopDevice;

/// A file system of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// With a journal.
    Ext4,
    /// With a journal and few inodes.
    Ext4Inodes(u64),
    /// Without one.
    Ext4NoJournal,
    /// With reflink. At least 300 MiB.
    Xfs,
    /// At least 110 MiB.
    Btrfs,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Ext4Inodes(_) | Self::Ext4NoJournal => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// Makes one in a file.
    pub(crate) fn make(self, path: &Path) -> io::Result<()> {
        // Initialization that a file system postpones until it is mounted would be in the record of every disk.
        const EXT4: &[&str] = &["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"];
        let inodes;
        let (program, arguments, more): (_, _, &[&str]) = match self {
            Self::Ext4 => ("mkfs.ext4", EXT4, &[]),
            Self::Ext4Inodes(number) => {
                inodes = number.to_string();
                ("mkfs.ext4", EXT4, &["-N", &inodes])
            }
            Self::Ext4NoJournal => ("mkfs.ext4", EXT4, &["-O", "^has_journal"]),
            Self::Xfs => ("mkfs.xfs", &["-q", "-f", "-K", "-m", "reflink=1"], &[]),
            Self::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K"], &[]),
        };
        #[expect(clippy::disallowed_methods, reason = "file systems are made by their own tools")]
        let status = Command::new(program).args(arguments).args(more).arg(path).stdout(Stdio::null()).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(io::Error::other(format!("{program}: {status}"))),
            Err(error) => Err(io::Error::new(error.kind(), format!("{program}: {error}"))),
        }
    }
}

/// A mounted file system. Dropping it unmounts it.
#[derive(Debug)]
pub struct Mounted {
    tree: OwnedFd,
    path: PathBuf,
    attached: Option<PathBuf>,
    /// Closed after the mount, so that nothing is left when this is dropped.
    _device: Option<LoopDevice>,
}

impl Mounted {
    pub(crate) fn of_device(kind: Kind, device: &Path, keep: Option<LoopDevice>) -> io::Result<Self> {
        let path = device.to_str().ok_or(io::ErrorKind::InvalidInput)?;
        // Several copies of one file system, a disk and its images, are mounted at a time, which XFS allows only with this flag.
        let flags: &[&str] = if kind == Kind::Xfs { &["nouuid"] } else { &[] };
        let mut mounted = Self::new(kind.name(), &[("source", path)], flags)?;
        mounted._device = keep;
        Ok(mounted)
    }

    pub(crate) fn new(name: &str, options: &[(&str, &str)], flags: &[&str]) -> io::Result<Self> {
        let context = fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (key, value) in options {
            fsconfig_set_string(&context, *key, *value)?;
        }
        for flag in flags {
            fsconfig_set_flag(&context, *flag)?;
        }
        fsconfig_create(&context)?;
        let tree = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), tree.as_raw_fd()).into();
        Ok(Self { tree, path, attached: None, _device: None })
    }

    /// Returns the path of the mount, valid for every process as long as this value exists.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.attached.as_deref().unwrap_or(&self.path)
    }

    /// Puts it where mounts within it are possible too. This stays when the process is killed.
    ///
    /// # Errors
    /// The file system cannot be mounted there.
    pub fn attach(&mut self, to: &Path) -> io::Result<()> {
        move_mount(&self.tree, "", rustix::fs::CWD, to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        self.attached = Some(to.to_owned());
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(path) = &self.attached {
            // Mounts within it are unmounted too.
            let _ = unmount(path, UnmountFlags::DETACH);
        }
    }
}
