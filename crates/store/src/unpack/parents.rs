//! From the directory part of a name to a directory of the layer: symbolic links are followed inside the layer as
//! containerd does (as if the layer were the root, so that neither `..` nor an absolute target leads out), and what is
//! missing is made.

use std::io;

use super::error::{UnpackError, failed, refused};
use super::form::{Form, There, Unpacker};
use super::name::LINK_DIRECTORY;
use super::tree::{Id, ROOT};

/// The purpose for which a parent is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// To make something in it. Missing directories are made, also in place of a whiteout.
    Thing,
    /// To make a whiteout in it, or to make it opaque. Missing directories are made, whiteouts stay.
    Mark,
    /// To find something in it. Nothing is made.
    Target,
}

/// The parent directory of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parent {
    /// The directory.
    Directory(Id),
    /// A whiteout of this layer hides it ([`Need::Mark`]), or it does not exist ([`Need::Target`]).
    Nothing,
}

/// Symbolic links that one path may lead through, as many as the kernel follows.
const LINKS_MOST: usize = 40;

enum WalkStep {
    To(Id),
    Link(Vec<u8>),
    Nothing,
}

impl<F: Form> Unpacker<'_, F> {
    /// The directory to make something in.
    pub(super) fn parent(&mut self, path: &[u8]) -> Result<Id, UnpackError> {
        match self.resolve(path, Need::Thing)? {
            Parent::Directory(id) => {
                self.tree.populate(id);
                Ok(id)
            }
            Parent::Nothing => Err(refused(path, "its directory cannot be made")),
        }
    }

    /// The directory that a clean path means.
    pub(super) fn resolve(&mut self, path: &[u8], need: Need) -> Result<Parent, UnpackError> {
        if let Some((last, id)) = &self.last_parent
            && last == path
        {
            return Ok(Parent::Directory(*id));
        }
        let found = match self.tree.find(path) {
            Some(id) => Parent::Directory(id),
            None => self.walk(path, need)?,
        };
        if let Parent::Directory(id) = found {
            let mut buffer = self.last_parent.take().map(|(buffer, _)| buffer).unwrap_or_default();
            buffer.clear();
            buffer.extend_from_slice(path);
            self.last_parent = Some((buffer, id));
        }
        Ok(found)
    }

    fn walk(&mut self, path: &[u8], need: Need) -> Result<Parent, UnpackError> {
        let mut rest = Vec::new();
        push_parts(&mut rest, path);
        let (mut at, mut links) = (ROOT, 0_usize);
        while let Some(part) = rest.pop() {
            if part == b".." {
                at = self.tree.parent(at);
                continue;
            }
            if at == ROOT && links > 0 && part == LINK_DIRECTORY {
                return Err(refused(path, "a symbolic link leads to files that aufs keeps for itself"));
            }
            if let Some(child) = self.tree.child(at, &part) {
                at = child;
                continue;
            }
            match self.step(at, &part, need)? {
                WalkStep::To(id) => at = id,
                WalkStep::Nothing => return Ok(Parent::Nothing),
                WalkStep::Link(target) => {
                    links += 1;
                    if links > LINKS_MOST {
                        return Err(refused(path, "it leads through too many symbolic links"));
                    }
                    if target.starts_with(b"/") {
                        at = ROOT;
                    }
                    push_parts(&mut rest, &target);
                }
            }
        }
        Ok(Parent::Directory(at))
    }

    /// A component that is no known directory.
    fn step(&mut self, at: Id, part: &[u8], need: Need) -> Result<WalkStep, UnpackError> {
        if need != Need::Target
            && let Some(id) = self.make_implicit(at, part)?
        {
            return Ok(WalkStep::To(id));
        }
        match F::find_entry(self, at, part)? {
            None => return Ok(WalkStep::Nothing),
            Some(There::SymbolicLink) => return Ok(WalkStep::Link(F::target(self, at, part)?)),
            Some(There::Other) => {
                return Err(refused(&self.tree.path_of(at, part), "another entry needs it to be a directory"));
            }
            Some(There::Whiteout) if need != Need::Thing => return Ok(WalkStep::Nothing),
            Some(There::Whiteout) => {}
        }
        // The directory was deleted and made again by this layer: nothing of the one below shows through.
        F::remove_whiteout(self, at, part)?;
        let Some(id) = self.make_implicit(at, part)? else {
            return Err(failed("creating the directory", &self.tree.path_of(at, part), io::ErrorKind::AlreadyExists));
        };
        self.cut(id)?;
        Ok(WalkStep::To(id))
    }

    /// Makes a directory that has no entry, or not yet; `None` when something is in its place.
    fn make_implicit(&mut self, dir: Id, leaf: &[u8]) -> Result<Option<Id>, UnpackError> {
        let Some(own) = F::directory_if_free(self, dir, leaf)? else { return Ok(None) };
        self.add_directory(dir, leaf, own).map(Some)
    }
}

/// Puts the components of a path on the stack, the first on top.
fn push_parts(rest: &mut Vec<Vec<u8>>, path: &[u8]) {
    let parts = path.split(|b| *b == b'/').rev().filter(|part| !matches!(*part, b"" | b"."));
    rest.extend(parts.map(<[u8]>::to_vec));
}
