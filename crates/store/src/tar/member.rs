//! From a header block and what stood before it to an [`Entry`]: names, numbers, kind, size, and the maps of sparse files.

use super::entry::{Entry, Kind, Piece};
use super::error::{TarError, shown};
use super::header::{BLOCK, Format, Header};
use super::pax::{self, Pax, SparseMap};
use super::reader::{Pending, Raw, Reader};
use super::sparse;

impl Reader<'_> {
    /// Makes the entry of its header and of the records before it.
    pub(super) fn fill_entry(
        &mut self,
        entry: &mut Entry,
        header: Header<'_>,
        pending: Pending,
        raw: &mut Raw<'_>,
    ) -> Result<(), TarError> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(TarError::Limit {
                subject: match self.limits.compressed {
                    Some(bytes) => format!("the layer of {bytes} compressed bytes"),
                    None => "the layer".into(),
                },
                limit_name: "entries",
                limit: self.limits.entries,
                seen: self.entries,
            });
        }
        let mut pax = pending.pax.unwrap_or_default();
        entry.path.clear();
        entry.link.clear();
        entry.pieces = None;
        match pending.long_name.or(pax.path.take()) {
            Some(path) => entry.path = path,
            None => header.name(&mut entry.path),
        }
        match pending.long_link.or(pax.link.take()) {
            Some(link) => entry.link = link,
            None => entry.link.extend_from_slice(header.link()),
        }
        self.input.inside.extend_from_slice(&entry.path);
        let no_number =
            |what: &str| self.malformed(format!("the {what} of {:?} is no valid number", shown(&entry.path)));

        let mode = header.mode().ok_or_else(|| no_number("mode"))?;
        entry.mode = u32::try_from(mode & 0o7777).map_err(|_| no_number("mode"))?;
        entry.uid = owner(pax.uid.or_else(|| header.uid())).ok_or_else(|| no_number("owner"))?;
        entry.gid = owner(pax.gid.or_else(|| header.gid())).ok_or_else(|| no_number("group"))?;
        entry.mtime = pax.mtime.or_else(|| header.mtime()).ok_or_else(|| no_number("modification time"))?;
        entry.atime = pax.atime.or_else(|| header.atime());
        // The PAX size wins: a reader that takes the header's instead finds other entries ("TARmageddon").
        let size = pax.size.or_else(|| header.size()).ok_or_else(|| no_number("size"))?;
        entry.xattrs = std::mem::take(&mut pax.xattrs);
        entry.device = (0, 0);
        entry.size = 0;
        entry.kind = match header.type_flag() {
            // Old programs mark a directory by the slash alone.
            0 if entry.path.ends_with(b"/") => Kind::Directory,
            0 | b'0' | b'7' | b'S' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' => Kind::Char,
            b'4' => Kind::Block,
            b'5' => Kind::Directory,
            // A directory of GNU tar's incremental archives. The names behind it are for restoring one.
            b'D' => Kind::Directory,
            b'6' => Kind::Fifo,
            other => {
                let flag = char::from(other).escape_default();
                return Err(self.malformed(format!("{:?} is of the unsupported type '{flag}'", shown(&entry.path))));
            }
        };
        if matches!(entry.kind, Kind::Char | Kind::Block) {
            let (major, minor) = header.device().ok_or_else(|| no_number("device"))?;
            let part = |n: i64, bits: u32| u32::try_from(n).ok().filter(|n| *n < 1 << bits);
            // The ranges of Linux: 12 bits and 20 bits.
            let device = part(major, 12).zip(part(minor, 20));
            entry.device = device.ok_or_else(|| no_number("device"))?;
        }
        // Only regular files have data behind them, for any size field: Go and Python read it so.
        if header.type_flag() == b'D' {
            self.check_names(size)?;
            self.begin_data(size);
            self.finish_data(raw)?;
        }
        if entry.kind == Kind::File {
            entry.size = size;
            self.begin_data(size);
            self.sparse(entry, header, pax, raw)?;
        }
        Ok(())
    }

    /// Limits the length of the names that follow a directory: all bytes that are not data of a file are kept next to the layer.
    fn check_names(&self, size: u64) -> Result<(), TarError> {
        let most = self.limits.pax_header_bytes as u64;
        if size > most {
            return Err(self.limit("bytes of names behind a directory", most, size));
        }
        Ok(())
    }

    /// Finds out whether the file is sparse, and reads its map.
    fn sparse(
        &mut self,
        entry: &mut Entry,
        header: Header<'_>,
        mut pax: Pax,
        raw: &mut Raw<'_>,
    ) -> Result<(), TarError> {
        let (pieces, size) = if header.type_flag() == b'S' {
            if header.format() != Format::Gnu {
                return Err(self.malformed("a sparse entry is in no GNU archive"));
            }
            let (_, _, size) = header.old_sparse();
            let Some(size) = size else { return Err(self.malformed("a sparse file has no valid size")) };
            (self.old_map(header, raw)?, size)
        } else {
            let map = pax.sparse.map();
            if map == SparseMap::None {
                return Ok(());
            }
            if let Some(name) = pax.sparse.name.take() {
                entry.path = name;
                self.input.inside.clone_from(&entry.path);
            }
            let Some(size) = pax.sparse.real_size else { return Err(self.malformed("a sparse file has no size")) };
            let pieces = match map {
                SparseMap::Here(pieces) => pieces,
                SparseMap::InData => self.map_in_data(raw)?,
                SparseMap::None => return Ok(()),
            };
            (pieces, size)
        };
        sparse::check(&pieces, size, self.data_left).map_err(|what| self.malformed(what))?;
        entry.size = size;
        entry.pieces = Some(pieces);
        Ok(())
    }

    /// The map of an old GNU sparse file, which may go on in blocks between header and data.
    fn old_map(&mut self, header: Header<'_>, raw: &mut Raw<'_>) -> Result<Vec<Piece>, TarError> {
        let mut pieces = Vec::new();
        let (fields, mut more, _) = header.old_sparse();
        sparse::old_pieces(fields, &mut pieces).map_err(|what| self.malformed(what))?;
        while more {
            let mut block = [0; BLOCK];
            if !self.block(&mut block, raw)? {
                return Err(self.input.truncated());
            }
            sparse::old_pieces(&block[..504], &mut pieces).map_err(|what| self.malformed(what))?;
            more = block[504] != 0;
            if pieces.len() > self.limits.sparse_pieces {
                return Err(self.pax_error(pax::too_many_pieces(self.limits.sparse_pieces)));
            }
        }
        Ok(pieces)
    }

    /// The map of version 1.0: decimal lines at the beginning of the data, padded to a block.
    fn map_in_data(&mut self, raw: &mut Raw<'_>) -> Result<Vec<Piece>, TarError> {
        let most = self.limits.sparse_pieces;
        let mut lines = sparse::MapLines::default();
        while !lines.complete() {
            if self.data_left < BLOCK as u64 {
                return Err(self.malformed("the map of a sparse file does not end"));
            }
            let mut block = [0; BLOCK];
            if !self.block(&mut block, raw)? {
                return Err(self.input.truncated());
            }
            self.data_left -= BLOCK as u64;
            match lines.take(&block, most) {
                Ok(()) => {}
                Err(sparse::MapError::TooMany) => return Err(self.pax_error(pax::too_many_pieces(most))),
                Err(sparse::MapError::Malformed(what)) => return Err(self.malformed(what)),
            }
        }
        Ok(lines.into_pieces())
    }
}

/// An owner that chown(2) takes; its highest value means "leave it".
fn owner(number: Option<i64>) -> Option<u32> {
    number.and_then(|n| u32::try_from(n).ok()).filter(|n| *n != u32::MAX)
}
