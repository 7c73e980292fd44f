//! [`Cores`]: how many threads of layers are at work, so that helpers start only where a core would idle. What waits for
//! bytes or for room is not at work. It counts what it is told; other processes are not seen. Used by the threads of layers
//! and by what parallel inflation asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The cores of this machine, as far as the process may use them. Clones share it.
#[derive(Clone)]
pub(crate) struct Cores(Arc<Counts>);

struct Counts {
    cores: usize,
    busy: AtomicUsize,
}

/// One thread at work.
pub(crate) struct Busy(Cores);

impl Cores {
    pub(crate) fn new(cores: usize) -> Self {
        Self(Arc::new(Counts { cores, busy: AtomicUsize::new(0) }))
    }

    /// A thread begins to work.
    pub(crate) fn work(&self) -> Busy {
        self.0.busy.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    /// A thread more, if a core is idle.
    pub(crate) fn try_work(&self) -> Option<Busy> {
        let busy = &self.0.busy;
        let more = |busy| (busy < self.0.cores).then_some(busy + 1);
        busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Busy(self.clone()))
    }
}

impl Busy {
    /// Waits for something, which is no work.
    pub(crate) fn pause<T>(&self, wait: impl FnOnce() -> T) -> T {
        let busy = &self.0.0.busy;
        busy.fetch_sub(1, Ordering::Relaxed);
        let result = wait();
        busy.fetch_add(1, Ordering::Relaxed);
        result
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_only_for_idle_cores() {
        let cores = Cores::new(2);
        let first = cores.work();
        let helper = cores.try_work().expect("one is idle");
        assert!(cores.try_work().is_none());
        let second = first.pause(|| cores.try_work()).expect("one waits");
        assert!(cores.try_work().is_none(), "three work now");
        drop((helper, second));
        assert!(cores.try_work().is_some());
    }
}
