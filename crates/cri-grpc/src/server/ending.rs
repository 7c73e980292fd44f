//! The end of a server, in steps that a client need not notice. The nature of a call decides how it ends; this module holds no
//! connection and no socket.
//!
//! 1. *Draining*: everything is answered as before, until no long call is open, or the grace is over.
//! 2. *Closing*: no new calls. Open long calls that may be repeated are given back: HTTP/2's `REFUSED_STREAM` informs the
//!    client that they have not been processed, and gRPC sends them once more over a new connection by itself. A kubelet gets no
//!    error for which it would back off. Streams without an end are ended.
//! 3. *Over*: the rest is given back, or, where it must not be repeated, ends with `Unavailable`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Frame;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::codegen::http::Response;

/// The answer as the transport sends it; an error resets the stream with its reason.
pub(super) type Sent = Result<Response<Body>, h2::Error>;

/// Calls that are answered soon, and whose answer is the same, or none the worse, when they are made again. What is not in a
/// list here is made once.
const SHORT: [&str; 29] = [
    "Attach",
    "ContainerStats",
    "ContainerStatus",
    "Exec",
    "ImageFsInfo",
    "ImageStatus",
    "ListContainerStats",
    "ListContainers",
    "ListImages",
    "ListMetricDescriptors",
    "ListPodSandbox",
    "ListPodSandboxMetrics",
    "ListPodSandboxStats",
    "PodSandboxStats",
    "PodSandboxStatus",
    "PortForward",
    "RemoveContainer",
    "RemoveImage",
    "RemovePodSandbox",
    "ReopenContainerLog",
    "RuntimeConfig",
    "Status",
    "StreamContainerStats",
    "StreamContainers",
    "StreamImages",
    "StreamPodSandboxMetrics",
    "StreamPodSandboxStats",
    "StreamPodSandboxes",
    "Version",
];
/// Calls that may take minutes, and have the same result when they are made again.
const LONG: [&str; 3] = ["PullImage", "StopContainer", "StopPodSandbox"];

/// A call as the end of the server concerns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallNature {
    /// Answered soon, and may be repeated.
    Short,
    /// May take long, and may be repeated.
    Long,
    /// Must not be repeated, however long it takes.
    Once,
    /// A stream that the client ends.
    Endless,
}

impl CallNature {
    /// The nature of `package.service/call`.
    pub(super) fn of(name: &str) -> Self {
        match name.rsplit('/').next().unwrap_or_default() {
            "GetContainerEvents" => Self::Endless,
            call if LONG.contains(&call) => Self::Long,
            call if SHORT.contains(&call) => Self::Short,
            _ => Self::Once,
        }
    }

    /// Returns true if shutdown waits for such calls.
    fn delays_shutdown(self) -> bool {
        matches!(self, Self::Long | Self::Once)
    }
}

/// The step of the server's end, and the calls that it waits for.
#[derive(Clone, Default)]
pub(super) struct Ending {
    /// No new calls from here on.
    pub(super) closing: CancellationToken,
    /// No calls from here on.
    pub(super) over: CancellationToken,
    /// The number of open calls that are worth waiting for.
    open: Arc<watch::Sender<usize>>,
}

impl Ending {
    /// Returns the same for the calls of one connection, which closes with `leaving`: a call must not be given back before its client
    /// knows that the connection ends, or the client repeats it on the same one.
    pub(super) fn of_connection(&self, leaving: CancellationToken) -> Self {
        Self { closing: leaving, ..self.clone() }
    }

    /// Returns when no call is open that is worth waiting for, at the latest after `grace`.
    pub(super) async fn drained(&self, grace: Duration) {
        let mut open = self.open.subscribe();
        // The sender is our own.
        let _ = tokio::time::timeout(grace, open.wait_for(|open| *open == 0)).await;
    }

    /// The number of open calls that are worth waiting for.
    pub(super) fn open(&self) -> usize {
        *self.open.borrow()
    }

    /// Runs a call to its answer, or to the step at which calls of its nature end.
    pub(super) async fn until(
        &self,
        nature: CallNature,
        name: &str,
        answer: impl Future<Output = Response<Body>>,
    ) -> Sent {
        let _open = nature.delays_shutdown().then(|| OpenCall::new(&self.open));
        let step = if nature == CallNature::Long { &self.closing } else { &self.over };
        // A call that arrives after the step does not begin.
        if !step.is_cancelled() {
            tokio::select! {
                biased;
                answer = answer => return Ok(answer),
                () = step.cancelled() => {}
            }
        }
        match nature {
            CallNature::Once => {
                tracing::warn!(call = name, "server is shutting down, ending the call");
                Ok(Status::unavailable(format!("{name}: the server is restarting")).into_http())
            }
            CallNature::Short | CallNature::Long | CallNature::Endless => {
                tracing::info!(call = name, "server is shutting down, returning the call to its client");
                Err(h2::Reason::REFUSED_STREAM.into())
            }
        }
    }

    /// The answer to a passed call: a stream without an end gets one when the server closes.
    pub(super) fn ended_with(&self, nature: CallNature, answer: Response<Body>) -> Response<Body> {
        if nature != CallNature::Endless {
            return answer;
        }
        let end = Box::pin(self.closing.clone().cancelled_owned());
        answer.map(|body| Body::new(EndingBody { body, end: Some(end) }))
    }
}

/// Counts a call while it is open.
struct OpenCall(Arc<watch::Sender<usize>>);

impl OpenCall {
    fn new(open: &Arc<watch::Sender<usize>>) -> Self {
        open.send_modify(|open| *open += 1);
        Self(Arc::clone(open))
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

/// A body that ends with `Unavailable` when the server closes.
struct EndingBody {
    body: Body,
    /// `None` once the body has ended.
    end: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl hyper::body::Body for EndingBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        if end.as_mut().poll(cx).is_pending() {
            return Pin::new(&mut self.body).poll_frame(cx);
        }
        self.end = None;
        let status = Status::unavailable("the server is restarting").into_http::<Body>();
        Poll::Ready(Some(Ok(Frame::trailers(status.into_parts().0.headers))))
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none() || self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn natures() {
        let cases = [
            ("runtime.v1.ImageService/PullImage", CallNature::Long),
            ("runtime.v1.ImageService/ListImages", CallNature::Short),
            ("runtime.v1.RuntimeService/StopPodSandbox", CallNature::Long),
            ("runtime.v1.RuntimeService/RunPodSandbox", CallNature::Once),
            ("runtime.v1.RuntimeService/GetContainerEvents", CallNature::Endless),
            ("runtime.v1.RuntimeService/RemoveContainer", CallNature::Short),
            ("runtime.v1.RuntimeService/CallToCome", CallNature::Once),
            ("", CallNature::Once),
        ];
        for (name, want) in cases {
            assert_eq!(CallNature::of(name), want, "{name}");
        }
    }

    #[tokio::test]
    async fn calls_end_at_their_shutdown_step() {
        let ending = Ending::default();
        let never = std::future::pending::<Response<Body>>;
        let mut long = Box::pin(ending.until(CallNature::Long, "a/PullImage", never()));
        let mut once = Box::pin(ending.until(CallNature::Once, "a/ExecSync", never()));
        let mut short = Box::pin(ending.until(CallNature::Short, "a/ListImages", never()));
        for call in [&mut long, &mut once, &mut short] {
            assert!(futures::poll!(call).is_pending());
        }
        assert_eq!(ending.open(), 2);
        ending.closing.cancel();
        assert_eq!(long.await.expect_err("given back").reason(), Some(h2::Reason::REFUSED_STREAM));
        assert!(futures::poll!(&mut once).is_pending() && futures::poll!(&mut short).is_pending());
        ending.over.cancel();
        assert_eq!(short.await.expect_err("given back").reason(), Some(h2::Reason::REFUSED_STREAM));
        let status = Status::from_header_map(once.await.expect("an answer").headers()).expect("a status");
        assert_eq!(
            (status.code(), status.message()),
            (tonic::Code::Unavailable, "a/ExecSync: the server is restarting")
        );
        assert_eq!(ending.open(), 0);
        ending.drained(Duration::MAX).await;
    }
}
