//! Blocking work and its end: everything that hashes, inflates or touches the disk runs through here, on tracked
//! blocking threads, so that shutdown can wait for it. Used by every module of the engine.

use std::io;

use cri_api::Result;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::error;

/// Where blocking work runs.
#[derive(Clone)]
pub(crate) struct Background {
    tracker: TaskTracker,
    handle: Handle,
}

impl Background {
    /// Within a tokio runtime.
    pub(crate) fn new(tracker: TaskTracker) -> Self {
        Self { tracker, handle: Handle::current() }
    }

    /// Starts blocking work.
    pub(crate) fn start<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        // The runtime may have to start a thread for it, which would be as confined as this one, for good.
        debug_assert!(!store::is_confined(), "a thread that unpacks starts nothing that outlives it");
        self.tracker.spawn_blocking_on(work, &self.handle)
    }

    /// Starts work on a thread of its own: work that waits for other jobs, or that another job waits for while it
    /// occupies a blocking thread. When no more blocking threads can be started, the runtime would queue such work
    /// behind the jobs that wait for it, or that it waits for.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn on_own_thread<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<oneshot::Receiver<T>> {
        debug_assert!(!store::is_confined(), "a thread that unpacks starts nothing that outlives it");
        let (sender, answer) = oneshot::channel();
        let (handle, token) = (self.handle.clone(), self.tracker.token());
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Until the end, that of a panic included.
            let _token = token;
            let _runtime = handle.enter();
            // The send fails if no caller is waiting any more.
            let _ = sender.send(work());
        })?;
        Ok(answer)
    }

    /// Does blocking work and waits for it. It runs to its end even when the future is dropped.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        self.start(work).await.unwrap_or_else(|_| Err(error::thread_lost()))
    }

    /// Waits for a future on a thread that may block.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Drops a value on a blocking thread and waits until that is done.
    pub(crate) async fn discard<T: Send + 'static>(&self, value: T) {
        // A panic while dropping has been reported by then, and no caller needs the result.
        let _ = self.start(move || drop(value)).await;
    }

    /// Wraps a value whose drop may touch the disk.
    pub(crate) fn hold<T: Send + Sync + 'static>(&self, value: T) -> BlockingDrop<T> {
        BlockingDrop { value: Some(value), background: self.clone() }
    }
}

/// A value that is dropped on a blocking thread.
pub(crate) struct BlockingDrop<T: Send + Sync + 'static> {
    value: Option<T>,
    background: Background,
}

impl<T: Send + Sync + 'static> BlockingDrop<T> {
    /// The value, for a thread that may block.
    pub(crate) fn into_inner(mut self) -> T {
        self.value.take().expect("only this and drop take it")
    }
}

impl<T: Send + Sync + 'static> std::ops::Deref for BlockingDrop<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("taken only at the end")
    }
}

impl<T: Send + Sync + 'static> std::ops::DerefMut for BlockingDrop<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("taken only at the end")
    }
}

impl<T: Send + Sync + 'static> Drop for BlockingDrop<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            // Detached on purpose: the tracker knows of it.
            drop(self.background.start(move || drop(value)));
        }
    }
}
