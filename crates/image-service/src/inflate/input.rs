//! The compressed bytes for the decoders: chunks without a copy, and a few bytes in one piece where a header needs them,
//! wherever the chunks end. Called by [`super::run`] and the decoders.

use bytes::{Buf as _, Bytes, BytesMut};

use super::stream::{Error, Source};

/// A source, and the bytes it gave that are not consumed yet.
pub(crate) struct Input<'a> {
    source: &'a mut dyn Source,
    /// Consumed first, before `later`.
    now: Bytes,
    later: Option<Bytes>,
    ended: bool,
}

impl<'a> Input<'a> {
    pub(crate) fn new(source: &'a mut dyn Source) -> Self {
        Self { source, now: Bytes::new(), later: None, ended: false }
    }

    /// Returns the bytes at hand; empty only at the end.
    pub(crate) fn fill(&mut self) -> Result<&[u8], Error> {
        while self.now.is_empty() {
            let Some(chunk) = self.chunk()? else { break };
            self.now = chunk;
        }
        Ok(&self.now)
    }

    /// Returns at least `want` bytes, or all that is left where that is less.
    pub(crate) fn at_least(&mut self, want: usize) -> Result<&[u8], Error> {
        self.fill()?;
        while self.now.len() < want {
            let Some(mut more) = self.chunk()? else { break };
            let mut joined = BytesMut::with_capacity(want);
            joined.extend_from_slice(&self.now);
            joined.extend_from_slice(&more.split_to(more.len().min(want - self.now.len())));
            self.now = joined.freeze();
            if !more.is_empty() {
                self.later = Some(more);
            }
        }
        Ok(&self.now)
    }

    /// Removes the first `amount` bytes at hand.
    pub(crate) fn consume(&mut self, amount: usize) {
        self.now.advance(amount);
    }

    fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if let Some(chunk) = self.later.take() {
            return Ok(Some(chunk));
        }
        if self.ended {
            return Ok(None);
        }
        let chunk = self.source.next().map_err(Error::Source)?;
        self.ended = chunk.is_none();
        Ok(chunk)
    }
}
