//! The compressed bytes as the decoders want them: what is at hand without a copy, and a few bytes together where a header
//! needs them, wherever the chunks end. Called by [`crate::run`] and the decoders.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes, BytesMut};

use crate::{Error, Source};

/// A source, and what it gave and nobody has used yet.
pub(crate) struct Input<'a> {
    source: &'a mut dyn Source,
    /// Used first; then `later`.
    now: Bytes,
    later: VecDeque<Bytes>,
    ended: bool,
}

impl<'a> Input<'a> {
    pub(crate) fn new(source: &'a mut dyn Source) -> Self {
        Self { source, now: Bytes::new(), later: VecDeque::new(), ended: false }
    }

    /// The bytes at hand; none only at the end.
    pub(crate) fn fill(&mut self) -> Result<&[u8], Error> {
        while self.now.is_empty() {
            let Some(chunk) = self.chunk()? else { break };
            self.now = chunk;
        }
        Ok(&self.now)
    }

    /// Whether there are bytes, or the end, without waiting.
    pub(crate) fn ready(&self) -> bool {
        !self.now.is_empty() || !self.later.is_empty() || self.ended || self.source.ready()
    }

    /// At least `want` bytes, or what is left where that is less.
    pub(crate) fn at_least(&mut self, want: usize) -> Result<&[u8], Error> {
        self.fill()?;
        while self.now.len() < want {
            let Some(mut more) = self.chunk()? else { break };
            let mut joined = BytesMut::with_capacity(want);
            joined.extend_from_slice(&self.now);
            joined.extend_from_slice(&more.split_to(more.len().min(want - self.now.len())));
            self.now = joined.freeze();
            if !more.is_empty() {
                self.later.push_front(more);
            }
        }
        Ok(&self.now)
    }

    /// Says that the first `amount` bytes at hand were used.
    pub(crate) fn consume(&mut self, amount: usize) {
        self.now.advance(amount);
    }

    /// Puts these before the bytes at hand.
    pub(crate) fn give_back(&mut self, parts: impl DoubleEndedIterator<Item = Bytes>) {
        self.later.push_front(std::mem::take(&mut self.now));
        for part in parts.rev() {
            self.later.push_front(part);
        }
    }

    fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if let Some(chunk) = self.later.pop_front() {
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
