//! [`blocking`]: work that waits for a disk, kept off the async threads.

use tokio::task::JoinHandle;

/// Runs `work` on a thread that may block. Returns `None` if the runtime shuts down before it begins. A panic of `work`
/// resumes in the caller.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    joined(tokio::task::spawn_blocking(work)).await
}

/// Waits for a task. Returns `None` if the runtime shuts down first. A panic of the task resumes in the caller.
pub async fn joined<T>(task: JoinHandle<T>) -> Option<T> {
    match task.await {
        Ok(value) => Some(value),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_cancelled) => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn blocking_call_returns_its_value() {
        assert_eq!(blocking(|| 7).await, Some(7));
    }

    #[tokio::test]
    #[should_panic(expected = "on purpose")]
    async fn panic_propagates_to_the_caller() {
        blocking(|| panic!("on purpose")).await.unwrap_or(())
    }
}
