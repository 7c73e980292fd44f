//! Lines of the progress display, made for a terminal of a given size: one line per image, and below it one line per layer in progress. No
//! line is wider than the terminal, no frame higher. Pure; time is an argument. Called by the painter.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cri_api::{LayerState, PullEvent};
use oci::Digest;

use crate::output::units;

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
            PullEvent::Resolving | PullEvent::Unpacked { .. } => {}
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
            Stage::Layers => {
                format!("{}/{} layers", self.layers.iter().filter(is_finished).count(), self.layers.len())
            }
            Stage::Committing => "committing".to_owned(),
        }
    }

    fn head(&self, turn: usize, width: usize) -> String {
        const SPINNER: [char; 4] = ['|', '/', '-', '\\'];
        let (spinner, message) = (SPINNER[turn % SPINNER.len()], self.message());
        let room = width.saturating_sub(message.len() + 3);
        cut(&format!("{spinner} {} {message}", cut_front(&self.image, room)), width)
    }
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
        let width = width.min(WIDEST);
        let (digest, done) = (self.digest.short(), self.done.min(self.size));
        let part = |whole: u64| u64::try_from(u128::from(done) * u128::from(whole) / u128::from(self.size.max(1)));
        let percent = part(100).unwrap_or_default();
        let room = width.saturating_sub(MIDDLE);
        let line = if room < 8 {
            format!("  {digest} {word:9} {percent:>3}%")
        } else {
            let is_fetched = width >= WIDE && matches!(self.state, LayerState::Fetching);
            let rest = if is_fetched { self.rate_and_rest(done) } else { String::new() };
            let bar = room.saturating_sub(if width >= WIDE { RATE } else { 0 }).min(30);
            let full = usize::try_from(part(bar as u64).unwrap_or_default()).unwrap_or_default();
            let tip = if full < bar { ">" } else { "" };
            let drawn = format!("{}{tip}", "=".repeat(full));
            let bytes = format!("{:>6}/{:<6}", units::bytes(done), units::bytes(self.size));
            format!("  {digest} {word:9} [{drawn:bar$}] {bytes}{rest}")
        };
        cut(line.trim_end(), width)
    }

    fn rate_and_rest(&self, done: u64) -> String {
        let rate = self.rate.per_second();
        let rest = (self.size - done).checked_div(rate).map(|seconds| match seconds {
            0..60 => format!("{seconds}s"),
            60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
            _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        });
        format!(" {:>8}/s {:>6}", units::bytes(rate), rest.unwrap_or_default())
    }
}

/// Columns of a layer's line without its bar and without rate and remaining time.
const MIDDLE: usize = 2 + 12 + 1 + 9 + 3 + 1 + 13;
/// Columns of rate and remaining time.
const RATE: usize = 1 + 10 + 1 + 6;
/// Width from which on rate and remaining time are shown.
const WIDE: usize = MIDDLE + RATE + 8;

/// Maximum width of a layer's line: lines written on a wide terminal still fit after it is resized to 80 columns.
const WIDEST: usize = 79;

/// Returns the lines for a terminal of this size. The last column and the last row, where the cursor is, stay empty.
pub(super) fn lines<'a>(
    pulls: impl Iterator<Item = &'a mut PullView>,
    (columns, rows): (usize, usize),
    turn: usize,
    now: Instant,
) -> Vec<String> {
    let (width, height) = (columns.saturating_sub(1), rows.saturating_sub(1));
    let mut blocks: Vec<Vec<String>> = Vec::new();
    for pull in pulls {
        let mut block = vec![pull.head(turn, width)];
        for layer in &mut pull.layers {
            if let Some(word) = layer.word() {
                layer.rate.note(now, layer.done);
                block.push(layer.line(word, width));
            }
        }
        blocks.push(block);
    }
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
