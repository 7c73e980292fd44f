//! [`Stripes`]: one turn at a time for each key, by a fixed number of locks. Waiting costs no thread.

use std::hash::{BuildHasher as _, RandomState};

use tokio::sync::{Mutex, MutexGuard};

/// See the module. Keys that share a stripe wait for each other as well.
#[derive(Debug)]
pub(super) struct Stripes {
    /// Each guards the files of the keys that fall on it.
    locks: Vec<Mutex<()>>,
    hasher: RandomState,
}

impl Stripes {
    /// As many stripes as asked for, but at least one and at most 1024.
    pub(super) fn new(count: usize) -> Self {
        let locks = (0..count.clamp(1, 1024)).map(|_| Mutex::default()).collect();
        Self { locks, hasher: RandomState::new() }
    }

    /// Waits for the turn of `key`.
    pub(super) async fn turn(&self, key: &str) -> MutexGuard<'_, ()> {
        let count = u64::try_from(self.locks.len()).expect("at most 1024");
        let at = usize::try_from(self.hasher.hash_one(key) % count).expect("less than the number of stripes");
        self.locks[at].lock().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn any_number_of_stripes_works() {
        for (asked, got) in [(0, 1), (1, 1), (10, 10), (500, 500), (usize::MAX, 1024)] {
            let stripes = Stripes::new(asked);
            assert_eq!(stripes.locks.len(), got);
            for i in 0..2_000 {
                drop(stripes.turn(&format!("key{i}")).await);
            }
        }
    }

    #[tokio::test]
    async fn one_key_has_one_turn() {
        let stripes = Stripes::new(64);
        let turn = stripes.turn("a").await;
        assert!(futures_poll(stripes.turn("a")).is_none());
        drop(turn);
        assert!(futures_poll(stripes.turn("a")).is_some());
    }

    /// The output of a future that is ready at its first poll.
    fn futures_poll<F: Future>(future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
}
