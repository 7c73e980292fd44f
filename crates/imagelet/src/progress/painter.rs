//! The progress display on a terminal: paints each frame over the last one, moves out of the way of other text, and leaves nothing behind.
//! Called by [`super::Progress`], and by the log through it.
//!
//! Every line ends with a line end and is narrower than the terminal, and the cursor is below the last one. So the rows of a frame are
//! known even after the terminal has become narrower and has wrapped its lines again.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::lock::{Condvar, Mutex};
use cri_api::PullEvent;
use cri_api::engine::CheckProgress;

use super::frame::{self, View};
use crate::output::Canvas;

/// Interval at which frames are painted.
const TICK: Duration = Duration::from_millis(120);

/// Shows pulls and other work on stderr while there is any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Painter(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when the last work ends.
    empty: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The displayed work, in the order of its starts.
    views: BTreeMap<u64, View>,
    begun: u64,
    turn: usize,
    canvas: Canvas,
    /// True while a thread paints.
    painted: bool,
}

impl Painter {
    /// Shows one more pull, or other work, until the returned value is dropped.
    pub(super) fn begin(&self, view: View) -> ShownWork {
        let mut state = self.0.state.lock();
        state.begun += 1;
        let id = state.begun;
        state.views.insert(id, view);
        if !state.painted {
            let shared = Arc::clone(&self.0);
            // Without a thread, frames are painted on each change.
            state.painted =
                std::thread::Builder::new().name("progress".to_owned()).spawn(move || shared.keep_painting()).is_ok();
        }
        ShownWork { painter: self.clone(), id }
    }

    /// Removes the display from the terminal while `write` writes to it.
    pub(crate) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        let mut state = self.0.state.lock();
        state.erase();
        let written = write();
        state.paint();
        written
    }

    /// Removes the display from the terminal. Current work is not shown any more.
    pub(super) fn finish(&self) {
        let mut state = self.0.state.lock();
        state.views.clear();
        state.erase();
        self.0.empty.notify_all();
    }
}

impl Shared {
    fn keep_painting(&self) {
        let mut state = self.state.lock();
        while !state.views.is_empty() {
            state.turn += 1;
            state.paint();
            state = self.empty.wait_timeout(state, TICK);
        }
        state.painted = false;
    }
}

impl State {
    fn paint(&mut self) {
        if self.views.is_empty() {
            return self.erase();
        }
        let size = size();
        let lines = frame::lines(self.views.values_mut(), size, self.turn, Instant::now());
        write(&self.canvas.redraw(&lines, size.0));
    }

    fn erase(&mut self) {
        if !self.canvas.is_empty() {
            write(&self.canvas.redraw(&[], size().0));
        }
    }
}

/// Work on the display.
#[derive(Debug)]
pub(super) struct ShownWork {
    painter: Painter,
    id: u64,
}

impl ShownWork {
    /// Applies an event of a pull.
    pub(super) fn report(&self, event: PullEvent) {
        let is_small = matches!(event, PullEvent::Bytes { .. } | PullEvent::Unpacked { .. });
        self.change(is_small, |view| {
            if let View::Pull(pull) = view {
                pull.report(event);
            }
        });
    }

    /// Applies the progress of a check.
    pub(super) fn report_check(&self, progress: CheckProgress) {
        self.change(true, |view| {
            if let View::Check(check) = view {
                check.report(progress);
            }
        });
    }

    fn change(&self, is_small: bool, change: impl FnOnce(&mut View)) {
        let mut state = self.painter.0.state.lock();
        let Some(view) = state.views.get_mut(&self.id) else { return };
        change(view);
        if !state.painted && !is_small {
            state.paint();
        }
    }
}

impl Drop for ShownWork {
    fn drop(&mut self) {
        let mut state = self.painter.0.state.lock();
        if state.views.remove(&self.id).is_some() {
            state.paint();
        }
        if state.views.is_empty() {
            self.painter.0.empty.notify_all();
        }
    }
}

/// Returns columns and rows of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (usize::from(size.ws_col), usize::from(size.ws_row)),
        _ => (80, 24),
    }
}

fn write(text: &str) {
    let mut stderr = io::stderr().lock();
    // If the terminal is closed, progress is not shown.
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

#[cfg(test)]
#[path = "painter_tests.rs"]
mod tests;
