//! [`AdminListener`]: the admin socket for axum: each connection knows its caller, and ends when its caller stops reading. Answers nothing
//! itself. Made by [`super`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Sleep, sleep};

use super::access::{Caller, Callers};

/// How long a caller may leave an answer unread before its connection ends.
const UNREAD: Duration = Duration::from_secs(30);
/// The pause after a failed accept: the process may have no descriptor left.
const PAUSE: Duration = Duration::from_secs(1);

/// The admin socket.
pub(super) struct AdminListener {
    pub(super) listener: UnixListener,
    pub(super) callers: Callers,
}

/// A connection to the admin socket.
pub(super) struct AdminStream {
    stream: UnixStream,
    caller: Caller,
    /// Runs while the caller does not read.
    unread: Option<Pin<Box<Sleep>>>,
}

impl Listener for AdminListener {
    type Io = AdminStream;
    type Addr = Caller;

    async fn accept(&mut self) -> (AdminStream, Caller) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let caller = self.callers.identify(&stream);
                    return (AdminStream { stream, caller, unread: None }, caller);
                }
                Err(error) => {
                    tracing::warn!(%error, "the admin endpoint cannot accept a connection");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Caller> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }
}

impl Connected<IncomingStream<'_, AdminListener>> for Caller {
    fn connect_info(stream: IncomingStream<'_, AdminListener>) -> Self {
        stream.io().caller
    }
}

impl AdminStream {
    /// The result of a write; an error if the caller has read nothing for too long.
    fn in_time<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.unread = None;
            return written;
        }
        let unread = self.unread.get_or_insert_with(|| Box::pin(sleep(UNREAD)));
        ready!(unread.as_mut().poll(context));
        tracing::info!(user = self.caller.user, "a caller of the admin endpoint reads no answers and is dropped");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the answer is not read")))
    }
}

impl AsyncRead for AdminStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for AdminStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.in_time(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
