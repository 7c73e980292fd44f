//! The way of a blob's bytes from an async task to a blocking thread: bounded by bytes, verified as they are read.
//! [`Intake`] hashes a chunk before anybody sees it. It knows nothing of where
//! they come from. Called by the layer job (feeding side) and by its first thread (reading side).

use std::sync::Arc;

use bytes::Bytes;
use oci::{Digest, Verifier, VerifyError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is done with every piece beside hashing it.
pub(crate) type Tee = Box<dyn FnMut(&[u8]) + Send>;

/// How many bytes of a layer wait to be unpacked at most.
pub(crate) const WINDOW: u32 = 4 * 1024 * 1024;

enum Item {
    Data(Bytes, OwnedSemaphorePermit),
    End,
}

/// The feeding side. Dropping it without [`Feed::end`] tells the reader that the layer was given up.
pub(crate) struct Feed {
    chunks: UnboundedSender<Item>,
    room: Arc<Semaphore>,
}

/// The reader is gone; its own result says why.
#[derive(Debug)]
pub(crate) struct ReaderGone;

/// The reading side.
pub(crate) struct Intake {
    chunks: UnboundedReceiver<Item>,
    /// Of the chunk that was given last.
    room: Option<OwnedSemaphorePermit>,
    verifier: Option<Verifier>,
    tee: Option<Tee>,
    ended: bool,
}

/// Why a blob is not what its descriptor promises, or did not come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IntakeError {
    /// Its bytes are others.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// The feeding side went away before the end.
    #[error("the layer was given up")]
    GivenUp,
}

/// Both sides for a blob of this digest and size. `tee` is handed all bytes as well, before the verdict.
pub(crate) fn intake(digest: Digest, size: u64, tee: Option<Tee>) -> (Feed, Intake) {
    let (sender, receiver) = unbounded_channel();
    let room = Arc::new(Semaphore::new(WINDOW as usize));
    let verifier = Some(Verifier::new(digest, size));
    (Feed { chunks: sender, room }, Intake { chunks: receiver, room: None, verifier, tee, ended: false })
}

impl Feed {
    /// Hands over a chunk; waits while too much is waiting already.
    pub(crate) async fn send(&self, chunk: Bytes) -> Result<(), ReaderGone> {
        let bytes = u32::try_from(chunk.len()).unwrap_or(WINDOW).min(WINDOW);
        tokio::select! {
            biased;
            () = self.chunks.closed() => Err(ReaderGone),
            permit = Arc::clone(&self.room).acquire_many_owned(bytes) => {
                let permit = permit.expect("the semaphore is never closed");
                self.chunks.send(Item::Data(chunk, permit)).map_err(|_| ReaderGone)
            }
        }
    }

    /// Says that this was all.
    pub(crate) fn end(self) {
        // A reader that is gone has its own result.
        let _ = self.chunks.send(Item::End);
    }
}

impl Intake {
    /// The verdict over all bytes; reads what has not been read.
    pub(crate) fn finish(mut self) -> Result<(), IntakeError> {
        while self.chunk()?.is_some() {}
        match self.verifier.take() {
            Some(verifier) => verifier.finish().map(|_| ()).map_err(IntakeError::from),
            None => Err(IntakeError::GivenUp),
        }
    }

    /// The next chunk, hashed; `None` at the end.
    pub(crate) fn chunk(&mut self) -> Result<Option<Bytes>, IntakeError> {
        // Whoever asks for the next one has used the one before.
        self.room = None;
        if self.ended {
            return Ok(None);
        }
        match self.chunks.blocking_recv() {
            Some(Item::Data(bytes, permit)) => {
                let verifier = self.verifier.as_mut().ok_or(IntakeError::GivenUp)?;
                verifier.update(&bytes)?;
                if let Some(tee) = &mut self.tee {
                    tee(&bytes);
                }
                self.room = Some(permit);
                Ok(Some(bytes))
            }
            Some(Item::End) => {
                self.ended = true;
                Ok(None)
            }
            None => Err(IntakeError::GivenUp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: &[u8] = b"the bytes of a blob, in several chunks";

    async fn run(digest: Digest, size: u64, chunks: &[&'static [u8]], end: bool) -> Result<Vec<u8>, IntakeError> {
        let (feed, mut intake) = intake(digest, size, None);
        let reader = tokio::task::spawn_blocking(move || {
            let head = intake.chunk()?.expect("one chunk at least").slice(..4);
            intake.finish().map(|()| head.to_vec())
        });
        for chunk in chunks {
            feed.send(Bytes::from_static(chunk)).await.expect("the reader stays");
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
        assert_eq!(run(digest.clone(), size, &[a, b"", b], true).await, Ok(b"the ".to_vec()));
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
        let intake = tokio::task::spawn_blocking(move || {
            intake.chunk().expect("reads").expect("a chunk");
            // The room is given back when the next chunk is asked for.
            intake
        });
        let reader = tokio::task::spawn_blocking({
            let intake = intake.await.expect("no panic");
            move || {
                let mut intake = intake;
                intake.chunk().expect("reads").expect("a chunk").len()
            }
        });
        second.await.expect("room again");
        assert!(reader.await.expect("no panic") > 0);
    }

    #[tokio::test]
    async fn a_lost_reader_ends_the_feed() {
        let (feed, intake) = intake(Digest::sha256(b""), 1, None);
        drop(intake);
        assert!(feed.send(Bytes::from_static(b"x")).await.is_err());
    }
}
