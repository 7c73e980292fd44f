//! A mutex and a condition variable for two threads that hand each other buffers thousands of times: the standard library's, never
//! poisoned. With `parking_lot`'s the threads of a layer wait longer for each other, and a large pull takes 3 to 9 % more time
//! (decision 91). Used by [`crate::ring`] and [`crate::hashing`].
#![expect(clippy::disallowed_types, reason = "this module makes of them what the others may use")]

use std::sync::{self, MutexGuard, PoisonError, TryLockError};

/// A mutex that a panic does not poison.
#[derive(Default)]
pub(crate) struct HandoffMutex<T>(sync::Mutex<T>);

impl<T> HandoffMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `None` while another thread has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition variable for a [`HandoffMutex`].
#[derive(Default)]
pub(crate) struct HandoffCondvar(sync::Condvar);

impl HandoffCondvar {
    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }
}
