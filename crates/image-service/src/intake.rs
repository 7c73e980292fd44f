//! Passes a blob's bytes from an async task to a blocking thread: bounded by bytes, counted as they are read, and
//! verified before the reader sees their end. [`Intake`] passes the chunks on unchanged, without a copy; whichever
//! thread waits computes their digest meanwhile. It does not know where the chunks come from. Called by the layer job
//! (feeding side) and by its first thread (reading side).

use std::io;
use std::sync::Arc;

use crate::inflate::Source;
use bytes::Bytes;
use oci::{Digest, VerifyError};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::hashing::{Chore, Hashing, Tee};

/// How many bytes of a layer wait to be unpacked at most.
pub(crate) const WINDOW: u32 = 1024 * 1024;

enum FeedItem {
    Data(Chunk),
    End,
}

/// Bytes, and their place in the window until they are hashed.
pub(crate) struct Chunk(Bytes, #[expect(dead_code, reason = "held for its end")] OwnedSemaphorePermit);

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The feeding side. Dropping it without [`Feed::end`] reports to the reader that the layer was given up.
pub(crate) struct Feed {
    chunks: UnboundedSender<FeedItem>,
    room: Arc<Semaphore>,
}

/// The reader has ended. The result of the reader has the reason.
#[derive(Debug)]
pub(crate) struct ReaderEnded;

/// The reading side.
pub(crate) struct Intake {
    chunks: UnboundedReceiver<FeedItem>,
    digest: Digest,
    size: u64,
    seen: u64,
    hash: Arc<Hashing<Chunk>>,
    chores: Vec<Arc<dyn Chore>>,
    ended: bool,
}

/// Why a blob is not what its descriptor promises, or did not come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IntakeError {
    /// The bytes have another size or digest.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// The feeding side went away before the end.
    #[error("the layer was given up")]
    GivenUp,
}

/// Why a blob cannot be verified or inflated, as the first thread of [`crate::unpack`] finds it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InflateError {
    /// The blob is not what was promised.
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// The stream is damaged, or this process cannot decode it.
    #[error(transparent)]
    Stream(crate::inflate::Error),
    /// Far more comes out than goes in.
    #[error(
        "the limit of uncompressed bytes of a layer with {compressed} bytes is {limit}, and there are {seen} up to here"
    )]
    Bomb {
        /// Bytes of the blob.
        compressed: u64,
        /// Most bytes that may come of them.
        limit: u64,
        /// Bytes that came, at least.
        seen: u64,
    },
    /// The second side stopped; its own result says why.
    #[error("the layer was given up")]
    UnpackStopped,
}

impl From<crate::inflate::Error> for InflateError {
    fn from(error: crate::inflate::Error) -> Self {
        match error {
            crate::inflate::Error::Source(source) => match from_io(&source) {
                Some(error) => Self::Intake(error),
                None => Self::Stream(crate::inflate::Error::Source(source)),
            },
            crate::inflate::Error::Stopped(_) => Self::UnpackStopped,
            other => Self::Stream(other),
        }
    }
}

/// Both sides for a blob of this digest and size. `tee` is handed all bytes as well, before the verdict.
pub(crate) fn intake(digest: Digest, size: u64, tee: Option<Tee>) -> (Feed, Intake) {
    let (sender, receiver) = unbounded_channel();
    let room = Arc::new(Semaphore::new(WINDOW as usize));
    let hash = Arc::new(Hashing::with(digest.algorithm(), tee));
    let chores = vec![Arc::clone(&hash) as Arc<dyn Chore>];
    let intake = Intake { chunks: receiver, digest, size, seen: 0, hash, chores, ended: false };
    (Feed { chunks: sender, room }, intake)
}

impl Feed {
    /// Hands over a chunk; waits while too much is waiting already.
    pub(crate) async fn send(&self, chunk: Bytes) -> Result<(), ReaderEnded> {
        let bytes = u32::try_from(chunk.len()).unwrap_or(WINDOW).min(WINDOW);
        tokio::select! {
            biased;
            () = self.chunks.closed() => Err(ReaderEnded),
            permit = Arc::clone(&self.room).acquire_many_owned(bytes) => {
                let permit = permit.expect("the semaphore is never closed");
                self.chunks.send(FeedItem::Data(Chunk(chunk, permit))).map_err(|_| ReaderEnded)
            }
        }
    }

    /// Says that this was all.
    pub(crate) fn end(self) {
        // A reader that is gone has its own result.
        let _ = self.chunks.send(FeedItem::End);
    }
}

impl Intake {
    /// Work that a waiting thread can do for this blob.
    pub(crate) fn chore(&self) -> Arc<dyn Chore> {
        Arc::clone(&self.hash) as Arc<dyn Chore>
    }

    /// Something else to do while there is nothing to read.
    pub(crate) fn add_chore(&mut self, chore: Arc<dyn Chore>) {
        self.chores.push(chore);
    }

    /// The verdict over all bytes; reads what has not been read.
    pub(crate) fn finish(mut self) -> Result<(), IntakeError> {
        while self.step()?.is_some() {}
        let Self { digest: expected, size, seen, hash, .. } = self;
        if seen < size {
            return Err(VerifyError::TooShort { digest: expected, expected: size, got: seen }.into());
        }
        match hash.finish() {
            Some(got) if got == expected => Ok(()),
            Some(got) => Err(VerifyError::Mismatch { expected, got }.into()),
            None => Err(IntakeError::GivenUp),
        }
    }

    /// The next bytes, `None` at the end.
    fn step(&mut self) -> Result<Option<Bytes>, IntakeError> {
        while !self.ended {
            match self.receive() {
                Some(FeedItem::Data(chunk)) => {
                    self.seen += chunk.0.len() as u64;
                    if self.seen > self.size {
                        let (digest, expected) = (self.digest.clone(), self.size);
                        return Err(VerifyError::TooLong { digest, expected }.into());
                    }
                    if chunk.0.is_empty() {
                        continue;
                    }
                    let bytes = chunk.0.clone();
                    self.hash.push(chunk);
                    return Ok(Some(bytes));
                }
                Some(FeedItem::End) => self.ended = true,
                None => return Err(IntakeError::GivenUp),
            }
        }
        Ok(None)
    }

    fn receive(&mut self) -> Option<FeedItem> {
        loop {
            match self.chunks.try_recv() {
                Ok(item) => return Some(item),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {}
            }
            // What waits to be hashed holds room in the window: nothing may be left when this thread waits for more.
            if !self.chores.iter().any(|chore| chore.step()) && !self.hash.step_in_turn() {
                return self.chunks.blocking_recv();
            }
        }
    }
}

impl Source for Intake {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        self.step().map_err(io::Error::other)
    }
}

/// The intake's own error inside what a reader was given.
pub(crate) fn from_io(error: &io::Error) -> Option<IntakeError> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<IntakeError>()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: &[u8] = b"the bytes of a blob, in several chunks";

    async fn run(digest: Digest, size: u64, chunks: &[&'static [u8]], end: bool) -> Result<Bytes, IntakeError> {
        let (feed, mut intake) = intake(digest, size, None);
        let reader = tokio::task::spawn_blocking(move || {
            let head = intake.step()?.ok_or(IntakeError::GivenUp)?;
            intake.finish().map(|()| head)
        });
        for chunk in chunks {
            // A reader that has seen enough reports that with its result.
            let _ = feed.send(Bytes::from_static(chunk)).await;
        }
        if end {
            feed.end();
        } else {
            drop(feed);
        }
        reader.await.expect("no panic")
    }

    #[tokio::test]
    async fn verdicts() {
        let digest = Digest::sha256(DATA);
        let size = DATA.len() as u64;
        let (a, b) = DATA.split_at(9);
        assert_eq!(run(digest.clone(), size, &[a, b"", b], true).await, Ok(Bytes::from_static(a)));
        assert_eq!(run(digest.clone(), size, &[a, b], false).await, Err(IntakeError::GivenUp));
        let short = run(digest.clone(), size, &[a], true).await.expect_err("short");
        assert!(matches!(short, IntakeError::Verify(VerifyError::TooShort { got: 9, .. })), "{short}");
        let long = run(digest, size - 1, &[a, b], true).await.expect_err("long");
        assert!(matches!(long, IntakeError::Verify(VerifyError::TooLong { .. })), "{long}");
        let other = run(Digest::sha256(b"other"), size, &[a, b], true).await.expect_err("other");
        assert!(matches!(other, IntakeError::Verify(VerifyError::Mismatch { .. })), "{other}");
    }

    #[tokio::test]
    async fn no_more_waits_than_the_window() {
        let (feed, mut intake) = intake(Digest::sha256(b""), u64::MAX, None);
        let chunk = Bytes::from(vec![0; WINDOW as usize / 2 + 1]);
        feed.send(chunk.clone()).await.expect("fits");
        let mut second = Box::pin(feed.send(chunk));
        assert!(futures::poll!(&mut second).is_pending());
        let reader = tokio::task::spawn_blocking(move || {
            // The first chunk must be hashed before there is room for the second, and no other thread can do that.
            (0..2).all(|_| intake.step().expect("reads").is_some())
        });
        second.await.expect("room again");
        assert!(reader.await.expect("no panic"));
    }

    #[tokio::test]
    async fn a_lost_reader_ends_the_feed() {
        let (feed, intake) = intake(Digest::sha256(b""), 1, None);
        drop(intake);
        assert!(feed.send(Bytes::from_static(b"x")).await.is_err());
    }
}
