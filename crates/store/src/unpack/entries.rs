//! The effect of each kind of entry.

use super::error::{UnpackError, refused};
use super::form::{Form, Unpacker};
use super::name::{Meaning, Name};
use super::parents::{Need, Parent};
use super::tree::{Id, ROOT};
use crate::tar::{Entry, Kind, Reader, TarError, shown};

impl<F: Form> Unpacker<'_, F> {
    /// A regular file.
    pub(super) fn file(&mut self, reader: &mut Reader<'_>, entry: &Entry, name: &Name) -> Result<(), UnpackError> {
        let content = self.outcome.content_bytes.saturating_add(entry.size);
        if content > self.options.limits.layer_bytes {
            // A sparse file can claim more than the stream has.
            return Err(UnpackError::Archive(TarError::Limit {
                subject: format!("layer entry {:?}", shown(&entry.path)),
                limit_name: "bytes of files up to here",
                limit: self.options.limits.layer_bytes,
                seen: content,
            }));
        }
        let dir = self.parent(name.parent())?;
        F::file(self, reader, entry, dir, name.leaf())?;
        self.outcome.files += 1;
        self.outcome.content_bytes = content;
        Ok(())
    }

    /// Handles a directory; an existing one is merged with and takes the attributes of this entry.
    pub(super) fn directory(&mut self, entry: &Entry, name: &Name) -> Result<(), UnpackError> {
        let dir = self.parent(name.parent())?;
        let leaf = name.leaf();
        if let Some(known) = self.tree.child(dir, leaf) {
            return self.merge(entry, known);
        }
        let over_whiteout = self.has_whiteout(dir, leaf)?;
        let own = F::directory(self, entry, dir, leaf)?;
        let id = self.add_directory(dir, leaf, own)?;
        if over_whiteout {
            self.cut(id)?;
        }
        self.dress(entry, id, false)
    }

    /// The entry of the root itself.
    pub(super) fn root(&mut self, entry: &Entry) -> Result<(), UnpackError> {
        if entry.kind != Kind::Directory {
            let reason = format!("it would make the root of the layer a {}", entry.kind.word());
            return Err(refused(&entry.path, reason));
        }
        self.merge(entry, ROOT)
    }

    fn merge(&mut self, entry: &Entry, id: Id) -> Result<(), UnpackError> {
        self.tree.populate(id);
        self.dress(entry, id, true)
    }

    fn dress(&mut self, entry: &Entry, id: Id, again: bool) -> Result<(), UnpackError> {
        F::dress(self, entry, id, again)?;
        self.tree.node_mut(id).explicit = true;
        Ok(())
    }

    /// Handles a symbolic link, its target as it is: the unpacker never follows it.
    pub(super) fn symlink(&mut self, entry: &Entry, name: &Name) -> Result<(), UnpackError> {
        if entry.link.is_empty() || entry.link.contains(&0) {
            return Err(refused(&entry.path, "the symbolic link has no valid target"));
        }
        let limit = self.options.limits.link_bytes;
        if entry.link.len() > limit {
            return Err(UnpackError::Archive(TarError::Limit {
                subject: format!("layer entry {:?}", shown(&entry.path)),
                limit_name: "bytes in its symbolic link's target",
                limit: limit as u64,
                seen: entry.link.len() as u64,
            }));
        }
        let dir = self.parent(name.parent())?;
        F::symlink(self, entry, dir, name.leaf())
    }

    /// Another name of something that this layer has made. The attributes are those of the first entry.
    pub(super) fn hard_link(&mut self, entry: &Entry, name: &Name) -> Result<(), UnpackError> {
        let missing = || {
            let target = shown(&entry.link);
            refused(&entry.path, format!("the target {target:?} of the hard link is not in the layer"))
        };
        let mut target = Name::default();
        match target.set(&entry.link, self.options.limits)? {
            Meaning::Thing | Meaning::LinkTarget => {}
            Meaning::Root | Meaning::Whiteout | Meaning::Opaque | Meaning::Ignored => return Err(missing()),
        }
        let Parent::Directory(from) = self.resolve(target.parent(), Need::Target)? else { return Err(missing()) };
        if self.tree.child(from, target.leaf()).is_some() {
            let reason = format!("the target {:?} of the hard link is a directory", shown(&entry.link));
            return Err(refused(&entry.path, reason));
        }
        if self.has_whiteout(from, target.leaf())? {
            return Err(missing());
        }
        let dir = self.parent(name.parent())?;
        if self.tree.child(from, target.leaf()).is_some() {
            // The new name lies below it: what was there, if anything, has just made way for a directory.
            return Err(missing());
        }
        if from == dir && target.leaf() == name.leaf() {
            // A link to itself has no effect, if the file exists.
            return if F::find_entry(self, dir, name.leaf())?.is_some() { Ok(()) } else { Err(missing()) };
        }
        if self.tree.child(dir, name.leaf()).is_some_and(|replaced| self.tree.is_within(from, replaced)) {
            // The directory that makes way for the link takes its target along.
            return Err(missing());
        }
        if F::link(self, (from, target.leaf()), dir, name.leaf())? { Ok(()) } else { Err(missing()) }
    }
}
