//! The end of an EROFS file: directories, numbers of names, superblock. Names are gone through twice: the first time tells how long every
//! directory is, and so where its inode will be; the second one writes.

use super::blobs;
use super::content::block_at;
use super::devices::Table;
use super::dirents::{Block, DirentMeasure};
use super::dirs::Record;
use super::entry::{Dir, Entry};
use super::error::WriteError;
use super::names::{EntryVisitor, Names, OrderedNames, SealedNames};
use super::parts::Parts;
use super::spill::Spill;
use crate::format::inode::{self, RawInode};
use crate::format::superblock::{self, ROOT_AT, Superblock};
use crate::format::{BLOCK, BLOCK_BITS, NO_BLOCK, SLOT, dirent, xattr};
use crate::{Kind, Sink};

const BLOCK_BYTES: u64 = BLOCK as u64;
/// Most bytes of entries that a directory with spare room keeps next to its inode.
const TAIL_BESIDE_ROOM: u64 = 1024;
const DOTS: [&[u8]; 2] = [b".", b".."];

/// Bytes, blocks and inodes of the written file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenImage {
    /// Bytes of the EROFS file: a multiple of a block.
    pub size: u64,
    /// Inodes that have a name, the root among them.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
}

/// An entry, or one of the two that every directory has.
enum Child {
    Itself,
    Parent,
    Entry(Entry),
}

/// How a directory's bytes are laid out.
struct FinishPlan {
    raw: RawInode,
    /// Bytes of the inode and its extended attributes.
    head: u64,
    /// Bytes of entries that stand behind them.
    tail: u64,
    /// Blocks of entries elsewhere.
    blocks: u64,
}

/// The parts of an EROFS file other than its tree.
pub(super) struct FileSummary {
    pub(super) uuid: [u8; 16],
    /// True if the file tree lies in [`crate::NESTED_ROOT`].
    pub(super) is_nested: bool,
    pub(super) chunked: bool,
    pub(super) table: Table,
    /// Inodes that are no directories.
    pub(super) inodes: u64,
}

impl<S: Sink> Parts<S> {
    /// Writes what is left.
    pub(super) fn finish(mut self, about: &FileSummary) -> Result<(S, WrittenImage), WriteError> {
        let names = std::mem::replace(&mut self.names, Names::new(0)).seal();
        self.drop_unnamed_directories()?;
        let directories = self.measure(&names)?;
        self.write(&names)?;
        drop(names);
        let mut nameless = 0;
        let (output, links) = (&mut self.output, self.links);
        links.each(&mut self.spill, &mut |nid, extended, names| {
            if names == 0 {
                // A layer's recipe may still lead to it: it stays as it is.
                nameless += 1;
                return Ok(());
            }
            let (at, length) = RawInode::links_at(extended);
            output.put(nid.0 * SLOT + at, &names.to_le_bytes()[..length])
        })?;
        let written = WrittenImage {
            size: self.output.layout().end(),
            inodes: about.inodes - nameless + u64::from(directories),
            directories: u64::from(directories),
        };
        let superblock = Superblock {
            magic: superblock::MAGIC,
            compat: superblock::COMPAT_CHECKSUM | superblock::COMPAT_MTIME,
            block_bits: BLOCK_BITS,
            root_nid: u16::try_from(ROOT_AT / SLOT).expect("in the first block"),
            inodes: written.inodes,
            time: self.time.unwrap_or_default(),
            blocks: block_at(written.size),
            uuid: about.uuid,
            volume: if about.is_nested { superblock::NESTED } else { [0; 16] },
            incompat: about.table.feature() | if about.chunked { superblock::INCOMPAT_CHUNKED } else { 0 },
            devices: about.table.devices,
            table: about.table.at,
            ..Superblock::default()
        };
        let sink = self.output.finish(|block| {
            block[superblock::OFFSET..superblock::OFFSET + superblock::LENGTH].copy_from_slice(&superblock.encode());
            superblock::seal(block);
        })?;
        Ok((sink, written))
    }

    /// Drops all below directories without a name, and gives the others' extended attributes their places.
    fn drop_unnamed_directories(&mut self) -> Result<(), WriteError> {
        for id in 0..self.dirs.count() {
            let mut record = self.dirs.get(Dir(id), &mut self.spill)?;
            if id > 0 && !record.dead && self.dirs.get(Dir(record.parent), &mut self.spill)?.dead {
                self.dirs.change(Dir(id), &mut self.spill)?.dead = true;
            } else if !record.dead && record.xattrs.1 > 0 {
                let xattrs = blobs::unpack(&self.blobs.get(record.xattrs, &self.spill)?);
                self.xattrs.plan(&xattrs, true, &mut self.output)?;
                record.xattrs = self.blobs.put(self.xattrs.area(), &mut self.spill)?;
                *self.dirs.change(Dir(id), &mut self.spill)? = record;
            }
        }
        Ok(())
    }

    /// The first time: lengths, and with them places. Answers how many directories there are.
    fn measure(&mut self, names: &SealedNames) -> Result<u32, WriteError> {
        let mut layout = self.output.layout().clone();
        let mut order = names.in_order();
        let mut alive = 0;
        let mut lost = Vec::new();
        for id in 0..self.dirs.count() {
            let mut record = self.dirs.get(Dir(id), &mut self.spill)?;
            let mut measure = DirentMeasure::default();
            each(&mut order, Dir(id), &mut self.spill, &mut |name, child, _| {
                measure.add(name);
                match child {
                    Child::Entry(Entry::Inode(inode)) if record.dead => lost.push(inode),
                    Child::Entry(Entry::Dir(_)) => record.subdirs += 1,
                    _ => {}
                }
                Ok(())
            })?;
            for inode in lost.drain(..) {
                self.links.change(inode, -1, &mut self.spill)?;
            }
            if record.dead {
                continue;
            }
            alive += 1;
            record.size = measure.size();
            let plan = self.plan(id, &record)?;
            record.at = match (id, record.implicit) {
                (0, _) => ROOT_AT,
                (_, true) => layout.append(1),
                _ => layout.place(plan.head + plan.tail),
            };
            record.data = layout.append(plan.blocks);
            *self.dirs.change(Dir(id), &mut self.spill)? = record;
        }
        Ok(alive)
    }

    /// How a directory is laid out, but for where its blocks are.
    fn plan(&self, id: u32, record: &Record) -> Result<FinishPlan, WriteError> {
        let (size, links) = (record.size, record.subdirs.saturating_add(2));
        let extended = record.implicit
            || id == 0
            || self.time != Some(record.mtime)
            || record.uid.max(record.gid).max(links) > u32::from(u16::MAX)
            || size > u64::from(u32::MAX);
        let beyond = || WriteError::Beyond { what: "so many extended attributes of a directory".to_owned() };
        let xattr_count = xattr::count(record.xattrs.1 as usize).ok_or_else(beyond)?;
        let head = RawInode::len(extended) as u64 + u64::from(record.xattrs.1);
        let tail = size % BLOCK_BYTES;
        let has_room = id == 0 || record.implicit;
        let room = if id == 0 { BLOCK_BYTES - ROOT_AT } else { BLOCK_BYTES };
        if has_room && head > room {
            return Err(beyond());
        }
        let inline = tail > 0 && head + tail <= room && (!has_room || tail <= TAIL_BESIDE_ROOM);
        let raw = RawInode {
            extended,
            layout: if inline { inode::Layout::Inline } else { inode::Layout::Plain },
            xattr_count,
            mode: inode::kind_bits(Kind::Directory) | record.mode,
            links,
            size,
            union: NO_BLOCK,
            number: 0,
            uid: record.uid,
            gid: record.gid,
            mtime: record.mtime,
        };
        let (tail, blocks) = if inline { (tail, size / BLOCK_BYTES) } else { (0, size.div_ceil(BLOCK_BYTES)) };
        Ok(FinishPlan { raw, head, tail, blocks })
    }

    /// The second time.
    fn write(&mut self, names: &SealedNames) -> Result<(), WriteError> {
        let mut order = names.in_order();
        let mut block = Block::default();
        let mut bytes = Vec::with_capacity(BLOCK);
        for id in 0..self.dirs.count() {
            let record = self.dirs.get(Dir(id), &mut self.spill)?;
            if record.dead {
                order.each(Dir(id), &mut self.spill, &mut |_, _, _| Ok(()))?;
                continue;
            }
            let mut plan = self.plan(id, &record)?;
            self.take_place(id, &record, &plan)?;
            plan.raw.number = self.number();
            if plan.blocks > 0 {
                plan.raw.union = block_at(record.data);
            }
            let mut inode = [0; inode::EXTENDED];
            plan.raw.encode(&mut inode);
            let length = RawInode::len(plan.raw.extended);
            self.output.put(record.at, &inode[..length])?;
            if record.xattrs.1 > 0 {
                let area = self.blobs.get(record.xattrs, &self.spill)?;
                self.output.put(record.at + length as u64, &area)?;
            }
            let (output, dirs, mut left) = (&mut self.output, &mut self.dirs, plan.blocks);
            let mut emit = |block: &mut Block| {
                bytes.clear();
                block.take(&mut bytes);
                if left == 0 {
                    return output.put(record.at + plan.head, &bytes);
                }
                left -= 1;
                bytes.resize(BLOCK, 0);
                output.append(&bytes)
            };
            each(&mut order, Dir(id), &mut self.spill, &mut |name, child, spill| {
                let (at, kind) = match child {
                    Child::Itself => (record.at, Kind::Directory),
                    Child::Parent => (dirs.get(Dir(record.parent), spill)?.at, Kind::Directory),
                    Child::Entry(Entry::Dir(dir)) => (dirs.get(dir, spill)?.at, Kind::Directory),
                    Child::Entry(Entry::Inode(inode)) => (inode.nid.0 * SLOT, inode.kind),
                };
                if !block.fits(name) {
                    emit(&mut block)?;
                }
                block.add(at / SLOT, dirent::kind_number(kind), name);
                Ok(())
            })?;
            emit(&mut block)?;
        }
        Ok(())
    }

    /// Takes the place that was found the first time.
    fn take_place(&mut self, id: u32, record: &Record, plan: &FinishPlan) -> Result<(), WriteError> {
        let at = match (id, record.implicit) {
            (0, _) => ROOT_AT,
            (_, true) => {
                let at = self.output.reserve(1)?;
                self.output.zeros(BLOCK_BYTES)?;
                at
            }
            _ => self.output.place(plan.head + plan.tail)?,
        };
        let data = self.output.reserve(plan.blocks)?;
        if (at, data) == (record.at, record.data) {
            return Ok(());
        }
        Err(WriteError::Misused("directories changed while they were written"))
    }
}

/// Passes the entries of a directory in order, including `.` and `..`, which no caller adds.
fn each(
    order: &mut OrderedNames<'_>,
    dir: Dir,
    spill: &mut Spill,
    visit: EntryVisitor<'_, Child>,
) -> Result<(), WriteError> {
    let mut dots = DOTS.into_iter().zip([Child::Itself, Child::Parent]).peekable();
    order.each(dir, spill, &mut |name, entry, spill| {
        while let Some((dot, child)) = dots.next_if(|(dot, _)| *dot < name) {
            visit(dot, child, spill)?;
        }
        visit(name, Child::Entry(entry), spill)
    })?;
    dots.try_for_each(|(dot, child)| visit(dot, child, spill))
}
