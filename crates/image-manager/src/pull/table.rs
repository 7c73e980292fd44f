//! [`Table`]: jobs by what they bring, and who waits for each. A job is in it from its first waiter until it ends, so
//! that whoever comes meanwhile joins it. It knows nothing of what the jobs do.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::hub::Hub;
use super::job::Ending;
use super::key::Key;
use super::order::Id;
use super::{Mark, Recheck};

/// Jobs by key.
#[derive(Default)]
pub(super) struct Table {
    /// Guards the entries. Nobody joins a job and no job ends without it; it is taken before a job's seats.
    jobs: Mutex<HashMap<Key, Arc<Job>>>,
}

/// A job, as its waiters see it.
pub(super) struct Job {
    pub(super) hub: Hub,
    /// Its place in the line.
    pub(super) place: Id,
    /// Whether it had its turn.
    begun: AtomicBool,
    /// Guards who waits.
    seats: Mutex<Seats>,
    /// How many wait.
    count: watch::Sender<usize>,
}

#[derive(Default)]
struct Seats {
    next: u64,
    /// In order of arrival.
    taken: BTreeMap<u64, Seat>,
}

/// One who waits.
struct Seat {
    answer: oneshot::Sender<Ending>,
    recheck: Option<Recheck>,
    mark: Mark,
}

/// One waiter's share of a job. Dropping it is leaving.
pub(super) struct Ticket {
    job: Arc<Job>,
    seat: u64,
    answer: oneshot::Receiver<Ending>,
    /// Whether the job was there before.
    pub(super) joined: bool,
}

/// Takes a job out of the table when it ends, also when it panics, and tells its waiters how it ended.
pub(super) struct Finish {
    table: Arc<Table>,
    key: Key,
    job: Arc<Job>,
    pub(super) ending: Option<Ending>,
}

impl Table {
    /// Joins the job for `key`, or enters the one that `start` makes and runs.
    pub(super) fn join(
        self: &Arc<Self>,
        key: Key,
        recheck: Option<Recheck>,
        mark: Mark,
        start: impl FnOnce() -> Started,
    ) -> Ticket {
        let mut jobs = self.lock();
        if let Some(job) = jobs.get(&key) {
            return job.sit(recheck, mark, true);
        }
        let Started { job, run } = start();
        let ticket = job.sit(recheck, mark, false);
        jobs.insert(key.clone(), Arc::clone(&job));
        drop(jobs);
        run(Finish { table: Arc::clone(self), key, job, ending: None });
        ticket
    }

    /// How many jobs there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// How many wait for them.
    #[cfg(test)]
    pub(super) fn seats(&self) -> usize {
        self.lock().values().map(|job| job.seats().taken.len()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Job>>> {
        self.jobs.lock()
    }

    fn remove(&self, key: &Key, job: &Arc<Job>) {
        let mut jobs = self.lock();
        if jobs.get(key).is_some_and(|entry| Arc::ptr_eq(entry, job)) {
            jobs.remove(key);
        }
    }
}

/// A new job, and what runs it once it is in the table.
pub(super) struct Started {
    pub(super) job: Arc<Job>,
    pub(super) run: Box<dyn FnOnce(Finish) + Send>,
}

impl Job {
    pub(super) fn new(hub: Hub, place: Id) -> Arc<Self> {
        let count = watch::Sender::new(0);
        Arc::new(Self { hub, place, begun: AtomicBool::new(false), seats: Mutex::default(), count })
    }

    /// It has its turn: from now on it lingers when it is left.
    pub(super) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// The next waiter that is to be asked again, by when it looked last. Each is answered once.
    pub(super) fn recheck(&self, outdated: impl Fn(Mark) -> bool) -> Option<(u64, Recheck)> {
        let mut seats = self.seats();
        seats.taken.iter_mut().filter(|(_, seat)| outdated(seat.mark)).find_map(|(id, seat)| {
            let recheck = seat.recheck.take()?;
            Some((*id, recheck))
        })
    }

    /// Answers one waiter before the job ends; it waits no longer.
    pub(super) fn serve(&self, seat: u64, ending: Ending) {
        if let Some(seat) = self.leave(seat) {
            // Where it has gone away, nobody is to be told.
            let _ = seat.answer.send(ending);
        }
    }

    fn sit(self: &Arc<Self>, recheck: Option<Recheck>, mark: Mark, joined: bool) -> Ticket {
        let (sender, answer) = oneshot::channel();
        let mut seats = self.seats();
        let id = seats.next;
        seats.next += 1;
        seats.taken.insert(id, Seat { answer: sender, recheck, mark });
        self.count.send_replace(seats.taken.len());
        Ticket { job: Arc::clone(self), seat: id, answer, joined }
    }

    fn leave(&self, seat: u64) -> Option<Seat> {
        let mut seats = self.seats();
        let seat = seats.taken.remove(&seat)?;
        self.count.send_replace(seats.taken.len());
        Some(seat)
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock()
    }
}

impl Ticket {
    pub(super) fn job(&self) -> &Job {
        &self.job
    }

    /// Waits for the answer; `None`: the job panicked.
    pub(super) async fn answer(&mut self) -> Option<Ending> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.job.leave(self.seat);
    }
}

impl Finish {
    pub(super) fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// Comes back when nobody has waited for `linger` (at once, where the job has not had its turn); the job is out of
    /// the table then, so that nobody joins what is given up.
    pub(super) async fn abandoned(&self, linger: Duration) {
        let mut count = self.job.count.subscribe();
        loop {
            let _ = count.wait_for(|count| *count == 0).await.expect("this job holds the sender");
            let begun = self.job.begun.load(Ordering::Relaxed);
            let linger = if begun { linger } else { Duration::ZERO };
            let back = async { count.wait_for(|count| *count > 0).await.is_ok() };
            if tokio::time::timeout(linger, back).await.is_err() && self.retire() {
                return;
            }
        }
    }

    /// Takes the job out of the table, if nobody waits for it; answers whether it did.
    pub(super) fn retire(&self) -> bool {
        let mut jobs = self.table.lock();
        let empty = self.job.seats().taken.is_empty();
        if empty && jobs.get(&self.key).is_some_and(|entry| Arc::ptr_eq(entry, &self.job)) {
            jobs.remove(&self.key);
        }
        empty
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        // Out of the table first: whoever looks from now on finds what is true now, not a job that is over.
        self.table.remove(&self.key, &self.job);
        let seats = std::mem::take(&mut self.job.seats().taken);
        for seat in seats.into_values() {
            if let Some(ending) = &self.ending {
                let _ = seat.answer.send(ending.clone());
            }
        }
    }
}
