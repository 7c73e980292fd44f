//! The buffers between the two sides of a layer: one fills them, the other reads them in place, and they are used again
//! when they have been read and hashed. It does not know their content. The reader sees the end only when the writer
//! reports it; a writer that is dropped before that is an error to the reader, and a reader that is dropped ends the
//! writer. A side that has to wait does chores first. Made by the layer job's threads.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};
use std::sync::{Arc, MutexGuard};

use crate::inflate::{BUFFER, Sink, Stopped};

use crate::budgets::{MemoryBudget, Share};
use crate::hashing::{Chore, Hashing};
use base::lock::{Condvar, Mutex};

/// How many buffers a ring may always have, and how many it has at most, where there is memory to spare. It makes them as they
/// are first needed.
pub(crate) const LEAST: usize = 3;
const MOST: usize = 8;

/// The digest of what goes through a ring.
pub(crate) type TarHash = Hashing<Filled>;

/// State that both sides share.
struct ByteRing {
    budget: MemoryBudget,
    /// Guards everything that moves.
    state: Mutex<RingState>,
    filled: Condvar,
    freed: Condvar,
}

#[derive(Default)]
struct RingState {
    full: VecDeque<Filled>,
    free: Vec<Vec<u8>>,
    /// Buffers there are, in whosever hands.
    made: usize,
    /// For those beyond the least.
    extra: Vec<Share>,
    end: Option<io::Result<()>>,
    writer_waits: bool,
    reader_waits: bool,
    writer_gone: bool,
    reader_gone: bool,
}

/// A full buffer, shared by the reader and the hasher.
#[derive(Clone)]
pub(crate) struct Filled(Arc<Full>);

/// A full buffer, which returns to its ring when it is no longer needed.
struct Full {
    buffer: Vec<u8>,
    len: usize,
    ring: Arc<ByteRing>,
}

/// The side that fills.
pub(crate) struct RingWriter {
    ring: Arc<ByteRing>,
    /// Hashes what is sent, where that is wanted.
    hash: Option<Arc<TarHash>>,
    chores: Vec<Arc<dyn Chore>>,
    /// Starts the other side; called once, when all buffers of the least are full.
    start: Option<Box<dyn FnOnce() + Send>>,
}

/// The side that reads.
pub(crate) struct RingReader {
    ring: Arc<ByteRing>,
    now: Option<Filled>,
    at: usize,
    /// Bytes of the buffers before the present one.
    before: u64,
    chores: Vec<Arc<dyn Chore>>,
    progress: Progress,
}

/// Reports the number of bytes so far, at intervals.
pub(crate) struct Progress {
    step: u64,
    reported: u64,
    report: Box<dyn Fn(u64) + Send>,
}

impl Progress {
    /// Reports each time at least `step` more bytes are done.
    pub(crate) fn every(step: u64, report: impl Fn(u64) + Send + 'static) -> Self {
        Self { step, reported: 0, report: Box::new(report) }
    }

    fn note(&mut self, done: u64) {
        if done - self.reported >= self.step {
            (self.report)(done);
            self.reported = done;
        }
    }
}

/// A fresh ring. The share for [`LEAST`] buffers is the caller's to hold.
pub(crate) fn ring(budget: &MemoryBudget, chores: &[Arc<dyn Chore>], progress: Progress) -> (RingWriter, RingReader) {
    let ring = Arc::new(ByteRing {
        budget: budget.clone(),
        state: Mutex::default(),
        filled: Condvar::default(),
        freed: Condvar::default(),
    });
    let chores = chores.to_vec();
    let reader = RingReader { ring: Arc::clone(&ring), now: None, at: 0, before: 0, chores: chores.clone(), progress };
    (RingWriter { ring, hash: None, chores, start: None }, reader)
}

impl ByteRing {
    fn lock(&self) -> MutexGuard<'_, RingState> {
        // Nothing panics half way.
        self.state.lock()
    }

    fn give_back(&self, buffer: Vec<u8>) {
        let mut state = self.lock();
        if !state.extra.is_empty() && self.budget.is_short() {
            state.made -= 1;
            let share = state.extra.pop();
            drop(state);
            // In this order, so that it is counted as long as it is there.
            drop(buffer);
            drop(share);
            return;
        }
        state.free.push(buffer);
        if state.writer_waits {
            self.freed.notify_one();
        }
    }
}

impl Drop for ByteRing {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        self.budget.keep(std::mem::take(&mut state.free));
    }
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.0.buffer[..self.0.len]
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        self.ring.give_back(std::mem::take(&mut self.buffer));
    }
}

impl RingWriter {
    /// From now on everything is hashed.
    pub(crate) fn hash_with(&mut self, hash: &Arc<TarHash>) {
        self.hash = Some(Arc::clone(hash));
    }

    /// Starts the reader when there is so much that it does not fit. A reader that was never needed reads afterwards.
    pub(crate) fn start_with(&mut self, start: impl FnOnce() + Send + 'static) {
        self.start = Some(Box::new(start));
    }

    /// Says that everything came and is good.
    pub(crate) fn end(self) -> Result<(), Stopped> {
        let gone = {
            let mut state = self.ring.lock();
            state.end = Some(Ok(()));
            state.reader_gone
        };
        if gone { Err(Stopped) } else { Ok(()) }
    }

    /// Ends the stream with an error.
    pub(crate) fn fail(self, error: io::Error) {
        self.ring.lock().end = Some(Err(error));
    }

    /// A buffer without waiting; the flag says that more may be made only where memory is to spare.
    fn at_hand(&self, spare: bool) -> Result<Option<Vec<u8>>, Stopped> {
        let mut state = self.ring.lock();
        if state.reader_gone {
            return Err(Stopped);
        }
        if let Some(buffer) = state.free.pop() {
            return Ok(Some(buffer));
        }
        let may = if spare { state.made < MOST } else { state.made < LEAST };
        if !may {
            return Ok(None);
        }
        if spare {
            let Some(share) = self.ring.budget.try_take(BUFFER) else { return Ok(None) };
            state.extra.push(share);
        }
        state.made += 1;
        drop(state);
        Ok(Some(self.ring.budget.buffer()))
    }
}

impl Sink for RingWriter {
    /// An empty buffer; waits until one is free.
    fn buffer(&mut self) -> Result<Vec<u8>, Stopped> {
        if let Some(buffer) = self.at_hand(false)? {
            return Ok(buffer);
        }
        if let Some(start) = self.start.take() {
            start();
        }
        loop {
            if let Some(buffer) = self.at_hand(true)? {
                return Ok(buffer);
            }
            if self.chores.iter().any(|chore| chore.step()) {
                continue;
            }
            let mut state = self.ring.lock();
            while state.free.is_empty() && !state.reader_gone {
                state.writer_waits = true;
                state = self.ring.freed.wait(state);
                state.writer_waits = false;
            }
        }
    }

    /// Hands over the first `len` bytes of a buffer.
    fn send(&mut self, buffer: Vec<u8>, len: usize) -> Result<(), Stopped> {
        debug_assert!(len <= buffer.len(), "no more than fits");
        let full = Filled(Arc::new(Full { buffer, len, ring: Arc::clone(&self.ring) }));
        if let Some(hash) = &self.hash {
            hash.push(full.clone());
        }
        let mut state = self.ring.lock();
        if state.reader_gone {
            // Its buffer goes back, for which the lock is needed.
            drop(state);
            return Err(Stopped);
        }
        state.full.push_back(full);
        if state.reader_waits {
            self.ring.filled.notify_one();
        }
        Ok(())
    }
}

impl Drop for RingWriter {
    fn drop(&mut self) {
        self.ring.lock().writer_gone = true;
        self.ring.filled.notify_one();
    }
}

impl RingReader {
    /// The next buffer or the end, if either is there yet.
    fn take(state: &mut RingState) -> Option<io::Result<Option<Filled>>> {
        if let Some(full) = state.full.pop_front() {
            return Some(Ok(Some(full)));
        }
        match &mut state.end {
            Some(end) => Some(std::mem::replace(end, Err(given_up())).map(|()| None)),
            None if state.writer_gone => Some(Err(given_up())),
            None => None,
        }
    }

    fn next(&mut self) -> io::Result<Option<Filled>> {
        loop {
            let taken = Self::take(&mut self.ring.lock());
            if let Some(taken) = taken {
                return taken;
            }
            if self.chores.iter().any(|chore| chore.step()) {
                continue;
            }
            let mut state = self.ring.lock();
            while state.full.is_empty() && state.end.is_none() && !state.writer_gone {
                state.reader_waits = true;
                state = self.ring.filled.wait(state);
                state.reader_waits = false;
            }
        }
    }
}

fn given_up() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the layer was given up")
}

impl BufRead for RingReader {
    /// The bytes at hand; empty at the end.
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.now.as_ref().is_none_or(|full| self.at == full.0.len) {
            if let Some(full) = self.now.take() {
                self.before += full.0.len as u64;
                self.progress.note(self.before);
            }
            self.at = 0;
            match self.next()? {
                Some(full) => self.now = Some(full),
                None => {
                    // Asked again, it says the same.
                    self.ring.lock().end = Some(Ok(()));
                    return Ok(&[]);
                }
            }
        }
        Ok(self.now.as_ref().map_or(&[], |full| &full.as_ref()[self.at..]))
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

impl Drop for RingReader {
    fn drop(&mut self) {
        let left = {
            let mut state = self.ring.lock();
            state.reader_gone = true;
            std::mem::take(&mut state.full)
        };
        self.ring.freed.notify_one();
        // Outside the lock, which they need.
        drop(left);
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
