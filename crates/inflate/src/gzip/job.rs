//! A part of the stream decoded by a helper, without knowing what was before: it looks for the beginning of a block and
//! decodes into steps, which it publishes part by part, each with where it ended. It goes on through regions as long as
//! nobody else has begun with them, and ends when there is no memory, or soon after nobody wants what it makes. Called
//! by `parallel`, on a thread of the process that has nothing else to do.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ahead::Region;
use super::board::{Board, Lent};
use crate::deflate::{Decoder, Stop, search};

/// So many parts are made by one job at most, so that a core is not taken for long.
const PARTS: usize = 24;

/// Steps, and where whoever has carried them out stands.
pub(super) struct Part {
    pub(super) steps: Lent,
    pub(super) decoder: Decoder,
}

/// What is known of where a job began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Began {
    /// At this bit, unless it finds out that this was wrong.
    At(u64),
    /// It is still looking for that.
    Looking,
    /// Nowhere.
    Not,
}

struct State {
    began: Began,
    /// Somebody has come to where it began: that was right.
    right: bool,
    parts: VecDeque<Part>,
}

struct Shared {
    /// Guards what has been published.
    state: Mutex<State>,
    /// Nobody wants more.
    stop: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A job, seen by who wants its result. Dropping it tells it to stop.
pub(super) struct Job {
    shared: Arc<Shared>,
    /// Number of the region that it begins in.
    pub(super) region: usize,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// What a helper has to do. It is given back where there is none.
struct Worker {
    shared: Arc<Shared>,
    board: Arc<Board>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // However it went away, it looks for nothing any more.
        let mut state = self.shared.lock();
        if state.began == Began::Looking {
            state.began = Began::Not;
        }
    }
}

impl Job {
    /// A job for a region and what nobody has begun with behind it, and what a helper has to do.
    pub(super) fn new(number: usize, region: Region, board: &Arc<Board>) -> (Self, crate::Work) {
        let state = State { began: Began::Not, right: false, parts: VecDeque::new() };
        let shared = Arc::new(Shared { state: Mutex::new(state), stop: false.into() });
        let worker = Worker { shared: Arc::clone(&shared), board: Arc::clone(board) };
        (Self { shared, region: number }, Box::new(move || worker.run(number, region)))
    }

    /// Where it began. One that nobody has begun with by now began nowhere.
    pub(super) fn began(&self) -> Began {
        self.shared.lock().began
    }

    /// Says that the stream has a block where the job began; `false` if that was elsewhere.
    pub(super) fn meet(&self, bit: u64) -> bool {
        let mut state = self.shared.lock();
        state.right = state.began == Began::At(bit);
        state.right
    }

    /// The next part that it has published, if it is there by now. Only for who met it, and has carried out those before.
    pub(super) fn next(&self) -> Option<Part> {
        self.shared.lock().parts.pop_front()
    }
}

impl Worker {
    fn run(self, mut number: usize, mut region: Region) {
        if self.shared.stopped() {
            return;
        }
        self.shared.lock().began = Began::Looking;
        let mut decoder = Decoder::new(region.start * 8);
        let mut from = region.start * 8;
        let stop = || self.shared.stopped();
        while let Some(bit) = search(&mut decoder, &region.data, region.start, from, region.end * 8, &stop) {
            self.shared.lock().began = Began::At(bit);
            decoder.place(bit);
            if self.decode(&mut decoder, &mut number, &mut region) {
                return;
            }
            let mut state = self.shared.lock();
            if state.right || bit < region.start * 8 {
                // It was a block, or one that makes sense for long; whoever comes there sees for themselves.
                return;
            }
            state.began = Began::Looking;
            let wrong = std::mem::take(&mut state.parts);
            drop(state);
            drop(wrong);
            from = bit + 1;
        }
    }

    /// Decodes from the block that the decoder stands before; `false` if there is none.
    fn decode(&self, decoder: &mut Decoder, number: &mut usize, region: &mut Region) -> bool {
        for _ in 0..PARTS {
            let Some(mut steps) = self.board.steps() else { return true };
            let over = loop {
                let Ok(stop) = steps.get_mut().decode(decoder, &region.data, region.start) else { return false };
                if region.last.is_some_and(|end| decoder.bit() > end * 8) {
                    return false;
                }
                if self.shared.stopped() {
                    return true;
                }
                let over = match stop {
                    Stop::Room => break false,
                    Stop::End => true,
                    Stop::Block => decoder.bit() >= region.end * 8,
                    Stop::Input => true,
                };
                if over {
                    if stop != Stop::End
                        && region.last.is_none()
                        && let Some(next) = self.board.take(*number + 1)
                    {
                        *region = next;
                        *number += 1;
                        continue;
                    }
                    break true;
                }
            };
            if !steps.get().is_empty() {
                self.shared.lock().parts.push_back(Part { steps, decoder: decoder.clone() });
            }
            if over {
                return true;
            }
        }
        true
    }
}
