//! [`Parts`]: the sink of an EROFS file and the tables that are kept until its end. [`super::Writer`] holds them; content and the end of
//! the EROFS file are written through them.

use super::blobs::Blobs;
use super::dirs::Dirs;
use super::links::Links;
use super::names::Names;
use super::output::Output;
use super::spill::Spill;
use super::xattrs::Xattrs;
use crate::Sink;

/// The sink of an EROFS file, and all that is kept until its end.
pub(super) struct Parts<S: Sink> {
    pub(super) output: Output<S>,
    pub(super) xattrs: Xattrs,
    pub(super) names: Names,
    pub(super) dirs: Dirs,
    pub(super) blobs: Blobs,
    pub(super) links: Links,
    pub(super) spill: Spill,
    /// The time of compact inodes, once it is known.
    pub(super) time: Option<(i64, u32)>,
    pub(super) numbers: u32,
}

impl<S: Sink> Parts<S> {
    /// The next number for `stat` on 32-bit machines.
    pub(super) fn number(&mut self) -> u32 {
        self.numbers = self.numbers.wrapping_add(1);
        self.numbers
    }
}
