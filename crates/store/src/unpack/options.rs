//! [`UnpackOptions`]: how a layer is unpacked.

use crate::tar::Limits;

/// How to unpack.
#[derive(Clone, Copy)]
pub struct UnpackOptions<'a> {
    /// Limits of one layer.
    pub limits: &'a Limits,
    /// True if owners, devices and privileged attributes can be set. If not, they are recorded in `deferred.jsonl`. An EROFS file has
    /// them in any case.
    pub privileged: bool,
    /// Asked before every entry and between pieces of big files.
    pub cancelled: &'a dyn Fn() -> bool,
    /// Set if the caller will wait until everything is on the disk: the kernel is asked to start writing big files while they
    /// grow, and this function is called with the number of bytes written to each file.
    pub write_back: Option<&'a dyn Fn(u64)>,
    /// Files get their lengths and attributes, but no content: a copy to compare with, which takes hardly any space.
    pub hollow: bool,
    /// The tree of an EROFS file is nested ([`erofs::Writer::nested`]).
    pub nested: bool,
}
