//! Progress of pulls and checks on stderr: on a terminal, a bar per layer with rate and remaining time, or one for a check; elsewhere, one
//! log line per change of state. For display only. Called by `pull`, `ensure` and `check`, which pass its sinks to the service.

mod frame;
mod painter;

use base::lock::Mutex;
use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicU64, Ordering};

use cri_api::engine::{CheckProgress, CheckSink};
use cri_api::{LayerState, ProgressSink, PullEvent, SourceBytes};
use oci::Digest;

use crate::output::units;
use frame::{CheckView, PullView, View};
pub(crate) use painter::Painter;

/// The progress that the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Bars on a terminal, lines elsewhere
    Auto,
    /// Bars
    Tty,
    /// A line per change of state
    Plain,
    /// Nothing
    None,
}

/// Shows the progress of several pulls at the same time.
#[derive(Clone, Debug)]
pub(crate) enum Progress {
    Bars(Painter),
    Lines,
    Nothing,
}

impl Progress {
    /// Decides how to show progress. A dumb terminal gets lines.
    pub(crate) fn new(mode: Mode, quiet: bool, dumb: bool) -> Self {
        match mode {
            Mode::None => Self::Nothing,
            Mode::Tty => Self::Bars(Painter::default()),
            Mode::Plain => Self::Lines,
            Mode::Auto if quiet => Self::Nothing,
            Mode::Auto if !dumb && std::io::stderr().is_terminal() => Self::Bars(Painter::default()),
            Mode::Auto => Self::Lines,
        }
    }

    /// Returns the bars, for other writers to the same terminal.
    pub(crate) fn bars(&self) -> Option<Painter> {
        match self {
            Self::Bars(bars) => Some(bars.clone()),
            Self::Lines | Self::Nothing => None,
        }
    }

    /// Returns a sink for the pull of one image.
    pub(crate) fn sink(&self, image: &str) -> ProgressSink {
        let image = oci::text::printable(image, '?', &[]).into_owned();
        match self {
            Self::Nothing => ProgressSink::default(),
            Self::Lines => {
                let pull = Mutex::new(PlainPull { image, sizes: HashMap::new() });
                ProgressSink::new(move |event| pull.lock().report(event))
            }
            Self::Bars(bars) => {
                let shown = bars.begin(View::Pull(PullView::new(image)));
                ProgressSink::new(move |event| shown.report(event))
            }
        }
    }

    /// Returns a sink for a check of the store.
    pub(crate) fn check_sink(&self) -> CheckSink {
        match self {
            Self::Nothing => CheckSink::default(),
            Self::Lines => plain_check(),
            Self::Bars(bars) => {
                let shown = bars.begin(View::Check(CheckView::default()));
                CheckSink::new(move |progress| shown.report_check(progress))
            }
        }
    }

    /// Removes the display from the terminal.
    pub(crate) fn finish(&self) {
        if let Self::Bars(bars) = self {
            bars.finish();
        }
    }
}

/// Returns a sink that logs a line after every tenth of a check.
fn plain_check() -> CheckSink {
    let logged = AtomicU64::new(0);
    CheckSink::new(move |progress| {
        let CheckProgress { layers, layers_total, bytes, bytes_total } = progress;
        let tenth = bytes.saturating_mul(10).checked_div(bytes_total).unwrap_or(0);
        if logged.fetch_max(tenth, Ordering::Relaxed) < tenth {
            tracing::info!(bytes, bytes_total, layers, layers_total, "checking");
        }
    })
}

fn word(state: LayerState) -> &'static str {
    match state {
        LayerState::Waiting => "waiting",
        LayerState::Fetching => "fetching",
        LayerState::Unpacking => "unpacking",
        LayerState::WaitingForOther => "waiting for another pull",
        LayerState::Present => "present",
        LayerState::Done => "done",
    }
}

/// The progress of a pull as lines, one per change of state.
struct PlainPull {
    image: String,
    sizes: HashMap<Digest, u64>,
}

impl PlainPull {
    fn report(&mut self, event: PullEvent) {
        let image = &self.image;
        match event {
            PullEvent::Resolved { digest, layers } => {
                let total: u64 = layers.iter().map(|(_, size)| size).sum();
                tracing::info!(
                    "{image}: resolved to {digest}: {}, {}",
                    units::count(layers.len() as u64, "layer"),
                    units::bytes(total)
                );
                self.sizes = layers.into_iter().collect();
            }
            PullEvent::Resolving
            | PullEvent::Layer { state: LayerState::Waiting, .. }
            | PullEvent::Bytes { .. }
            | PullEvent::Unpacked { .. } => {}
            PullEvent::Sources { sources } => {
                let from = |source: &SourceBytes| format!("{} from {}", units::bytes(source.bytes), source.host);
                if sources.iter().any(|source| source.mirror) {
                    let all: Vec<String> = sources.iter().map(from).collect();
                    tracing::info!("{image}: received {}", all.join(", "));
                }
            }
            PullEvent::Layer { digest, state } => {
                let size = self.sizes.get(&digest).map(|s| format!(" ({})", units::bytes(*s))).unwrap_or_default();
                tracing::info!("{image}: layer {} {}{size}", digest.short(), word(state));
            }
            PullEvent::Committing => tracing::info!("{image}: committing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dumb_terminal_and_a_quiet_command_get_no_bars() {
        assert!(matches!(Progress::new(Mode::Auto, true, false), Progress::Nothing));
        assert!(matches!(Progress::new(Mode::Auto, false, true), Progress::Lines));
        assert!(matches!(Progress::new(Mode::Tty, true, true), Progress::Bars(_)));
        assert!(matches!(Progress::new(Mode::None, false, false), Progress::Nothing));
    }
}
