//! Whiteouts and opaque directories, the overlayfs way: a character device 0:0, and an extended attribute.
//!
//! They speak of the layers below only: what this layer itself has under the name stays, whichever comes first in
//! the archive.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Mode, XattrFlags};
use rustix::io::Errno;

use crate::tar::Entry;

use super::deferred::Line;
use super::error::{UnpackError, failed};
use super::name::Name;
use super::parents::{Need, Parent};
use super::tree::{Id, ROOT};
use super::unpacker::{Unpacker, is_whiteout};

/// The attribute of an opaque directory, with and without the rights of root.
pub(super) const OPAQUE: [&str; 2] = ["trusted.overlay.opaque", "user.overlay.opaque"];

impl Unpacker<'_> {
    /// Hides `leaf` of the layers below.
    pub(super) fn whiteout(&mut self, entry: &Entry, name: &Name, leaf: &[u8]) -> Result<(), UnpackError> {
        // Below a whiteout there is nothing left to hide.
        let Parent::Directory(dir) = self.look_up(name.parent(), Need::Mark)? else { return Ok(()) };
        if let Some(known) = self.tree.child(dir, leaf) {
            let node = self.tree.node(known);
            if node.explicit || node.populated {
                return self.cut(known);
            }
            // It was only made to hold whiteouts, which this one makes needless.
            self.remove_marks(known)?;
        }
        let fd = self.fd(dir)?;
        match rustix::fs::mknodat(&*fd, leaf, FileType::CharacterDevice, Mode::empty(), 0) {
            Ok(()) => {}
            // A thing of this layer stays, and a second whiteout says nothing new.
            Err(Errno::EXIST) => return Ok(()),
            Err(Errno::PERM) if !self.options.privileged => {
                let path = self.tree.path_of(dir, leaf);
                let line = Line { kind: "whiteout", ..Line::default() };
                return self.deferred.write(&path, line).map_err(|e| failed("deferring", &path, e));
            }
            Err(error) => return Err(failed("making a whiteout of", &self.tree.path_of(dir, leaf), error)),
        }
        self.outcome.inodes += 1;
        self.whiteouts += 1;
        self.tree.node_mut(dir).whiteouts = true;
        if self.options.privileged {
            self.own_named(dir, leaf, (entry.uid, entry.gid), false)?;
        }
        Ok(())
    }

    /// Hides the content of a directory of the layers below.
    pub(super) fn opaque(&mut self, name: &Name) -> Result<(), UnpackError> {
        match self.look_up(name.parent(), Need::Mark)? {
            Parent::Directory(id) => self.set_opaque(id),
            Parent::Nothing => Ok(()),
        }
    }

    /// A directory takes the place of a whiteout: it hides the one below, and takes nothing over from it.
    pub(super) fn cut(&mut self, id: Id) -> Result<(), UnpackError> {
        self.tree.node_mut(id).cut = true;
        self.set_opaque(id)
    }

    fn set_opaque(&mut self, id: Id) -> Result<(), UnpackError> {
        if self.tree.node(id).opaque {
            return Ok(());
        }
        let fd = self.fd(id)?;
        let attribute = OPAQUE[usize::from(!self.options.privileged)];
        rustix::fs::fsetxattr(fd.as_fd(), attribute, b"y", XattrFlags::empty())
            .map_err(|e| failed("making opaque", &self.tree.path(id), e))?;
        self.tree.node_mut(id).opaque = true;
        self.outcome.root_opaque |= id == ROOT;
        Ok(())
    }

    /// Takes a whiteout away that stands where something else shall be.
    pub(super) fn remove_whiteout(&mut self, dir: Id, leaf: &[u8]) -> Result<(), UnpackError> {
        let fd = self.fd(dir)?;
        rustix::fs::unlinkat(&*fd, leaf, AtFlags::empty())
            .map_err(|e| failed("removing the whiteout of", &self.tree.path_of(dir, leaf), e))?;
        self.outcome.inodes -= 1;
        Ok(())
    }

    /// Removes a directory that holds nothing but whiteouts and others of its kind.
    pub(super) fn remove_marks(&mut self, id: Id) -> Result<(), UnpackError> {
        self.last_parent = None;
        for id in self.tree.subtree(id).into_iter().rev() {
            self.clear_whiteouts(id)?;
            let fd = self.fd(self.tree.parent(id))?;
            rustix::fs::unlinkat(&*fd, self.tree.name(id), AtFlags::REMOVEDIR)
                .map_err(|e| failed("removing the directory", &self.tree.path(id), e))?;
            self.tree.detach(id);
            self.outcome.inodes -= 1;
        }
        Ok(())
    }

    /// Removes the whiteouts in a directory. Where nothing from below can be seen they hide nothing, but overlayfs
    /// lists their names: it only leaves whiteouts out of directories that it merges.
    pub(super) fn clear_whiteouts(&mut self, id: Id) -> Result<(), UnpackError> {
        if !self.tree.node(id).whiteouts {
            return Ok(());
        }
        let fd = self.fd(id)?;
        let io = |tree: &super::tree::Tree, error| failed("listing", &tree.path(id), error);
        let listing = rustix::fs::Dir::read_from(&*fd).map_err(|e| io(&self.tree, e))?;
        let mut names = Vec::new();
        for entry in listing {
            let entry = entry.map_err(|e| io(&self.tree, e))?;
            if matches!(entry.file_type(), FileType::CharacterDevice | FileType::Unknown) {
                names.push(entry.file_name().to_bytes().to_vec());
            }
        }
        for name in names {
            if self.has_whiteout(id, &name)? {
                self.remove_whiteout(id, &name)?;
            }
        }
        self.tree.node_mut(id).whiteouts = false;
        Ok(())
    }

    /// Whether a whiteout stands at a name. Costs nothing while the layer has none.
    pub(super) fn has_whiteout(&mut self, dir: Id, leaf: &[u8]) -> Result<bool, UnpackError> {
        Ok(self.whiteouts > 0 && self.look(dir, leaf)?.is_some_and(|stat| is_whiteout(&stat)))
    }
}
