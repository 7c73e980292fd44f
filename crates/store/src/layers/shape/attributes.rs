//! What one layer has at a path, as the layers above it want to know: the attributes of a directory, or that it hides what lies
//! below. Plain values, the same for every shape.

use rustix::fs::Timestamps;

/// What one layer has at a path.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// A directory that shows.
    Here(Attributes),
    /// Something else, or nothing below an opaque directory: lower layers cannot be seen there.
    Hidden,
    /// Nothing.
    Absent,
}

/// What a directory has beside its name.
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
    /// Whether it is as a root is that no layer says anything of.
    pub(crate) fn is_plain(&self, uid: u32, gid: u32) -> bool {
        self.mode == 0o755 && (self.uid, self.gid) == (uid, gid) && self.xattrs.is_empty()
    }
}
