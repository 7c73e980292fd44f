//! The compressed bytes as the decoders want them: what is at hand without a copy, and a few bytes together where a header
//! needs them, wherever the chunks end. Called by [`crate::run`] and the decoders.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::{Error, Source};

/// A source, and what it gave and nobody has used yet.
pub(crate) struct Input<'a> {
    source: &'a mut dyn Source,
    /// Used first; then `later`.
    now: Bytes,
    later: Bytes,
    ended: bool,
}

impl<'a> Input<'a> {
    pub(crate) fn new(source: &'a mut dyn Source) -> Self {
        Self { source, now: Bytes::new(), later: Bytes::new(), ended: false }
    }

    /// The bytes at hand; none only at the end.
    pub(crate) fn fill(&mut self) -> Result<&[u8], Error> {
        while self.now.is_empty() && !self.ended {
            self.now = self.chunk()?;
        }
        Ok(&self.now)
    }

    /// At least `want` bytes, or what is left where that is less.
    pub(crate) fn at_least(&mut self, want: usize) -> Result<&[u8], Error> {
        self.fill()?;
        while self.now.len() < want && !self.ended {
            let mut more = self.chunk()?;
            let mut joined = BytesMut::with_capacity(want);
            joined.extend_from_slice(&self.now);
            joined.extend_from_slice(&more.split_to(more.len().min(want - self.now.len())));
            self.now = joined.freeze();
            self.later = more;
        }
        Ok(&self.now)
    }

    /// Says that the first `amount` bytes at hand were used.
    pub(crate) fn consume(&mut self, amount: usize) {
        self.now.advance(amount);
    }

    fn chunk(&mut self) -> Result<Bytes, Error> {
        if !self.later.is_empty() {
            return Ok(std::mem::take(&mut self.later));
        }
        let chunk = self.source.next().map_err(Error::Source)?;
        self.ended = chunk.is_none();
        Ok(chunk.unwrap_or_default())
    }
}
