//! What the thread in order and its helpers have in common: the regions that nobody has begun with, and the memory for steps,
//! which is used again and again. Called by `parallel` and by the jobs.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;

use super::ahead::Region;
use crate::deflate::Steps;
use crate::{Held, Spare};

/// So many parts with steps at most, of all helpers.
const PARTS: usize = 128;

/// Shared by all who work on one member.
pub(super) struct Board {
    spare: Arc<dyn Spare>,
    /// Guards all of it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of the first of the regions.
    first: usize,
    regions: VecDeque<Region>,
    free: Vec<Sheet>,
    /// Parts there are, in whosever hands.
    made: usize,
}

struct Sheet {
    steps: Steps,
    _memory: Held,
}

/// Steps to be filled or carried out, which go back to where they came from.
pub(super) struct Lent {
    /// There until it is dropped.
    sheet: Option<Sheet>,
    board: Arc<Board>,
}

impl Board {
    pub(super) fn new(spare: &Arc<dyn Spare>) -> Arc<Self> {
        Arc::new(Self { spare: Arc::clone(spare), state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics half way.
        self.state.lock()
    }

    /// Puts a region behind those that are there; all before it are somebody's.
    pub(super) fn put(&self, number: usize, region: Region) {
        let mut state = self.lock();
        if state.regions.is_empty() {
            state.first = number;
        }
        debug_assert_eq!(state.first + state.regions.len(), number, "one after the other");
        state.regions.push_back(region);
    }

    /// How many there are, when those before this number are forgotten.
    pub(super) fn left_from(&self, number: usize) -> usize {
        let mut state = self.lock();
        while state.first < number && state.regions.pop_front().is_some() {
            state.first += 1;
        }
        state.regions.len()
    }

    /// Takes the first region.
    pub(super) fn take_first(&self) -> Option<(usize, Region)> {
        let mut state = self.lock();
        let region = state.regions.pop_front()?;
        state.first += 1;
        Some((state.first - 1, region))
    }

    /// Takes this very region, if it is nobody's yet.
    pub(super) fn take(&self, number: usize) -> Option<Region> {
        let mut state = self.lock();
        if state.first != number {
            return None;
        }
        let region = state.regions.pop_front()?;
        state.first += 1;
        Some(region)
    }

    /// Gives back what [`Self::take_first`] gave.
    pub(super) fn put_back(&self, number: usize, region: Region) {
        let mut state = self.lock();
        state.first = number;
        state.regions.push_front(region);
    }

    /// Empty steps, if there is memory.
    pub(super) fn steps(self: &Arc<Self>) -> Option<Lent> {
        let mut state = self.lock();
        let mut sheet = state.free.pop();
        if sheet.is_none() && state.made < PARTS {
            state.made += 1;
            drop(state);
            let Some(memory) = self.spare.memory(Steps::MEMORY) else {
                self.lock().made -= 1;
                return None;
            };
            sheet = Some(Sheet { steps: Steps::new(), _memory: memory });
        }
        let mut sheet = sheet?;
        sheet.steps.clear();
        Some(Lent { sheet: Some(sheet), board: Arc::clone(self) })
    }

    /// Gives memory back that nobody uses.
    pub(super) fn shrink(&self) {
        let free = {
            let mut state = self.lock();
            state.made -= state.free.len();
            std::mem::take(&mut state.free)
        };
        drop(free);
    }
}

impl Lent {
    pub(super) fn get(&self) -> &Steps {
        &self.sheet.as_ref().expect("there until it is dropped").steps
    }

    pub(super) fn get_mut(&mut self) -> &mut Steps {
        &mut self.sheet.as_mut().expect("there until it is dropped").steps
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.board.lock().free.extend(self.sheet.take());
    }
}
