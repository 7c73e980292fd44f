//! Settings of traces, with the kubelet's names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::flag::Group::Logging as Group;
use crate::config::flag::flag;
use crate::config::form::{As, Count, Form, Maybe};

/// Export of traces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct TraceSettings {
    /// `HOST:PORT`. `None`: nothing is recorded.
    #[serde(rename = "tracing.endpoint", with = "As::<Maybe<Collector>>")]
    #[schemars(
        description = "OpenTelemetry collector to which spans are sent, in OTLP over gRPC without TLS [default: none]",
        extend("imagelet" = flag(Group, "tracing-endpoint").value("HOST:PORT")
            .allowed("the host and port of a collector such as localhost:4317, which is spoken to without TLS"))
    )]
    pub(crate) endpoint: Option<String>,
    #[serde(rename = "tracing.samplingRatePerMillion", with = "As::<Count<u32, 0, 1_000_000>>")]
    #[schemars(
        description = "Of a million traces that begin here, so many are recorded. Those of a client that records them are recorded \
                       whatever the rate is",
        extend("imagelet" = flag(Group, "tracing-sampling-rate-per-million"))
    )]
    pub(crate) sampling_rate: u32,
}

/// The address of a collector, with or without a leading `http://`.
struct Collector;

impl Form for Collector {
    type Of = String;

    fn read(value: serde_json::Value) -> Result<String, String> {
        collector(value.as_str().unwrap_or_default())
    }

    fn write(value: &String) -> serde_json::Value {
        value.as_str().into()
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({"type": "string"})
    }
}

/// Reads the address of a collector.
fn collector(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("http://").unwrap_or(text);
    let url = url::Url::parse(&format!("http://{address}")).map_err(|error| error.to_string())?;
    let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    match address.rsplit_once(':') {
        Some((host, port)) if is_bare && !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0) => {
            Ok(address.to_owned())
        }
        _ => Err("no host and port".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::collector;

    #[test]
    fn a_collector_is_a_host_and_a_port() {
        for (text, want) in [
            ("localhost:4317", Some("localhost:4317")),
            ("http://127.0.0.1:80", Some("127.0.0.1:80")),
            ("[::1]:4317", Some("[::1]:4317")),
            ("https://localhost:4317", None),
            ("localhost", None),
            ("localhost:0", None),
            (":4317", None),
            ("a:4317/v1/traces", None),
            ("user@a:4317", None),
            ("unix:///run/otel.sock", None),
            ("", None),
        ] {
            assert_eq!(collector(text).ok().as_deref(), want, "{text}");
        }
    }
}
