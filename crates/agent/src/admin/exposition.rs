//! Metrics as text, in one of two forms: OpenMetrics for clients that ask for it, as Prometheus does, and the older text
//! format for all others, as the kubelet answers. Independent of the metrics. Called by the routes.

use std::fmt::Write as _;

use prometheus_client::registry::Registry;

/// A form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus.
    Text,
}

impl Form {
    /// The form that a request accepts.
    pub(super) fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Text }
    }

    /// The `Content-Type` of the answer.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Returns the current metrics as text. `own_prefix`: names that begin with `kubelet_` begin with `imagelet_`.
    pub(super) fn write(self, registry: &Registry, own_prefix: bool) -> Result<String, std::fmt::Error> {
        let mut text = String::with_capacity(16 << 10);
        prometheus_client::encoding::text::encode(&mut text, registry)?;
        if own_prefix {
            text = renamed(&text);
        }
        match self {
            Self::OpenMetrics => Ok(text),
            Self::Text => older(&text),
        }
    }
}

/// The text with names that begin with `imagelet_` where they began with `kubelet_`.
fn renamed(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for line in text.lines() {
        let name_at =
            ["# HELP ", "# TYPE ", "# UNIT "].iter().find(|head| line.starts_with(**head)).map_or(0, |head| head.len());
        let (head, rest) = line.split_at(name_at);
        out.push_str(head);
        match rest.strip_prefix("kubelet_") {
            Some(name) => {
                out.push_str("imagelet_");
                out.push_str(name);
            }
            None => out.push_str(rest),
        }
        out.push('\n');
    }
    out
}

/// OpenMetrics in the older form: there the suffix of a counter is a part of its name everywhere, whole bounds of
/// buckets have no fraction, and there is neither unit nor end.
fn older(text: &str) -> Result<String, std::fmt::Error> {
    let mut out = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map(|(_, help)| help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            if let Some(help) = help.take() {
                writeln!(out, "# HELP {name}{suffix} {help}")?;
            }
            writeln!(out, "# TYPE {name}{suffix} {kind}")?;
        } else if !line.starts_with('#') {
            match line.split_once(".0\"").filter(|(before, _)| whole_bound(before)) {
                Some((before, after)) => writeln!(out, "{before}\"{after}")?,
                None => writeln!(out, "{line}")?,
            }
        }
    }
    Ok(out)
}

/// Returns true if a sample is one of a bucket up to its bound, and the bound has been whole so far.
fn whole_bound(before: &str) -> bool {
    let bound = before.rsplit_once("_bucket{le=\"").map(|(_, bound)| bound);
    bound.is_some_and(|bound| !bound.is_empty() && bound.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::metrics::info::Info;
    use prometheus_client::registry::Unit;

    use super::*;

    #[test]
    fn metrics_next_to_a_kubelet_have_other_names() {
        let mut registry = Registry::default();
        let counter: Counter = Counter::default();
        counter.inc();
        registry.register("kubelet_runtime_operations", "Calls of a kubelet_like kind", counter);
        let text = Form::Text.write(&registry, true).expect("writes");
        assert_eq!(
            text,
            "# HELP imagelet_runtime_operations_total Calls of a kubelet_like kind.\n\
             # TYPE imagelet_runtime_operations_total counter\nimagelet_runtime_operations_total 1\n"
        );
        assert!(Form::Text.write(&registry, false).expect("writes").contains("\nkubelet_runtime_operations_total 1\n"));
    }

    #[test]
    fn prometheus_gets_what_it_asks_for() {
        let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        assert_eq!(Form::accepted(accept), Form::OpenMetrics);
        for accept in ["", "*/*", "text/plain", "application/json"] {
            assert_eq!(Form::accepted(accept), Form::Text, "{accept}");
        }
    }

    fn registry() -> Registry {
        let mut registry = Registry::default();
        let counter = Family::<[(&str, &str); 1], Counter>::default();
        counter.get_or_create(&[("what", "a \"1.0\" }")]).inc();
        registry.register("x_requests", "Requests", counter);
        let histogram = Histogram::new([0.5, 1.0, 2.25, 60.0]);
        histogram.observe(1.5);
        registry.register("x_seconds", "Time", histogram);
        registry.register_with_unit("x_size", "Size", Unit::Bytes, Gauge::<i64>::default());
        registry.register("x_build", "Version", Info::new([("version", "1.0")]));
        registry
    }

    #[test]
    fn open_metrics() {
        let want = "\
# HELP x_requests Requests.
# TYPE x_requests counter
x_requests_total{what=\"a \\\"1.0\\\" }\"} 1
# HELP x_seconds Time.
# TYPE x_seconds histogram
x_seconds_sum 1.5
x_seconds_count 1
x_seconds_bucket{le=\"0.5\"} 0
x_seconds_bucket{le=\"1.0\"} 0
x_seconds_bucket{le=\"2.25\"} 1
x_seconds_bucket{le=\"60.0\"} 1
x_seconds_bucket{le=\"+Inf\"} 1
# HELP x_size_bytes Size.
# TYPE x_size_bytes gauge
# UNIT x_size_bytes bytes
x_size_bytes 0
# HELP x_build Version.
# TYPE x_build info
x_build_info{version=\"1.0\"} 1
# EOF
";
        assert_eq!(Form::OpenMetrics.write(&registry(), false).expect("text"), want);
    }

    #[test]
    fn the_older_text() {
        let want = "\
# HELP x_requests_total Requests.
# TYPE x_requests_total counter
x_requests_total{what=\"a \\\"1.0\\\" }\"} 1
# HELP x_seconds Time.
# TYPE x_seconds histogram
x_seconds_sum 1.5
x_seconds_count 1
x_seconds_bucket{le=\"0.5\"} 0
x_seconds_bucket{le=\"1\"} 0
x_seconds_bucket{le=\"2.25\"} 1
x_seconds_bucket{le=\"60\"} 1
x_seconds_bucket{le=\"+Inf\"} 1
# HELP x_size_bytes Size.
# TYPE x_size_bytes gauge
x_size_bytes 0
# HELP x_build_info Version.
# TYPE x_build_info gauge
x_build_info{version=\"1.0\"} 1
";
        assert_eq!(Form::Text.write(&registry(), false).expect("text"), want);
    }
}
