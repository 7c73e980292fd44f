//! Lines of the progress display, made for a terminal of a given size: one line per image, and below it one line per layer in progress; one
//! line for a check of the store. No line is wider than the terminal, no frame higher. Pure; time is an argument. Called by the painter.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cri_api::engine::CheckProgress;
use cri_api::{LayerState, PullEvent};
use oci::Digest;

use crate::output::units;

/// Work as displayed.
#[derive(Debug)]
pub(super) enum View {
    Pull(PullView),
    Check(CheckView),
}

impl View {
    fn block(&mut self, turn: usize, width: usize, now: Instant) -> Vec<String> {
        match self {
            Self::Pull(pull) => pull.block(turn, width, now),
            Self::Check(check) => vec![check.line(turn, width, now)],
        }
    }
}

/// A check of the store as displayed.
#[derive(Debug, Default)]
pub(super) struct CheckView {
    progress: CheckProgress,
    rate: Rate,
}

impl CheckView {
    pub(super) fn report(&mut self, progress: CheckProgress) {
        self.progress = progress;
    }

    fn line(&mut self, turn: usize, width: usize, now: Instant) -> String {
        let CheckProgress { layers, layers_total, bytes, bytes_total } = self.progress;
        self.rate.note(now, bytes);
        let head = format!("{} checking {}", spinner(turn), of_layers(layers, layers_total));
        let part = Part { done: bytes, size: bytes_total, rate: Some(&self.rate) };
        cut(format!("{head} {}", part.render(width.saturating_sub(head.len() + 1))).trim_end(), width)
    }
}

/// A pull as displayed.
#[derive(Debug)]
pub(super) struct PullView {
    image: String,
    stage: Stage,
    layers: Vec<LayerView>,
}

/// State of a pull as a whole.
#[derive(Debug)]
enum Stage {
    Resolving,
    Layers,
    Committing,
}

#[derive(Debug)]
struct LayerView {
    digest: Digest,
    size: u64,
    done: u64,
    state: LayerState,
    rate: Rate,
}

/// Bytes per second over the last seconds.
#[derive(Debug, Default)]
struct Rate(VecDeque<(Instant, u64)>);

impl Rate {
    const WINDOW: Duration = Duration::from_secs(5);

    fn note(&mut self, now: Instant, done: u64) {
        // A layer that is fetched again starts at zero.
        if self.0.back().is_some_and(|(_, last)| *last > done) {
            self.0.clear();
        }
        self.0.push_back((now, done));
        while self.0.len() > 2 && self.0.front().is_some_and(|(then, _)| now.duration_since(*then) > Self::WINDOW) {
            self.0.pop_front();
        }
    }

    fn per_second(&self) -> u64 {
        let (Some((from, before)), Some((to, after))) = (self.0.front(), self.0.back()) else { return 0 };
        let millis = u64::try_from(to.duration_since(*from).as_millis()).unwrap_or(u64::MAX);
        (after - before).saturating_mul(1000).checked_div(millis).unwrap_or_default()
    }
}

impl PullView {
    pub(super) fn new(image: String) -> Self {
        Self { image, stage: Stage::Resolving, layers: Vec::new() }
    }

    /// Applies an event of the pull.
    pub(super) fn report(&mut self, event: PullEvent) {
        match event {
            PullEvent::Resolving | PullEvent::Unpacked { .. } | PullEvent::Sources { .. } => {}
            PullEvent::Resolved { layers, .. } => {
                self.stage = Stage::Layers;
                for (digest, size) in layers {
                    // An image can have a layer twice.
                    if self.layer(&digest).is_none() {
                        let state = LayerState::Waiting;
                        self.layers.push(LayerView { digest, size, done: 0, state, rate: Rate::default() });
                    }
                }
            }
            PullEvent::Layer { digest, state } => {
                if let Some(layer) = self.layer(&digest) {
                    layer.state = state;
                }
            }
            PullEvent::Bytes { digest, done } => {
                if let Some(layer) = self.layer(&digest) {
                    layer.done = done;
                }
            }
            PullEvent::Committing => self.stage = Stage::Committing,
        }
    }

    fn layer(&mut self, digest: &Digest) -> Option<&mut LayerView> {
        self.layers.iter_mut().find(|layer| layer.digest == *digest)
    }

    fn message(&self) -> String {
        let is_finished = |layer: &&LayerView| matches!(layer.state, LayerState::Present | LayerState::Done);
        match self.stage {
            Stage::Resolving => "resolving".to_owned(),
            Stage::Layers => of_layers(self.layers.iter().filter(is_finished).count() as u64, self.layers.len() as u64),
            Stage::Committing => "committing".to_owned(),
        }
    }

    fn head(&self, turn: usize, width: usize) -> String {
        let message = self.message();
        let room = width.saturating_sub(message.len() + 3);
        cut(&format!("{} {} {message}", spinner(turn), cut_front(&self.image, room)), width)
    }

    fn block(&mut self, turn: usize, width: usize, now: Instant) -> Vec<String> {
        let mut block = vec![self.head(turn, width)];
        for layer in &mut self.layers {
            if let Some(word) = layer.word() {
                layer.rate.note(now, layer.done);
                block.push(layer.line(word, width));
            }
        }
        block
    }
}

fn spinner(turn: usize) -> char {
    const SPINNER: [char; 4] = ['|', '/', '-', '\\'];
    SPINNER[turn % SPINNER.len()]
}

/// Returns the finished layers of all, such as `1/5 layers`.
fn of_layers(finished: u64, all: u64) -> String {
    format!("{finished}/{all} layer{}", if all == 1 { "" } else { "s" })
}

impl LayerView {
    fn word(&self) -> Option<&'static str> {
        match self.state {
            LayerState::Fetching => Some("fetching"),
            LayerState::Unpacking => Some("unpacking"),
            LayerState::WaitingForOther => Some("joined"),
            LayerState::Waiting | LayerState::Present | LayerState::Done => None,
        }
    }

    fn line(&self, word: &str, width: usize) -> String {
        let head = format!("  {} {word:9}", self.digest.short());
        let rate = matches!(self.state, LayerState::Fetching).then_some(&self.rate);
        let part = Part { done: self.done.min(self.size), size: self.size, rate };
        cut(format!("{head} {}", part.render(width.saturating_sub(head.len() + 1))).trim_end(), width)
    }
}

/// The finished part of work, with its rate where it is known.
struct Part<'a> {
    done: u64,
    size: u64,
    rate: Option<&'a Rate>,
}

impl Part<'_> {
    /// Columns of the brackets of the bar and of the bytes.
    const BYTES: usize = 2 + 1 + 13;
    /// Columns of rate and remaining time.
    const RATE: usize = 1 + 10 + 1 + 6;
    /// Columns of the shortest bar.
    const BAR: usize = 8;

    /// Returns bar, bytes, rate and remaining time as far as they fit; a percentage if no bar does. The bar takes all columns that are
    /// left, also if a part has no rate, so that the bars of all parts are of one length.
    fn render(&self, width: usize) -> String {
        let of = |whole: u64| u64::try_from(u128::from(self.done) * u128::from(whole) / u128::from(self.size.max(1)));
        let Some(room) = width.checked_sub(Self::BYTES).filter(|room| *room >= Self::BAR) else {
            return format!("{:>3}%", of(100).unwrap_or_default());
        };
        let has_rate = room >= Self::RATE + Self::BAR;
        let rest = self.rate.filter(|_| has_rate).map(|rate| self.rate_and_rest(rate)).unwrap_or_default();
        let bar = if has_rate { room - Self::RATE } else { room };
        let full = usize::try_from(of(bar as u64).unwrap_or_default()).unwrap_or_default();
        let tip = if full < bar { ">" } else { "" };
        let drawn = format!("{}{tip}", "=".repeat(full));
        let bytes = format!("{:>6}/{:<6}", units::bytes(self.done), units::bytes(self.size));
        format!("[{drawn:bar$}] {bytes}{rest}")
    }

    fn rate_and_rest(&self, rate: &Rate) -> String {
        let rate = rate.per_second();
        let rest = self.size.saturating_sub(self.done).checked_div(rate).map(|seconds| match seconds {
            0..60 => format!("{seconds}s"),
            60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
            _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        });
        format!(" {:>8}/s {:>6}", units::bytes(rate), rest.unwrap_or_default())
    }
}

/// Returns the lines for a terminal of this size. The last column and the last row, where the cursor is, stay empty.
pub(super) fn lines<'a>(
    views: impl Iterator<Item = &'a mut View>,
    (columns, rows): (usize, usize),
    turn: usize,
    now: Instant,
) -> Vec<String> {
    let (width, height) = (columns.saturating_sub(1), rows.saturating_sub(1));
    let blocks: Vec<Vec<String>> = views.map(|view| view.block(turn, width, now)).collect();
    let all: usize = blocks.iter().map(Vec::len).sum();
    if all <= height {
        return blocks.concat();
    }
    // Images have precedence over layers. The last line shows how much is left out.
    let mut room = height.saturating_sub(1);
    let heads = blocks.len().min(room);
    room -= heads;
    let mut shown = Vec::new();
    for block in blocks.into_iter().take(heads) {
        let layers = room.min(block.len() - 1);
        room -= layers;
        shown.extend(block.into_iter().take(1 + layers));
    }
    let more = format!("  and {} more", all - shown.len());
    shown.extend((height > 0).then(|| cut(&more, width)));
    shown
}

/// Returns the first `width` characters.
fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

/// Returns the end of a name, which distinguishes images.
fn cut_front(name: &str, width: usize) -> String {
    const DOTS: &str = "..";
    let count = name.chars().count();
    if count <= width {
        return name.to_owned();
    }
    let kept = width.saturating_sub(DOTS.len());
    DOTS.chars().take(width).chain(name.chars().skip(count - kept)).collect()
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
