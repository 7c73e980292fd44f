//! The reader's buffers, filled one after the other. A buffer is asked for when there is something to put in, and handed
//! over when it is full. Called by [`crate::run`] and the decoders.

use crate::{Sink, Stopped};

/// A sink, and the buffer that is being filled.
pub(crate) struct Output<'a> {
    sink: &'a mut dyn Sink,
    now: Vec<u8>,
    at: usize,
}

impl<'a> Output<'a> {
    pub(crate) fn new(sink: &'a mut dyn Sink) -> Self {
        Self { sink, now: Vec::new(), at: 0 }
    }

    /// Room for the next bytes; never none.
    pub(crate) fn room(&mut self) -> Result<&mut [u8], Stopped> {
        if self.at == self.now.len() {
            self.flush()?;
            self.now = self.sink.buffer()?;
            if self.now.is_empty() {
                return Err(Stopped);
            }
        }
        Ok(&mut self.now[self.at..])
    }

    /// The whole buffer that is being filled, and how far it is.
    pub(crate) fn buffer(&mut self) -> (&mut [u8], usize) {
        (&mut self.now, self.at)
    }

    /// Says that so many bytes of the room were filled.
    pub(crate) fn filled(&mut self, amount: usize) {
        debug_assert!(amount <= self.now.len() - self.at, "no more than there was room for");
        self.at += amount;
    }

    /// Copies what fits into the room; answers how much that was.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, Stopped> {
        let room = self.room()?;
        let n = room.len().min(bytes.len());
        room[..n].copy_from_slice(&bytes[..n]);
        self.filled(n);
        Ok(n)
    }

    /// Hands over what has been filled.
    pub(crate) fn flush(&mut self) -> Result<(), Stopped> {
        let (full, len) = (std::mem::take(&mut self.now), std::mem::take(&mut self.at));
        if len > 0 { self.sink.send(full, len) } else { Ok(()) }
    }
}
