//! One region decoded by a helper, without knowing what was before: it looks for the beginning of a block and decodes with
//! markers until none is in the last window, then bytes. It ends at the first block behind its region, when it has made
//! as much as it may, or soon after it is told to stop; whatever it has then is good for whoever gets to where it began.
//! Called by `parallel`, on a thread of the process that has nothing else to do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::ahead::{OVERLAP, REGION, Region};
use crate::Held;
use crate::deflate::{At, Decoder, MARGIN, MARKER, Stop, WINDOW, search};

/// What one job makes at most, in bytes of the tar stream.
const LIMIT: usize = 5 * REGION;
/// It looks whether it is to stop after so many.
const STEP: usize = 64 * 1024;
/// Many times as long as such a step takes.
const PATIENCE: Duration = Duration::from_millis(5);
/// Memory that one job has at most: its region, and two bytes for each byte of output.
pub(super) const MEMORY: usize = REGION + OVERLAP + 2 * (LIMIT + LIMIT / 4);

/// What a job made, with the memory that it lies in.
pub(super) struct Chunk {
    /// The bit where it began, with a block.
    pub(super) start: u64,
    /// Bytes and markers.
    pub(super) marked: Vec<u16>,
    /// Bytes, after those.
    pub(super) plain: Vec<u8>,
    /// Where it ended.
    pub(super) decoder: Decoder,
}

enum Progress {
    /// Nobody has begun.
    Waiting,
    /// Looks for a block.
    Searching,
    /// Decodes from here, as far as is known now.
    Found(u64),
    /// It is over.
    Over(Option<Box<Chunk>>),
}

struct Shared {
    progress: Mutex<Progress>,
    /// Of every change.
    changed: Condvar,
    stop: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, progress: Progress) {
        *self.lock() = progress;
        self.changed.notify_all();
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A job, seen by who wants its result. Dropping it tells it to stop.
pub(super) struct Job {
    shared: Arc<Shared>,
    /// Number of the region.
    pub(super) region: usize,
    _memory: Held,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
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

impl Job {
    /// A job for a region, and what a helper has to do.
    pub(super) fn new(number: usize, region: Region, memory: Held) -> (Self, crate::Work) {
        let shared = Shared { progress: Mutex::new(Progress::Waiting), changed: Condvar::new(), stop: false.into() };
        let shared = Arc::new(shared);
        let worker = Worker(Arc::clone(&shared));
        (Self { shared, region: number, _memory: memory }, Box::new(move || worker.run(&region)))
    }

    /// Where it began. A job that nobody has begun by now is given up.
    pub(super) fn began(&self) -> Began {
        match &*self.shared.lock() {
            Progress::Found(bit) => Began::At(*bit),
            Progress::Over(Some(chunk)) => Began::At(chunk.start),
            Progress::Searching => Began::Looking,
            Progress::Waiting | Progress::Over(None) => Began::Not,
        }
    }

    /// Stops it, and takes what it has. It looks often whether to stop; where it does not for so long, its core is not idle after
    /// all, and what it has is not worth waiting for.
    pub(super) fn take(self) -> Option<Box<Chunk>> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let busy = |progress: &mut Progress| matches!(progress, Progress::Searching | Progress::Found(_));
        let waited = self.shared.changed.wait_timeout_while(self.shared.lock(), PATIENCE, busy);
        let (mut progress, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Progress::Over(chunk) = &mut *progress { chunk.take() } else { None }
    }
}

/// The side that works; however it goes away, nobody waits for it then.
struct Worker(Arc<Shared>);

impl Drop for Worker {
    fn drop(&mut self) {
        let mut progress = self.0.lock();
        if !matches!(*progress, Progress::Over(_)) {
            *progress = Progress::Over(None);
        }
        drop(progress);
        self.0.changed.notify_all();
    }
}

impl Worker {
    fn run(self, region: &Region) {
        if self.0.stopped() {
            return;
        }
        self.0.tell(Progress::Searching);
        let mut decoder = Decoder::new(region.start * 8);
        let mut from = region.start * 8;
        let stop = || self.0.stopped();
        while let Some(bit) = search(&mut decoder, &region.data, region.start, from, region.end * 8, &stop) {
            self.0.tell(Progress::Found(bit));
            decoder.place(bit);
            if let Some((marked, plain)) = self.decode(&mut decoder, region) {
                self.0.tell(Progress::Over(Some(Box::new(Chunk { start: bit, marked, plain, decoder }))));
                return;
            }
            // That was no block.
            self.0.tell(Progress::Searching);
            from = bit + 1;
        }
    }

    /// Decodes from the block that the decoder stands before; `None` if there is none.
    fn decode(&self, decoder: &mut Decoder, region: &Region) -> Option<(Vec<u16>, Vec<u8>)> {
        let end = region.last.unwrap_or(u64::MAX).saturating_mul(8);
        let mut marked: Vec<u16> = Vec::new();
        let mut plain: Vec<u8> = Vec::new();
        let (mut at, mut plain_at) = (0, 0);
        let mut window: Option<Vec<u8>> = None;
        loop {
            // At most this is asked for at once: so often it is looked whether to stop.
            let result = if let Some(window) = &window {
                grow(&mut plain, plain_at);
                let room = plain.len().min(plain_at + STEP + MARGIN);
                let result = decoder.decode(&region.data, region.start, &mut plain[..room], plain_at, &window[..]);
                result.map(|(to, stop)| {
                    plain_at = to;
                    stop
                })
            } else {
                grow(&mut marked, at);
                let room = marked.len().min(at + STEP + MARGIN);
                let result = decoder.decode(&region.data, region.start, &mut marked[..room], at, &());
                result.map(|(to, stop)| {
                    at = to;
                    stop
                })
            };
            let stop = result.ok()?;
            if decoder.bit() > end {
                return None;
            }
            let over = match stop {
                Stop::Input | Stop::End => true,
                Stop::Block => decoder.bit() >= region.end * 8,
                Stop::Room => false,
            };
            if over || at + plain_at >= LIMIT || self.0.stopped() {
                marked.truncate(at);
                plain.truncate(plain_at);
                return Some((marked, plain));
            }
            if window.is_none() && matches!(decoder.at(), At::Block) {
                window = clean(&marked[..at]);
            }
        }
    }
}

/// Makes room for a step more.
fn grow<T: Copy + Default>(out: &mut Vec<T>, at: usize) {
    let wanted = at + STEP + MARGIN;
    if out.len() < wanted {
        out.reserve_exact(wanted.max(at + LIMIT / 8) - out.len());
        out.resize(out.capacity(), T::default());
    }
}

/// The last window, if no marker is in it.
fn clean(marked: &[u16]) -> Option<Vec<u8>> {
    let window = marked.last_chunk::<WINDOW>()?;
    if window.iter().fold(0, |all, symbol| all | symbol) >= MARKER {
        return None;
    }
    Some(window.iter().map(|symbol| symbol.to_le_bytes()[0]).collect())
}
