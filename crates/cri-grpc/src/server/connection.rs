//! Connections as the transport takes them: accepted with patience when the process has too many files open, and cut
//! when the server must end.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::{Connected, UdsConnectInfo};

use super::Listener;

/// Pause after a failed accept. Too many open files does not pass by asking again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The connections of a listener. The listener goes, and its socket with it, when the stream is dropped.
pub(super) fn incoming(
    listener: Listener,
    cut: CancellationToken,
) -> io::Result<impl Stream<Item = io::Result<Connection>>> {
    let accepting = tokio::net::UnixListener::from_std(listener.try_clone()?)?;
    Ok(futures::stream::unfold((accepting, listener), move |(accepting, listener)| {
        let cut = cut.clone();
        async move {
            loop {
                match accepting.accept().await {
                    Ok((stream, _)) => {
                        let connection = Connection::new(stream, cut);
                        return Some((Ok(connection), (accepting, listener)));
                    }
                    Err(error) => {
                        tracing::warn!(endpoint = %listener.endpoint(), %error, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
    }))
}

/// A client's connection.
pub(super) struct Connection {
    stream: UnixStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connection {
    fn new(stream: UnixStream, cut: CancellationToken) -> Self {
        if let Ok(peer) = stream.peer_cred() {
            tracing::debug!(pid = peer.pid(), uid = peer.uid(), "connection");
        }
        Self { stream, cut: Box::pin(cut.cancelled_owned()) }
    }

    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server ended")),
            Poll::Pending => Ok(()),
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = UdsConnectInfo;
    fn connect_info(&self) -> UdsConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
