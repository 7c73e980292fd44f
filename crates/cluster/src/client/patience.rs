//! [`Patience`]: limits on the time of an answer. Its head has a limit for every request; its body has one between two parts, unless
//! the request is a watch, which may be silent for long and whose connection is pinged. After a `Retry-After` the server is not asked
//! before that time: its refusal is returned then. A layer of [`super::connect`].

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tower::{BoxError, Service};

/// Longest time until the head of an answer, and between two parts of its body.
const SILENCE: Duration = Duration::from_secs(30);

/// Upper bound of the wait that a server's `Retry-After` imposes.
const LATER: Duration = Duration::from_secs(30);

/// The API server stopped answering.
#[derive(Debug, thiserror::Error)]
#[error("no answer from the API server for {} s", SILENCE.as_secs())]
pub(super) struct Silent;

/// Longest time of a heartbeat, with everything that belongs to it.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Returns the answer to a heartbeat, or to another short request, which should fail rather than be late.
pub async fn within<T>(answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    let late = |_| kube::Error::Service(format!("no answer from the API server for {} s", HEARTBEAT.as_secs()).into());
    tokio::time::timeout(HEARTBEAT, answer).await.map_err(late)?
}

/// A service whose answers are waited for only so long.
#[derive(Clone, Debug)]
pub(super) struct Patience<S> {
    inner: S,
}

impl<S> Patience<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner }
    }
}

impl<S, Q, B> Service<Request<Q>> for Patience<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Send,
{
    type Response = Response<PatientBody<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let limited = !is_watch(request.uri().query().unwrap_or_default());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = tokio::time::timeout(SILENCE, answer).await.map_err(|_| Silent)?.map_err(Into::into)?;
            tokio::time::sleep(retry_after(&answer)).await;
            let silence = limited.then(|| Box::pin(tokio::time::sleep(SILENCE)));
            Ok(answer.map(|body| PatientBody { body: Box::pin(body), silence }))
        })
    }
}

/// Returns the pause that a refusing server asks for.
fn retry_after<B>(answer: &Response<B>) -> Duration {
    let refused = matches!(answer.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let header = answer.headers().get(http::header::RETRY_AFTER).filter(|_| refused);
    let seconds = header.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    seconds.map_or(Duration::ZERO, |seconds| Duration::from_secs(seconds).min(LATER))
}

/// Returns true if the query asks for a watch.
fn is_watch(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "follow=true"))
}

/// A body that may be silent only for so long.
pub(super) struct PatientBody<B> {
    body: Pin<Box<B>>,
    /// Ends the body; `None`: may be silent.
    silence: Option<Pin<Box<Sleep>>>,
}

impl<B> Body for PatientBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = this.body.as_mut().poll_frame(cx) {
            if let Some(silence) = &mut this.silence {
                silence.as_mut().reset(Instant::now() + SILENCE);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let over = this.silence.as_mut().is_some_and(|silence| silence.as_mut().poll(cx).is_ready());
        if over { Poll::Ready(Some(Err(Silent.into()))) } else { Poll::Pending }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
#[path = "patience_tests.rs"]
mod tests;
