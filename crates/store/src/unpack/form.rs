//! [`Form`]: the form in which a layer is stored, as the rules of unpacking see it. The rules are the same for every form and are
//! in the modules next to this one; a form carries them out, and decides nothing that is visible in the tree.

use super::error::UnpackError;
use super::options::UnpackOptions;
use super::outcome::UnpackOutcome;
use super::tree::{Id, Tree};
use crate::recipe::Writer;
use crate::tar::{Entry, Reader};

/// A layer in the making.
pub(super) struct Unpacker<'a, F: Form> {
    pub(super) options: &'a UnpackOptions<'a>,
    pub(super) tree: Tree<F::Node>,
    pub(super) form: F,
    pub(super) recipe: Writer,
    pub(super) outcome: UnpackOutcome,
    /// The parent directory of the entry before, and where it led.
    pub(super) last_parent: Option<(Vec<u8>, Id)>,
    /// Whiteouts made so far; while there are none, a lookup can be saved.
    pub(super) whiteouts: u64,
    pub(super) default_acl_bytes: usize,
    pub(super) warned_xattr: bool,
}

/// An entry that is no known directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum There {
    Whiteout,
    SymbolicLink,
    Other,
}

/// The files of a directory, or an EROFS file. Functions that make something remove what is in its place, and update the tree,
/// because the later entry of a path wins; those that end in `_if_free` leave it alone instead.
pub(super) trait Form: Sized {
    /// The form's data of each directory.
    type Node;

    /// Stats a name in a directory, without following it.
    fn find_entry(unpacker: &mut Unpacker<'_, Self>, dir: Id, leaf: &[u8]) -> Result<Option<There>, UnpackError>;

    /// The target of the symbolic link at a name.
    fn target(unpacker: &mut Unpacker<'_, Self>, dir: Id, leaf: &[u8]) -> Result<Vec<u8>, UnpackError>;

    /// Makes a directory of mode 0755 and owner 0:0; `None` when something is in its place.
    fn directory_if_free(
        unpacker: &mut Unpacker<'_, Self>,
        dir: Id,
        leaf: &[u8],
    ) -> Result<Option<Self::Node>, UnpackError>;

    /// Makes a directory for an entry, whose attributes [`Form::dress`] gives it afterwards.
    fn directory(
        unpacker: &mut Unpacker<'_, Self>,
        entry: &Entry,
        dir: Id,
        leaf: &[u8],
    ) -> Result<Self::Node, UnpackError>;

    /// Gives a directory the attributes of its entry. `again`: it was there before, and may have those of another entry.
    fn dress(unpacker: &mut Unpacker<'_, Self>, entry: &Entry, id: Id, again: bool) -> Result<(), UnpackError>;

    /// Makes a regular file of the entry's data.
    fn file(
        unpacker: &mut Unpacker<'_, Self>,
        reader: &mut Reader<'_>,
        entry: &Entry,
        dir: Id,
        leaf: &[u8],
    ) -> Result<(), UnpackError>;

    /// Makes a symbolic link.
    fn symlink(unpacker: &mut Unpacker<'_, Self>, entry: &Entry, dir: Id, leaf: &[u8]) -> Result<(), UnpackError>;

    /// Makes a device or a fifo.
    fn special(unpacker: &mut Unpacker<'_, Self>, entry: &Entry, dir: Id, leaf: &[u8]) -> Result<(), UnpackError>;

    /// Gives the file at `from`, which is no directory, another name. Returns `false` if there is no such file.
    fn link(unpacker: &mut Unpacker<'_, Self>, from: (Id, &[u8]), dir: Id, leaf: &[u8]) -> Result<bool, UnpackError>;

    /// Makes a whiteout. `false`: none was made, because something is in its place, or for lack of rights.
    fn whiteout_if_free(
        unpacker: &mut Unpacker<'_, Self>,
        entry: &Entry,
        dir: Id,
        leaf: &[u8],
    ) -> Result<bool, UnpackError>;

    /// Makes a directory hide the content of the one below.
    fn make_opaque(unpacker: &mut Unpacker<'_, Self>, id: Id) -> Result<(), UnpackError>;

    /// The names of all whiteouts in a directory.
    fn whiteouts(unpacker: &mut Unpacker<'_, Self>, id: Id) -> Result<Vec<Vec<u8>>, UnpackError>;

    /// Takes a whiteout away.
    fn remove_whiteout(unpacker: &mut Unpacker<'_, Self>, dir: Id, leaf: &[u8]) -> Result<(), UnpackError>;

    /// Takes an empty directory away, which the tree still knows.
    fn remove_directory(unpacker: &mut Unpacker<'_, Self>, id: Id) -> Result<(), UnpackError>;

    /// Removes a directory with its content from the tree. What the recipe needs of it is kept.
    fn discard_directory(unpacker: &mut Unpacker<'_, Self>, id: Id) -> Result<(), UnpackError>;

    /// Gives directories, which are all there, their last attributes. `implicit` are those that will be in the outcome, parents
    /// first.
    fn finish(unpacker: &mut Unpacker<'_, Self>, implicit: &[Id]) -> Result<(), UnpackError>;

    /// Writes what is left to be written, and says what it counted.
    fn end(self, outcome: &mut UnpackOutcome) -> Result<(), UnpackError>;
}
