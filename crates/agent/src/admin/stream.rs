//! [`AdminListener`]: the admin socket for axum: each connection knows its caller, and ends when its caller stops reading. Connections of callers who may
//! only read have a budget of their own, of which each user has a share. Answers nothing itself. Made by [`super`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use cluster::kubelet_api::UnreadLimit;
use cluster::kubelet_api::admission::{Admission, Limits, Seat, Source};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::sleep;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::access::{Caller, Callers};

/// How long a caller may leave an answer unread before its connection ends.
const UNREAD: Duration = Duration::from_secs(30);
/// The pause after a failed accept: the process may have no descriptor left.
const PAUSE: Duration = Duration::from_secs(1);
/// Limits for connections of callers that may only read; other connections are not counted.
const LIMITS: Limits = Limits { unauthenticated: 64, per_source: 16, burst: 128, authenticated: usize::MAX };

/// The admin socket.
pub(super) struct AdminListener {
    listener: UnixListener,
    callers: Callers,
    admission: Admission,
}

/// A connection to the admin socket.
pub(super) struct AdminStream {
    stream: UnreadLimit<UnixStream>,
    caller: Caller,
    /// Completes when the connection has to end for another one.
    eviction: Pin<Box<WaitForCancellationFutureOwned>>,
    _seat: Seat,
}

impl AdminListener {
    /// The listening socket, for these callers.
    pub(super) fn new(listener: UnixListener, callers: Callers) -> Self {
        Self { listener, callers, admission: Admission::new(LIMITS) }
    }

    /// The connection of a caller.
    fn connection(&self, stream: UnixStream, caller: Caller) -> AdminStream {
        let seat = self.admission.admit(Source::User(caller.user));
        if caller.may_change {
            let _is_unlimited = seat.authenticate();
        }
        let eviction = Box::pin(seat.eviction().clone().cancelled_owned());
        AdminStream { stream: UnreadLimit::new(stream, UNREAD), caller, eviction, _seat: seat }
    }
}

impl Listener for AdminListener {
    type Io = AdminStream;
    type Addr = Caller;

    async fn accept(&mut self) -> (AdminStream, Caller) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let caller = self.callers.identify(&stream);
                    return (self.connection(stream, caller), caller);
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
    /// Fails once the connection is evicted.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.eviction.as_mut().poll(context) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => {
                tracing::debug!(user = self.caller.user, "a connection of the admin endpoint is evicted");
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "too many connections"))
            }
        }
    }
}

impl AsyncRead for AdminStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for AdminStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    struct Rig {
        admin: AdminListener,
        _directory: tempfile::TempDir,
    }

    impl Rig {
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            let listener = UnixListener::bind(directory.path().join("admin.sock")).expect("a socket");
            let admin = AdminListener::new(listener, Callers { owner: 0, group: None });
            Self { admin, _directory: directory }
        }

        /// Both ends of a connection of this user.
        fn connect(&self, user: u32) -> (UnixStream, AdminStream) {
            let (client, ours) = UnixStream::pair().expect("a pair");
            (client, self.admin.connection(ours, Caller { user: Some(user), may_change: user == 0 }))
        }
    }

    async fn is_open((client, ours): &mut (UnixStream, AdminStream)) -> bool {
        client.write_all(b"x").await.expect("it is written");
        ours.read(&mut [0]).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_has_a_share_of_connections_and_root_all_that_it_opens() {
        let rig = Rig::new();
        let mut root: Vec<_> = (0..100).map(|_| rig.connect(0)).collect();
        let mut other = rig.connect(1001);
        let mut user: Vec<_> = (0..16).map(|_| rig.connect(1000)).collect();
        sleep(Duration::from_secs(2)).await;
        user.push(rig.connect(1000));
        assert!(!is_open(&mut user[0]).await, "the oldest of a seventeenth");
        let error = user[0].1.write(b"x").await.expect_err("nor written");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        for connection in &mut user[1..] {
            assert!(is_open(connection).await);
        }
        user.extend((0..500).map(|_| rig.connect(1000)));
        assert!(is_open(&mut other).await, "of another user");
        for connection in &mut root {
            assert!(is_open(connection).await, "of root");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_waits_is_woken_by_its_eviction() {
        let rig = Rig::new();
        let mut first = rig.connect(1000);
        let mut rest = Vec::new();
        sleep(Duration::from_secs(2)).await;
        let open = async {
            tokio::task::yield_now().await;
            rest.extend((0..16).map(|_| rig.connect(1000)));
        };
        let mut byte = [0];
        let (read, ()) = tokio::join!(first.1.read(&mut byte), open);
        assert_eq!(read.expect_err("it is evicted").kind(), io::ErrorKind::ConnectionAborted);
    }
}
