//! [`Reader`]: how headers, extended headers and data follow each other in the stream. What an entry is, `member.rs` says.

use std::io::{self, BufRead};

use super::entry::Entry;
use super::error::TarError;
use super::header::{BLOCK, Header, is_zero, text};
use super::input::Input;
use super::limits::Limits;
use super::pax::{self, Pax, PaxError, PaxLimits};

/// Takes every byte that is no file data, in order.
pub(crate) type Raw<'r> = dyn FnMut(&[u8]) -> io::Result<()> + 'r;

/// Reads one archive. File data is passed from the source's buffer to `write(2)` without a copy.
pub(crate) struct Reader<'a> {
    pub(super) input: Input<'a>,
    pub(super) limits: &'a Limits,
    pub(super) entries: u64,
    /// Bytes of the present entry's data that are still to come, and of the padding behind them.
    pub(super) data_left: u64,
    padding: usize,
    meta: Vec<u8>,
}

/// The content of the headers before an entry.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) pax: Option<Pax>,
    pub(super) long_name: Option<Vec<u8>>,
    pub(super) long_link: Option<Vec<u8>>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.pax.is_none() && self.long_name.is_none() && self.long_link.is_none()
    }
}

impl<'a> Reader<'a> {
    /// A reader of the source's buffers, which are best multiples of 512 bytes long.
    pub(crate) fn new(source: &'a mut dyn BufRead, limits: &'a Limits) -> Self {
        let input = Input::new(source, limits.layer_bytes);
        Self { input, limits, entries: 0, data_left: 0, padding: 0, meta: Vec::new() }
    }

    /// Bytes handed on so far.
    pub(crate) fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// Advances to the next entry and fills `entry`. Returns `false` when the archive has ended and the source is drained. Unread
    /// data of the previous entry counts as raw bytes.
    pub(crate) fn next(&mut self, entry: &mut Entry, raw: &mut Raw<'_>) -> Result<bool, TarError> {
        self.finish_data(raw)?;
        let mut pending = Pending::default();
        loop {
            self.input.inside.clear();
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
                // The label of a volume is no file; what stood before it was for it.
                b'V' if header.size() == Some(0) => pending = Pending::default(),
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
        let left = usize::try_from(self.data_left).unwrap_or(usize::MAX);
        let data = self.input.some(most.min(left))?;
        self.data_left -= data.len() as u64;
        Ok(data)
    }

    /// Skips what is left of the present entry.
    pub(super) fn finish_data(&mut self, raw: &mut Raw<'_>) -> Result<(), TarError> {
        while self.data_left > 0 {
            let data = self.data(usize::MAX)?;
            raw(data).map_err(TarError::Raw)?;
        }
        while self.padding > 0 {
            let zeros = self.input.piece(self.padding)?;
            if zeros.is_empty() {
                // The archive ends with its last data, as umoci 0.4 writes it, and as Go's reader has it.
                self.padding = 0;
                break;
            }
            self.padding -= zeros.len();
            raw(zeros).map_err(TarError::Raw)?;
        }
        Ok(())
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
        // The second zero block may be cut off, or absent.
        let mut left = BLOCK;
        let mut is_zero = true;
        while left > 0 {
            let bytes = self.input.piece(left)?;
            if bytes.is_empty() {
                break;
            }
            is_zero &= bytes.iter().all(|byte| *byte == 0);
            left -= bytes.len();
            raw(bytes).map_err(TarError::Raw)?;
        }
        if !is_zero {
            return Err(self.malformed("a single zero block is followed by something else"));
        }
        self.drain(raw)?;
        Ok(None)
    }

    /// Reads a whole block and passes it on; `false` when the stream ends before it.
    pub(super) fn block(&mut self, out: &mut [u8; BLOCK], raw: &mut Raw<'_>) -> Result<bool, TarError> {
        if !self.input.block(out)? {
            return Ok(false);
        }
        raw(out).map_err(TarError::Raw)?;
        Ok(true)
    }

    /// Passes on whatever follows the end of the archive: it belongs to the layer's diff id.
    fn drain(&mut self, raw: &mut Raw<'_>) -> Result<(), TarError> {
        loop {
            let bytes = self.input.piece(usize::MAX)?;
            if bytes.is_empty() {
                return Ok(());
            }
            raw(bytes).map_err(TarError::Raw)?;
        }
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
        self.input.inside.extend_from_slice(b"an extended header");
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

    pub(super) fn begin_data(&mut self, size: u64) {
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

    pub(super) fn pax_error(&self, error: PaxError) -> TarError {
        match error {
            PaxError::Malformed(what) => self.malformed(what),
            PaxError::Limit { limit_name, limit, seen } => self.limit(limit_name, limit, seen),
        }
    }

    pub(super) fn malformed(&self, what: impl Into<String>) -> TarError {
        TarError::Malformed { offset: self.offset(), what: what.into() }
    }

    pub(super) fn limit(&self, limit_name: &'static str, limit: u64, seen: u64) -> TarError {
        TarError::Limit { subject: format!("the entry at byte {}", self.offset()), limit_name, limit, seen }
    }
}

/// Zero bytes behind data of this size.
fn padding(size: u64) -> usize {
    let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
    if over == 0 { 0 } else { BLOCK - over }
}
