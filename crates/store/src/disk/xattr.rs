//! Extended attributes of a file, read whole. Follows no symbolic link, changes nothing. Called wherever layers are compared,
//! copied or shown.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;

/// The largest list of names, and the largest value, that Linux has.
const MOST: usize = 64 << 10;

/// Attributes by name and value.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns true if overlayfs keeps something of its own in attributes of this name.
pub(crate) fn is_of_overlayfs(name: &[u8]) -> bool {
    name.starts_with(b"trusted.overlay.") || name.starts_with(b"user.overlay.")
}

/// A file whose extended attributes are read.
#[derive(Clone, Copy)]
pub(crate) enum XattrFile<'a> {
    /// Open for reading.
    Open(BorrowedFd<'a>),
    /// Open for nothing (`O_PATH`): the descriptor itself cannot be asked.
    Reached(BorrowedFd<'a>),
    /// A name in an open directory; not everything can be opened.
    In(BorrowedFd<'a>, &'a [u8]),
}

impl XattrFile<'_> {
    fn path(self) -> Result<CString, Errno> {
        let path = match self {
            Self::Open(fd) | Self::Reached(fd) => format!("/proc/self/fd/{}", fd.as_raw_fd()).into_bytes(),
            Self::In(directory, name) => {
                [format!("/proc/self/fd/{}/", directory.as_raw_fd()).as_bytes(), name].concat()
            }
        };
        CString::new(path).map_err(|_| Errno::INVAL)
    }

    /// The names of all attributes; none where the file system has none.
    pub(crate) fn names(self) -> Result<Vec<Vec<u8>>, Errno> {
        let mut list = vec![0_u8; MOST];
        let length = match self {
            Self::Open(fd) => rustix::fs::flistxattr(fd, &mut list[..]),
            Self::Reached(_) => rustix::fs::listxattr(self.path()?.as_c_str(), &mut list[..]),
            Self::In(..) => rustix::fs::llistxattr(self.path()?.as_c_str(), &mut list[..]),
        };
        let length = match length {
            Err(Errno::OPNOTSUPP) => 0,
            length => length?,
        };
        Ok(list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    /// Returns the value of an attribute, or `None` if it was removed.
    fn value(self, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let mut value = vec![0_u8; MOST];
        let length = match self {
            Self::Open(fd) => rustix::fs::fgetxattr(fd, name, &mut value[..]),
            Self::Reached(_) => rustix::fs::getxattr(self.path()?.as_c_str(), name, &mut value[..]),
            Self::In(..) => rustix::fs::lgetxattr(self.path()?.as_c_str(), name, &mut value[..]),
        };
        match length {
            Ok(length) => Ok(Some(value[..length].to_vec())),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The attributes whose names `wanted` takes, in the file system's order.
    pub(crate) fn read(self, wanted: impl Fn(&[u8]) -> bool) -> Result<Xattrs, Errno> {
        let mut found = Vec::new();
        for name in self.names()?.into_iter().filter(|name| wanted(name)) {
            if let Some(value) = self.value(&name)? {
                found.push((name, value));
            }
        }
        Ok(found)
    }
}
