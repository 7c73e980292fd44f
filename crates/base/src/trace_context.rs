//! W3C trace context in the headers of requests: a span's context is sent with a request, and the span of a served call follows
//! the one that was received. Without a propagator, which the program installs where traces are exported, nothing is written or
//! read. Called by the clients and servers of CRI and by the registry client.

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::global::get_text_map_propagator;
use opentelemetry::propagation::{Extractor, Injector};
use opentelemetry::trace::TraceContextExt as _;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Writes the context of `span` into the headers of a request (`traceparent`, `tracestate`), in place of existing ones.
pub fn inject(span: &Span, headers: &mut HeaderMap) {
    if span.is_disabled() {
        return;
    }
    let context = span.context();
    if context.span().span_context().is_valid() {
        get_text_map_propagator(|propagator| propagator.inject_context(&context, &mut WrittenHeaders(headers)));
    }
}

/// Makes `span`, which nothing has used yet, a part of the trace that the headers of a served request name, if they do.
pub fn follow(span: &Span, headers: &HeaderMap) {
    if span.is_disabled() {
        return;
    }
    let context = get_text_map_propagator(|propagator| propagator.extract(&ReadHeaders(headers)));
    if context.span().span_context().is_valid() {
        // Without a layer that exports, the span has no context: there is nothing to follow.
        let _ = span.set_parent(context);
    }
}

struct WrittenHeaders<'a>(&'a mut HeaderMap);

impl Injector for WrittenHeaders<'_> {
    fn set(&mut self, key: &str, value: String) {
        // An empty state is none.
        if value.is_empty() {
            return;
        }
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

struct ReadHeaders<'a>(&'a HeaderMap);

impl Extractor for ReadHeaders<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}
