//! Compares two EROFS files of one layer: the one in the store, and a copy that was just made from the layer's stream without the
//! content of its files. Finds the first difference in what a stream says of a file apart from its bytes, and names that lead to
//! the bytes of another file. Changes nothing. Called by [`crate::ingest::verify`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use erofs::{DirEntry, InodeInfo, Kind, Nid, ReadError, Reader};

use crate::layers::compare::{Compared, NotCompared, of_copy};
use crate::recipe::{self, RecipeError};
use crate::tar::shown;

/// The first difference between the EROFS files of two layer directories, in words. Directories of `implicit` got their attributes
/// from layers below: these are not compared.
pub(crate) fn erofs_difference(
    there: BorrowedFd<'_>,
    copy: BorrowedFd<'_>,
    implicit: &[Vec<u8>],
    cancelled: &dyn Fn() -> bool,
) -> Compared {
    let wants = recipe::inodes(copy).map_err(|error| of_copy(cause(error)))?;
    let has = match recipe::inodes(there) {
        Ok(has) => has,
        Err(error @ (RecipeError::Missing | RecipeError::Damaged { .. })) => return Ok(Some(error.to_string())),
        Err(error) => return Err(cause(error).into()),
    };
    if has.len() != wants.len() {
        return Ok(Some("the recipe is not what it was".to_owned()));
    }
    let pair = ErofsPair {
        there: recipe::read_erofs(there)?,
        copy: recipe::read_erofs(copy).map_err(of_copy)?,
        implicit: implicit.iter().cloned().collect(),
        data: wants.into_iter().zip(has).collect(),
    };
    let roots = (pair.there.inode(pair.there.root())?, pair.copy.inode(pair.copy.root()).map_err(of_copy)?);
    if let Some(what) = pair.inode(&roots.0, &roots.1, b"")? {
        return Ok(Some(what));
    }
    let mut todo = vec![(roots.0, roots.1, Vec::new())];
    while let Some((is, was, path)) = todo.pop() {
        if cancelled() {
            break;
        }
        if let Some(what) = pair.directory(&is, &was, &path, &mut todo)? {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

/// Without the name of the recipe, which is the same on both sides.
fn cause(error: RecipeError) -> io::Error {
    match error {
        RecipeError::Read { source, .. } | RecipeError::Write(source) => source,
        error => io::Error::other(error),
    }
}

impl From<ReadError> for NotCompared {
    fn from(error: ReadError) -> Self {
        Self::Layer(error.into())
    }
}

struct ErofsPair {
    there: Reader<File>,
    copy: Reader<File>,
    /// Directories whose attributes are those of the layers below.
    implicit: BTreeSet<Vec<u8>>,
    /// Which inode has in the store the bytes that one of the copy is to have.
    data: HashMap<Nid, Nid>,
}

type Todo = Vec<(InodeInfo, InodeInfo, Vec<u8>)>;

impl ErofsPair {
    fn directory(&self, is: &InodeInfo, was: &InodeInfo, path: &[u8], todo: &mut Todo) -> Compared {
        let (names, mut wanted) = (names(&self.there, is)?, names(&self.copy, was).map_err(of_copy)?);
        for (name, entry) in names {
            let child = if path.is_empty() { name.clone() } else { [path, b"/", &name].concat() };
            let Some(wanted) = wanted.remove(&name) else {
                return Ok(Some(format!("{:?} is not of this layer", shown(&child))));
            };
            let (is, was) = (self.there.inode(entry.nid)?, self.copy.inode(wanted.nid).map_err(of_copy)?);
            if let Some(what) = self.inode(&is, &was, &child)? {
                return Ok(Some(what));
            }
            if is.kind == Kind::Directory {
                todo.push((is, was, child));
            }
        }
        let gone = wanted.into_keys().next();
        Ok(gone.map(|name| format!("{:?} is gone", shown(&[path, b"/", &name].concat()))))
    }

    fn inode(&self, is: &InodeInfo, was: &InodeInfo, path: &[u8]) -> Compared {
        let differs = |what: &str, is: String, was: String| {
            Ok(Some(format!("{what} of {:?} is {is} instead of {was}", shown(path))))
        };
        if is.kind != was.kind {
            return differs("the kind", format!("{:?}", is.kind), format!("{:?}", was.kind));
        }
        // A whiteout has no attributes of the layer's.
        if is.is_whiteout() && was.is_whiteout() {
            return Ok(None);
        }
        let is_directory = is.kind == Kind::Directory;
        let form = |inode: &InodeInfo| {
            let size = if is_directory { 0 } else { inode.size };
            (size, inode.device, inode.links)
        };
        if form(is) != form(was) {
            let text = |inode: &InodeInfo| {
                let (size, (major, minor), links) = form(inode);
                format!("{size} bytes, device {major}:{minor}, {links} links")
            };
            return differs("the form", text(is), text(was));
        }
        if let Some(nid) = self.data.get(&was.nid)
            && *nid != is.nid
        {
            return differs("the content", format!("that of inode {}", is.nid.0), format!("that of inode {}", nid.0));
        }
        if is_directory && self.implicit.contains(path) {
            return Ok(None);
        }
        if is.mode != was.mode {
            return differs("the mode", format!("{:o}", is.mode), format!("{:o}", was.mode));
        }
        if (is.uid, is.gid) != (was.uid, was.gid) {
            return differs("the owner", format!("{}:{}", is.uid, is.gid), format!("{}:{}", was.uid, was.gid));
        }
        if is.mtime != was.mtime {
            let text = |(seconds, nanos): (i64, u32)| format!("{seconds}.{nanos:09}");
            return differs("the time", text(is.mtime), text(was.mtime));
        }
        if is.kind == Kind::Symlink {
            let (is, was) = (self.there.link_target(is)?, self.copy.link_target(was).map_err(of_copy)?);
            if is != was {
                return differs("the target", format!("{:?}", shown(&is)), format!("{:?}", shown(&was)));
            }
        }
        let attributes = |found: Vec<(Vec<u8>, Vec<u8>)>| found.into_iter().collect::<BTreeSet<_>>();
        let (is, was) = (self.there.xattrs(is)?, self.copy.xattrs(was).map_err(of_copy)?);
        let (is, was) = (attributes(is), attributes(was));
        if let Some((name, _)) = is.symmetric_difference(&was).next() {
            return Ok(Some(format!("the attribute {:?} of {:?} is not what it was", shown(name), shown(path))));
        }
        Ok(None)
    }
}

fn names(erofs: &Reader<File>, directory: &InodeInfo) -> io::Result<BTreeMap<Vec<u8>, DirEntry>> {
    let mut names = BTreeMap::new();
    for entry in erofs.entries(directory)? {
        let entry = entry?;
        names.insert(entry.name.clone(), entry);
    }
    Ok(names)
}
