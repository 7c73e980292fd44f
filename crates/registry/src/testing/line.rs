//! [`Line`]: how fast a test registry's blobs come, how late an answer begins, and how many it sends at once; and the
//! count of what is on its way.

use base::lock::Mutex;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How blobs are sent. The default is as fast as it goes.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Bytes a second of one answer, and so of one connection.
    pub rate: Option<u64>,
    /// Time until an answer begins.
    pub latency: Duration,
    /// Answers with blobs that are sent at once; beyond them [`Line::refusal`] comes.
    pub most: Option<usize>,
    /// Status of the answers beyond [`Line::most`]; 0 closes the connection without one.
    pub refusal: u16,
}

/// The line of one registry and what is on it.
pub(super) struct Traffic {
    line: Mutex<Line>,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    now: usize,
    peak: usize,
}

impl Default for Traffic {
    fn default() -> Self {
        Self { line: Mutex::default(), state: watch::Sender::new(State::default()) }
    }
}

impl Traffic {
    pub(super) fn set(&self, line: Line) {
        *self.line.lock() = line;
    }

    pub(super) fn line(&self) -> Line {
        self.line.lock().clone()
    }

    pub(super) fn peak(&self) -> usize {
        self.state.borrow().peak
    }

    pub(super) async fn until(&self, now: usize) {
        // The sender is here, so it cannot be closed.
        let _ = self.state.subscribe().wait_for(|state| state.now == now).await;
    }

    /// A transfer more, or none where there are too many.
    pub(super) fn begin(self: &Arc<Self>) -> Result<Transfer, u16> {
        let line = self.line();
        let mut result = Err(line.refusal);
        self.state.send_if_modified(|state| {
            if line.most.is_some_and(|most| state.now >= most) {
                return false;
            }
            state.now += 1;
            state.peak = state.peak.max(state.now);
            result = Ok(());
            true
        });
        result.map(|()| Transfer { traffic: Arc::clone(self), rate: line.rate, start: Instant::now(), sent: 0 })
    }
}

/// A body on its way; it is over when this is dropped.
pub(super) struct Transfer {
    traffic: Arc<Traffic>,
    rate: Option<u64>,
    start: Instant,
    sent: u64,
}

impl Transfer {
    /// Returns the bytes to send at once: those that the rate lets through in a few milliseconds.
    pub(super) fn piece(&self, most: usize) -> usize {
        self.rate.map_or(most, |rate| usize::try_from(rate / 250).unwrap_or(most).clamp(1, most))
    }

    /// Waits until so many more bytes may go.
    pub(super) async fn pace(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        if let Some(rate) = self.rate {
            let nanos = u128::from(self.sent) * 1_000_000_000 / u128::from(rate.max(1));
            tokio::time::sleep_until(self.start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))).await;
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.traffic.state.send_modify(|state| state.now -= 1);
    }
}
