//! [`PullBoard`]: the running pulls of this process, and the last ones that ended, for users. Keeps plain data, decides
//! nothing, and costs a pull nothing but the state that its progress has anyway. Fed by the puller and by
//! [`WatchedPulls`](super::watched::WatchedPulls); read by the admin API and the status page.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::lock::Mutex;
use jiff::Timestamp;
use tokio::sync::watch;

use super::in_flight::{EndedPull, PullInFlight, PullOutcome, PullStep, WantedBy};
use super::order::SlotId;
use super::progress::{Picture, Progress};
use super::time::Timeline;
use super::turns::Turns;
use crate::{Cause, Clock, WallClock};

/// How many ended pulls are remembered.
pub const ENDED_PULLS: usize = 100;
/// How many of those that want a pull are named; all are counted.
const NAMED: usize = 16;
/// The longest message of a failed pull that is kept, in bytes.
const LONGEST_MESSAGE: usize = 1024;

/// The pulls of a process. Clones are the same board.
#[derive(Clone)]
pub struct PullBoard(Arc<Board>);

struct Board {
    time: Timeline,
    wall_clock: WallClock,
    /// Guards the pulls that run and those that ended. Nothing else is locked meanwhile.
    state: Mutex<State>,
    /// Number of starts and ends so far, for tasks that wait for either.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    next: u64,
    running: BTreeMap<u64, Arc<RunningPull>>,
    ended: VecDeque<EndedPull>,
    ends: u64,
    /// The line in which pulls wait.
    turns: Option<Arc<Turns>>,
}

/// The part of a running pull that its waiters and the board share.
pub(super) struct RunningPull {
    image: String,
    progress: base::single_flight::Hub<Progress>,
    slot: Option<SlotId>,
    since: Timestamp,
    begun: Duration,
    /// Guards the waiting requests.
    waiters: Mutex<Waiters>,
    /// The time in the queue, once the pull had its turn.
    queued: Mutex<Option<Duration>>,
    /// Set if the image was already present.
    present: AtomicBool,
}

#[derive(Default)]
struct Waiters {
    next: u64,
    /// The waiting requests, by number of their arrival.
    by_id: BTreeMap<u64, Arc<WantedBy>>,
    /// The first requests.
    first: Vec<Arc<WantedBy>>,
}

/// A share in a running pull. Dropping it is leaving.
#[must_use = "dropping it leaves the pull"]
pub(super) struct BoardWaiter {
    pull: Arc<RunningPull>,
    id: u64,
}

/// A pull on the board, until it is dropped. Without an outcome it counts as given up.
#[must_use = "dropping it takes the pull off the board"]
pub(super) struct OnBoard {
    board: Arc<Board>,
    id: u64,
    pull: Arc<RunningPull>,
    end: End,
}

/// How a pull ended, for the board.
#[derive(Default)]
struct End {
    outcome: Option<PullOutcome>,
    image_ref: Option<String>,
    cause: Option<Cause>,
    message: Option<String>,
}

impl PullBoard {
    /// An empty board.
    #[must_use]
    pub fn new(clock: Clock, wall_clock: WallClock) -> Self {
        let time = Timeline::new(clock);
        Self(Arc::new(Board { time, wall_clock, state: Mutex::default(), changes: watch::Sender::new(0) }))
    }

    /// The pulls that run or wait, in the order in which they were first wanted.
    #[must_use]
    pub fn pulls(&self) -> Vec<PullInFlight> {
        let (running, turns) = {
            let state = self.0.state.lock();
            let running: Vec<_> = state.running.iter().map(|(id, pull)| (*id, Arc::clone(pull))).collect();
            (running, state.turns.clone())
        };
        let positions = turns.map(|turns| turns.positions()).unwrap_or_default();
        let now = self.0.time.now();
        running.iter().map(|(id, pull)| pull.show(*id, &positions, now)).collect()
    }

    /// The last pulls that ended, at most [`ENDED_PULLS`], oldest first.
    #[must_use]
    pub fn ended(&self) -> Vec<EndedPull> {
        self.ended_after(0)
    }

    /// Returns the last ended pulls that have a higher number.
    #[must_use]
    pub fn ended_after(&self, number: u64) -> Vec<EndedPull> {
        let state = self.0.state.lock();
        state.ended.iter().filter(|ended| ended.number > number).cloned().collect()
    }

    /// Changes with every pull that starts or ends.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// From now on places in this line are shown.
    pub(super) fn set_turns(&self, turns: Arc<Turns>) {
        self.0.state.lock().turns = Some(turns);
    }

    /// Shows a pull that begins or, with a `slot`, waits for its turn.
    pub(super) fn enter(
        &self,
        image: &str,
        progress: base::single_flight::Hub<Progress>,
        slot: Option<SlotId>,
    ) -> OnBoard {
        let pull = Arc::new(RunningPull {
            image: image.to_owned(),
            progress,
            slot,
            since: (self.0.wall_clock)(),
            begun: self.0.time.now(),
            waiters: Mutex::default(),
            queued: Mutex::new(slot.is_none().then_some(Duration::ZERO)),
            present: AtomicBool::new(false),
        });
        let mut state = self.0.state.lock();
        state.next += 1;
        let id = state.next;
        state.running.insert(id, Arc::clone(&pull));
        drop(state);
        self.0.changed();
        OnBoard { board: Arc::clone(&self.0), id, pull, end: End::default() }
    }

    pub(super) fn time(&self) -> &Timeline {
        &self.0.time
    }
}

impl std::fmt::Debug for PullBoard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PullBoard").field("running", &self.0.state.lock().running.len()).finish_non_exhaustive()
    }
}

impl RunningPull {
    /// Joins the waiting requests.
    pub(super) fn join(self: &Arc<Self>, by: WantedBy) -> BoardWaiter {
        let by = Arc::new(by);
        let mut waiters = self.waiters.lock();
        let id = waiters.next;
        waiters.next += 1;
        if waiters.first.len() < NAMED && !waiters.first.contains(&by) {
            waiters.first.push(Arc::clone(&by));
        }
        waiters.by_id.insert(id, by);
        drop(waiters);
        BoardWaiter { pull: Arc::clone(self), id }
    }

    /// Records that the image was already present.
    pub(super) fn set_present(&self) {
        self.present.store(true, Ordering::Relaxed);
    }

    fn show(&self, id: u64, positions: &HashMap<SlotId, usize>, now: Duration) -> PullInFlight {
        let Picture { step, total, done, unpacked, rate, layers } =
            self.progress.with(|progress| progress.picture(now));
        let queue_position = self.slot.and_then(|slot| positions.get(&slot)).copied();
        let step = if queue_position.is_some() { PullStep::Queued } else { step };
        let waiters = self.waiters.lock();
        let mut wanted_by: Vec<WantedBy> = Vec::new();
        for by in waiters.by_id.values() {
            if wanted_by.len() < NAMED && !wanted_by.contains(by) {
                wanted_by.push(WantedBy::clone(by));
            }
        }
        PullInFlight {
            id,
            image: self.image.clone(),
            wanted_by,
            waiters: waiters.by_id.len(),
            since: self.since,
            elapsed_milliseconds: millis(now.saturating_sub(self.begun)),
            step,
            queue_position,
            total_bytes: total,
            received_bytes: done,
            unpacked_bytes: unpacked,
            bytes_per_second: rate,
            layers,
        }
    }
}

impl Drop for BoardWaiter {
    fn drop(&mut self) {
        self.pull.waiters.lock().by_id.remove(&self.id);
    }
}

impl OnBoard {
    /// Returns the pull, for requests that join it.
    pub(super) fn pull(&self) -> &Arc<RunningPull> {
        &self.pull
    }

    /// Records that the pull has its turn.
    pub(super) fn begin(&self) {
        let waited = self.board.time.now().saturating_sub(self.pull.begun);
        self.pull.queued.lock().get_or_insert(waited);
    }

    /// Records that the image was pulled.
    pub(super) fn pulled(&mut self, image_ref: &str) {
        self.end = End { outcome: Some(PullOutcome::Pulled), image_ref: Some(image_ref.to_owned()), ..End::default() };
    }

    /// Records a failure.
    pub(super) fn failed(&mut self, cause: Cause, message: &str) {
        let message = message.lines().next().unwrap_or_default();
        let ends = message.char_indices().map(|(start, c)| start + c.len_utf8());
        let end = ends.take_while(|end| *end <= LONGEST_MESSAGE).last().unwrap_or_default();
        let message = Some(message[..end].to_owned());
        self.end = End { outcome: Some(PullOutcome::Failed), cause: Some(cause), message, image_ref: None };
    }
}

impl Drop for OnBoard {
    fn drop(&mut self) {
        let now = self.board.time.now();
        let first = std::mem::take(&mut self.pull.waiters.lock().first);
        let wanted_by = first.into_iter().map(Arc::unwrap_or_clone).collect();
        let received_bytes = self.pull.progress.with(|progress| progress.received());
        let End { outcome, image_ref, cause, message } = std::mem::take(&mut self.end);
        let present = self.pull.present.load(Ordering::Relaxed).then_some(PullOutcome::Present);
        let duration = now.saturating_sub(self.pull.begun);
        let queued = self.pull.queued.lock().unwrap_or(duration);
        let ended = (self.board.wall_clock)();
        let mut ended = EndedPull {
            number: 0,
            id: self.id,
            image: self.pull.image.clone(),
            wanted_by,
            since: self.pull.since,
            ended,
            duration_milliseconds: millis(duration),
            queued_milliseconds: millis(queued),
            received_bytes,
            outcome: outcome.or(present).unwrap_or(PullOutcome::Cancelled),
            image_ref,
            cause: cause.map(|cause| cause.to_string()),
            message,
        };
        let mut state = self.board.state.lock();
        state.running.remove(&self.id);
        state.ends += 1;
        ended.number = state.ends;
        let oldest = if state.ended.len() == ENDED_PULLS { state.ended.pop_front() } else { None };
        state.ended.push_back(ended);
        drop(state);
        drop(oldest);
        self.board.changed();
    }
}

impl Board {
    /// Notifies the subscribers after a change of the state. A later subscriber finds the change in the state.
    fn changed(&self) {
        if self.changes.receiver_count() > 0 {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
