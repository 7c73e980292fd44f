//! [`walk_tree`]: visits every file of a directory tree that another program may be changing, in depth-first order and by descriptor. Its memory
//! and its open descriptors are bounded, whatever the number of directories and their depth. Follows no symbolic link and enters no mount.
//! Changes nothing and decides nothing. Blocks. Called where the disk use of pods is measured.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

/// Directories that are open at the same time. The parents of the deepest ones are closed, and opened again on the way back.
const MAX_OPEN: usize = 16;
/// Levels of a tree. No path that a system call takes reaches half as deep; the positions in the closed directories take 32 bytes each.
const MAX_DEPTH: usize = 16_384;

const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Reason for which a tree was not visited as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeWalkError {
    /// A directory was moved to another parent while the walk was below it.
    Moved,
    /// The tree has more levels than any path can name.
    TooDeep,
    /// A system call failed.
    Call {
        /// The operation and its kind of object.
        operation: &'static str,
        /// Levels between the root and the directory in which it failed.
        depth: usize,
        /// Error of the system.
        source: Errno,
    },
}

impl fmt::Display for TreeWalkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moved => write!(f, "a directory was moved while the tree was read"),
            Self::TooDeep => write!(f, "the tree has more than {MAX_DEPTH} levels"),
            Self::Call { operation, depth, source } => {
                write!(f, "cannot {operation} {depth} levels below the top: {}", io::Error::from(*source))
            }
        }
    }
}

impl std::error::Error for TreeWalkError {}

/// Device and inode, which identify a directory whatever its name is.
type Identity = (u32, u32, u64);

/// A directory whose entries are being read.
struct OpenLevel {
    directory: Dir,
    identity: Identity,
    /// Position behind the last entry that was read.
    position: i64,
}

/// A directory that was closed to bound the number of descriptors.
struct ClosedLevel {
    identity: Identity,
    position: i64,
}

/// The mount that is visited.
struct Mount {
    /// Identity of the mount; `None` on kernels that do not report it, where devices are compared.
    id: Option<u64>,
    device: (u32, u32),
}

impl Mount {
    fn of(attributes: &Statx) -> Self {
        let mask = StatxFlags::from_bits_retain(attributes.stx_mask);
        let id = mask.contains(StatxFlags::MNT_ID).then_some(attributes.stx_mnt_id);
        Self { id, device: (attributes.stx_dev_major, attributes.stx_dev_minor) }
    }

    /// Returns true if a file is on this mount. A btrfs subvolume has a device of its own and is no mount.
    fn has(&self, attributes: &Statx) -> bool {
        let other = Self::of(attributes);
        match (self.id, other.id) {
            (Some(own), Some(other)) => own == other,
            _ => self.device == other.device,
        }
    }
}

struct Walk<V> {
    mount: Mount,
    /// The shallowest directories, from the root on.
    closed: Vec<ClosedLevel>,
    /// The deepest directories.
    open: VecDeque<OpenLevel>,
    visit: V,
}

/// Calls `visit` with the attributes of the directory `root` and of every file below it on the same mount. A file that is removed during the walk is
/// passed over; one that is moved may be visited twice or not at all. The attributes have type, number of links, inode, blocks and device.
///
/// # Errors
/// A part of the tree could not be visited. What was visited until then is not the whole tree.
pub fn walk_tree(root: OwnedFd, visit: impl FnMut(&Statx)) -> Result<(), TreeWalkError> {
    let attributes = attributes(root.as_fd(), c"").map_err(failed("read the attributes of a directory", 0))?;
    let (closed, open) = (Vec::new(), VecDeque::with_capacity(MAX_OPEN));
    let mut walk = Walk { mount: Mount::of(&attributes), closed, open, visit };
    (walk.visit)(&attributes);
    walk.enter(root, &attributes)?;
    while !walk.open.is_empty() {
        walk.step()?;
    }
    Ok(())
}

impl<V: FnMut(&Statx)> Walk<V> {
    /// Visits the next entry of the deepest directory, or returns to its parent.
    fn step(&mut self) -> Result<(), TreeWalkError> {
        let depth = self.depth();
        let Some(level) = self.open.back_mut() else { return Ok(()) };
        let Some(entry) = level.directory.read() else { return self.leave() };
        let entry = entry.map_err(failed("read a directory", depth))?;
        level.position = entry.offset();
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            return Ok(());
        }
        let directory = level.directory.fd().map_err(failed("read a directory", depth))?;
        let found = match attributes(directory, name) {
            Ok(found) if self.mount.has(&found) => found,
            Ok(_) | Err(Errno::NOENT) => return Ok(()),
            Err(source) => return Err(failed("read the attributes of a file", depth)(source)),
        };
        (self.visit)(&found);
        if FileType::from_raw_mode(found.stx_mode.into()) != FileType::Directory {
            return Ok(());
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let child = match rustix::fs::openat2(directory, name, OPEN, Mode::empty(), resolve) {
            Ok(child) => child,
            // Removed or replaced since, or a mount point.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(()),
            Err(source) => return Err(failed("open a directory", depth)(source)),
        };
        // Another directory may have taken the name since.
        let found = attributes(child.as_fd(), c"").map_err(failed("read the attributes of a directory", depth + 1))?;
        self.enter(child, &found)
    }

    fn enter(&mut self, directory: OwnedFd, attributes: &Statx) -> Result<(), TreeWalkError> {
        if self.open.len() == MAX_OPEN
            && let Some(OpenLevel { identity, position, .. }) = self.open.pop_front()
        {
            if self.closed.len() + MAX_OPEN >= MAX_DEPTH {
                return Err(TreeWalkError::TooDeep);
            }
            self.closed.push(ClosedLevel { identity, position });
        }
        let directory = Dir::new(directory).map_err(failed("read a directory", self.depth() + 1))?;
        self.open.push_back(OpenLevel { directory, identity: identity(attributes), position: 0 });
        Ok(())
    }

    /// Returns from a directory to its parent, which is opened again where it was closed.
    fn leave(&mut self) -> Result<(), TreeWalkError> {
        let depth = self.depth();
        let Some(level) = self.open.pop_back().filter(|_| self.open.is_empty()) else { return Ok(()) };
        let Some(ClosedLevel { identity: expected, position }) = self.closed.pop() else { return Ok(()) };
        let opened = level.directory.fd().and_then(|child| {
            let parent = rustix::fs::openat(child, c"..", OPEN, Mode::empty())?;
            let found = identity(&attributes(parent.as_fd(), c"")?);
            let mut directory = Dir::new(parent)?;
            directory.seek(position)?;
            Ok((found, directory))
        });
        let (found, directory) = opened.map_err(failed("open the parent of a directory", depth))?;
        if found != expected {
            return Err(TreeWalkError::Moved);
        }
        self.open.push_back(OpenLevel { directory, identity: expected, position });
        Ok(())
    }

    /// Levels between the root and the deepest directory.
    fn depth(&self) -> usize {
        (self.closed.len() + self.open.len()).saturating_sub(1)
    }
}

fn failed(operation: &'static str, depth: usize) -> impl Fn(Errno) -> TreeWalkError {
    move |source| TreeWalkError::Call { operation, depth, source }
}

/// Attributes of the file of this name, or of `directory` itself where the name is empty.
fn attributes(directory: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    let wanted = StatxFlags::TYPE | StatxFlags::NLINK | StatxFlags::INO | StatxFlags::BLOCKS | StatxFlags::MNT_ID;
    rustix::fs::statx(directory, name, flags, wanted)
}

fn identity(attributes: &Statx) -> Identity {
    (attributes.stx_dev_major, attributes.stx_dev_minor, attributes.stx_ino)
}

#[cfg(test)]
#[path = "tree_walk_tests.rs"]
mod tests;
