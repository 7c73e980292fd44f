//! Bytes of an upgraded connection, both ways, between a client and the runtime.

use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Time for which a client may still send after the runtime has closed its side. A connection that is closed with unread input
/// is reset, and the client, or a proxy on the way, can then lose data that has arrived but is not read yet.
const LINGER: Duration = Duration::from_secs(10);
/// Bytes that are read at once.
const CHUNK: usize = 16 << 10;

/// Copies bytes both ways until one side closes. All output that the runtime has sent reaches the client, also when the runtime
/// takes no more input: a container may end while its client still sends.
pub(crate) async fn carry(client: impl AsyncRead + AsyncWrite, runtime: impl AsyncRead + AsyncWrite) {
    let (from_client, to_client) = tokio::io::split(client);
    let (from_runtime, to_runtime) = tokio::io::split(runtime);
    let mut input = pin!(input(from_client, to_runtime));
    let mut output = pin!(output(from_runtime, to_client));
    let mut has_ended = false;
    let over = loop {
        tokio::select! {
            ended = &mut input, if !has_ended => match ended {
                Ok(()) => has_ended = true,
                Err(error) => break Err(error),
            },
            over = &mut output => break over,
        }
    };
    match over {
        Ok(()) if !has_ended => drop(tokio::time::timeout(LINGER, input).await),
        Ok(()) => {}
        Err(error) => tracing::debug!(%error, "streams of a client ended"),
    }
}

/// Which side of a direction broke off.
enum Broken {
    Source(io::Error),
    Sink(io::Error),
}

/// Copies the client's input to its end. Input that the runtime does not take is discarded.
///
/// # Errors
/// The client has disconnected.
async fn input(from: impl AsyncRead, to: impl AsyncWrite) -> io::Result<()> {
    let (mut from, mut to) = (pin!(from), pin!(to));
    match pump(&mut from, &mut to).await {
        Ok(()) => {
            let _ = to.shutdown().await;
            Ok(())
        }
        Err(Broken::Source(error)) => Err(error),
        Err(Broken::Sink(_)) => tokio::io::copy(&mut from, &mut tokio::io::sink()).await.map(drop),
    }
}

/// Copies the runtime's output until it ends or the connection breaks.
///
/// # Errors
/// The client has disconnected.
async fn output(from: impl AsyncRead, to: impl AsyncWrite) -> io::Result<()> {
    let (mut from, mut to) = (pin!(from), pin!(to));
    match pump(&mut from, &mut to).await {
        Ok(()) | Err(Broken::Source(_)) => to.shutdown().await,
        Err(Broken::Sink(error)) => Err(error),
    }
}

/// Carries one direction to its end. Unlike `tokio::io::copy` it writes all that it has read before it reads again, so that nothing is
/// lost with an error, and returns which side failed.
async fn pump(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> Result<(), Broken> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = from.read(&mut chunk).await.map_err(Broken::Source)?;
        if length == 0 {
            return Ok(());
        }
        to.write_all(&chunk[..length]).await.map_err(Broken::Sink)?;
        to.flush().await.map_err(Broken::Sink)?;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use bytes::Bytes;
    use tokio::io::{DuplexStream, duplex, empty, join};
    use tokio::time::Instant;
    use tokio_util::io::StreamReader;
    use tokio_util::task::TaskTracker;

    use super::*;

    fn broken() -> io::Error {
        io::Error::from(io::ErrorKind::BrokenPipe)
    }

    /// Takes nothing.
    struct Closed;

    impl AsyncWrite for Closed {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(broken()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(broken()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(broken()))
        }
    }

    /// Says this, and breaks off.
    fn breaks_off_after(said: &'static [u8]) -> impl AsyncRead {
        StreamReader::new(tokio_stream::iter([Ok(Bytes::from_static(said)), Err(broken())]))
    }

    async fn rest(client: &mut DuplexStream) -> String {
        let mut all = String::new();
        client.read_to_string(&mut all).await.expect("text");
        all
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_reads_nothing_more_is_read_to_the_end() {
        let (mut client, ours) = duplex(64);
        let (mut runtime, theirs) = duplex(64);
        let carried = TaskTracker::new().spawn(carry(ours, join(theirs, Closed)));
        client.write_all(b"what nobody takes").await.expect("carried");
        tokio::time::sleep(Duration::from_secs(1)).await;
        runtime.write_all(b"last words").await.expect("carried");
        drop(runtime);
        assert_eq!(rest(&mut client).await, "last words");
        drop(client);
        carried.await.expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_breaks_off_is_read_to_the_end() {
        let (mut client, ours) = duplex(3);
        let carried = TaskTracker::new().spawn(carry(ours, join(breaks_off_after(b"more than fits at once"), Closed)));
        assert_eq!(rest(&mut client).await, "more than fits at once");
        drop(client);
        carried.await.expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_breaks_off_is_the_end() {
        let (runtime, theirs) = duplex(64);
        carry(join(breaks_off_after(b"cut"), Closed), theirs).await;
        drop(runtime);
    }

    #[tokio::test(start_paused = true)]
    async fn an_input_may_end_before_its_output() {
        let (mut client, ours) = duplex(64);
        let (mut runtime, theirs) = duplex(64);
        let carried = TaskTracker::new().spawn(carry(ours, theirs));
        client.write_all(b"question").await.expect("carried");
        client.shutdown().await.expect("half of it");
        assert_eq!(rest(&mut runtime).await, "question");
        runtime.write_all(b"answer").await.expect("carried");
        drop(runtime);
        assert_eq!(rest(&mut client).await, "answer");
        carried.await.expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_stops_is_left_in_the_end() {
        let (mut client, ours) = duplex(64);
        let begin = Instant::now();
        let carried = TaskTracker::new().spawn(async move {
            carry(ours, join(empty(), Closed)).await;
            begin.elapsed()
        });
        while client.write_all(b"and on").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(carried.await.expect("no panic"), LINGER);
    }
}
