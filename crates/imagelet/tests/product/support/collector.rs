//! An OpenTelemetry collector: takes spans in OTLP over gRPC on loopback, and keeps them. What it speaks is HTTP/2 with gRPC's frames,
//! read by hand, and the messages of OpenTelemetry.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use base::lock::Mutex;
use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;

/// Bytes before each message of gRPC: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// A received span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Empty for a root.
    pub(crate) parent: String,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) failed: bool,
}

/// The collector. Its thread lives as long as the test's process.
pub(crate) struct Collector {
    address: String,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    /// Starts one in the network of this thread.
    #[track_caller]
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen on loopback");
        let address = listener.local_addr().expect("it listens").to_string();
        let spans = Arc::<Mutex<Vec<Span>>>::default();
        let kept = Arc::clone(&spans);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(serve(listener, kept));
        });
        Self { address, spans }
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the spans that were received so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.spans.lock().clone()
    }
}

async fn serve(listener: TcpListener, spans: Arc<Mutex<Vec<Span>>>) {
    listener.set_nonblocking(true).expect("a socket");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
    while let Ok((stream, _)) = listener.accept().await {
        let spans = Arc::clone(&spans);
        let service = service_fn(move |request| take(request, Arc::clone(&spans)));
        tokio::spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service));
    }
}

type Body = StreamBody<stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

async fn take(request: Request<Incoming>, spans: Arc<Mutex<Vec<Span>>>) -> Result<Response<Body>, hyper::Error> {
    assert_eq!(request.uri().path(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    let body = request.into_body().collect().await?.to_bytes();
    assert_eq!(body[0], 0, "not compressed");
    let message = ExportTraceServiceRequest::decode(&body[PREFIX..]).expect("spans");
    spans.lock().extend(read(message));
    let mut status = HeaderMap::new();
    status.insert("grpc-status", HeaderValue::from_static("0"));
    let empty = Frame::data(Bytes::from_static(&[0; PREFIX]));
    let mut answer = Response::new(StreamBody::new(stream::iter(vec![Ok(empty), Ok(Frame::trailers(status))])));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(answer)
}

fn read(message: ExportTraceServiceRequest) -> impl Iterator<Item = Span> {
    let scopes = message.resource_spans.into_iter().flat_map(|of_resource| of_resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).map(|span| Span {
        name: span.name,
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        attributes: span
            .attributes
            .into_iter()
            .map(|attribute| {
                let value = match attribute.value.and_then(|value| value.value) {
                    Some(Value::StringValue(text)) => text,
                    Some(Value::IntValue(number)) => number.to_string(),
                    other => format!("{other:?}"),
                };
                (attribute.key, value)
            })
            .collect(),
        failed: span.status.is_some_and(|status| status.code == 2),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
