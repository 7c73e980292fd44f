//! A bounded ring of reused buffers between two threads: one fills, the other reads. It knows nothing of what is in
//! them. The reader sees the end only when the writer says so; a writer that just goes away is an error to the reader,
//! and a reader that goes away ends the writer.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Size of one buffer.
pub(crate) const BUFFER: usize = 256 * 1024;
/// How many buffers a ring has; it makes them as they are first needed.
pub(crate) const BUFFERS: usize = 8;

enum Item {
    Data(Vec<u8>, usize),
    End,
    Failed(io::Error),
}

/// The side that fills.
pub(crate) struct RingWriter {
    full: SyncSender<Item>,
    free: Receiver<Vec<u8>>,
    made: usize,
}

/// The side that reads.
pub(crate) struct RingReader {
    full: Receiver<Item>,
    free: SyncSender<Vec<u8>>,
    now: Option<(Vec<u8>, usize)>,
    at: usize,
    ended: bool,
}

/// The reader is gone: whatever it found wrong is the reason to report.
#[derive(Debug)]
pub(crate) struct ReaderGone;

/// A fresh ring.
pub(crate) fn ring() -> (RingWriter, RingReader) {
    // One place more than there are buffers, so that the last word never waits.
    let (full_in, full_out) = sync_channel(BUFFERS + 1);
    let (free_in, free_out) = sync_channel(BUFFERS);
    (
        RingWriter { full: full_in, free: free_out, made: 0 },
        RingReader { full: full_out, free: free_in, now: None, at: 0, ended: false },
    )
}

impl RingWriter {
    /// An empty buffer; waits until one is free.
    pub(crate) fn buffer(&mut self) -> Result<Vec<u8>, ReaderGone> {
        if let Ok(buffer) = self.free.try_recv() {
            return Ok(buffer);
        }
        if self.made < BUFFERS {
            self.made += 1;
            return Ok(vec![0; BUFFER]);
        }
        self.free.recv().map_err(|_| ReaderGone)
    }

    /// Hands over the first `len` bytes of a buffer.
    pub(crate) fn send(&mut self, buffer: Vec<u8>, len: usize) -> Result<(), ReaderGone> {
        debug_assert!(len <= buffer.len(), "no more than fits");
        self.full.send(Item::Data(buffer, len)).map_err(|_| ReaderGone)
    }

    /// Says that everything came and is good.
    pub(crate) fn end(self) -> Result<(), ReaderGone> {
        self.full.send(Item::End).map_err(|_| ReaderGone)
    }

    /// Says that what came is no good.
    pub(crate) fn fail(self, error: io::Error) {
        // A reader that is gone needs no reason.
        let _ = self.full.send(Item::Failed(error));
    }
}

impl BufRead for RingReader {
    /// The bytes at hand; empty at the end.
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while !self.ended && self.now.as_ref().is_none_or(|(_, len)| self.at == *len) {
            if let Some((buffer, _)) = self.now.take() {
                // A writer that is gone needs no buffers.
                let _ = self.free.send(buffer);
            }
            match self.full.recv() {
                Ok(Item::Data(buffer, len)) => {
                    self.now = Some((buffer, len));
                    self.at = 0;
                }
                Ok(Item::End) => self.ended = true,
                Ok(Item::Failed(error)) => return Err(error),
                Err(_) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the layer was given up")),
            }
        }
        Ok(self.now.as_ref().map_or(&[], |(buffer, len)| &buffer[self.at..*len]))
    }

    fn consume(&mut self, amount: usize) {
        self.at += amount;
    }
}

impl Read for RingReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let from = self.fill_buf()?;
        let n = from.len().min(out.len());
        out[..n].copy_from_slice(&from[..n]);
        self.consume(n);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(writer: &mut RingWriter, total: usize) -> Result<(), ReaderGone> {
        let mut at = 0;
        while at < total {
            let mut buffer = writer.buffer()?;
            let n = (total - at).min(BUFFER - at % 7);
            for (i, byte) in buffer[..n].iter_mut().enumerate() {
                *byte = u8::try_from((at + i) % 251).expect("below 251");
            }
            writer.send(buffer, n)?;
            at += n;
        }
        Ok(())
    }

    #[test]
    fn bytes_come_in_order_and_once() {
        let (mut writer, mut reader) = ring();
        let total = BUFFER * BUFFERS * 3 + 17;
        let thread = std::thread::spawn(move || {
            feed(&mut writer, total).expect("the reader stays");
            assert!((1..=BUFFERS).contains(&writer.made), "buffers are used again");
            writer.end().expect("the reader stays");
        });
        let mut got = Vec::new();
        reader.read_to_end(&mut got).expect("reads");
        thread.join().expect("ends");
        assert_eq!(got.len(), total);
        assert!(got.iter().enumerate().all(|(i, b)| usize::from(*b) == i % 251));
    }

    #[test]
    fn a_lost_writer_is_no_end() {
        let (mut writer, mut reader) = ring();
        feed(&mut writer, 10).expect("fits");
        drop(writer);
        assert!(reader.read_to_end(&mut Vec::new()).is_err());
        let (writer, mut reader) = ring();
        writer.fail(io::Error::other("bad"));
        assert_eq!(reader.read(&mut [0; 4]).expect_err("fails").to_string(), "bad");
    }

    #[test]
    fn a_lost_reader_ends_the_writer() {
        let (mut writer, reader) = ring();
        drop(reader);
        assert!(feed(&mut writer, BUFFER * (BUFFERS + 2)).is_err());
    }
}
