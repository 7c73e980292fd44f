//! [`Hashing`]: a digest over an ordered sequence of pieces, computed by whichever thread would otherwise wait. It
//! needs no thread of its own: of the two threads of a layer, the one that is ahead does the hashing, so that both
//! cores are evenly busy. It does not know what it hashes. Used for the digests of blobs and of tar streams.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};

use oci::{Algorithm, Digest, Hasher};

use base::lock::Mutex;

/// Work that a thread can do while it waits.
pub(crate) trait Chore: Send + Sync {
    /// Does a little work, some hundred microseconds. Returns false if there is nothing to do.
    fn step(&self) -> bool;
}

/// Work that is done on every piece in addition to hashing it.
pub(crate) type Tee = Box<dyn FnMut(&[u8]) + Send>;

/// A digest in the making.
pub(crate) struct Hashing<P> {
    /// Pieces that are yet to be hashed.
    pieces: Mutex<VecDeque<P>>,
    /// Held by the thread that hashes. Pieces are taken only under this lock, which keeps their order.
    hasher: Mutex<HasherState>,
    /// The digest will not be asked for.
    forgone: AtomicBool,
}

struct HasherState {
    hasher: Option<Hasher>,
    tee: Option<Tee>,
}

impl<P: AsRef<[u8]>> Hashing<P> {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        Self::with(algorithm, None)
    }

    /// Hashing of pieces that are handed on as well, in order.
    pub(crate) fn with(algorithm: Algorithm, tee: Option<Tee>) -> Self {
        let hasher = Mutex::new(HasherState { hasher: Some(algorithm.hasher()), tee });
        Self { pieces: Mutex::default(), hasher, forgone: AtomicBool::new(false) }
    }

    /// Adds a piece. It is dropped when it has been hashed.
    pub(crate) fn push(&self, piece: P) {
        if !self.forgone.load(Ordering::Relaxed) {
            self.pieces().push_back(piece);
        }
    }

    /// The digest is known otherwise: what is added from now on is not hashed.
    pub(crate) fn forgo(&self) {
        self.forgone.store(true, Ordering::Relaxed);
    }

    /// The digest of all that was added; does what is left. The second call has nothing to give.
    pub(crate) fn finish(&self) -> Option<Digest> {
        let mut inner = self.hasher.lock();
        while self.next(&mut inner) {}
        inner.tee = None;
        inner.hasher.take().map(Hasher::finish)
    }

    /// Hashes the next piece, after the thread that is hashing now. Returns false if there is none. Unlike
    /// [`Chore::step`], it leaves no pieces to a thread that may stop after its current one: a caller that then waits
    /// for the space of the pieces would wait forever.
    pub(crate) fn step_in_turn(&self) -> bool {
        if self.pieces().is_empty() {
            return false;
        }
        let mut inner = self.hasher.lock();
        self.next(&mut inner)
    }

    fn next(&self, inner: &mut HasherState) -> bool {
        let Some(piece) = self.pieces().pop_front() else { return false };
        if let Some(hasher) = &mut inner.hasher {
            hasher.update(piece.as_ref());
        }
        if let Some(tee) = &mut inner.tee {
            tee(piece.as_ref());
        }
        true
    }

    fn pieces(&self) -> MutexGuard<'_, VecDeque<P>> {
        self.pieces.lock()
    }
}

impl<P: AsRef<[u8]> + Send> Chore for Hashing<P> {
    fn step(&self) -> bool {
        // Where the lock is taken, another thread is hashing.
        self.hasher.try_lock().is_some_and(|mut inner| self.next(&mut inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::lock::Mutex;
    use std::sync::Arc;

    #[test]
    fn many_hands_one_order() {
        let data: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&seen);
        let tee: Tee = Box::new(move |bytes| into.lock().extend_from_slice(bytes));
        let hashing = Hashing::with(Algorithm::Sha256, Some(tee));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        hashing.step();
                    }
                });
            }
            for piece in data.chunks(1000) {
                hashing.push(piece.to_vec());
            }
        });
        assert_eq!(hashing.finish(), Some(Digest::sha256(&data)));
        assert_eq!(*seen.lock(), data);
        assert_eq!(hashing.finish(), None);
        assert!(!hashing.step());
    }
    #[test]
    fn nothing_is_left_to_a_thread_that_may_end() {
        let (entered, enters) = std::sync::mpsc::channel();
        let (go, goes) = std::sync::mpsc::channel::<()>();
        let tee: Tee = Box::new(move |bytes| {
            if bytes == b"first" {
                entered.send(()).expect("the test waits");
                goes.recv().expect("the test goes on");
            }
        });
        let hashing = Hashing::with(Algorithm::Sha256, Some(tee));
        hashing.push(&b"first"[..]);
        hashing.push(&b"second"[..]);
        std::thread::scope(|scope| {
            // Ends after its piece, as a writer does whose disk is full.
            scope.spawn(|| hashing.step());
            enters.recv().expect("it hashes");
            assert!(!hashing.step(), "another thread hashes");
            let waits = scope.spawn(|| hashing.step_in_turn());
            go.send(()).expect("it waits");
            assert!(waits.join().expect("no panic"), "the second piece");
        });
        assert!(!hashing.step_in_turn());
        assert_eq!(hashing.finish(), Some(Digest::sha256(b"firstsecond")));
    }
}
