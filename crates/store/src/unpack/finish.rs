//! The end of a layer: what its marks come to, which of its directories were implicit, and the end of its recipe.

use super::UnpackOutcome;
use super::error::{UnpackError, recipe};
use super::form::{Form, Unpacker};
use super::name::LINK_DIRECTORY;
use super::tree::{Id, ROOT};

impl<F: Form> Unpacker<'_, F> {
    /// Ends the layer, whose tar stream had `stream_bytes` bytes.
    pub(super) fn finish(mut self, stream_bytes: u64) -> Result<UnpackOutcome, UnpackError> {
        if let Some(id) = self.tree.child(ROOT, LINK_DIRECTORY) {
            // The directory's files keep the names that hard links gave them.
            F::discard_directory(&mut self, id)?;
        }
        self.prune()?;
        let implicit = self.implicit_directories();
        F::finish(&mut self, &implicit)?;
        self.outcome.implicit_dirs = implicit.into_iter().map(|id| self.tree.path(id)).collect();
        let Self { form, recipe: written, mut outcome, .. } = self;
        form.end(&mut outcome)?;
        written.finish(stream_bytes).map_err(recipe)?;
        Ok(outcome)
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

    /// The directories without an entry whose counterpart below can be seen, parents first.
    fn implicit_directories(&self) -> Vec<Id> {
        let sealed = self.sealed();
        let is_implicit = |id: &Id| {
            let node = self.tree.node(*id);
            let above = *id != ROOT && sealed[self.tree.parent(*id) as usize];
            node.present && !node.explicit && !node.cut && !above
        };
        self.tree.ids().filter(is_implicit).collect()
    }
}
