//! [`Lingering`]: a connection that is closed as nginx does it: first towards the client alone, and then, once that has closed as
//! well or some time has passed, altogether. A client that writes a request at this moment gets no broken pipe, and reads
//! that the request was not processed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::{Sleep, sleep};

/// How long a client has to close its side. It does so when it has read that the server ends.
const LINGER: Duration = Duration::from_millis(250);

/// A connection that lingers when it is closed.
pub(super) struct Lingering {
    stream: UnixStream,
    /// Runs once nothing is sent any more.
    left: Option<Pin<Box<Sleep>>>,
}

impl Lingering {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, left: None }
    }
}

impl AsyncRead for Lingering {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Lingering {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.left.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        let left = this.left.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        loop {
            let mut bytes = [0; 4096];
            let mut late = ReadBuf::new(&mut bytes);
            match Pin::new(&mut this.stream).poll_read(cx, &mut late) {
                // The answer is already sent, so bytes that arrive now are discarded.
                Poll::Ready(Ok(())) if !late.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => {
                    ready!(left.as_mut().poll(cx));
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
