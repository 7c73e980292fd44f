//! Whiteouts and opaque directories, the overlayfs way: a character device 0:0, and an extended attribute.
//!
//! They apply to the layers below only: entries of this layer itself under the name stay, whichever is first in the archive.

use super::error::UnpackError;
use super::form::{Form, There, Unpacker};
use super::name::Name;
use super::parents::{Need, Parent};
use super::tree::{Id, ROOT};
use crate::tar::Entry;

/// The attribute of an opaque directory, with and without the rights of root.
pub(crate) const OPAQUE: [&str; 2] = ["trusted.overlay.opaque", "user.overlay.opaque"];

impl<F: Form> Unpacker<'_, F> {
    /// Hides `leaf` of the layers below.
    pub(super) fn whiteout(&mut self, entry: &Entry, name: &Name, leaf: &[u8]) -> Result<(), UnpackError> {
        // Below a whiteout there is nothing left to hide.
        let Parent::Directory(dir) = self.resolve(name.parent(), Need::Mark)? else { return Ok(()) };
        if let Some(known) = self.tree.child(dir, leaf) {
            let node = self.tree.node(known);
            if node.explicit || node.populated {
                return self.cut(known);
            }
            // The directory was only made to hold whiteouts, which this one makes needless.
            self.remove_marks(known)?;
        }
        // A thing of this layer stays, and a second whiteout says nothing new.
        if F::whiteout_if_free(self, entry, dir, leaf)? {
            self.whiteouts += 1;
            self.tree.node_mut(dir).whiteouts = true;
        }
        Ok(())
    }

    /// Hides the content of a directory of the layers below.
    pub(super) fn opaque(&mut self, name: &Name) -> Result<(), UnpackError> {
        match self.resolve(name.parent(), Need::Mark)? {
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
        F::make_opaque(self, id)?;
        self.tree.node_mut(id).opaque = true;
        self.outcome.root_opaque |= id == ROOT;
        Ok(())
    }

    /// Removes a directory that contains nothing but whiteouts and other such directories.
    pub(super) fn remove_marks(&mut self, id: Id) -> Result<(), UnpackError> {
        self.last_parent = None;
        for id in self.tree.subtree(id).into_iter().rev() {
            self.clear_whiteouts(id)?;
            F::remove_directory(self, id)?;
            self.tree.detach(id);
        }
        Ok(())
    }

    /// Removes the whiteouts in a directory. Where nothing from below can be seen they hide nothing, but overlayfs
    /// lists their names: it only leaves whiteouts out of directories that it merges.
    pub(super) fn clear_whiteouts(&mut self, id: Id) -> Result<(), UnpackError> {
        if !self.tree.node(id).whiteouts {
            return Ok(());
        }
        for name in F::whiteouts(self, id)? {
            F::remove_whiteout(self, id, &name)?;
        }
        self.tree.node_mut(id).whiteouts = false;
        Ok(())
    }

    /// Returns true if a whiteout has this name. Costs nothing while the layer has none.
    pub(super) fn has_whiteout(&mut self, dir: Id, leaf: &[u8]) -> Result<bool, UnpackError> {
        Ok(self.whiteouts > 0 && F::find_entry(self, dir, leaf)? == Some(There::Whiteout))
    }
}
