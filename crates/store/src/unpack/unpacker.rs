//! The loop of an [`Unpacker`] over its entries. The effects of entries are in the modules next to this one.

use super::error::UnpackError;
use super::form::{Form, Unpacker};
use super::name::{Meaning, Name};
use super::options::UnpackOptions;
use super::outcome::UnpackOutcome;
use super::tree::{Id, Tree};
use crate::recipe::Writer;
use crate::tar::{Entry, Kind, Reader, TarError, shown};

impl<'a, F: Form> Unpacker<'a, F> {
    /// An unpacker for a layer that has nothing but its root yet.
    pub(super) fn new(form: F, root: F::Node, recipe: Writer, options: &'a UnpackOptions<'a>) -> Self {
        Self {
            options,
            tree: Tree::new(root),
            form,
            recipe,
            outcome: UnpackOutcome { exact: true, ..UnpackOutcome::default() },
            last_parent: None,
            whiteouts: 0,
            default_acl_bytes: 0,
            warned_xattr: false,
        }
    }

    /// Applies the whole archive.
    pub(super) fn run(&mut self, reader: &mut Reader<'_>) -> Result<(), UnpackError> {
        let mut entry = Entry::default();
        let mut name = Name::default();
        loop {
            self.check_cancelled()?;
            if !reader.next(&mut entry, &mut |bytes| self.recipe.raw(bytes))? {
                return Ok(());
            }
            self.outcome.entries += 1;
            match name.set(&entry.path, self.options.limits)? {
                Meaning::LinkTarget if entry.kind == Kind::File => self.file(reader, &entry, &name)?,
                Meaning::LinkTarget | Meaning::Ignored => {}
                Meaning::Root => self.root(&entry)?,
                Meaning::Opaque => self.opaque(&name)?,
                Meaning::Whiteout => self.whiteout(&entry, &name, name.hidden())?,
                Meaning::Thing => self.thing(reader, &entry, &name)?,
            }
        }
    }

    fn thing(&mut self, reader: &mut Reader<'_>, entry: &Entry, name: &Name) -> Result<(), UnpackError> {
        match entry.kind {
            Kind::File => self.file(reader, entry, name),
            Kind::Directory => self.directory(entry, name),
            Kind::Symlink => self.symlink(entry, name),
            Kind::HardLink => self.hard_link(entry, name),
            // This is what overlayfs takes for a whiteout; made as it is, it would be one all the same.
            Kind::Char if entry.device == (0, 0) => self.whiteout(entry, name, name.leaf()),
            Kind::Char | Kind::Block | Kind::Fifo => {
                let dir = self.parent(name.parent())?;
                F::special(self, entry, dir, name.leaf())
            }
        }
    }

    pub(super) fn check_cancelled(&self) -> Result<(), UnpackError> {
        if (self.options.cancelled)() { Err(UnpackError::Cancelled) } else { Ok(()) }
    }

    /// Takes a new directory into the tree, within the limits.
    pub(super) fn add_directory(&mut self, dir: Id, leaf: &[u8], own: F::Node) -> Result<Id, UnpackError> {
        let limits = self.options.limits;
        let most = limits.directories.min(u64::from(u32::MAX));
        let depth = self.tree.depth(dir) + 1;
        let over = if self.tree.len() as u64 >= most {
            Some(("directories up to here", most, most + 1))
        } else if depth > limits.path_depth {
            Some(("components in its path", limits.path_depth as u64, depth as u64))
        } else {
            None
        };
        if let Some((limit_name, limit, seen)) = over {
            let subject = format!("layer entry {:?}", shown(&self.tree.path_of(dir, leaf)));
            return Err(UnpackError::Archive(TarError::Limit { subject, limit_name, limit, seen }));
        }
        Ok(self.tree.add(dir, leaf, own))
    }
}
