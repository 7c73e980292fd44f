//! Shared files: regular files of a new layer that are the same as files of committed layers are stored once, where the
//! store is told to. A layer's list ([`crate::layers::file_list`]) says what it has, so that only files which could be the same are read; they are
//! compared byte by byte. All is done in the layer's private directory, before anybody sees it. What is shared by which
//! layers is counted by [`crate::records::shares`].
//!
//! A file that is shared is never written to: layers are the lower directories of overlayfs, which copies a file up before
//! the first write, and everything else in this crate only reads committed layers.

mod clone_range;
mod erofs;
mod same;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use crate::disk::layer::LayerId;
use crate::disk::layout::{FS, INGEST};
use crate::disk::usage::bytes_on_disk;
use crate::ingest::Ingests;
use crate::layers::file_list::{self, FileKey, FileOrigin, LIST, ListedFile, read_list};
use crate::options::{Cancelled, Sharing};
use crate::unpack::{Beneath, UnpackError};

/// Files of fewer bytes are left alone. One block: what is smaller takes no less when it is shared, beside its inode.
const LEAST: u64 = 4096;
/// Of one layer no more files are looked at, so that memory does not grow with it.
const MOST: usize = 65_536;
/// So many files that could be the same are compared with each.
const TRIES: usize = 4;
/// Where a file is made before it takes its place, beside `fs/`.
const TEMPORARY: &str = "share.tmp";
/// Blocks are counted as the unpacker counts them.
const BLOCK: u64 = 4096;

/// Space that a layer does not take, because other layers have the same files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    /// Bytes of the list of files, which has one inode.
    pub(crate) list_bytes: u64,
    /// Whole files of others that it holds, beside that.
    pub(crate) devices: u64,
}

/// A file of the new layer, and files that could be the same.
struct NewFile {
    listed: ListedFile,
    /// Several names of the layer lead to it.
    is_linked: bool,
    others: Vec<Candidate>,
}

struct Candidate {
    layer: LayerId,
    /// The number there.
    ino: u64,
    path: Vec<u8>,
    object: FileOrigin,
}

impl Ingests {
    /// Shares what can be shared of a new layer, and writes its list. What cannot be shared stays as it is.
    pub(crate) fn share_files(&self, layer: BorrowedFd<'_>, cancelled: Cancelled<'_>) -> Result<Saved, UnpackError> {
        let failed = |path: &str, source: io::Error| UnpackError::Io {
            operation: "sharing files of",
            path: path.into(),
            source,
        };
        let beneath = Beneath::default();
        let mut own = walk(&beneath, layer, cancelled).map_err(|error| failed(FS, error))?;
        own.sort_unstable_by(|a, b| a.listed.key.cmp(&b.listed.key).then_with(|| a.listed.path.cmp(&b.listed.path)));
        self.find_others(&mut own, cancelled);
        let mut saved = Saved::default();
        for file in &mut own {
            if cancelled() {
                return Err(UnpackError::Cancelled);
            }
            if let Some(object) = self.share_one(&beneath, layer, file, cancelled) {
                file.listed.origin = Some(object);
                file.listed.cloned = self.sharing == Sharing::Reflink;
                saved.bytes += file.listed.bytes;
                saved.inodes += u64::from(self.sharing == Sharing::Hardlink);
            }
        }
        let listed: Vec<ListedFile> = own.into_iter().map(|file| file.listed).collect();
        file_list::write(layer, &listed).map_err(|error| failed(LIST, error))?;
        let list = bytes_on_disk(|| rustix::fs::statat(layer, LIST, AtFlags::SYMLINK_NOFOLLOW));
        saved.list_bytes = list.map_err(|error| failed(LIST, error.into()))?;
        Ok(saved)
    }

    /// Looks through the lists of all layers that may be used.
    fn find_others(&self, own: &mut [NewFile], cancelled: Cancelled<'_>) {
        if own.is_empty() {
            return;
        }
        let rows = match self.catalog.db.read(crate::records::tables::Records::layer_rows) {
            Ok(rows) => rows,
            Err(error) => return tracing::warn!(?error, "no files are shared: the layers cannot be listed"),
        };
        let layers = rows
            .into_iter()
            .filter(|(id, row)| row.as_ref().is_ok_and(|row| !row.damaged) && self.layers.has_layer(*id));
        for (id, _) in layers {
            if cancelled() {
                return;
            }
            // One that is removed meanwhile has none.
            let Ok(directory) = self.catalog.disk.layout.open_layer(id) else { continue };
            let Ok(list) = read_list(directory.as_fd()) else { continue };
            for listed in list {
                let Ok(listed) = listed else { break };
                self.note_other(own, id, &listed);
            }
        }
    }

    fn note_other(&self, own: &mut [NewFile], layer: LayerId, listed: &ListedFile) {
        let key = &listed.key;
        let from = own.partition_point(|file| file.listed.key.size < key.size);
        let to = own.partition_point(|file| file.listed.key.size <= key.size);
        for file in &mut own[from..to] {
            let is_alike = file.listed.key == *key;
            if !self.are_of_a_kind(&file.listed, listed, is_alike) {
                continue;
            }
            // What only shares blocks with its origin is another inode than that one.
            let is_linkable = is_alike && !listed.cloned;
            if file.is_linked || (self.sharing == Sharing::Hardlink && !is_linkable) {
                continue;
            }
            let (path, object) = (listed.path.clone(), listed.object(layer));
            let other = Candidate { layer, ino: listed.ino, path, object };
            if file.others.len() < TRIES {
                file.others.push(other);
            } else if is_alike {
                // One of the same time is most likely the same.
                file.others[TRIES - 1] = other;
            }
        }
    }

    /// Returns true if both are files, or both rows of blocks. Of rows those that are not alike are not tried.
    fn are_of_a_kind(&self, own: &ListedFile, other: &ListedFile, is_alike: bool) -> bool {
        match other.path.as_slice() {
            file_list::OWN => own.path == file_list::OWN && is_alike,
            file_list::ELSEWHERE => own.path == file_list::OWN && is_alike && self.sharing == Sharing::Hardlink,
            _ => own.path != file_list::OWN,
        }
    }

    /// Tries the files that could be the same, one after the other.
    fn share_one(
        &self,
        beneath: &Beneath,
        layer: BorrowedFd<'_>,
        file: &NewFile,
        cancelled: Cancelled<'_>,
    ) -> Option<FileOrigin> {
        let path = &file.listed.path;
        for other in &file.others {
            let share = || -> io::Result<bool> {
                let directory = self.catalog.disk.layout.open_layer(other.layer)?;
                let there = beneath.open(directory.as_fd(), &other.path, OFlags::RDONLY)?;
                let here = beneath.open(layer, path, OFlags::RDONLY)?;
                let (is, was) = (rustix::fs::fstat(&here)?, rustix::fs::fstat(&there)?);
                let is_link = self.sharing == Sharing::Hardlink;
                if !is_file(&was) || is.st_size != was.st_size || is.st_dev != was.st_dev || is.st_ino == was.st_ino {
                    return Ok(false);
                }
                if is_link && key(&is) != key(&was) {
                    return Ok(false);
                }
                if is_link && !same::attributes(&here, &there)? {
                    return Ok(false);
                }
                if !same::content(&here, &there, cancelled)? {
                    return Ok(false);
                }
                if is_link {
                    link(beneath, layer, path, directory.as_fd(), &other.path, &was)
                } else {
                    clone(beneath, layer, path, &is, &there)
                }
            };
            match share() {
                Ok(true) => return Some(other.object),
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(%error, layer = %other.layer, path = %crate::tar::shown(path), "a file is not shared");
                }
            }
        }
        None
    }

    /// Refuses a way of sharing that the file system does not have.
    pub(crate) fn try_sharing(&self) -> Result<(), Errno> {
        if self.sharing == Sharing::Off {
            return Ok(());
        }
        let names = ["share-a", "share-b"];
        let make = |name: &str| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(&self.catalog.disk.layout.ingest, name, flags, Mode::RUSR | Mode::WUSR)
        };
        let attempt = || {
            let first = make(names[0])?;
            match self.sharing {
                Sharing::Off => Ok(()),
                Sharing::Hardlink => {
                    let ingest = &self.catalog.disk.layout.ingest;
                    rustix::fs::linkat(ingest, names[0], ingest, names[1], AtFlags::empty())
                }
                Sharing::Reflink => rustix::fs::ioctl_ficlone(make(names[1])?, &first),
            }
        };
        let attempted = attempt();
        for name in names {
            // What is left is swept.
            let _ = rustix::fs::unlinkat(&self.catalog.disk.layout.ingest, name, AtFlags::empty());
        }
        match attempted {
            // A full disk says nothing about what it could do.
            Ok(()) | Err(Errno::NOSPC | Errno::DQUOT) => Ok(()),
            Err(error) => {
                tracing::debug!(%error, directory = INGEST, "sharing was tried");
                Err(error)
            }
        }
    }
}

/// Puts a link to the other file in the place of this one. `false` where that file has as many links as it can have.
fn link(
    beneath: &Beneath,
    layer: BorrowedFd<'_>,
    path: &[u8],
    other_layer: BorrowedFd<'_>,
    other_path: &[u8],
    other: &Stat,
) -> io::Result<bool> {
    let (other_parent, other_leaf) = parent_of(beneath, other_layer, other_path)?;
    remove_temporary(layer)?;
    match rustix::fs::linkat(&other_parent, other_leaf, layer, TEMPORARY, AtFlags::empty()) {
        Ok(()) => {}
        Err(Errno::MLINK) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let linked = rustix::fs::statat(layer, TEMPORARY, AtFlags::SYMLINK_NOFOLLOW)?;
    if linked.st_ino != other.st_ino {
        remove_temporary(layer)?;
        return Ok(false);
    }
    let (parent, leaf) = parent_of(beneath, layer, path)?;
    let before = rustix::fs::fstat(&parent)?;
    rustix::fs::renameat(layer, TEMPORARY, &parent, leaf)?;
    // The directory's time is the layer's.
    rustix::fs::futimens(&parent, &times(&before))?;
    Ok(true)
}

/// Lets the file have the other's blocks. What a write would take away (rights that come with the file) keeps it apart.
fn clone(beneath: &Beneath, layer: BorrowedFd<'_>, path: &[u8], before: &Stat, other: &OwnedFd) -> io::Result<bool> {
    let special = Mode::SUID | Mode::SGID;
    if before.st_mode & special.bits() != 0 {
        return Ok(false);
    }
    let here = beneath.open(layer, path, OFlags::RDWR)?;
    if same::has_capabilities(&here)? {
        return Ok(false);
    }
    rustix::fs::ioctl_ficlone(&here, other)?;
    rustix::fs::futimens(&here, &times(before))?;
    Ok(true)
}

fn times(stat: &Stat) -> Timestamps {
    let spec = |seconds: i64, nanos| Timespec { tv_sec: seconds, tv_nsec: i64::try_from(nanos).unwrap_or(0) };
    Timestamps {
        last_access: spec(stat.st_atime, stat.st_atime_nsec),
        last_modification: spec(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn remove_temporary(layer: BorrowedFd<'_>) -> io::Result<()> {
    match rustix::fs::unlinkat(layer, TEMPORARY, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn parent_of<'p>(beneath: &Beneath, layer: BorrowedFd<'_>, path: &'p [u8]) -> io::Result<(OwnedFd, &'p [u8])> {
    // Every path begins with `fs/`.
    let at = path.iter().rposition(|byte| *byte == b'/').ok_or(Errno::INVAL)?;
    Ok((beneath.directory(layer, &path[..at])?, &path[at + 1..]))
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn key(stat: &Stat) -> FileKey {
    FileKey {
        size: u64::try_from(stat.st_size).unwrap_or(0),
        seconds: stat.st_mtime,
        nanos: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
    }
}

/// The files of a layer that are worth it, each inode once.
fn walk(beneath: &Beneath, layer: BorrowedFd<'_>, cancelled: Cancelled<'_>) -> io::Result<Vec<NewFile>> {
    let mut found: Vec<NewFile> = Vec::new();
    let mut linked: BTreeMap<u64, ()> = BTreeMap::new();
    let mut todo = vec![FS.as_bytes().to_vec()];
    while let Some(path) = todo.pop() {
        if cancelled() || found.len() >= MOST {
            break;
        }
        let directory = beneath.directory(layer, &path)?;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || !matches!(entry.file_type(), FileType::Directory | FileType::RegularFile)
            {
                continue;
            }
            let child = [&path, &b"/"[..], name].concat();
            if entry.file_type() == FileType::Directory {
                todo.push(child);
                continue;
            }
            let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let key = key(&stat);
            let on_disk = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
            let bytes = key.size.next_multiple_of(BLOCK);
            // One with holes, or with attributes in blocks of their own, is counted in another way.
            let is_plain = on_disk == bytes || (on_disk > bytes && !same::has_attributes(&directory, name)?);
            if !is_file(&stat) || key.size < LEAST || !is_plain || found.len() >= MOST {
                continue;
            }
            if stat.st_nlink > 1 && linked.insert(stat.st_ino, ()).is_some() {
                continue;
            }
            let listed = ListedFile { key, ino: stat.st_ino, bytes, origin: None, cloned: false, path: child };
            found.push(NewFile { listed, is_linked: stat.st_nlink > 1, others: Vec::new() });
        }
    }
    Ok(found)
}
