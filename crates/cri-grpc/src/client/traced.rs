//! [`TracedChannel`]: the channel of a client, with a span around each call that is named as the call, and the span's context in the
//! request's metadata. Where no span is recorded it is the channel alone. Called by the clients through [`super::call`].

use std::task::{Context, Poll};

use base::trace_context;
use futures::future::{BoxFuture, Either, FutureExt as _};
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::transport::{Channel, Error};
use tower::Service;
use tracing::{Instrument as _, Span, field};

/// Header, and with an answer without messages the only place, of a call's status.
const STATUS: &str = "grpc-status";

type ChannelFuture = <Channel as Service<Request<Body>>>::Future;
type Answer = Result<Response<Body>, Error>;

/// A channel whose calls have spans. Clones share the connection.
#[derive(Clone)]
pub(super) struct TracedChannel(pub(super) Channel);

impl Service<Request<Body>> for TracedChannel {
    type Response = Response<Body>;
    type Error = Error;
    type Future = Either<ChannelFuture, BoxFuture<'static, Answer>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Service::<Request<Body>>::poll_ready(&mut self.0, context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let span = span(request.uri().path());
        if span.is_disabled() {
            return Either::Left(self.0.call(request));
        }
        trace_context::inject(&span, request.headers_mut());
        let call = self.0.call(request);
        let recorded = span.clone();
        Either::Right(call.inspect(move |answer| record(&recorded, answer)).instrument(span).boxed())
    }
}

fn span(path: &str) -> Span {
    let name = path.trim_start_matches('/');
    let (service, method) = name.split_once('/').unwrap_or_default();
    tracing::trace_span!(
        "cri_call",
        otel.name = name,
        otel.kind = "client",
        otel.status_code = field::Empty,
        rpc.system = "grpc",
        rpc.service = service,
        rpc.method = method,
        rpc.grpc.status_code = field::Empty,
    )
}

fn record(span: &Span, answer: &Answer) {
    let status = match answer {
        // The status of an answer with messages follows them, when this span has ended; errors have no messages.
        Ok(answer) => answer.headers().get(STATUS).and_then(|status| status.to_str().ok()?.parse::<i64>().ok()),
        Err(_) => Some(i64::from(tonic::Code::Unavailable as i32)),
    };
    if let Some(status) = status.filter(|status| *status != 0) {
        span.record("rpc.grpc.status_code", status);
        span.record("otel.status_code", "ERROR");
    }
}
