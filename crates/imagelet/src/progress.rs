//! Progress of pulls on stderr: a bar per layer with rate and remaining time on a terminal, one log line per change of
//! state elsewhere. Purely for eyes. Called by `pull` and `ensure`, which hand its sinks to the service.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cri_api::{LayerState, ProgressSink, PullEvent};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use oci::Digest;

use crate::output::units;

/// How often bars are drawn.
const TICK: Duration = Duration::from_millis(120);
/// More bars than this would not fit a terminal: further layers are only counted.
const MAX_BARS: usize = 24;

/// What the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Bars on a terminal, lines elsewhere
    Auto,
    /// Bars
    Tty,
    /// One line per change of state
    Plain,
    /// Nothing
    None,
}

/// Shows the progress of several pulls at the same time.
#[derive(Clone, Debug)]
pub(crate) enum Progress {
    Bars(MultiProgress),
    Lines,
    Nothing,
}

impl Progress {
    /// Decides how to show it.
    pub(crate) fn new(mode: Mode, quiet: bool) -> Self {
        match mode {
            Mode::None => Self::Nothing,
            Mode::Tty => Self::bars(),
            Mode::Plain => Self::Lines,
            Mode::Auto if quiet => Self::Nothing,
            Mode::Auto if std::io::stderr().is_terminal() => Self::bars(),
            Mode::Auto => Self::Lines,
        }
    }

    fn bars() -> Self {
        Self::Bars(MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10)))
    }

    /// The bars, for whoever else writes to the terminal.
    pub(crate) fn multi(&self) -> Option<MultiProgress> {
        match self {
            Self::Bars(bars) => Some(bars.clone()),
            Self::Lines | Self::Nothing => None,
        }
    }

    /// A sink for the pull of one image.
    pub(crate) fn sink(&self, image: &str) -> ProgressSink {
        let image = image.to_owned();
        match self {
            Self::Nothing => ProgressSink::default(),
            Self::Lines => {
                let pull = Mutex::new(PlainPull { image, sizes: HashMap::new() });
                ProgressSink::new(move |event| lock(&pull).tell(event))
            }
            Self::Bars(bars) => {
                let pull = Arc::new(Mutex::new(BarPull::new(image, bars.clone())));
                ProgressSink::new(move |event| lock(&pull).tell(event))
            }
        }
    }

    /// Takes everything off the terminal.
    pub(crate) fn finish(&self) {
        if let Self::Bars(bars) = self {
            // Where the terminal is gone there is nothing to clear.
            let _ = bars.clear();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Drawing holds no state that a panic could leave half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

/// One line per change of state.
struct PlainPull {
    image: String,
    sizes: HashMap<Digest, u64>,
}

impl PlainPull {
    fn tell(&mut self, event: PullEvent) {
        let image = &self.image;
        match event {
            PullEvent::Resolved { digest, layers } => {
                let total: u64 = layers.iter().map(|(_, size)| size).sum();
                tracing::info!("{image}: resolved to {digest}: {} layers, {}", layers.len(), units::bytes(total));
                self.sizes = layers.into_iter().collect();
            }
            PullEvent::Layer { state: LayerState::Waiting, .. } | PullEvent::Bytes { .. } => {}
            PullEvent::Layer { digest, state } => {
                let size = self.sizes.get(&digest).map(|s| format!(" ({})", units::bytes(*s))).unwrap_or_default();
                tracing::info!("{image}: layer {} {}{size}", digest.short(), word(state));
            }
            PullEvent::Committing => tracing::info!("{image}: committing"),
        }
    }
}

/// A line for the image, and below it a bar for every layer at work.
struct BarPull {
    image: String,
    multi: MultiProgress,
    head: ProgressBar,
    layers: HashMap<Digest, LayerBar>,
    total: usize,
    finished: usize,
    shown: usize,
}

struct LayerBar {
    size: u64,
    state: LayerState,
    bar: Option<ProgressBar>,
}

impl BarPull {
    fn new(image: String, multi: MultiProgress) -> Self {
        let head = multi.add(ProgressBar::new_spinner().with_style(style("{spinner} {prefix} {msg}")));
        head.set_prefix(image.clone());
        head.set_message("resolving");
        head.enable_steady_tick(TICK);
        Self { image, multi, head, layers: HashMap::new(), total: 0, finished: 0, shown: 0 }
    }

    fn tell(&mut self, event: PullEvent) {
        match event {
            PullEvent::Resolved { layers, .. } => {
                self.total = layers.len();
                for (digest, size) in layers {
                    let layer = LayerBar { size, state: LayerState::Waiting, bar: None };
                    self.layers.entry(digest).or_insert(layer);
                }
                self.count();
            }
            PullEvent::Layer { digest, state } => {
                self.change(&digest, state);
                self.count();
            }
            PullEvent::Bytes { digest, done } => {
                if let Some(bar) = self.layers.get(&digest).and_then(|layer| layer.bar.as_ref()) {
                    bar.set_position(done);
                }
            }
            PullEvent::Committing => self.head.set_message("committing"),
        }
    }

    fn change(&mut self, digest: &Digest, state: LayerState) {
        let Some(layer) = self.layers.get_mut(digest) else { return };
        let over = |state| matches!(state, LayerState::Present | LayerState::Done);
        if over(state) && !over(layer.state) {
            self.finished += 1;
        }
        layer.state = state;
        if over(state) {
            if let Some(bar) = layer.bar.take() {
                bar.finish_and_clear();
                self.multi.remove(&bar);
                self.shown -= 1;
            }
            return;
        }
        if layer.bar.is_none() && state != LayerState::Waiting && self.shown < MAX_BARS {
            let template = "  {prefix} {msg:9} {bar:30} {bytes:>10}/{total_bytes:10} {bytes_per_sec:>12} {eta:>4}";
            let bar = ProgressBar::new(layer.size).with_style(style(template).progress_chars("=> "));
            bar.set_prefix(digest.short().to_owned());
            let bar = self.multi.insert_after(&self.head, bar);
            bar.enable_steady_tick(TICK);
            layer.bar = Some(bar);
            self.shown += 1;
        }
        if let Some(bar) = &layer.bar {
            bar.set_message(word(state));
        }
    }

    fn count(&self) {
        self.head.set_message(format!("{}/{} layers", self.finished, self.total));
    }
}

impl Drop for BarPull {
    fn drop(&mut self) {
        for bar in self.layers.values_mut().filter_map(|layer| layer.bar.take()) {
            bar.finish_and_clear();
        }
        self.head.finish_and_clear();
        tracing::trace!(image = self.image, "progress ends");
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants of this file, and a test draws them.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

#[cfg(test)]
mod tests {
    use indicatif::{InMemoryTerm, TermLike as _};

    use super::*;

    #[test]
    fn bars_follow_the_pull() {
        let term = InMemoryTerm::new(10, 120);
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::term_like(Box::new(term.clone())));
        let progress = Progress::Bars(multi);
        let (a, b) = (Digest::sha256(b"a"), Digest::sha256(b"b"));
        let sink = progress.sink("demo/x:1");
        sink.tell(PullEvent::Resolved {
            digest: Digest::sha256(b"m"),
            layers: vec![(a.clone(), 1_000_000), (b.clone(), 5)],
        });
        sink.tell(PullEvent::Layer { digest: b.clone(), state: LayerState::Present });
        sink.tell(PullEvent::Layer { digest: a.clone(), state: LayerState::Fetching });
        sink.tell(PullEvent::Bytes { digest: a.clone(), done: 500_000 });
        // A steady tick draws later; this draws now.
        sink.tell(PullEvent::Layer { digest: a.clone(), state: LayerState::Unpacking });
        let text = term.contents();
        assert!(text.contains("demo/x:1 1/2 layers"), "{text}");
        assert!(text.contains(&format!("{} unpacking", a.short())), "{text}");
        sink.tell(PullEvent::Layer { digest: a, state: LayerState::Done });
        assert!(term.contents().contains("2/2 layers"), "{}", term.contents());
        drop(sink);
        progress.finish();
        term.flush().expect("flushed");
        assert_eq!(term.contents(), "");
    }
}
