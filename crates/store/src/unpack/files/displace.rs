//! The replacement of a file when a later entry of the same layer has its path. The image specification forbids such
//! layers; they exist, and the later entry wins.
//!
//! Files with content are moved to `replaced/` next to `fs/`, because the recipe of the layer still needs their bytes; everything
//! else is removed. A directory is moved as a whole.

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::super::error::{UnpackError, failed, recipe};
use super::super::form::Unpacker;
use super::super::tree::Id;
use super::Files;
use super::kernel_values::bytes_on_disk;

impl Unpacker<'_, Files<'_>> {
    /// Makes room at a name of a directory.
    pub(super) fn displace(&mut self, dir: Id, leaf: &[u8]) -> Result<(), UnpackError> {
        self.last_parent = None;
        let Some(stat) = self.stat(dir, leaf)? else { return Ok(()) };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let path = self.tree.path_of(dir, leaf);
        if !self.options.privileged {
            self.form.deferred.removed(&path).map_err(|e| failed("deferring", &path, e))?;
        }
        let has_content = kind == FileType::RegularFile && stat.st_size > 0;
        if let Some(id) = self.tree.child(dir, leaf) {
            // The final pass over the layer will not reach this directory any more.
            for id in self.tree.subtree(id) {
                let fd = self.fd(id)?;
                let stat = rustix::fs::fstat(&*fd).map_err(|e| failed("looking at", &path, e))?;
                self.outcome.disk_bytes += bytes_on_disk(&stat);
            }
            self.move_aside(dir, leaf, &path)?;
            for id in self.tree.subtree(id) {
                self.form.descriptors.close(&mut self.tree, id);
                self.tree.node_mut(id).own.default_acl = None;
            }
            self.tree.detach(id);
            return Ok(());
        }
        if has_content {
            return self.move_aside(dir, leaf, &path);
        }
        let fd = self.fd(dir)?;
        rustix::fs::unlinkat(&*fd, leaf, AtFlags::empty()).map_err(|e| failed("replacing", &path, e))?;
        if stat.st_nlink <= 1 {
            self.outcome.inodes -= 1;
        }
        Ok(())
    }

    fn move_aside(&mut self, dir: Id, leaf: &[u8], path: &[u8]) -> Result<(), UnpackError> {
        let name = crate::recipe::REPLACED;
        if self.form.aside.is_none() {
            rustix::fs::mkdirat(self.form.layer_dir, name, Mode::RWXU)
                .map_err(|e| failed("creating", name.as_bytes(), e))?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let aside = rustix::fs::openat(self.form.layer_dir, name, flags, Mode::empty())
                .map_err(|e| failed("opening", name.as_bytes(), e))?;
            self.form.aside = Some(aside);
            self.outcome.inodes += 1;
        }
        let fd = self.fd(dir)?;
        let number = self.form.moved_aside;
        if let Some(aside) = &self.form.aside {
            rustix::fs::renameat(&*fd, leaf, aside, number.to_string()).map_err(|e| failed("replacing", path, e))?;
        }
        self.form.moved_aside += 1;
        self.recipe.moved(path, number).map_err(recipe)
    }
}
