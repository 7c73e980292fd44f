//! The defaults that the directory of a layer gives to new files: owner, permission mask, block
//! size. Knowing it saves a `fchown` and a `fchmod` per file, and the process keeps its umask.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::super::error::{UnpackError, failed, refused};

/// A name that exists only for a moment, before anything else is in the directory.
const PROBE: &[u8] = b".imagelet-probe";

/// The defaults of new files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewFileDefaults {
    /// Their owner.
    pub(super) uid: u32,
    /// Their group.
    pub(super) gid: u32,
    /// The permission bits that are taken away from them.
    pub(super) umask: u32,
    /// Bytes of a block.
    pub(super) block: u64,
}

impl NewFileDefaults {
    /// Makes `fs` (empty, mode 0755, without access control lists, which new files would inherit) and inspects the attributes
    /// that a file made in it gets.
    pub(super) fn prepare(fs: BorrowedFd<'_>, privileged: bool) -> Result<Self, UnpackError> {
        let io = |operation, error: Errno| failed(operation, b"", error);
        for acl in ["system.posix_acl_default", "system.posix_acl_access"] {
            match rustix::fs::fremovexattr(fs, acl) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(io("removing the access control list of", error)),
            }
        }
        // Takes away a set-group-id bit, too, which would pass the group on.
        rustix::fs::fchmod(fs, Mode::from_raw_mode(0o755)).map_err(|e| io("setting the mode of", e))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let probe = rustix::fs::openat(fs, PROBE, flags, Mode::from_raw_mode(0o777))
            .map_err(|e| failed("creating", PROBE, e))?;
        let stat = rustix::fs::fstat(&probe).map_err(|e| failed("looking at", PROBE, e))?;
        rustix::fs::unlinkat(fs, PROBE, AtFlags::empty()).map_err(|e| failed("removing", PROBE, e))?;
        let statfs = rustix::fs::fstatfs(fs).map_err(|e| io("looking at the file system of", e))?;
        let umask = 0o777 & !stat.st_mode;
        if !privileged && umask & 0o700 != 0 {
            return Err(refused(b"/", format!("the umask {umask:04o} takes this program's own rights to its files")));
        }
        let block = u64::try_from(statfs.f_bsize).unwrap_or(4096).max(512);
        Ok(Self { uid: stat.st_uid, gid: stat.st_gid, umask, block })
    }

    /// Bytes on disk of a run of data.
    pub(super) fn blocks(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.block).saturating_mul(self.block)
    }
}
