//! What each kind of entry makes.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Advice, AtFlags, FileType, Mode};
use rustix::io::Errno;

use crate::tar::{Entry, Kind, Reader, shown};

use super::deferred::Line;
use super::error::{UnpackError, failed, recipe, refused};
use super::name::{Meaning, Name};
use super::parents::{Need, Parent};
use super::tree::{Id, ROOT};
use super::unpacker::Unpacker;

/// Most bytes of one `write(2)`.
const WRITE: usize = 1 << 20;
/// After so many bytes of a file the kernel is asked to begin to write them to the disk, because the commit of an image
/// waits until everything is there. With 1.2 GB of big files that came at the pace of an inflater, the sync at the end
/// took 0.1 s instead of 1.3 s (medians of six, loop-mounted ext4, loaded machine). Smaller files are left to the kernel.
const WRITE_BACK: u64 = 8 << 20;

impl Unpacker<'_> {
    /// A regular file.
    pub(super) fn file(&mut self, reader: &mut Reader<'_>, entry: &Entry, name: &Name) -> Result<(), UnpackError> {
        let content = self.outcome.content_bytes.saturating_add(entry.size);
        if content > self.options.limits.layer_bytes {
            // A sparse file can claim more than the stream has.
            return Err(UnpackError::Limit {
                subject: format!("layer entry {:?}", shown(&entry.path)),
                limit_name: "bytes of files up to here",
                limit: self.options.limits.layer_bytes,
                seen: content,
            });
        }
        let dir = self.parent(name.parent())?;
        let mode = self.mode_on_creation(entry.mode, 0o600);
        let fd = self.create_file(dir, name.leaf(), mode)?;
        let path = self.tree.path_of(dir, name.leaf());
        let disk = match &entry.pieces {
            None => self.whole(reader, &fd, &path, entry.size)?,
            Some(pieces) => {
                let (mut disk, mut counted) = (0, 0);
                for piece in pieces.iter().filter(|piece| piece.len > 0) {
                    rustix::fs::seek(&fd, rustix::fs::SeekFrom::Start(piece.offset))
                        .map_err(|e| failed("writing", &path, e))?;
                    self.data(reader, &fd, &path, piece.offset, piece.len)?;
                    self.recipe.data(&path, piece.offset, piece.len).map_err(recipe)?;
                    // Two pieces may share a block.
                    let begin = (piece.offset / self.ground.block * self.ground.block).max(counted);
                    counted = self.ground.blocks(piece.offset + piece.len);
                    disk += counted.saturating_sub(begin);
                }
                rustix::fs::ftruncate(&fd, entry.size).map_err(|e| failed("writing", &path, e))?;
                disk
            }
        };
        let extra = self.dress(&fd, entry, mode, &path)?;
        self.outcome.disk_bytes += extra.unwrap_or(disk);
        self.outcome.files += 1;
        if let Some(written) = self.options.write_back {
            written(entry.size);
        }
        self.outcome.content_bytes = content;
        Ok(())
    }

    fn whole(&mut self, reader: &mut Reader<'_>, fd: &OwnedFd, path: &[u8], size: u64) -> Result<u64, UnpackError> {
        if size > 0 {
            self.data(reader, fd, path, 0, size)?;
            if self.options.hollow {
                rustix::fs::ftruncate(fd, size).map_err(|e| failed("writing", path, e))?;
            }
            self.recipe.data(path, 0, size).map_err(recipe)?;
        }
        Ok(self.ground.blocks(size))
    }

    /// Writes the next `len` bytes of the entry's data, from the reader's buffer straight to the file, whose position is
    /// `offset`.
    fn data(
        &mut self,
        reader: &mut Reader<'_>,
        fd: &OwnedFd,
        path: &[u8],
        offset: u64,
        len: u64,
    ) -> Result<(), UnpackError> {
        let (mut at, end, mut begun) = (offset, offset + len, offset);
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(WRITE).min(WRITE);
            let mut data = reader.data(most)?;
            if data.is_empty() {
                // The reader holds sparse maps against the data, so that this is a fault of ours.
                return Err(refused(path, "its data is shorter than its map says"));
            }
            at += data.len() as u64;
            if self.options.hollow {
                self.check_cancelled()?;
                continue;
            }
            while !data.is_empty() {
                match rustix::io::write(fd, data) {
                    Ok(written) => data = &data[written..],
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(failed("writing", path, error)),
                }
            }
            if self.options.write_back.is_some() && at - begun >= WRITE_BACK {
                // Pages on their way to the disk stay in memory. That the advice is not heard is no fault.
                let _ = rustix::fs::fadvise(fd, begun, NonZeroU64::new(at - begun), Advice::DontNeed);
                begun = at;
            }
            self.check_cancelled()?;
        }
        Ok(())
    }

    /// A directory; one that is there already is merged with and takes the attributes of this entry.
    pub(super) fn directory(&mut self, entry: &Entry, name: &Name) -> Result<(), UnpackError> {
        let dir = self.parent(name.parent())?;
        let leaf = name.leaf();
        if let Some(known) = self.tree.child(dir, leaf) {
            return self.merge(entry, known);
        }
        let mode = self.mode_on_creation(entry.mode, 0o700);
        let over_whiteout = self.has_whiteout(dir, leaf)?;
        let make = |fd: std::os::fd::BorrowedFd<'_>| rustix::fs::mkdirat(fd, leaf, Mode::from_raw_mode(mode));
        self.create(dir, leaf, "creating the directory", make)?;
        let id = self.add_directory(dir, leaf, Some(mode & !self.ground.umask))?;
        let owner = (entry.uid, entry.gid);
        self.own_named(dir, leaf, owner, false)?;
        if over_whiteout {
            self.cut(id)?;
        }
        self.dress_directory(entry, id)
    }

    /// The entry of the root itself.
    pub(super) fn root(&mut self, entry: &Entry) -> Result<(), UnpackError> {
        if entry.kind != Kind::Directory {
            let reason = format!("it would make the root of the layer a {}", entry.kind.word());
            return Err(refused(&entry.path, reason));
        }
        self.merge(entry, ROOT)
    }

    fn merge(&mut self, entry: &Entry, id: Id) -> Result<(), UnpackError> {
        let fd = self.fd(id)?;
        if self.tree.node(id).explicit {
            self.strip_xattrs(fd.as_fd(), id)?;
        }
        if self.options.privileged {
            self.own_fd(fd.as_fd(), (entry.uid, entry.gid), true, &self.tree.path(id))?;
        }
        self.tree.populate(id);
        self.dress_directory(entry, id)
    }

    /// A symbolic link, its target as it is: nothing here ever follows it.
    pub(super) fn symlink(&mut self, entry: &Entry, name: &Name) -> Result<(), UnpackError> {
        if entry.link.is_empty() || entry.link.contains(&0) {
            return Err(refused(&entry.path, "the symbolic link has no valid target"));
        }
        let limit = self.options.limits.link_bytes;
        if entry.link.len() > limit {
            return Err(UnpackError::Limit {
                subject: format!("layer entry {:?}", shown(&entry.path)),
                limit_name: "bytes in its symbolic link's target",
                limit: limit as u64,
                seen: entry.link.len() as u64,
            });
        }
        let dir = self.parent(name.parent())?;
        let leaf = name.leaf();
        self.create(dir, leaf, "creating the symbolic link", |fd| rustix::fs::symlinkat(&entry.link[..], fd, leaf))?;
        self.outcome.inodes += 1;
        self.dress_named(entry, dir, leaf, None)?;
        // Short targets stand in the inode on the usual file systems.
        if entry.link.len() >= 60 {
            self.count_blocks(dir, leaf)?;
        }
        Ok(())
    }

    /// Another name of something that this layer has made. The attributes are those of the first entry.
    pub(super) fn hard_link(&mut self, entry: &Entry, name: &Name) -> Result<(), UnpackError> {
        let missing = || {
            let target = shown(&entry.link);
            refused(&entry.path, format!("the target {target:?} of the hard link is not in the layer"))
        };
        let mut target = Name::default();
        if target.set(&entry.link, self.options.limits)? != Meaning::Thing {
            return Err(missing());
        }
        let Parent::Directory(from) = self.look_up(target.parent(), Need::Target)? else { return Err(missing()) };
        if self.tree.child(from, target.leaf()).is_some() {
            let reason = format!("the target {:?} of the hard link is a directory", shown(&entry.link));
            return Err(refused(&entry.path, reason));
        }
        if self.has_whiteout(from, target.leaf())? {
            return Err(missing());
        }
        let dir = self.parent(name.parent())?;
        if from == dir && target.leaf() == name.leaf() {
            // A link to itself says nothing, if it is there.
            return if self.look(dir, name.leaf())?.is_some() { Ok(()) } else { Err(missing()) };
        }
        let from_fd = self.fd(from)?;
        let leaf = name.leaf();
        let fd = self.fd(dir)?;
        // Without AT_SYMLINK_FOLLOW: a link to a symbolic link is one to itself.
        let link = || rustix::fs::linkat(&*from_fd, target.leaf(), &*fd, leaf, AtFlags::empty());
        let linked = match link() {
            Err(Errno::EXIST) => {
                self.displace(dir, leaf)?;
                link()
            }
            other => other,
        };
        match linked {
            Ok(()) => Ok(()),
            Err(Errno::NOENT) => Err(missing()),
            Err(error) => Err(failed("creating the hard link", &self.tree.path_of(dir, leaf), error)),
        }
    }

    /// A device or a fifo.
    pub(super) fn special(&mut self, entry: &Entry, name: &Name) -> Result<(), UnpackError> {
        let dir = self.parent(name.parent())?;
        let leaf = name.leaf();
        let kind = match entry.kind {
            Kind::Char => FileType::CharacterDevice,
            Kind::Block => FileType::BlockDevice,
            _ => FileType::Fifo,
        };
        if kind != FileType::Fifo && !self.options.privileged {
            return self.placeholder(entry, dir, leaf);
        }
        let mode = self.mode_on_creation(entry.mode, 0o600);
        let device = rustix::fs::makedev(entry.device.0, entry.device.1);
        self.create(dir, leaf, "creating the special file", |fd| {
            rustix::fs::mknodat(fd, leaf, kind, Mode::from_raw_mode(mode), device)
        })?;
        self.outcome.inodes += 1;
        self.dress_named(entry, dir, leaf, Some(mode))
    }

    /// An empty file where an ordinary user cannot make a device.
    fn placeholder(&mut self, entry: &Entry, dir: Id, leaf: &[u8]) -> Result<(), UnpackError> {
        drop(self.create_file(dir, leaf, 0o600)?);
        let path = self.tree.path_of(dir, leaf);
        let line = Line {
            kind: entry.kind.word(),
            owner: Some((entry.uid, entry.gid)),
            mode: Some(entry.mode),
            device: Some(entry.device),
            ..Line::default()
        };
        self.deferred.write(&path, line).map_err(|e| failed("deferring", &path, e))
    }
}
