//! The end of a directory tree: modes, times and default access control lists of directories, and what they take on disk.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Mode, XattrFlags};
use rustix::io::Errno;

use super::super::error::{UnpackError, failed};
use super::super::form::Unpacker;
use super::super::tree::{Id, ROOT, Tree};
use super::Files;
use super::descriptors::OnDisk;
use super::kernel_values::{bytes_on_disk, timestamps};

impl Unpacker<'_, Files<'_>> {
    pub(super) fn finish_directories(&mut self) -> Result<(), UnpackError> {
        // Children before their parents; from this point on nothing changes a directory's times.
        for id in self.tree.ids().rev() {
            if id % 256 == 0 {
                self.check_cancelled()?;
            }
            if self.tree.node(id).present {
                self.finish_directory(id)?;
            }
        }
        Ok(())
    }

    fn finish_directory(&mut self, id: Id) -> Result<(), UnpackError> {
        let node = &self.tree.node(id).own;
        let (mode, times) = (node.mode, timestamps(node.mtime, Some(node.atime)));
        let set_mode = node.mode_on_disk != Some(mode);
        let default_acl = self.tree.node_mut(id).own.default_acl.take();
        let failed_at = |tree: &Tree<OnDisk>, operation, error: Errno| failed(operation, &tree.path(id), error);
        if set_mode || default_acl.is_some() || id == ROOT {
            let fd = self.fd(id)?;
            if let Some(acl) = default_acl {
                match rustix::fs::fsetxattr(fd.as_fd(), "system.posix_acl_default", &acl, XattrFlags::empty()) {
                    Err(Errno::OPNOTSUPP) => self.outcome.skipped_xattrs += 1,
                    other => {
                        other.map_err(|e| failed_at(&self.tree, "setting the default access control list of", e))?;
                    }
                }
            }
            if set_mode {
                rustix::fs::fchmod(fd.as_fd(), Mode::from_raw_mode(mode))
                    .map_err(|e| failed_at(&self.tree, "setting the mode of", e))?;
            }
            rustix::fs::futimens(fd.as_fd(), &times).map_err(|e| failed_at(&self.tree, "setting the times of", e))?;
            let stat = rustix::fs::fstat(fd.as_fd()).map_err(|e| failed_at(&self.tree, "looking at", e))?;
            self.outcome.disk_bytes += bytes_on_disk(&stat);
            return Ok(());
        }
        let fd = self.fd(self.tree.parent(id))?;
        let name = self.tree.name(id);
        rustix::fs::utimensat(&*fd, name, &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| failed_at(&self.tree, "setting the times of", e))?;
        let stat = rustix::fs::statat(&*fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| failed_at(&self.tree, "looking at", e))?;
        self.outcome.disk_bytes += bytes_on_disk(&stat);
        Ok(())
    }
}
