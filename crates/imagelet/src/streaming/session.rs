//! [`Session`]: one connection with several streams on it. It reads frames and hands them to their streams, and writes what
//! the streams say. A stream whose reader is slow holds up the others of its connection: those of one command belong
//! together, and forwarded ports have a connection each.

use lock::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::spdy::{self, Frame, Opener};

/// How many frames may wait for somebody.
const WAITING: usize = 16;
/// The most bytes in one frame that is written.
const PIECE: usize = 32 << 10;

/// Something that came on a stream.
#[derive(Debug)]
enum Came {
    /// The peer has taken it.
    Taken,
    Bytes(Bytes),
    End,
    /// The peer has cut it.
    Cut(u32),
}

/// Guards where frames of streams go, and is held for as long as it takes to look that up. No entry: nobody wants them. With
/// the connection all of them go.
type Readers = Arc<Mutex<BTreeMap<u32, mpsc::Sender<Came>>>>;

/// A connection. It ends when this is dropped.
pub(crate) struct Session {
    readers: Readers,
    /// Of the next stream: odd, as the one who opens the connection has them.
    next: u32,
    opener: Opener,
    frames: mpsc::Sender<Bytes>,
    _ends: DropGuard,
}

/// A stream of a connection.
pub(crate) struct Stream {
    came: mpsc::Receiver<Came>,
    taken: bool,
    ended: bool,
    out: Out,
}

/// The way out of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    id: u32,
    frames: mpsc::Sender<Bytes>,
}

/// Why there is nothing more on a stream although it did not end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StreamError {
    #[error("the runtime refuses the stream (status {0})")]
    Refused(u32),
    #[error("the runtime has closed the connection")]
    Closed,
}

impl Session {
    /// Streams over an upgraded connection.
    pub(crate) fn new(io: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        let (reader, writer) = tokio::io::split(io);
        let (frames, to_write) = mpsc::channel(WAITING);
        let (readers, ends) = (Readers::default(), CancellationToken::new());
        let tasks = TaskTracker::new();
        let (stop, map, pings) = (ends.clone(), Arc::clone(&readers), frames.downgrade());
        tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = hear(reader, &map, pings) => {}
            }
            map.lock().clear();
        });
        let stop = ends.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = say(writer, to_write) => {}
            }
        });
        Self { readers, next: 1, opener: Opener::default(), frames, _ends: ends.drop_guard() }
    }

    /// Opens a stream. Whether the peer takes it is known when something comes.
    pub(crate) async fn open(&mut self, headers: &[(&str, &str)]) -> Result<Stream, StreamError> {
        let id = self.next;
        self.next += 2;
        let (tell, came) = mpsc::channel(WAITING);
        self.readers.lock().insert(id, tell);
        let frame = self.opener.open(id, headers);
        self.frames.send(frame).await.map_err(|_| StreamError::Closed)?;
        Ok(Stream { came, taken: false, ended: false, out: Out { id, frames: self.frames.clone() } })
    }
}

impl Stream {
    /// The next bytes of the stream; `None`: it has ended.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, StreamError> {
        while !self.ended {
            match self.came.recv().await {
                Some(Came::Taken) => self.taken = true,
                Some(Came::Bytes(bytes)) if bytes.is_empty() => {}
                Some(Came::Bytes(bytes)) => return Ok(Some(bytes)),
                // Runtimes end what they have taken by cutting it, when everything was said.
                Some(Came::Cut(status)) if !self.taken => return Err(StreamError::Refused(status)),
                Some(Came::End | Came::Cut(_)) => self.ended = true,
                None => return Err(StreamError::Closed),
            }
        }
        Ok(None)
    }

    /// The way out, for another task.
    pub(crate) fn out(&self) -> Out {
        self.out.clone()
    }
}

impl Out {
    /// Says something.
    pub(crate) async fn write(&self, bytes: &[u8]) -> Result<(), StreamError> {
        for piece in bytes.chunks(PIECE) {
            self.send(spdy::data(self.id, piece, false)).await?;
        }
        Ok(())
    }

    /// Says nothing more.
    pub(crate) async fn finish(&self) -> Result<(), StreamError> {
        self.send(spdy::data(self.id, &[], true)).await
    }

    async fn send(&self, frame: Bytes) -> Result<(), StreamError> {
        self.frames.send(frame).await.map_err(|_| StreamError::Closed)
    }
}

async fn hear(reader: impl AsyncRead + Unpin, readers: &Readers, pings: mpsc::WeakSender<Bytes>) {
    let mut reader = spdy::Reader::new(reader);
    loop {
        let frame = match reader.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "cannot read a stream of the runtime");
                return;
            }
        };
        let (stream, came, last) = match frame {
            Frame::Data { stream, bytes, last } => (stream, Came::Bytes(bytes), last),
            Frame::Reply { stream, last } => (stream, Came::Taken, last),
            Frame::Reset { stream, status } => (stream, Came::Cut(status), false),
            Frame::Ping(number) => {
                // Its own come back with even numbers; nobody here asks. Who has no room to answer is alive all the same.
                if let Some(frames) = pings.upgrade() {
                    let _ = frames.try_send(spdy::ping(number));
                }
                continue;
            }
            Frame::GoAway | Frame::Other => continue,
        };
        let cut = matches!(came, Came::Cut(_));
        let reader = readers.lock().get(&stream).cloned();
        let Some(reader) = reader else { continue };
        let _ = reader.send(came).await;
        if last {
            let _ = reader.send(Came::End).await;
        }
        if last || cut {
            readers.lock().remove(&stream);
        }
    }
}

async fn say(mut writer: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Bytes>) {
    while let Some(frame) = frames.recv().await {
        let mut written = writer.write_all(&frame).await;
        if written.is_ok() && frames.is_empty() {
            written = writer.flush().await;
        }
        if let Err(error) = written {
            tracing::debug!(%error, "cannot write to a stream of the runtime");
            return;
        }
    }
}
