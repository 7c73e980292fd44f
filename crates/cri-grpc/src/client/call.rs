//! [`Caller`]: one channel, and how a call on it ends: in time or not, answered by the peer or lost on the way.

use std::error::Error as StdError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cri_api::{Error, Kind, Result};
use tokio::time::timeout;
use tonic::transport::{Channel, Uri};
use tonic::{Code, Response, Status, Streaming};

use super::ClientOptions;
use super::connector::{ConnectFailure, Connector};
use super::traced::TracedChannel;
use crate::Endpoint;
use crate::status::from_status;

/// Headers carry error messages, and those of other runtimes can be long.
const MAX_HEADER_BYTES: u32 = 1024 * 1024;

/// How often a call is repeated that its peer did not process. A channel may learn late that its connection is being closed.
const REPEATS: u32 = 8;

/// Result of a call of tonic.
type CallResult<T> = std::result::Result<T, Status>;

/// A channel with its rules.
pub(super) struct Caller {
    pub(super) channel: TracedChannel,
    pub(super) connector: Arc<Connector>,
}

impl Caller {
    /// Does no I/O: the connection is made by the first call.
    pub(super) fn new(endpoint: &Endpoint, options: ClientOptions) -> Self {
        let connector = Connector::new(endpoint, options);
        // The connector uses its own socket, whatever the URI says; the authority is the one that the kubelet sends.
        let mut builder = Channel::builder(Uri::from_static("http://localhost"))
            .http2_max_header_list_size(MAX_HEADER_BYTES)
            .initial_stream_window_size(1024 * 1024)
            .initial_connection_window_size(4 * 1024 * 1024);
        if let Ok(agent) = builder.clone().user_agent(connector.options.user_agent.as_str()) {
            builder = agent;
        }
        let shared = Arc::clone(&connector);
        let service = tower::service_fn(move |_: Uri| Arc::clone(&shared).connect());
        Self { channel: TracedChannel(builder.connect_with_connector_lazy(service)), connector }
    }

    /// A call with the request timeout.
    pub(super) async fn timed<T>(&self, name: &str, call: impl Future<Output = CallResult<T>> + Send) -> Result<T> {
        let answer = self.within(name, Some(self.connector.options.request_timeout), call).await?;
        answer.map_err(|status| self.error(&status))
    }

    /// A call about something: `limit` is its time, `None` is no end. The error names the call and its subject.
    pub(super) async fn about<T>(
        &self,
        name: &str,
        subject: &str,
        limit: Option<Duration>,
        call: impl Future<Output = CallResult<Response<T>>> + Send,
    ) -> Result<T> {
        let title = format!("{name} {subject}");
        match self.within(&title, limit, call).await? {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => {
                let error = self.error(&status);
                let text = format!("{title}: {}", error.message());
                Err(error.with_message(text))
            }
        }
    }

    /// Waits for an answer, for `limit` at most. `title` names the call in the error.
    async fn within<T>(
        &self,
        title: &str,
        limit: Option<Duration>,
        call: impl Future<Output = CallResult<T>> + Send,
    ) -> Result<CallResult<T>> {
        let Some(limit) = limit else { return Ok(call.await) };
        timeout(limit, call).await.map_err(|_| {
            let text = format!("{title}: no answer from {} within {limit:?}", self.connector.endpoint);
            Error::new(Kind::DeadlineExceeded, text)
        })
    }

    /// Makes a call, and again where the peer says that it has not processed it, as a peer does that ends: gRPC's clients do
    /// so by themselves.
    pub(super) async fn repeated<T, F>(&self, call: impl Fn() -> F + Send) -> CallResult<T>
    where
        F: Future<Output = CallResult<T>> + Send,
    {
        for _ in 0..REPEATS {
            match call().await {
                Err(status) if causes(&status).any(is_unprocessed) => {
                    tracing::debug!(endpoint = %self.connector.endpoint, %status, "the call was not processed");
                }
                outcome => return outcome,
            }
        }
        call().await
    }

    /// A status of the peer has no source; one that was made on this side names the cause.
    pub(super) fn error(&self, status: &Status) -> Error {
        let Some(source) = status.source() else {
            return from_status(status);
        };
        if let Some(failure) = causes(status).find_map(|cause| cause.downcast_ref::<ConnectFailure>()) {
            return Error::new(Kind::Unavailable, failure.to_string());
        }
        if let Some(failure) = self.connector.last_failure() {
            return Error::new(Kind::Unavailable, failure.to_string());
        }
        let chain = Error::from_source(Kind::Unavailable, source);
        Error::new(Kind::Unavailable, format!("lost the connection to {}: {chain}", self.connector.endpoint))
    }
}

/// The causes of an error, the nearest first.
pub(super) fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

/// Returns true if a call ended so before the peer did anything for it: it was not sent, or was given back.
fn is_unprocessed(cause: &(dyn StdError + 'static)) -> bool {
    let sent_back = cause.downcast_ref::<h2::Error>().is_some_and(|error| {
        let given_back = error.reason() == Some(h2::Reason::REFUSED_STREAM);
        error.is_remote() && (given_back || (error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR)))
    });
    sent_back || cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled)
}

/// A list that a peer may know as a stream of batches: asks for the stream first, and never again once the peer has
/// said that it does not know it.
pub(super) struct ListMode {
    stream: AtomicBool,
}

impl ListMode {
    pub(super) fn new(options: &ClientOptions) -> Self {
        Self { stream: AtomicBool::new(options.stream_lists) }
    }

    /// Returns all items. A stream that breaks off gives an error, not the items until then.
    pub(super) async fn collect<B, T>(
        &self,
        stream: impl Future<Output = CallResult<Response<Streaming<B>>>> + Send,
        items: impl Fn(B) -> Vec<T> + Send,
        whole: impl Future<Output = CallResult<Vec<T>>> + Send,
    ) -> CallResult<Vec<T>>
    where
        T: Send,
    {
        if self.stream.load(Ordering::Relaxed) {
            match drain(stream, items).await {
                Err(status) if status.code() == Code::Unimplemented => {
                    self.stream.store(false, Ordering::Relaxed);
                    tracing::debug!("peer has no streamed lists, asking for whole lists");
                }
                other => return other,
            }
        }
        whole.await
    }

    #[cfg(test)]
    pub(crate) fn streams(&self) -> bool {
        self.stream.load(Ordering::Relaxed)
    }
}

async fn drain<B, T>(
    stream: impl Future<Output = CallResult<Response<Streaming<B>>>> + Send,
    items: impl Fn(B) -> Vec<T>,
) -> CallResult<Vec<T>> {
    let mut stream = stream.await?.into_inner();
    let mut list = Vec::new();
    while let Some(batch) = stream.message().await? {
        list.append(&mut items(batch));
    }
    Ok(list)
}
