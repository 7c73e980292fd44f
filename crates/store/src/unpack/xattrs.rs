//! Decides which extended attributes of a layer are kept. Left out, and counted, are `trusted.*` (containerd leaves them out as
//! well; those of overlayfs would let a layer reach into other layers), `user.overlay.*` for the same reason, and those that no
//! file of the kind can have.

use std::io;

use super::error::UnpackError;
use super::form::{Form, Unpacker};
use crate::tar::{Entry, TarError, shown, shown_xattr};

pub(super) const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
pub(super) const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// Labels and signatures by which the kernel decides what a file may do or who may use it. Layers may have them, as with containerd;
/// the node writes its own, too.
pub(crate) const LABELS: [&[u8]; 3] = [b"security.selinux", b"security.ima", b"security.evm"];

/// Why one is left out.
pub(super) const NOT_HELD: &str = "the file system cannot hold it";
pub(super) const WRONG_KIND: &str = "this kind of file cannot have it";

/// Returns true if attributes of this name are never taken from a layer.
pub(super) fn is_foreign(name: &[u8]) -> bool {
    name.starts_with(b"trusted.") || name.starts_with(b"user.overlay.")
}

/// The error of an attribute that could not be set.
pub(super) fn failed_xattr(name: &[u8], path: &[u8], error: impl Into<io::Error>) -> UnpackError {
    UnpackError::Io { operation: "setting the extended attribute", path: shown_xattr(name, path), source: error.into() }
}

impl<F: Form> Unpacker<'_, F> {
    /// Leaves one out that no layer may set.
    pub(super) fn skips_foreign(&mut self, name: &[u8], path: &[u8]) -> bool {
        let is_foreign = is_foreign(name);
        if is_foreign {
            self.skip_xattr(name, path, "layers may not set it");
        }
        is_foreign
    }

    pub(super) fn skip_xattr(&mut self, name: &[u8], path: &[u8], why: &'static str) {
        self.outcome.skipped_xattrs += 1;
        if !std::mem::replace(&mut self.warned_xattr, true) {
            tracing::warn!(
                xattr = %shown(name), path = %shown(path), reason = why,
                "extended attribute of a layer left out; further ones of this layer are only counted"
            );
        }
    }

    /// Holds the default access control lists of directories against their limit: some form keeps them until the end.
    pub(super) fn count_default_acl(&mut self, entry: &Entry, bytes: usize) -> Result<(), UnpackError> {
        self.default_acl_bytes += bytes;
        let limit = self.options.limits.default_acl_bytes;
        if self.default_acl_bytes <= limit {
            return Ok(());
        }
        Err(UnpackError::Archive(TarError::Limit {
            subject: format!("layer entry {:?}", shown(&entry.path)),
            limit_name: "bytes of default access control lists up to here",
            limit: limit as u64,
            seen: self.default_acl_bytes as u64,
        }))
    }
}
