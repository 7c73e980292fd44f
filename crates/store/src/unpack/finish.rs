//! The end of a layer: modes, times and default access control lists of directories, what they take on disk, which of
//! them were implicit, and the ends of the files beside `fs/`.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Mode, XattrFlags};
use rustix::io::Errno;

use super::UnpackOutcome;
use super::attributes::{bytes_on_disk, timestamps};
use super::error::{UnpackError, failed, recipe};
use super::tree::{Id, ROOT};
use super::unpacker::Unpacker;

impl Unpacker<'_> {
    /// Ends the layer, whose tar stream had `stream_bytes` bytes.
    pub(super) fn finish(mut self, stream_bytes: u64) -> Result<UnpackOutcome, UnpackError> {
        self.prune()?;
        // Children before their parents; nothing here changes a directory's times any more.
        for id in self.tree.ids().rev() {
            if id % 256 == 0 {
                self.check_cancelled()?;
            }
            if self.tree.node(id).present {
                self.finish_directory(id)?;
            }
        }
        if let Some(aside) = &self.aside {
            let stat = rustix::fs::fstat(aside).map_err(|e| failed("looking at", b"", e))?;
            self.outcome.disk_bytes += bytes_on_disk(&stat);
        }
        self.outcome.implicit_dirs = self.implicit_directories();
        self.outcome.deferred = self.deferred.finish().map_err(|e| failed("writing", b"deferred.jsonl", e))?;
        self.recipe.finish(stream_bytes).map_err(recipe)?;
        Ok(self.outcome)
    }

    /// Takes away what speaks of the layers below where nothing of them can be seen: directories that were made to hold
    /// whiteouts only, and whiteouts. The same archive in another order might not have made them.
    fn prune(&mut self) -> Result<(), UnpackError> {
        let sealed = self.sealed();
        for id in self.tree.ids().filter(|id| *id != ROOT) {
            let (node, parent) = (self.tree.node(id), self.tree.parent(id));
            if node.present && !node.explicit && !node.populated && sealed[parent as usize] {
                self.remove_marks(id)?;
            }
        }
        for id in self.tree.ids() {
            if self.tree.node(id).present && sealed[id as usize] {
                self.clear_whiteouts(id)?;
            }
        }
        Ok(())
    }

    /// For each directory, whether nothing of the layers below shows through in it.
    fn sealed(&self) -> Vec<bool> {
        let mut sealed = vec![false; self.tree.len()];
        for id in self.tree.ids() {
            sealed[id as usize] = self.tree.node(id).opaque || (id != ROOT && sealed[self.tree.parent(id) as usize]);
        }
        sealed
    }

    fn finish_directory(&mut self, id: Id) -> Result<(), UnpackError> {
        let node = self.tree.node(id);
        let (mode, times) = (node.mode, timestamps(node.mtime, Some(node.atime)));
        let set_mode = node.mode_on_disk != Some(mode);
        let default_acl = self.tree.node_mut(id).default_acl.take();
        let failed_at = |tree: &super::tree::Tree, operation, error: Errno| failed(operation, &tree.path(id), error);
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

    /// The directories without an entry whose counterpart below can be seen, parents first.
    fn implicit_directories(&self) -> Vec<Vec<u8>> {
        let mut implicit = Vec::new();
        let sealed = self.sealed();
        for id in self.tree.ids() {
            let node = self.tree.node(id);
            let above = id != ROOT && sealed[self.tree.parent(id) as usize];
            if node.present && !node.explicit && !node.cut && !above {
                implicit.push(self.tree.path(id));
            }
        }
        implicit
    }
}
