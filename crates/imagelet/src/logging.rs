//! The log on stderr: text or JSON, never torn by progress bars. Our crates log at the requested level, others only warnings. Called by
//! `main`.

use std::fmt;
use std::io::{self, IsTerminal as _, Write};

use tracing::field::Field;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::fmt::format::{self, FmtSpan, Writer};
use tracing_subscriber::fmt::{FormatFields, MakeWriter};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{Config, LogFormat};
use crate::progress::Painter;
use crate::traces::Traces;

/// Stderr for all writers of the process, so that progress bars are suspended while a line is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stderr {
    bars: Option<Painter>,
}

impl Stderr {
    /// Creates a stderr that shares the terminal with these bars.
    pub(crate) fn with_bars(bars: Painter) -> Self {
        Self { bars: Some(bars) }
    }
}

/// Returns the bytes of the log as they are written: characters that could control the terminal are escaped as in JSON. The escape
/// characters that remain are the log's own colours, since those of values have been replaced.
fn shown(bytes: &[u8]) -> String {
    oci::text::escaped(&String::from_utf8_lossy(bytes), &['\n', '\t', '\u{1b}']).into_owned()
}

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = shown(bytes);
        let write = || io::stderr().lock().write_all(text.as_bytes());
        match &self.bars {
            Some(bars) => bars.suspend(write)?,
            None => write()?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Stderr {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// The names of all our crates begin with this.
const OUR_CRATES: &str = "imagelet";

/// The crates of the Kubernetes client. A warning of theirs may have a whole answer of the API server in it, and with it a Secret; our
/// crates report every error of a request themselves.
const KUBERNETES_CLIENT: &str = "kube_";

/// Returns the least severe level that is logged, by the crate of the code.
fn targets(level: LevelFilter) -> Targets {
    let others = Targets::new().with_default(level.min(LevelFilter::WARN));
    others.with_target(KUBERNETES_CLIENT, level.min(LevelFilter::ERROR)).with_target(OUR_CRATES, level)
}

/// Starts the log, and the export of spans if it is configured. Services stamp their lines with the time; commands that a user waits for
/// do so only in detailed logs.
pub(crate) fn start(
    config: &Config,
    level: LevelFilter,
    stderr: Stderr,
    stamped: bool,
    no_color: bool,
    traces: Option<&Traces>,
) {
    let targets = targets(level);
    let our_spans = filter_fn(|metadata| metadata.is_span() && metadata.target().starts_with(OUR_CRATES));
    let registry = tracing_subscriber::registry().with(traces.map(|traces| traces.layer().with_filter(our_spans)));
    let ansi = !no_color && io::stderr().is_terminal();
    // At debug level, the end of a span is logged with its duration. Lines without timestamps have none.
    let details = level >= LevelFilter::DEBUG;
    let spans = if details { FmtSpan::CLOSE } else { FmtSpan::NONE };
    let layer = tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(ansi).with_target(false);
    let layer = layer.with_span_events(spans);
    match (config.log_format, stamped || details) {
        (LogFormat::Json, _) => {
            let layer = layer.json().flatten_event(true).with_current_span(false);
            registry.with(layer.with_filter(targets)).init();
        }
        (LogFormat::Text, true) => registry.with(layer.fmt_fields(fields()).with_filter(targets)).init(),
        (LogFormat::Text, false) => {
            registry.with(layer.fmt_fields(fields()).without_time().with_filter(targets)).init();
        }
    }
}

/// Formats messages and fields of text lines as `tracing` does, with every value escaped: `tracing` itself escapes only messages.
fn fields() -> impl for<'w> FormatFields<'w> + 'static {
    let write = |writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        let (name, value) = (field.name(), format!("{value:?}"));
        let value = oci::text::escaped(&value, &['\t']);
        match name.strip_prefix("r#").unwrap_or(name) {
            // The end of a span is reported as a text in the place of the message, which `Debug` quotes.
            "message" if value == "\"close\"" => writer.write_str("close"),
            "message" => write!(writer, "{value}"),
            name if writer.has_ansi_escapes() => write!(writer, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m{value}"),
            name => write!(writer, "{name}={value}"),
        }
    };
    format::debug_fn(write).delimited(" ")
}

/// Writes plain lines, for commands without a log.
pub(crate) fn note(lines: &[String], stderr: &Stderr) {
    for line in lines {
        // If stderr is closed, there is nowhere to report the error.
        let _ = writeln!(stderr.clone(), "{}", crate::output::table::clean(line));
    }
}

/// Reports why the command failed: plain lines, or records in a JSON log.
pub(crate) fn failure(lines: &[String], format: LogFormat, stderr: &Stderr) {
    for line in lines {
        match format {
            LogFormat::Json => tracing::error!(error = line, "command failed"),
            LogFormat::Text => {
                // If stderr is closed, there is nowhere to report the error.
                let _ = writeln!(stderr.clone(), "error: {}", crate::output::table::clean(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use base::lock::Mutex;
    use std::sync::Arc;

    use super::*;

    /// A buffer in place of stderr.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<String>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().push_str(&shown(bytes));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn kubernetes_client_logs_no_answers() {
        use tracing::Level;
        let targets = targets(LevelFilter::TRACE);
        for (target, warns) in [
            ("kube_client::client", false),
            ("kube_runtime::watcher", false),
            ("hyper_util::client", true),
            ("imagelet_cluster::watch", true),
            ("imagelet_kuberuntime", true),
        ] {
            assert_eq!(targets.would_enable(target, &Level::WARN), warns, "{target}");
            assert!(targets.would_enable(target, &Level::ERROR), "{target}");
        }
        assert!(targets.would_enable("imagelet_cluster::watch", &Level::TRACE));
    }

    /// Untrusted text in messages and fields, both plain and quoted, is escaped.
    #[test]
    fn no_line_of_the_log_drives_a_terminal() {
        let text = "a\n\u{1b}[31m\u{9b}31m\u{85}\u{7f}\u{61c}\u{200e}\u{202e}\u{2066}\r\u{7}z";
        let log = |json: bool, ansi: bool| {
            let kept = Kept::default();
            let writer = kept.clone();
            let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).with_ansi(ansi);
            let log = || tracing::warn!(field = text, display = %text, debug = ?text, "message {text}");
            if json {
                tracing::subscriber::with_default(tracing_subscriber::registry().with(layer.json()), log);
            } else {
                let layer = layer.fmt_fields(fields());
                tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
            }
            kept.0.lock().clone()
        };
        let plain = log(false, false);
        assert!(plain.trim_end().chars().all(oci::text::is_printable), "{plain:?}");
        assert!(plain.contains("\\u202e") && plain.contains("message a"), "{plain:?}");
        let colours = log(false, true);
        let bare = |c: char| !oci::text::is_printable(c) && c != '\u{1b}';
        assert!(!colours.trim_end().contains(bare) && !colours.contains("\u{1b}[31m"), "{colours:?}");
        let json = log(true, false);
        assert!(json.trim_end().chars().all(oci::text::is_printable), "{json:?}");
        let read: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(read["fields"]["message"], format!("message {text}"), "nothing is lost");
    }
}
