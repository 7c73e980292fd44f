//! Progress of pulls on stderr: a bar per layer with rate and remaining time on a terminal, one log line per change of
//! state elsewhere. Purely for eyes. Called by `pull` and `ensure`, which hand its sinks to the service.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use cri_api::{LayerState, ProgressSink, PullEvent};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use oci::Digest;

use crate::output::units;

/// How often bars are drawn.
const TICK: Duration = Duration::from_millis(120);
/// More bars than this would not fit a terminal: further layers are only counted.
const MAX_BARS: usize = 24;

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
        let image = oci::text::printable(image, '?', &[]).into_owned();
        match self {
            Self::Nothing => ProgressSink::default(),
            Self::Lines => {
                let pull = Mutex::new(PlainPull { image, sizes: HashMap::new() });
                ProgressSink::new(move |event| pull.lock().report(event))
            }
            Self::Bars(bars) => {
                let pull = Arc::new(Mutex::new(BarPull::new(image, bars.clone())));
                ProgressSink::new(move |event| pull.lock().report(event))
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
                tracing::info!("{image}: resolved to {digest}: {} layers, {}", layers.len(), units::bytes(total));
                self.sizes = layers.into_iter().collect();
            }
            PullEvent::Resolving
            | PullEvent::Layer { state: LayerState::Waiting, .. }
            | PullEvent::Bytes { .. }
            | PullEvent::Unpacked { .. } => {}
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
        // The bars' library panics where it gets no thread to turn them.
        if std::thread::Builder::new().spawn(|| ()).is_ok() {
            head.enable_steady_tick(TICK);
        }
        Self { image, multi, head, layers: HashMap::new(), total: 0, finished: 0, shown: 0 }
    }

    fn report(&mut self, event: PullEvent) {
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
            // That is what the line says from the beginning.
            PullEvent::Resolving | PullEvent::Unpacked { .. } => {}
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
            let template = "  {prefix} {msg:9} {bar:30} {decimal_bytes:>10}/{decimal_total_bytes:10} {decimal_bytes_per_sec:>12} {eta:>4}";
            // Setting anything else draws the bar, which has no place among the others yet.
            let bar = ProgressBar::new(layer.size).with_style(style(template).progress_chars("=> "));
            let bar = self.multi.insert_after(&self.head, bar.with_prefix(digest.short().to_owned()));
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
    use indicatif::TermLike;

    use super::*;

    /// A terminal that keeps every line that was ever drawn.
    #[derive(Clone, Debug, Default)]
    struct Terminal(Arc<Mutex<String>>);

    impl Terminal {
        fn put(&self, text: &str) {
            self.0.lock().push_str(text);
        }

        fn drawn(&self) -> String {
            self.0.lock().clone()
        }
    }

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            120
        }

        fn height(&self) -> u16 {
            40
        }

        fn move_cursor_up(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> std::io::Result<()> {
            self.put(text);
            self.put("\n");
            Ok(())
        }

        fn write_str(&self, text: &str) -> std::io::Result<()> {
            self.put(text);
            Ok(())
        }

        fn clear_line(&self) -> std::io::Result<()> {
            self.put("\n");
            Ok(())
        }

        fn flush(&self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bars_follow_the_pull() {
        let terminal = Terminal::default();
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::term_like(Box::new(terminal.clone())));
        let (a, b) = (Digest::sha256(b"a"), Digest::sha256(b"b"));
        let mut pull = BarPull::new("demo/x:1".to_owned(), multi);
        let layers = vec![(a.clone(), 1_000_000), (b.clone(), 5)];
        pull.report(PullEvent::Resolved { digest: Digest::sha256(b"m"), layers });
        pull.report(PullEvent::Layer { digest: b, state: LayerState::Present });
        pull.report(PullEvent::Layer { digest: a.clone(), state: LayerState::Fetching });
        pull.report(PullEvent::Bytes { digest: a.clone(), done: 500_000 });
        let bar = pull.layers[&a].bar.clone().expect("a layer at work has a bar");
        bar.tick();
        assert_eq!((bar.position(), bar.length()), (500_000, Some(1_000_000)));
        pull.head.tick();
        let drawn = terminal.drawn();
        assert!(drawn.contains("demo/x:1 1/2 layers"), "{drawn}");
        assert!(drawn.contains(&format!("{} fetching", a.short())), "{drawn}");
        assert!(drawn.contains("500.00 kB/1.00 MB"), "{drawn}");
        pull.report(PullEvent::Layer { digest: a.clone(), state: LayerState::Done });
        assert!(bar.is_finished() && pull.layers[&a].bar.is_none());
        assert_eq!((pull.finished, pull.shown), (2, 0));
    }

    #[test]
    fn no_bar_drives_a_terminal() {
        let terminal = Terminal::default();
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::term_like(Box::new(terminal.clone())));
        let progress = Progress::Bars(multi);
        let sink = progress.sink("demo/\u{9b}31m\u{202e}x\u{7f}");
        sink.report(PullEvent::Resolved { digest: Digest::sha256(b"m"), layers: Vec::new() });
        sink.report(PullEvent::Committing);
        progress.finish();
        let drawn = terminal.drawn();
        assert!(drawn.contains("demo/?31m?x?"), "{drawn:?}");
        assert!(drawn.chars().all(|c| oci::text::is_printable(c) || c == '\n'), "{drawn:?}");
    }

    #[test]
    fn many_layers_get_no_more_bars_than_fit() {
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        let mut pull = BarPull::new("x".to_owned(), multi);
        let layers: Vec<_> = (0..100_u8).map(|n| (Digest::sha256(&[n]), 1)).collect();
        pull.report(PullEvent::Resolved { digest: Digest::sha256(b"m"), layers: layers.clone() });
        for (digest, _) in &layers {
            pull.report(PullEvent::Layer { digest: digest.clone(), state: LayerState::Fetching });
        }
        assert_eq!(pull.shown, MAX_BARS);
        for (digest, _) in &layers {
            pull.report(PullEvent::Layer { digest: digest.clone(), state: LayerState::Done });
        }
        assert_eq!((pull.finished, pull.shown), (100, 0));
    }
}
