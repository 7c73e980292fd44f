//! A connection to a port of a pod, through the runtime: bytes in both directions, each half closed separately, and a stream for errors of
//! the runtime. Listens on no port. Called by `port-forward`, with one session per connection.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::session::{Out, Session, Stream, StreamError};

/// The protocols of the session.
pub(crate) const PROTOCOLS: [&str; 1] = ["portforward.k8s.io"];

/// Time that the runtime may take to report an error after both directions have ended.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Reason for which a connection ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ForwardError {
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// An error, in the runtime's words.
    #[error("{0}")]
    Runtime(String),
}

/// Forwards a connection to `port` until both sides have sent everything.
pub(crate) async fn run(
    mut session: Session,
    port: u16,
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
) -> Result<(), ForwardError> {
    let port = port.to_string();
    let headers = |kind| [("streamtype", kind), ("port", &*port), ("requestid", "0")];
    let errors = session.open(&headers("error")).await?;
    // Only the runtime writes to this stream.
    errors.out().finish().await?;
    let data = session.open(&headers("data")).await?;
    let out = data.out();
    let failed = said(errors);
    let carried = async {
        let to_pod = carry_out(reader, out);
        let from_pod = carry_in(data, writer);
        // After the pod has closed its side, data of the client has no reader, so do not wait for the client.
        tokio::pin!(to_pod, from_pod);
        tokio::select! {
            from = &mut from_pod => from,
            () = &mut to_pod => from_pod.await,
        }
    };
    tokio::pin!(carried, failed);
    tokio::select! {
        text = &mut failed => match text {
            Some(text) => Err(ForwardError::Runtime(text)),
            None => Ok(carried.await?),
        },
        done = &mut carried => match tokio::time::timeout(LAST_WORD, failed).await {
            Ok(Some(text)) => Err(ForwardError::Runtime(text)),
            _ => Ok(done?),
        },
    }
}

/// Returns the error that the runtime reports, after its stream has ended.
async fn said(mut errors: Stream) -> Option<String> {
    let mut text = Vec::new();
    while let Ok(Some(bytes)) = errors.next().await {
        text.extend_from_slice(&bytes);
    }
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

async fn carry_out(mut reader: impl AsyncRead + Unpin, out: Out) {
    let mut buffer = vec![0; 32 << 10];
    loop {
        match reader.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => {
                if out.write(&buffer[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
    let _ = out.finish().await;
}

async fn carry_in(mut data: Stream, mut writer: impl AsyncWrite + Unpin) -> Result<(), StreamError> {
    let mut said = Ok(());
    loop {
        match data.next().await {
            Ok(Some(bytes)) if writer.write_all(&bytes).await.is_ok() => {}
            // The client has stopped reading.
            Ok(Some(_)) => break,
            Ok(None) => break,
            Err(error) => {
                said = Err(error);
                break;
            }
        }
    }
    let _ = writer.shutdown().await;
    said
}
