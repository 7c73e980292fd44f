//! [`UnreadLimit`]: a connection that ends when its client stops reading answers. Called by [`crate::kubelet_api::port`] and by the admin socket of the agent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A connection whose writes fail once the client has read nothing for too long.
#[derive(Debug)]
pub struct UnreadLimit<S> {
    stream: S,
    limit: Duration,
    /// Runs while the client does not read.
    unread: Option<Pin<Box<Sleep>>>,
}

impl<S> UnreadLimit<S> {
    /// Wraps a connection with a limit.
    pub fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, unread: None }
    }

    /// Returns the result of a write, or an error if the client has read nothing for too long.
    fn in_time<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.unread = None;
            return written;
        }
        let limit = self.limit;
        let unread = self.unread.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(unread.as_mut().poll(context));
        tracing::info!("a client reads no answers and is cut off");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads no answers")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for UnreadLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for UnreadLimit<S> {
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_cut_off() {
        let (_client, ours) = duplex(4);
        let error = UnreadLimit::new(ours, LIMIT).write_all(b"more than fits").await.expect_err("nothing is read");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_has_all_of_it() {
        let (mut client, ours) = duplex(4);
        let write = async {
            let mut ours = UnreadLimit::new(ours, LIMIT);
            ours.write_all(b"more than fits").await
        };
        let read = async {
            let mut text = Vec::new();
            loop {
                tokio::time::sleep(LIMIT / 2).await;
                let mut byte = [0];
                match client.read(&mut byte).await.expect("a byte") {
                    0 => return text,
                    _ => text.push(byte[0]),
                }
            }
        };
        let (written, text) = tokio::join!(write, read);
        written.expect("it is read");
        assert_eq!(text, b"more than fits");
    }
}
