//! Sharing for layers that are EROFS files. A file of a new layer has its blocks in a row, and another layer's file may have the same
//! ones in a row. They are compared byte by byte, and then shared in one of two ways, both of which leave the layer whole by itself:
//!
//! - `reflink`: the file system lets the new row have the blocks of the old one.
//! - `hardlink`: the new EROFS file is told to take the row from the other file, which becomes `device.N` in the layer's own directory, by
//!   a further name; its own blocks are given back. So nothing is lost when the other layer goes, and nobody counts references
//!   but the file system. What is held that way is the whole file: it is done only where at least half of its bytes are wanted, so
//!   that a layer never holds more of another one than twice what it saved by it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use erofs::{InodeInfo, Kind as InodeKind, Moved, Nid, Reader, Spot};
use rustix::fs::{AtFlags, FallocateFlags, OFlags};
use rustix::io::Errno;

use super::clone_range::clone_range;
use super::{MOST, NewFile, Saved};
use crate::disk::layer::LayerId;
use crate::disk::usage::bytes_on_disk;
use crate::ingest::Ingests;
use crate::layers::file_list::{self, FileKey, FileOrigin, LIST, ListedFile};
use crate::options::{Cancelled, Sharing};
use crate::recipe;
use crate::unpack::{EROFS_FILE, UnpackError};

const BLOCK: u64 = erofs::BLOCK;
/// Of a row, so many bytes are looked at before others are compared with it: its first block.
const FIRST: usize = 4096;
/// Of a file that is to be held, so many bytes must be wanted at least.
const WORTH: u64 = 1 << 20;
/// The number of the file itself in lists, which is that of no inode in it.
const WHOLE: u64 = u64::MAX;
/// Rows are compared in pieces of this size.
const PIECE: usize = 128 << 10;

/// A row of blocks of the new layer.
struct BlockRow {
    nid: Nid,
    /// Where it begins in the file.
    at: u64,
    length: u64,
}

/// Another layer, open.
struct ErofsOrigin {
    erofs: Reader<File>,
    /// The files that have its blocks: its EROFS file and its devices.
    files: Vec<File>,
}

/// A row that another file has, too.
struct SharedRow {
    row: usize,
    /// The other layer, and which of its files.
    layer: LayerId,
    file: u16,
    /// Where it begins there.
    at: u64,
}

/// Rows that one other file has.
#[derive(Default)]
struct RowsOfFile {
    found: Vec<SharedRow>,
    bytes: u64,
}

impl Ingests {
    /// Shares what can be shared of a new layer that is an EROFS file, and writes its list. What cannot be shared stays as it is.
    pub(crate) fn share_erofs(&self, layer: BorrowedFd<'_>, cancelled: Cancelled<'_>) -> Result<Saved, UnpackError> {
        let failed = |path: &str, source: io::Error| UnpackError::Io {
            operation: "sharing files of",
            path: path.into(),
            source,
        };
        let mut file = recipe::open_erofs(layer, OFlags::RDWR).map_err(|error| failed(EROFS_FILE, error))?;
        let (mut own, rows) = walk(&file, cancelled).map_err(|error| failed(EROFS_FILE, error))?;
        // Both in the order of lists.
        let mut order: Vec<usize> = (0..own.len()).collect();
        order.sort_by_key(|at| own[*at].listed.key);
        own.sort_by_key(|own| own.listed.key);
        let rows: Vec<BlockRow> = {
            let mut rows: Vec<Option<BlockRow>> = rows.into_iter().map(Some).collect();
            order.into_iter().filter_map(|at| rows[at].take()).collect()
        };
        self.find_others(&mut own, cancelled);
        let groups = self.find_rows(&file, &own, &rows, cancelled);
        if cancelled() {
            return Err(UnpackError::Cancelled);
        }
        let mut saved = Saved::default();
        let mut listed = match self.sharing {
            Sharing::Off => Vec::new(),
            Sharing::Reflink => {
                saved.bytes = self.clone_rows(&file, &mut own, &rows, groups);
                Vec::new()
            }
            Sharing::Hardlink => {
                self.hold(layer, &mut file, &mut own, &rows, groups).map_err(|error| failed(EROFS_FILE, error))?
            }
        };
        saved.devices = listed.len() as u64;
        let bytes = || bytes_on_disk(|| rustix::fs::statat(layer, EROFS_FILE, AtFlags::SYMLINK_NOFOLLOW));
        // Of what has blocks of others already, nobody else can hold the file and be right about its bytes.
        let cloned = saved.bytes > 0;
        listed.push(whole(EROFS_FILE, bytes().map_err(|error| failed(EROFS_FILE, error.into()))?, None, cloned));
        listed.extend(own.into_iter().map(|own| own.listed));
        file_list::write(layer, &listed).map_err(|error| failed(LIST, error))?;
        let list = bytes_on_disk(|| rustix::fs::statat(layer, LIST, AtFlags::SYMLINK_NOFOLLOW));
        saved.list_bytes = list.map_err(|error| failed(LIST, error.into()))?;
        Ok(saved)
    }

    /// The rows that other layers' files have, by the file.
    fn find_rows(
        &self,
        file: &File,
        own: &[NewFile],
        rows: &[BlockRow],
        cancelled: Cancelled<'_>,
    ) -> BTreeMap<(u64, u64), RowsOfFile> {
        let mut groups: BTreeMap<(u64, u64), RowsOfFile> = BTreeMap::new();
        let mut origins: BTreeMap<LayerId, Option<ErofsOrigin>> = BTreeMap::new();
        let mut buffers = (vec![0; PIECE], vec![0; PIECE]);
        for (row, (own, is)) in own.iter().zip(rows).enumerate() {
            if cancelled() {
                break;
            }
            for other in &own.others {
                let origin = origins.entry(other.layer).or_insert_with(|| self.origin(other.layer).ok());
                let Some(origin) = origin else { continue };
                match origin.row(other.ino, is, file, &mut buffers) {
                    Ok(Some((spot, id))) => {
                        let found = SharedRow { row, layer: other.layer, file: spot.device, at: spot.offset };
                        let group = groups.entry(id).or_default();
                        group.bytes += is.length;
                        group.found.push(found);
                        break;
                    }
                    Ok(None) => {}
                    Err(error) => tracing::debug!(%error, layer = %other.layer, "a file is not shared"),
                }
            }
        }
        groups
    }

    fn origin(&self, id: LayerId) -> io::Result<ErofsOrigin> {
        let directory = self.catalog.disk.layout.open_layer(id)?;
        let erofs = recipe::read_erofs(directory.as_fd())?;
        let mut files = vec![recipe::open_erofs(directory.as_fd(), OFlags::RDONLY)?];
        files.extend(recipe::open_devices(directory.as_fd())?);
        Ok(ErofsOrigin { erofs, files })
    }

    /// Lets rows have the blocks of others. Answers how many bytes that are.
    fn clone_rows(
        &self,
        file: &File,
        own: &mut [NewFile],
        rows: &[BlockRow],
        groups: BTreeMap<(u64, u64), RowsOfFile>,
    ) -> u64 {
        let mut origins: BTreeMap<LayerId, Option<ErofsOrigin>> = BTreeMap::new();
        let mut bytes = 0;
        for found in groups.into_values().flat_map(|group| group.found) {
            let origin = origins.entry(found.layer).or_insert_with(|| self.origin(found.layer).ok());
            let Some(from) = origin.as_ref().and_then(|origin| origin.files.get(usize::from(found.file))) else {
                continue;
            };
            let row = &rows[found.row];
            match clone_range(file, row.at, from, found.at, row.length) {
                Ok(()) => {
                    let listed = &mut own[found.row].listed;
                    let object = own[found.row].others.iter().find(|other| other.layer == found.layer);
                    listed.origin = object.map(|other| other.object);
                    listed.cloned = true;
                    bytes += row.length;
                }
                Err(error) => tracing::debug!(%error, layer = %found.layer, "a file is not shared"),
            }
        }
        bytes
    }

    /// Holds the files of which enough is wanted, and lets rows be there. Answers what is held.
    fn hold(
        &self,
        layer: BorrowedFd<'_>,
        file: &mut File,
        own: &mut [NewFile],
        rows: &[BlockRow],
        groups: BTreeMap<(u64, u64), RowsOfFile>,
    ) -> io::Result<Vec<ListedFile>> {
        let mut groups: Vec<((u64, u64), RowsOfFile)> =
            groups.into_iter().filter(|(_, group)| group.bytes >= WORTH).collect();
        groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.bytes));
        let (mut held, mut devices, mut moved, mut freed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for ((_, ino), group) in groups {
            let Some(first) = group.found.first() else { continue };
            if devices.len() == erofs::DEVICES_MOST {
                break;
            }
            match self.hold_one(layer, first, ino, group.bytes, devices.len() + 1) {
                Ok(Some((listed, blocks))) => {
                    held.push(listed);
                    let device = devices.len();
                    devices.push(blocks);
                    for found in group.found {
                        let row = &rows[found.row];
                        let block = u32::try_from(found.at / BLOCK).map_err(io::Error::other)?;
                        moved.push(Moved { nid: row.nid, device, block });
                        freed.push((row.at, row.length));
                        own[found.row].listed.path = file_list::ELSEWHERE.to_vec();
                    }
                }
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, layer = %first.layer, "a layer's file is not shared"),
            }
        }
        if devices.is_empty() {
            return Ok(held);
        }
        erofs::refer(file, &devices, &moved).map_err(io::Error::other)?;
        freed.sort_unstable();
        for (at, length) in join(freed) {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if let Err(error) = rustix::fs::fallocate(&*file, flags, at, length) {
                // They stay, and are counted.
                tracing::debug!(%error, "blocks that are shared are not given back");
                break;
            }
        }
        Ok(held)
    }

    /// Gives another layer's file a name in this one, if enough of it is wanted.
    fn hold_one(
        &self,
        layer: BorrowedFd<'_>,
        found: &SharedRow,
        ino: u64,
        wanted: u64,
        number: usize,
    ) -> io::Result<Option<(ListedFile, u32)>> {
        let directory = self.catalog.disk.layout.open_layer(found.layer)?;
        let there = recipe::device_name(usize::from(found.file));
        let stat = rustix::fs::statat(&directory, &there, AtFlags::SYMLINK_NOFOLLOW)?;
        let bytes = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        if stat.st_ino != ino || wanted.saturating_mul(2) < bytes {
            return Ok(None);
        }
        // By whose name it is counted, and whether it can be.
        let listed = file_list::read_list(directory.as_fd())?
            .map_while(Result::ok)
            .find(|listed| listed.path == there.as_bytes());
        let Some(object) = listed.filter(|listed| !listed.cloned).map(|listed| listed.object(found.layer)) else {
            return Ok(None);
        };
        let blocks = u32::try_from(u64::try_from(stat.st_size).unwrap_or(0) / BLOCK).map_err(io::Error::other)?;
        let here = recipe::device_name(number);
        match rustix::fs::linkat(&directory, &there, layer, &here, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::MLINK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        if rustix::fs::statat(layer, &here, AtFlags::SYMLINK_NOFOLLOW)?.st_ino != ino {
            rustix::fs::unlinkat(layer, &here, AtFlags::empty())?;
            return Ok(None);
        }
        Ok(Some((whole(&here, bytes, Some(object), false), blocks)))
    }
}

impl ErofsOrigin {
    /// Where this layer has the same row, and which file that is, by device and inode.
    fn row(
        &self,
        nid: u64,
        row: &BlockRow,
        file: &File,
        buffers: &mut (Vec<u8>, Vec<u8>),
    ) -> io::Result<Option<(Spot, (u64, u64))>> {
        let inode = self.erofs.inode(Nid(nid))?;
        let Some((spot, length)) = row_of(&self.erofs, &inode)? else { return Ok(None) };
        let Some(there) = self.files.get(usize::from(spot.device)) else { return Ok(None) };
        let (is, was) = (rustix::fs::fstat(file)?, rustix::fs::fstat(there)?);
        if length != row.length || is.st_dev != was.st_dev || is.st_ino == was.st_ino {
            return Ok(None);
        }
        let mut done = 0;
        while done < length {
            let most =
                usize::try_from(length - done).map_or(PIECE, |left| left.min(if done == 0 { 4096 } else { PIECE }));
            let (one, two) = (&mut buffers.0[..most], &mut buffers.1[..most]);
            if erofs::Source::read_at(file, row.at + done, one)? < most
                || erofs::Source::read_at(there, spot.offset + done, two)? < most
                || one != two
            {
                return Ok(None);
            }
            done += most as u64;
        }
        Ok(Some((spot, (was.st_dev, was.st_ino))))
    }
}

/// Where a file has its whole blocks, if in a row, and how many bytes these are.
fn row_of(erofs: &Reader<File>, inode: &InodeInfo) -> io::Result<Option<(Spot, u64)>> {
    let length = erofs.whole_blocks(inode).next_multiple_of(BLOCK);
    if inode.kind != InodeKind::File || length == 0 {
        return Ok(None);
    }
    let at = erofs.extent(inode, 0)?.and_then(|extent| extent.at);
    Ok(at.filter(|spot| spot.offset.is_multiple_of(BLOCK)).map(|spot| (spot, length)))
}

/// The rows of a layer that is still private, each inode once.
fn walk(file: &File, cancelled: Cancelled<'_>) -> io::Result<(Vec<NewFile>, Vec<BlockRow>)> {
    let erofs = Reader::open(file.try_clone()?)?;
    let (mut own, mut rows) = (Vec::new(), Vec::new());
    let mut linked = std::collections::BTreeSet::new();
    let mut todo = vec![erofs.root()];
    let mut first = [0; FIRST];
    while let Some(nid) = todo.pop() {
        if cancelled() {
            break;
        }
        for entry in erofs.entries(&erofs.inode(nid)?)? {
            let entry = entry?;
            match entry.kind {
                InodeKind::Directory => todo.push(entry.nid),
                InodeKind::File if own.len() < MOST => {}
                _ => continue,
            }
            let inode = erofs.inode(entry.nid)?;
            let Some((spot, length)) = row_of(&erofs, &inode)? else { continue };
            if inode.links > 1 && !linked.insert(entry.nid) {
                continue;
            }
            erofs::Source::read_at(file, spot.offset, &mut first)?;
            let key = FileKey { size: length, seconds: begin(&first).cast_signed(), nanos: 0, mode: 0, uid: 0, gid: 0 };
            let path = file_list::OWN.to_vec();
            let listed = ListedFile { key, ino: entry.nid.0, bytes: length, origin: None, cloned: false, path };
            own.push(NewFile { listed, is_linked: false, others: Vec::new() });
            rows.push(BlockRow { nid: entry.nid, at: spot.offset, length });
        }
    }
    Ok((own, rows))
}

/// Returns a hash of a block. Always the same number for the same bytes; that other bytes have others is likely, and nothing depends on it.
fn begin(block: &[u8; FIRST]) -> u64 {
    block.as_chunks::<8>().0.iter().fold(0x9e37_79b9_7f4a_7c15, |state: u64, bytes| {
        (state ^ u64::from_le_bytes(*bytes)).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29)
    })
}

/// A whole file as it stands in a list.
fn whole(name: &str, bytes: u64, origin: Option<FileOrigin>, cloned: bool) -> ListedFile {
    let key = FileKey { size: 0, seconds: 0, nanos: 0, mode: 0, uid: 0, gid: 0 };
    ListedFile { key, ino: WHOLE, bytes, origin, cloned, path: name.as_bytes().to_vec() }
}

/// Ranges in order, those that touch as one.
fn join(ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (at, length) in ranges {
        match joined.last_mut() {
            Some((begin, whole)) if *begin + *whole == at => *whole += length,
            _ => joined.push((at, length)),
        }
    }
    joined
}
