//! Work that waits for a disk, off the async threads.

/// Runs `work` on a blocking thread and hands its panic on. Returns `None` if it was not begun because the process ends.
pub(crate) async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Some(result),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_cancelled) => None,
        },
    }
}
