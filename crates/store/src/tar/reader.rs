//! [`Reader`]: the stream, the buffer, and how headers, extended headers and data follow each other.

use std::io::{self, Read};

use super::entry::{Entry, Kind};
use super::error::{TarError, shown};
use super::header::{BLOCK, Format, Header, is_zero, text};
use super::limits::Limits;
use super::pax::{self, Pax, PaxError, PaxLimits, SparseMap};
use super::sparse::{self, Piece};

/// Takes every byte that is no file data, in order.
pub(crate) type Raw<'r> = dyn FnMut(&[u8]) -> io::Result<()> + 'r;

/// Size of the buffer: file data goes from here to `write(2)` without another copy.
const BUFFER: usize = 256 << 10;

/// Reads one archive.
pub(crate) struct Reader<'a> {
    source: &'a mut dyn Read,
    limits: &'a Limits,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    source_ended: bool,
    /// Bytes taken from the source, and bytes handed on.
    taken: u64,
    offset: u64,
    entries: u64,
    /// Bytes of the present entry's data that are still to come, and of the padding behind them.
    data_left: u64,
    padding: usize,
    /// Name of the present entry, for messages.
    inside: Vec<u8>,
    meta: Vec<u8>,
}

/// What the headers before an entry have said about it.
#[derive(Default)]
struct Pending {
    pax: Option<Pax>,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.pax.is_none() && self.long_name.is_none() && self.long_link.is_none()
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(source: &'a mut dyn Read, limits: &'a Limits) -> Self {
        Self {
            source,
            limits,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            start: 0,
            end: 0,
            source_ended: false,
            taken: 0,
            offset: 0,
            entries: 0,
            data_left: 0,
            padding: 0,
            inside: Vec::new(),
            meta: Vec::new(),
        }
    }

    /// Bytes handed on so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Goes to the next entry and fills `entry`. `false` = the archive has ended and the source is drained. Data of
    /// the entry before which nobody took counts as raw bytes.
    pub(crate) fn next(&mut self, entry: &mut Entry, raw: &mut Raw<'_>) -> Result<bool, TarError> {
        self.finish_data(raw)?;
        let mut pending = Pending::default();
        loop {
            self.inside.clear();
            let Some(block) = self.header_block(raw)? else {
                if !pending.is_empty() {
                    return Err(self.malformed("an extended header has no entry behind it"));
                }
                return Ok(false);
            };
            let Some(header) = Header::new(&block) else {
                return Err(self.malformed("a header has a wrong checksum"));
            };
            match header.type_flag() {
                b'x' | b'X' => {
                    self.meta_data(header, self.limits.pax_header_bytes, "bytes in a PAX header", raw)?;
                    // Like Go: of two in a row the later one counts.
                    pending.pax = Some(self.pax()?);
                }
                b'g' => {
                    if !pending.is_empty() {
                        return Err(self.malformed("a global PAX header parts an extended header from its entry"));
                    }
                    self.meta_data(header, self.limits.pax_header_bytes, "bytes in a PAX header", raw)?;
                    // Checked and otherwise ignored, like containerd does.
                    self.pax()?;
                }
                flag @ (b'L' | b'K') => {
                    self.meta_data(header, self.limits.long_name_bytes, "bytes in a GNU long name", raw)?;
                    let name = Some(text(&self.meta).to_vec()).filter(|n| !n.is_empty());
                    if flag == b'L' {
                        pending.long_name = name;
                    } else {
                        pending.long_link = name;
                    }
                }
                _ => {
                    self.fill_entry(entry, header, pending, raw)?;
                    return Ok(true);
                }
            }
        }
    }

    /// The next piece of the present entry's data, at most `most` bytes; empty at its end.
    pub(crate) fn data(&mut self, most: usize) -> Result<&[u8], TarError> {
        if self.data_left == 0 {
            return Ok(&[]);
        }
        if self.start == self.end {
            self.fill(1)?;
            if self.start == self.end {
                return Err(self.truncated());
            }
        }
        let left = usize::try_from(self.data_left).unwrap_or(usize::MAX);
        let len = (self.end - self.start).min(most).min(left);
        let from = self.start;
        self.consume(len);
        self.data_left -= len as u64;
        Ok(&self.buffer[from..from + len])
    }

    /// Skips what is left of the present entry.
    fn finish_data(&mut self, raw: &mut Raw<'_>) -> Result<(), TarError> {
        while self.data_left > 0 {
            let data = self.data(usize::MAX)?;
            raw(data).map_err(TarError::Raw)?;
        }
        let padding = std::mem::take(&mut self.padding);
        self.pass_block(padding, raw)
    }

    /// The next header block, after having passed it on; `None` at the end of the archive.
    fn header_block(&mut self, raw: &mut Raw<'_>) -> Result<Option<[u8; BLOCK]>, TarError> {
        let mut block = [0; BLOCK];
        if !self.block(&mut block, raw)? {
            return Ok(None);
        }
        if !is_zero(&block) {
            return Ok(Some(block));
        }
        if self.block(&mut block, raw)? && !is_zero(&block) {
            return Err(self.malformed("a single zero block is followed by something else"));
        }
        self.drain(raw)?;
        Ok(None)
    }

    /// Reads a whole block; `false` when the stream ends before it.
    fn block(&mut self, out: &mut [u8; BLOCK], raw: &mut Raw<'_>) -> Result<bool, TarError> {
        self.fill(BLOCK)?;
        if self.start == self.end {
            return Ok(false);
        }
        if self.end - self.start < BLOCK {
            return Err(self.truncated());
        }
        out.copy_from_slice(&self.buffer[self.start..self.start + BLOCK]);
        self.pass_block(BLOCK, raw)?;
        Ok(true)
    }

    /// Passes up to a block of bytes on.
    fn pass_block(&mut self, len: usize, raw: &mut Raw<'_>) -> Result<(), TarError> {
        if len == 0 {
            return Ok(());
        }
        self.fill(len)?;
        if self.end - self.start < len {
            return Err(self.truncated());
        }
        raw(&self.buffer[self.start..self.start + len]).map_err(TarError::Raw)?;
        self.consume(len);
        Ok(())
    }

    /// Passes on whatever follows the end of the archive: it belongs to the layer's diff id.
    fn drain(&mut self, raw: &mut Raw<'_>) -> Result<(), TarError> {
        loop {
            self.fill(1)?;
            if self.start == self.end {
                return Ok(());
            }
            raw(&self.buffer[self.start..self.end]).map_err(TarError::Raw)?;
            self.consume(self.end - self.start);
        }
    }

    fn consume(&mut self, len: usize) {
        self.start += len;
        self.offset += len as u64;
    }

    /// Sees to it that `least` bytes are in the buffer, if the source has them; then the buffer is filled up.
    fn fill(&mut self, least: usize) -> Result<(), TarError> {
        if self.end - self.start >= least || self.source_ended {
            return Ok(());
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < self.buffer.len() {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.source_ended = true;
                    break;
                }
                Ok(len) => {
                    self.end += len;
                    self.taken += len as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TarError::Read(error)),
            }
        }
        if self.taken > self.limits.layer_bytes {
            return Err(TarError::Limit {
                subject: "the layer".into(),
                limit_name: "uncompressed bytes",
                limit: self.limits.layer_bytes,
                seen: self.taken,
            });
        }
        Ok(())
    }

    /// Reads the data of a meta header into `self.meta`.
    fn meta_data(
        &mut self,
        header: Header<'_>,
        most: usize,
        what: &'static str,
        raw: &mut Raw<'_>,
    ) -> Result<(), TarError> {
        let Some(size) = header.size() else {
            return Err(self.malformed("an extended header has no valid size"));
        };
        if size > most as u64 {
            return Err(self.limit(what, most as u64, size));
        }
        self.meta.clear();
        self.begin_data(size);
        self.inside.extend_from_slice(b"an extended header");
        while self.data_left > 0 {
            // The bytes go to two places, so that this one copy is needed.
            let mut meta = std::mem::take(&mut self.meta);
            let data = self.data(usize::MAX)?;
            meta.extend_from_slice(data);
            raw(data).map_err(TarError::Raw)?;
            self.meta = meta;
        }
        self.finish_data(raw)
    }

    fn begin_data(&mut self, size: u64) {
        self.data_left = size;
        self.padding = padding(size);
    }

    fn pax(&self) -> Result<Pax, TarError> {
        let limits = PaxLimits {
            record_bytes: self.limits.pax_record_bytes,
            xattrs: self.limits.xattrs,
            sparse_pieces: self.limits.sparse_pieces,
        };
        pax::parse(&self.meta, limits).map_err(|error| self.pax_error(error))
    }

    fn pax_error(&self, error: PaxError) -> TarError {
        match error {
            PaxError::Malformed(what) => self.malformed(what),
            PaxError::Limit { limit_name, limit, seen } => self.limit(limit_name, limit, seen),
        }
    }

    /// Makes the entry of its header and of what came before it.
    fn fill_entry(
        &mut self,
        entry: &mut Entry,
        header: Header<'_>,
        pending: Pending,
        raw: &mut Raw<'_>,
    ) -> Result<(), TarError> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(TarError::Limit {
                subject: "the layer".into(),
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
        self.inside.extend_from_slice(&entry.path);
        let no_number =
            |what: &str| self.malformed(format!("the {what} of {:?} is no valid number", shown(&entry.path)));

        let mode = header.mode().ok_or_else(|| no_number("mode"))?;
        entry.mode = u32::try_from(mode & 0o7777).map_err(|_| no_number("mode"))?;
        entry.uid = owner(pax.uid.or_else(|| header.uid())).ok_or_else(|| no_number("owner"))?;
        entry.gid = owner(pax.gid.or_else(|| header.gid())).ok_or_else(|| no_number("group"))?;
        entry.mtime = pax.mtime.or_else(|| header.mtime()).ok_or_else(|| no_number("modification time"))?;
        entry.atime = pax.atime.or_else(|| header.atime());
        // The PAX size wins: a reader that takes the header's here finds other entries ("TARmageddon").
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
            b'6' => Kind::Fifo,
            other => {
                let flag = char::from(other).escape_default();
                return Err(self.malformed(format!("{:?} is of the unsupported type '{flag}'", shown(&entry.path))));
            }
        };
        if matches!(entry.kind, Kind::Char | Kind::Block) {
            let (major, minor) = header.device().ok_or_else(|| no_number("device"))?;
            let part = |n: i64, bits: u32| u32::try_from(n).ok().filter(|n| *n < 1 << bits);
            // What Linux can express: 12 bits and 20 bits.
            let device = part(major, 12).zip(part(minor, 20));
            entry.device = device.ok_or_else(|| no_number("device"))?;
        }
        // Only regular files have data behind them, whatever the size says: Go and Python read it so.
        if entry.kind == Kind::File {
            entry.size = size;
            self.begin_data(size);
            self.sparse(entry, header, pax, raw)?;
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
                self.inside.clone_from(&entry.path);
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
                return Err(self.truncated());
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
                return Err(self.truncated());
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

    fn truncated(&self) -> TarError {
        let inside = if self.inside.is_empty() { "a header".into() } else { format!("{:?}", shown(&self.inside)) };
        TarError::Truncated { inside, offset: self.taken }
    }

    fn malformed(&self, what: impl Into<String>) -> TarError {
        TarError::Malformed { offset: self.offset, what: what.into() }
    }

    fn limit(&self, limit_name: &'static str, limit: u64, seen: u64) -> TarError {
        TarError::Limit { subject: format!("the entry at byte {}", self.offset), limit_name, limit, seen }
    }
}

/// Zero bytes behind data of this size.
fn padding(size: u64) -> usize {
    let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
    if over == 0 { 0 } else { BLOCK - over }
}

/// An owner that chown(2) takes; its highest value means "leave it".
fn owner(number: Option<i64>) -> Option<u32> {
    number.and_then(|n| u32::try_from(n).ok()).filter(|n| *n != u32::MAX)
}
