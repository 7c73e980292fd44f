//! [`Input`]: the source of an archive, read where its bytes lie. It counts and limits them, and joins the blocks that
//! the source hands out in two parts; it knows nothing of headers. The reader alone uses it.

use std::io::{self, BufRead};

use super::error::{TarError, shown};
use super::header::BLOCK;

/// A source that is read piece by piece.
pub(super) struct Input<'a> {
    source: &'a mut dyn BufRead,
    /// Bytes that the source may have at most.
    most: u64,
    /// Bytes that were handed out and stand in the source's buffer until the next call.
    held: usize,
    ended: bool,
    /// Bytes that the source has shown, and bytes handed out.
    seen: u64,
    offset: u64,
    /// Name of the present entry, for messages.
    pub(super) inside: Vec<u8>,
}

impl<'a> Input<'a> {
    pub(super) fn new(source: &'a mut dyn BufRead, most: u64) -> Self {
        Self { source, most, held: 0, ended: false, seen: 0, offset: 0, inside: Vec::new() }
    }

    /// Bytes handed out so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next bytes, at most `most` of them, in the source's own buffer; none at its end.
    pub(super) fn piece(&mut self, most: usize) -> Result<&[u8], TarError> {
        let len = self.fill()?.min(most);
        self.held = len;
        self.offset += len as u64;
        if len == 0 {
            return Ok(&[]);
        }
        // Buffered bytes are returned without another read.
        let bytes = self.source.fill_buf().map_err(TarError::Read)?;
        bytes.get(..len).ok_or_else(|| TarError::Read(io::Error::other("bytes that were there are gone")))
    }

    /// The next bytes where there must be some.
    pub(super) fn some(&mut self, most: usize) -> Result<&[u8], TarError> {
        if self.fill()? == 0 {
            return Err(self.truncated());
        }
        self.piece(most)
    }

    /// The next block; `false` when the stream ends before it.
    pub(super) fn block(&mut self, out: &mut [u8; BLOCK]) -> Result<bool, TarError> {
        let mut have = 0;
        while have < BLOCK {
            let bytes = self.piece(BLOCK - have)?;
            if bytes.is_empty() {
                return if have == 0 { Ok(false) } else { Err(self.truncated()) };
            }
            out[have..have + bytes.len()].copy_from_slice(bytes);
            have += bytes.len();
        }
        Ok(true)
    }

    /// Has bytes at hand, and says how many.
    fn fill(&mut self) -> Result<usize, TarError> {
        self.source.consume(std::mem::take(&mut self.held));
        if self.ended {
            return Ok(0);
        }
        let len = loop {
            match self.source.fill_buf() {
                Ok(bytes) => break bytes.len(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TarError::Read(error)),
            }
        };
        self.ended = len == 0;
        self.seen = self.offset + len as u64;
        if self.seen > self.most {
            return Err(TarError::Limit {
                subject: "the layer".into(),
                limit_name: "uncompressed bytes",
                limit: self.most,
                seen: self.seen,
            });
        }
        Ok(len)
    }

    pub(super) fn truncated(&self) -> TarError {
        let inside = if self.inside.is_empty() { "a header".into() } else { format!("{:?}", shown(&self.inside)) };
        TarError::Truncated { inside, offset: self.seen }
    }
}
