//! The reader's buffers, filled one after the other. A buffer is requested when there is something to write, and handed
//! over when it is full. Called by [`super::run`] and the decoders.

use super::stream::{Sink, Stopped};

/// A sink and its buffer that is being filled.
pub(crate) struct Output<'a> {
    sink: &'a mut dyn Sink,
    now: Vec<u8>,
    at: usize,
}

impl<'a> Output<'a> {
    pub(crate) fn new(sink: &'a mut dyn Sink) -> Self {
        Self { sink, now: Vec::new(), at: 0 }
    }

    /// Returns the room for the next bytes; never empty.
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

    /// Records that the first `amount` bytes of the room were filled.
    pub(crate) fn filled(&mut self, amount: usize) {
        debug_assert!(amount <= self.now.len() - self.at, "no more than there was room for");
        self.at += amount;
    }

    /// Copies as many bytes as the room takes; returns how many.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, Stopped> {
        let room = self.room()?;
        let n = room.len().min(bytes.len());
        room[..n].copy_from_slice(&bytes[..n]);
        self.filled(n);
        Ok(n)
    }

    /// Hands over the filled part of the buffer.
    pub(crate) fn flush(&mut self) -> Result<(), Stopped> {
        let (full, len) = (std::mem::take(&mut self.now), std::mem::take(&mut self.at));
        if len > 0 { self.sink.send(full, len) } else { Ok(()) }
    }
}
