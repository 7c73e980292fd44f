//! The log on stderr: text or JSON, never torn by progress bars. Our crates log at the level that was asked for, others
//! only warnings. Called by `main`.

use std::io::{self, IsTerminal as _, Write};

use indicatif::MultiProgress;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{Config, LogFormat, LogLevel};

/// Everything that writes to stderr goes through here, so that bars step aside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stderr {
    bars: Option<MultiProgress>,
}

impl Stderr {
    /// Stderr that shares the terminal with these bars.
    pub(crate) fn with_bars(bars: MultiProgress) -> Self {
        Self { bars: Some(bars) }
    }
}

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let write = || io::stderr().lock().write_all(bytes);
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

/// Starts the log. Services stamp their lines with the time; commands that a person waits for do only in detail.
pub(crate) fn start(config: &Config, stderr: Stderr, stamped: bool, no_color: bool) {
    let level = match config.log_level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // The names of all our crates begin with this.
    let targets = Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("imagelet", level);
    let registry = tracing_subscriber::registry().with(targets);
    let ansi = !no_color && io::stderr().is_terminal();
    // How long requests and waits took is told when they end, to those who want details. Lines without time have none.
    let details = level >= LevelFilter::DEBUG;
    let spans = if details { FmtSpan::CLOSE } else { FmtSpan::NONE };
    let layer = tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(ansi).with_target(false);
    let layer = layer.with_span_events(spans);
    match (config.log_format, stamped || details) {
        (LogFormat::Json, _) => registry.with(layer.json().flatten_event(true).with_current_span(false)).init(),
        (LogFormat::Text, true) => registry.with(layer).init(),
        (LogFormat::Text, false) => registry.with(layer.without_time()).init(),
    }
}

/// Tells people why the command failed: plain lines, or records in a JSON log.
pub(crate) fn failure(lines: &[String], format: LogFormat, stderr: &Stderr) {
    for line in lines {
        match format {
            LogFormat::Json => tracing::error!("{line}"),
            LogFormat::Text => {
                // Where stderr is gone there is nobody to tell.
                let _ = writeln!(stderr.clone(), "error: {}", crate::output::table::clean(line));
            }
        }
    }
}
