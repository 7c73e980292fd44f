//! [`Session`]: one connection with several streams. It reads frames and passes them to their streams, and writes the streams' data. A
//! stream with a slow reader blocks the others of its connection: the streams of one command belong together, and each forwarded port has a
//! connection of its own.

use base::lock::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::spdy::{self, Frame, Opener};

/// Capacity of the queues of frames.
const WAITING: usize = 16;
/// Maximum size of a written frame in bytes.
const PIECE: usize = 32 << 10;

/// An event of a stream.
#[derive(Debug)]
enum StreamEvent {
    /// The peer has accepted the stream.
    Taken,
    Bytes(Bytes),
    End,
    /// The peer has reset the stream.
    Cut(u32),
}

/// Guards the receivers of the streams' frames, and is held only for the lookup. Frames of a stream without an entry are dropped. All
/// entries are removed when the connection ends.
type Readers = Arc<Mutex<BTreeMap<u32, mpsc::Sender<StreamEvent>>>>;

/// A connection. It is closed when this is dropped.
pub(crate) struct Session {
    readers: Readers,
    /// Id of the next stream: odd, as for the side that opens the connection.
    next: u32,
    opener: Opener,
    frames: mpsc::Sender<Bytes>,
    _ends: DropGuard,
}

/// A stream of a connection.
pub(crate) struct Stream {
    events: mpsc::Receiver<StreamEvent>,
    taken: bool,
    ended: bool,
    out: Out,
}

/// The write half of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    id: u32,
    frames: mpsc::Sender<Bytes>,
}

/// Failure of a stream before its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StreamError {
    #[error("the runtime refuses the stream (status {0})")]
    Refused(u32),
    #[error("the runtime has closed the connection")]
    Closed,
}

impl Session {
    /// Creates a session over an upgraded connection.
    pub(crate) fn new(io: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        let (reader, writer) = tokio::io::split(io);
        let (frames, to_write) = mpsc::channel(WAITING);
        let (readers, ends) = (Readers::default(), CancellationToken::new());
        let tasks = TaskTracker::new();
        let (stop, map, pings) = (ends.clone(), Arc::clone(&readers), frames.downgrade());
        tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = receive(reader, &map, pings) => {}
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

    /// Opens a stream. Whether the peer accepts it is known with its first frame.
    pub(crate) async fn open(&mut self, headers: &[(&str, &str)]) -> Result<Stream, StreamError> {
        let id = self.next;
        self.next += 2;
        let (sender, events) = mpsc::channel(WAITING);
        self.readers.lock().insert(id, sender);
        let frame = self.opener.open(id, headers);
        self.frames.send(frame).await.map_err(|_| StreamError::Closed)?;
        Ok(Stream { events, taken: false, ended: false, out: Out { id, frames: self.frames.clone() } })
    }
}

impl Stream {
    /// Returns the next bytes of the stream; `None` if it has ended.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, StreamError> {
        while !self.ended {
            match self.events.recv().await {
                Some(StreamEvent::Taken) => self.taken = true,
                Some(StreamEvent::Bytes(bytes)) if bytes.is_empty() => {}
                Some(StreamEvent::Bytes(bytes)) => return Ok(Some(bytes)),
                // Runtimes reset a stream that they have accepted to end it, after all data was sent.
                Some(StreamEvent::Cut(status)) if !self.taken => return Err(StreamError::Refused(status)),
                Some(StreamEvent::End | StreamEvent::Cut(_)) => self.ended = true,
                None => return Err(StreamError::Closed),
            }
        }
        Ok(None)
    }

    /// Returns the write half, for another task.
    pub(crate) fn out(&self) -> Out {
        self.out.clone()
    }
}

impl Out {
    /// Sends bytes.
    pub(crate) async fn write(&self, bytes: &[u8]) -> Result<(), StreamError> {
        for piece in bytes.chunks(PIECE) {
            self.send(spdy::data(self.id, piece, false)).await?;
        }
        Ok(())
    }

    /// Closes the write half.
    pub(crate) async fn finish(&self) -> Result<(), StreamError> {
        self.send(spdy::data(self.id, &[], true)).await
    }

    async fn send(&self, frame: Bytes) -> Result<(), StreamError> {
        self.frames.send(frame).await.map_err(|_| StreamError::Closed)
    }
}

async fn receive(reader: impl AsyncRead + Unpin, readers: &Readers, pings: mpsc::WeakSender<Bytes>) {
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
        let (stream, event, last) = match frame {
            Frame::Data { stream, bytes, last } => (stream, StreamEvent::Bytes(bytes), last),
            Frame::Reply { stream, last } => (stream, StreamEvent::Taken, last),
            Frame::Reset { stream, status } => (stream, StreamEvent::Cut(status), false),
            Frame::Ping(number) => {
                // Only the peer sends pings, so each is answered. The reply may be dropped if the queue is full: other frames show that we
                // are alive.
                if let Some(frames) = pings.upgrade() {
                    let _ = frames.try_send(spdy::ping(number));
                }
                continue;
            }
            Frame::GoAway | Frame::Other => continue,
        };
        let cut = matches!(event, StreamEvent::Cut(_));
        let reader = readers.lock().get(&stream).cloned();
        let Some(reader) = reader else { continue };
        let _ = reader.send(event).await;
        if last {
            let _ = reader.send(StreamEvent::End).await;
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
