//! `/containerLogs`: the output of a container, sent in pieces as the client reads, and followed until the container ends. The
//! files are read by [`kuberuntime::logs`]; no thread waits for the network.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cri_api::{ContainerState, Kind, RuntimeService};
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use kuberuntime::logs::{LogLocation, LogReader, LogStep};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::kubelet_api::access::Refusal;
use crate::kubelet_api::answer::{Answer, boxed};
use crate::kubelet_api::query::LogQuery;

/// Poll interval of a followed log.
const POLL: Duration = Duration::from_millis(100);
/// Interval at which the runtime is asked whether the container still runs.
const ASK: Duration = Duration::from_secs(1);
/// Maximum number of pieces that wait for the client.
const WAITING: usize = 2;

type Piece = io::Result<Frame<Bytes>>;

/// Sends the log of the container with this id.
pub(crate) async fn send(
    runtime: Arc<dyn RuntimeService>,
    id: String,
    query: LogQuery,
    (tracker, stop): (&TaskTracker, CancellationToken),
) -> Result<Answer, Refusal> {
    let status = runtime.container_status(&id, false).await.map_err(|error| {
        let status =
            if error.kind() == Kind::NotFound { StatusCode::NOT_FOUND } else { StatusCode::INTERNAL_SERVER_ERROR };
        Refusal(status, format!("find the log of container {id:?}: {error}"))
    })?;
    let Some(location) = LogLocation::of(&status) else {
        return Err(Refusal(StatusCode::NOT_FOUND, format!("the runtime keeps no log of container {id:?}")));
    };
    let (follow, options) = (query.follow && status.state != ContainerState::Exited, query.options);
    let (sender, receiver) = mpsc::channel(WAITING);
    let job = Job { runtime, id, sender, follow };
    // The log is opened before the answer begins, so that a missing log is an error.
    let reader = job.open(location, options).await.map_err(|error| {
        let status = if error.kind() == io::ErrorKind::NotFound {
            StatusCode::NOT_FOUND
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        Refusal(status, format!("the log of container {:?}: {error}", job.id))
    })?;
    tracker.spawn(async move {
        let _ = stop.run_until_cancelled(job.run(reader)).await;
    });
    let body = boxed(StreamBody::new(ReceiverStream::new(receiver)));
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
    Ok(response)
}

/// A log on its way to a client.
struct Job {
    runtime: Arc<dyn RuntimeService>,
    id: String,
    sender: mpsc::Sender<Piece>,
    follow: bool,
}

impl Job {
    /// Opens the log. Of a container that runs it may not be there yet.
    async fn open(&self, location: LogLocation, options: kuberuntime::logs::LogOptions) -> io::Result<LogReader> {
        let mut ended = std::pin::pin!(self.ended());
        loop {
            let (location, options) = (location.clone(), options.clone());
            match blocking(move || LogReader::open(&location, options)).await {
                Err(error) if self.follow && error.kind() == io::ErrorKind::NotFound => tokio::select! {
                    () = &mut ended => return Err(error),
                    () = tokio::time::sleep(POLL) => {}
                },
                opened => return opened,
            }
        }
    }

    /// Sends the existing lines, and new ones as they are written, until the client disconnects.
    async fn run(self, mut reader: LogReader) {
        let mut ended = std::pin::pin!(self.ended());
        let mut over = !self.follow;
        loop {
            let read;
            (reader, read) = match blocking(move || part(reader)).await {
                Ok(read) => read,
                Err(error) => {
                    // The answer ends with an error, so that a client does not take it for the whole log.
                    let _ = self.sender.send(Err(error)).await;
                    return;
                }
            };
            let (text, step) = read;
            if !text.is_empty() && self.sender.send(Ok(Frame::data(text.into()))).await.is_err() {
                return;
            }
            match step {
                LogStep::More => {}
                LogStep::Full => return,
                LogStep::UpToDate if over => break,
                LogStep::UpToDate => tokio::select! {
                    () = &mut ended => over = true,
                    () = self.sender.closed() => return,
                    () = tokio::time::sleep(POLL) => {}
                },
            }
        }
        // Includes a last line without an end.
        let last = blocking(move || {
            let mut text = Vec::new();
            reader.finish(&mut text).map(|()| text)
        });
        let last = last.await.map(|text| Frame::data(text.into()));
        let _ = self.sender.send(last).await;
    }

    /// Waits until the container has ended. A runtime that is away for a while is asked again.
    async fn ended(&self) {
        loop {
            match self.runtime.container_status(&self.id, false).await {
                Ok(status) if status.state == ContainerState::Exited => return,
                Err(error) if error.kind() == Kind::NotFound => return,
                Ok(_) | Err(_) => tokio::time::sleep(ASK).await,
            }
        }
    }
}

fn part(mut reader: LogReader) -> io::Result<(LogReader, (Vec<u8>, LogStep))> {
    let mut text = Vec::new();
    let step = reader.part(&mut text)?;
    Ok((reader, (text, step)))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    base::blocking(work).await.unwrap_or_else(|| Err(io::Error::other("the program ends")))
}
