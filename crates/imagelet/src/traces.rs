//! [`Traces`]: export of the spans of this process to an OpenTelemetry collector, in OTLP over gRPC without TLS, as in the kubelet.
//! Inactive if no collector is configured. An unavailable collector never blocks work: the queue is bounded, and spans that do not fit are
//! dropped and counted. Called by `main`, the log, and the commands that serve metrics.

mod count;

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{KeyValue, global};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider};
use prometheus_client::registry::Registry;
use tracing::Subscriber;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::registry::LookupSpan;

use crate::config::settings::traces::TraceSettings;
use crate::exit::{Code, Failure, Outcome};
use count::{BoundedProcessor, CountedExporter, QUEUE, SpanCounts};

/// Name of the program in traces.
const SERVICE: &str = "imagelet";
/// Timeout of one export.
const EXPORT_TIME: Duration = Duration::from_secs(5);
/// Interval at which spans are sent, unless there are many.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Time that the end of the process waits for the last export.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// Denominator of sampling rates.
const MILLION: f64 = 1_000_000.0;

/// Exports spans until it is closed.
#[derive(Clone, Debug)]
pub(crate) struct Traces {
    provider: SdkTracerProvider,
    counts: Arc<SpanCounts>,
}

impl Traces {
    /// Starts the export, if the configuration names a collector. Must be called within the async runtime, which carries the connection.
    pub(crate) fn start(settings: &TraceSettings) -> Outcome<Option<Self>> {
        let Some(endpoint) = &settings.endpoint else { return Ok(None) };
        let failed = |error| Failure::caused(Code::Config, format!("tracing.endpoint {endpoint}"), &error);
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(format!("http://{endpoint}"))
            .with_timeout(EXPORT_TIME)
            .build()
            .map_err(failed)?;
        let counts = Arc::new(SpanCounts::default());
        let exporter = CountedExporter::new(exporter, endpoint.clone(), Arc::clone(&counts));
        let batches =
            BatchConfigBuilder::default().with_max_queue_size(QUEUE).with_scheduled_delay(EXPORT_INTERVAL).build();
        let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
        let rate = f64::from(settings.sampling_rate) / MILLION;
        let of_node = [
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("host.name", agent::node::machine::host_name()),
        ];
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BoundedProcessor::new(processor, Arc::clone(&counts)))
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(rate))))
            .with_resource(Resource::builder_empty().with_service_name(SERVICE).with_attributes(of_node).build())
            .build();
        global::set_text_map_propagator(TraceContextPropagator::new());
        Ok(Some(Self { provider, counts }))
    }

    /// Returns the layer that hands spans to the export.
    pub(crate) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> OpenTelemetryLayer<S, SdkTracer> {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer(SERVICE))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
    }

    /// Registers the counts of spans.
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.counts.register(registry);
    }

    /// Sends the remaining spans, for a second at most. Must be called outside of the async runtime, and before it ends.
    pub(crate) fn close(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(CLOSE_TIME) {
            tracing::debug!(%error, "the last spans were not exported");
        }
    }
}
