//! [`Puller`]: whose turn it is. Serial pulls go one by one, parallel ones up to a number or without limit, in the
//! order in which they came.
//!
//! The kubelet has a queue of ten, before which further callers block, and a worker that outlives its callers. Here a
//! caller waits and pulls in its own future, in one fair queue of any length: the order is the same, and a caller that
//! goes away leaves the queue or stops its pull.

use tokio::sync::{Semaphore, SemaphorePermit};

/// How many pulls there may be at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullerOptions {
    /// One at a time (`serializeImagePulls`).
    pub serialize: bool,
    /// Where they are not serial: at most so many (`maxParallelImagePulls`); `None` and 0: no limit.
    pub max_parallel: Option<usize>,
}

impl Default for PullerOptions {
    fn default() -> Self {
        Self { serialize: true, max_parallel: None }
    }
}

impl PullerOptions {
    fn limit(self) -> Option<usize> {
        if self.serialize { Some(1) } else { self.max_parallel.filter(|&limit| limit > 0) }
    }
}

/// Gives turns.
#[derive(Debug)]
pub(crate) struct Puller {
    /// One permit for each pull that may run; `None`: no limit.
    turns: Option<Semaphore>,
}

/// The right to pull, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    /// Whether others were before us, so that what was true before may be no longer.
    pub(crate) waited: bool,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Puller {
    pub(crate) fn new(options: PullerOptions) -> Self {
        let limit = options.limit().map(|limit| limit.min(Semaphore::MAX_PERMITS));
        Self { turns: limit.map(Semaphore::new) }
    }

    /// Waits for a turn. Dropping the future leaves the queue.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        let Some(turns) = &self.turns else { return Turn { waited: false, _permit: None } };
        if let Ok(permit) = turns.try_acquire() {
            return Turn { waited: false, _permit: Some(permit) };
        }
        let permit = turns.acquire().await.expect("nobody closes this semaphore");
        Turn { waited: true, _permit: Some(permit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let limit = |serialize, max_parallel| PullerOptions { serialize, max_parallel }.limit();
        assert_eq!(PullerOptions::default().limit(), Some(1));
        assert_eq!(limit(true, Some(5)), Some(1));
        assert_eq!(limit(false, Some(5)), Some(5));
        assert_eq!(limit(false, Some(0)), None);
        assert_eq!(limit(false, None), None);
        let _ = Puller::new(PullerOptions { serialize: false, max_parallel: Some(usize::MAX) });
    }
}
