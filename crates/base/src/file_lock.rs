//! [`FileLock`]: an advisory lock (`flock`) on an open file, released at once when dropped.

use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;

use rustix::fs::{FlockOperation, flock};

/// An open file with an advisory lock (`flock`), released when dropped. Closing the file would not do: a program that
/// another thread starts has a copy of the descriptor until its `exec`, and the lock would last until then.
#[derive(Debug)]
pub struct FileLock<F: AsFd>(F);

impl<F: AsFd> FileLock<F> {
    /// Takes over an open file on which the caller has just taken the lock.
    pub fn new(locked: F) -> Self {
        Self(locked)
    }
}

impl<F: AsFd> Deref for FileLock<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.0
    }
}

impl<F: AsFd> DerefMut for FileLock<F> {
    fn deref_mut(&mut self) -> &mut F {
        &mut self.0
    }
}

impl<F: AsFd> Drop for FileLock<F> {
    fn drop(&mut self) {
        // Fails for no open file; closing it unlocks as well.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn duplicated_descriptor_does_not_keep_the_lock() {
        // A file that no other process locks.
        let open = || File::open(std::env::current_exe().unwrap()).unwrap();
        let try_lock = |file: &File| flock(file, FlockOperation::NonBlockingLockExclusive);
        let (first, second) = (open(), open());
        try_lock(&first).unwrap();
        let lock = FileLock::new(first);
        let copy = lock.try_clone().unwrap();
        try_lock(&second).unwrap_err();
        drop(lock);
        try_lock(&second).unwrap();
        drop(copy);
    }
}
