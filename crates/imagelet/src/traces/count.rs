//! Counts of spans that were exported, failed or dropped, as a metric, and one log line each time the collector becomes unavailable or
//! available again. Called by [`super::Traces`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Maximum number of spans that wait for their export.
pub(super) const QUEUE: usize = 2048;

/// Counts of spans.
#[derive(Debug, Default)]
pub(super) struct SpanCounts {
    /// Spans that wait for their export.
    waiting: AtomicUsize,
    by_outcome: Family<[(&'static str, &'static str); 1], Counter>,
}

impl SpanCounts {
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Spans that were recorded, by outcome: exported, failed (the collector did not take them), dropped (too many waited)";
        registry.register("imagelet_trace_spans", help, self.by_outcome.clone());
    }

    fn add(&self, outcome: &'static str, spans: usize) {
        self.by_outcome.get_or_create(&[("outcome", outcome)]).inc_by(spans as u64);
    }
}

/// Forwards spans while fewer than [`QUEUE`] are waiting.
#[derive(Debug)]
pub(super) struct BoundedProcessor {
    inner: BatchSpanProcessor,
    counts: Arc<SpanCounts>,
}

impl BoundedProcessor {
    pub(super) fn new(inner: BatchSpanProcessor, counts: Arc<SpanCounts>) -> Self {
        Self { inner, counts }
    }
}

impl SpanProcessor for BoundedProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        if self.counts.waiting.fetch_add(1, Ordering::Relaxed) >= QUEUE {
            self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
            self.counts.add("dropped", 1);
            return;
        }
        self.inner.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// An exporter that counts spans, and logs when its collector becomes unavailable or available again.
#[derive(Debug)]
pub(super) struct CountedExporter<E> {
    inner: E,
    endpoint: String,
    counts: Arc<SpanCounts>,
    is_away: AtomicBool,
}

impl<E> CountedExporter<E> {
    pub(super) fn new(inner: E, endpoint: String, counts: Arc<SpanCounts>) -> Self {
        Self { inner, endpoint, counts, is_away: AtomicBool::new(false) }
    }
}

impl<E: SpanExporter> SpanExporter for CountedExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.counts.waiting.fetch_sub(spans, Ordering::Relaxed);
        let result = self.inner.export(batch).await;
        self.counts.add(if result.is_ok() { "exported" } else { "failed" }, spans);
        let was_away = self.is_away.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Err(error) if !was_away => tracing::warn!(endpoint = self.endpoint, %error, "traces are not exported"),
            Ok(()) if was_away => tracing::info!(endpoint = self.endpoint, "traces are exported again"),
            _ => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
