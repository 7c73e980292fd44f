//! The content of one layer at a path, as the layers above it see it: the attributes of a directory, or that it hides what lies
//! below. Plain values, the same for every shape.

use std::io;

use rustix::fs::Timestamps;

/// The result of looking up a path in one layer.
#[derive(Clone, Debug)]
pub(crate) enum PathLookup {
    /// A directory that shows.
    Here(Attributes),
    /// Something else, or nothing below an opaque directory: lower layers cannot be seen there.
    Hidden,
    /// Nothing.
    Absent,
}

/// The attributes of a directory.
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    /// Permission bits with set-user-id, set-group-id and sticky.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) times: Timestamps,
    /// Extended attributes, those of overlayfs among them.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Attributes {
    /// Returns true if it is as a root is that no layer says anything of.
    pub(crate) fn is_plain(&self, uid: u32, gid: u32) -> bool {
        self.mode == 0o755 && (self.uid, self.gid) == (uid, gid) && self.xattrs.is_empty()
    }
}

/// Looks up what the layers below have at a path: attributes of the directory that shows there, if one does.
pub(crate) type Below<'a> = &'a dyn Fn(&[u8]) -> io::Result<Option<Attributes>>;
