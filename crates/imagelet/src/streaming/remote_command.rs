//! A command or a process of a container with its streams: standard input, output and error, the size of a terminal, and the stream on
//! which the runtime finally reports how it ended. Knows no terminal and no runtime. Called by `exec` and `attach`.

use bytes::Bytes;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::session::{Out, Session, Stream, StreamError};
use super::terminal::{Size, Sizes};

/// Supported protocols, the newest first. All have a separate stream for the exit status; versions before v4 send it as text.
pub(crate) const PROTOCOLS: [&str; 3] = ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io"];

/// The streams of a command.
pub(crate) struct Streams<I, O, E> {
    /// The input of the command; `None`: no standard input.
    pub(crate) stdin: Option<I>,
    pub(crate) stdout: O,
    /// Error output; `None` with a terminal.
    pub(crate) stderr: Option<E>,
    /// Sizes of the command's terminal, if it has one.
    pub(crate) sizes: Option<Sizes>,
    /// The key sequence that detaches from the session; empty: detaching is disabled.
    pub(crate) leave: &'static [u8],
}

/// End of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The command ended with this code.
    Exited(i32),
    /// The runtime reports that the command failed.
    Failed(String),
    /// The user detached.
    Left,
    /// The reader of the output has closed it.
    Unread,
}

/// Streams until the end.
pub(crate) async fn run<I, O, E>(mut session: Session, mut streams: Streams<I, O, E>) -> Result<Ended, StreamError>
where
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin,
    E: AsyncWrite + Unpin,
{
    let mut open = async |kind| session.open(&[("streamtype", kind)]).await;
    let status = open("error").await?;
    let stdin = if streams.stdin.is_some() { Some(open("stdin").await?) } else { None };
    let stdout = open("stdout").await?;
    let stderr = if streams.stderr.is_some() { Some(open("stderr").await?) } else { None };
    let resize = if streams.sizes.is_some() { Some(open("resize").await?) } else { None };

    let said = async {
        let outputs = async {
            tokio::try_join!(copy(stdout, Some(&mut streams.stdout)), async {
                match stderr {
                    Some(stderr) => copy(stderr, streams.stderr.as_mut()).await,
                    None => Ok(()),
                }
            })
        };
        let (outputs, status) = tokio::join!(outputs, collect(status));
        match (outputs, status) {
            (Err(CopyError::Unread), _) => Ok(Ended::Unread),
            (Err(CopyError::Stream(error)), Ok(text)) if text.is_empty() => Err(error),
            (_, Ok(text)) => Ok(ended(&text)),
            (_, Err(error)) => Err(error),
        }
    };
    let inputs = async {
        let typed = async {
            match (&mut streams.stdin, &stdin) {
                (Some(reader), Some(stream)) => feed(reader, &stream.out(), streams.leave).await,
                _ => false,
            }
        };
        let sized = async {
            if let (Some(sizes), Some(stream)) = (&mut streams.sizes, &resize) {
                let out = stream.out();
                loop {
                    let Size { columns, rows } = sizes.next().await;
                    let text = format!("{{\"Width\":{columns},\"Height\":{rows}}}\n");
                    if out.write(text.as_bytes()).await.is_err() {
                        break;
                    }
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            left = typed => if !left { std::future::pending::<()>().await },
            () = sized => {}
        }
    };
    tokio::select! {
        biased;
        ended = said => ended,
        () = inputs => Ok(Ended::Left),
    }
}

enum CopyError {
    Stream(StreamError),
    Unread,
}

async fn copy(mut stream: Stream, to: Option<&mut (impl AsyncWrite + Unpin)>) -> Result<(), CopyError> {
    let Some(to) = to else { return Ok(()) };
    while let Some(bytes) = stream.next().await.map_err(CopyError::Stream)? {
        to.write_all(&bytes).await.map_err(|_| CopyError::Unread)?;
        to.flush().await.map_err(|_| CopyError::Unread)?;
    }
    Ok(())
}

/// Collects the whole data of a stream. A connection that closes after some data has ended the stream as well.
async fn collect(mut stream: Stream) -> Result<Bytes, StreamError> {
    let mut text = Vec::new();
    loop {
        match stream.next().await {
            Ok(Some(bytes)) => text.extend_from_slice(&bytes),
            Ok(None) => break,
            Err(StreamError::Closed) if !text.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(text.into())
}

/// Forwards the input and its end. Returns true if the user wants to detach.
async fn feed(reader: &mut (impl AsyncRead + Unpin), out: &Out, leave: &[u8]) -> bool {
    let mut buffer = vec![0; 32 << 10];
    let mut seen = 0;
    loop {
        let count = match reader.read(&mut buffer).await {
            Ok(0) | Err(_) => {
                let _ = out.finish().await;
                return false;
            }
            Ok(count) => count,
        };
        for byte in &buffer[..count] {
            seen = match leave.get(seen) {
                Some(next) if next == byte => seen + 1,
                _ => usize::from(leave.first() == Some(byte)),
            };
            if !leave.is_empty() && seen == leave.len() {
                return true;
            }
        }
        if out.write(&buffer[..count]).await.is_err() {
            return false;
        }
    }
}

/// The fields of a `metav1.Status` that are used.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    status: String,
    message: String,
    reason: String,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
}

/// Parses the exit status that the runtime reported: nothing, text, or a status.
fn ended(text: &[u8]) -> Ended {
    if text.is_empty() {
        return Ended::Exited(0);
    }
    let Ok(status) = serde_json::from_slice::<Status>(text) else {
        return Ended::Failed(String::from_utf8_lossy(text).trim().to_owned());
    };
    if status.status == "Success" {
        return Ended::Exited(0);
    }
    let code = status.details.causes.iter().find(|cause| cause.reason == "ExitCode");
    match code.and_then(|cause| cause.message.parse().ok()) {
        Some(code) if status.reason == "NonZeroExitCode" => Ended::Exited(code),
        _ => Ended::Failed(status.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_is_understood() {
        let code = r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code",
                       "reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;
        let cases = [
            ("", Ended::Exited(0)),
            (r#"{"metadata":{},"status":"Success"}"#, Ended::Exited(0)),
            (code, Ended::Exited(7)),
            (
                r#"{"status":"Failure","reason":"InternalError","message":"no such thing"}"#,
                Ended::Failed("no such thing".into()),
            ),
            ("container not running\n", Ended::Failed("container not running".into())),
        ];
        for (text, want) in cases {
            assert_eq!(ended(text.as_bytes()), want, "{text}");
        }
    }
}
